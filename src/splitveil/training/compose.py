"""Gradient composition (SPEC 6.3): how the task's gradient and the surrogate's meet on the encoder.

With R = s·rob, λ the privacy weight and w the learning-rate factor of SPEC 6.4:

    two_pass   θ.grad = ∇L_task + λ·w·∇R,  φ.grad = ∇R          two backward passes (N2, N3, N4; released)
    single     the same, in one backward pass (default): rob is evaluated at G_κ(z), κ = λ·w, where G_κ is the
               identity forwards and multiplies the gradient by κ backwards
    direct     θ.grad = ∇L_task + λ·∇R,    φ.grad = λ·∇R        one backward pass of L_task + λ·R (N0, N1)
    project    like two_pass, but where the two gradients on θ conflict (negative inner product) the surrogate's loses
               its component against the task's (Yu et al. 2020, "Gradient surgery")

θ are the encoder's parameters, φ the surrogate's own. `fit_loss` always reaches φ alone, with factor 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from splitveil.functional.graph import scale_gradient


class Composition:
    """Policy `single`; the others override what differs."""

    name = "single"
    passes = 1

    def enter(self, z: Tensor, kappa: Tensor) -> Tensor:
        """The feature as the surrogate sees it."""
        return scale_gradient(z, kappa)

    def total(self, task: Tensor, rob: Tensor, fit: Tensor, weight: Tensor) -> Tensor:
        """The loss of a policy that needs one backward pass. `rob` is R, already scaled by s."""
        return task + rob + fit

    def backward(
        self,
        task: Tensor,
        rob: Tensor,
        fit: Tensor,
        *,
        weight: Tensor,
        kappa: Tensor,
        encoder: Sequence[nn.Parameter],
        own: Sequence[nn.Parameter],
    ) -> None:
        """Fill the gradients. They must be None on entry."""
        self.total(task, rob, fit, weight).backward()


class Direct(Composition):
    """See the module docstring."""

    name = "direct"

    def enter(self, z: Tensor, kappa: Tensor) -> Tensor:
        return z

    def total(self, task: Tensor, rob: Tensor, fit: Tensor, weight: Tensor) -> Tensor:
        return task + weight * rob + fit


class TwoPass(Composition):
    """See the module docstring."""

    name = "two_pass"
    passes = 2

    def enter(self, z: Tensor, kappa: Tensor) -> Tensor:
        return z

    def backward(
        self,
        task: Tensor,
        rob: Tensor,
        fit: Tensor,
        *,
        weight: Tensor,
        kappa: Tensor,
        encoder: Sequence[nn.Parameter],
        own: Sequence[nn.Parameter],
    ) -> None:
        inputs, total = [*encoder, *own], rob + fit
        private: Sequence[Tensor | None] = [None] * len(inputs)
        if inputs and total.requires_grad:  # neither once a defence has frozen the encoder
            private = torch.autograd.grad(total, inputs, retain_graph=True, allow_unused=True)
        task.backward()
        self._add(encoder, private[: len(encoder)], kappa)
        for parameter, gradient in zip(own, private[len(encoder) :], strict=True):
            if gradient is not None:  # the task reaches φ too where the surrogate brings the classifier (SPEC 2.3)
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient

    def _add(self, encoder: Sequence[nn.Parameter], private: Sequence[Tensor | None], kappa: Tensor) -> None:
        for parameter, gradient in zip(encoder, private, strict=True):
            if gradient is not None:
                scaled = kappa * gradient
                parameter.grad = scaled if parameter.grad is None else parameter.grad + scaled


class Project(TwoPass):
    """See the module docstring."""

    name = "project"

    def _add(self, encoder: Sequence[nn.Parameter], private: Sequence[Tensor | None], kappa: Tensor) -> None:
        pairs = [(p.grad, g) for p, g in zip(encoder, private, strict=True) if p.grad is not None and g is not None]
        if not pairs:
            super()._add(encoder, private, kappa)
            return
        inner = torch.stack([(task * gradient).sum() for task, gradient in pairs]).sum()
        norm = torch.stack([task.square().sum() for task, _ in pairs]).sum()
        against = torch.clamp(inner, max=0.0) / norm.clamp_min(1e-12)  # 0 without conflict; guard: task gradient zero
        kept = [
            None if gradient is None else gradient if p.grad is None else gradient - against * p.grad
            for p, gradient in zip(encoder, private, strict=True)
        ]
        super()._add(encoder, kept, kappa)


POLICIES: dict[str, Composition] = {policy.name: policy for policy in (Composition(), Direct(), TwoPass(), Project())}
