"""One training step (SPEC 6.1): losses, compose, guard, update; nothing is read on the host, so it can be captured."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor, nn

from splitveil.core.errors import reason
from splitveil.defences.base import Step
from splitveil.functional.processes import mean_over_processes
from splitveil.training.failures import is_out_of_memory
from splitveil.training.losses import StepModule
from splitveil.training.precision import autocast, network_input
from splitveil.training.schedule import Stage

log = logging.getLogger("splitveil.training")

COUNTS = ("skipped", "nonfinite_")  # how the names of numbers begin that are counted over an epoch, not averaged


class TrainStep:
    """Forward, backward, guard, update, and running sums, for one batch. Call it as often as you like, then `read`."""

    def __init__(
        self,
        module: nn.Module,
        step_module: StepModule,
        optimiser: torch.optim.SGD,
        device: torch.device,
        *,
        privacy_every: int = 1,
    ) -> None:
        self.module = module
        self.parts = step_module
        self.privacy_every = privacy_every
        self.optimiser = optimiser
        self.noise = torch.Generator(device=device)
        self.kappa = torch.zeros((), device=device)
        self.weight = torch.zeros((), device=device)
        self.names: tuple[str, ...] = ()  # of the numbers below, which a captured step writes to the same tensors
        self.newest = torch.zeros(0, device=device)  # the last step's numbers
        self.sums: dict[tuple[str, ...], Tensor] = {}  # their sums over the epoch, by names
        self.taken: dict[tuple[str, ...], int] = {}  # how many steps each sum has
        self.stage: Stage = "joint"
        self.active = False  # whether the surrogate acts in this epoch,
        self.acting = False  # and in this step
        self.proven: set[tuple[bool, bool, Stage]] = set()  # kinds of step that have run through once
        self.epoch = 1
        self.count = 0  # steps since the surrogate became active

    def __call__(self, images: Tensor, y: Tensor) -> None:
        """One step; leaves its numbers in `sums`."""
        self.turn()
        self.run(images, y)
        self.done()

    def turn(self) -> tuple[bool, bool]:
        """Begin the next step; returns whether the surrogate acts in it, and whether φ trains.

        Lazy regularisation (Karras et al., 2020, arXiv 1912.04958): acting in every n-th step with n times the weight
        gives the same mean gradient for less time.
        """
        surrogate, adapting = self.parts.surrogate, self.stage == "adapt"
        every = 1 if adapting else self.privacy_every
        self.acting = self.active and self.count % every == 0
        fitting = self.acting and (adapting or self.count // every % self.parts.fit_every == 0)
        self.count += 1
        if surrogate is not None:
            surrogate.fitting = fitting
        return self.acting, fitting

    def done(self) -> None:
        """End of a step: its numbers count."""
        self.taken[self.names] = self.taken.get(self.names, 0) + 1

    def run(self, images: Tensor, y: Tensor) -> None:
        """The step itself, as it is captured."""
        kind = (self.acting, self.parts.surrogate is not None and self.parts.surrogate.fitting, self.stage)
        try:
            out = self._gradients(images, y)
        except Exception as error:  # compiled code that breaks down when it first runs may raise anything
            if kind in self.proven or is_out_of_memory(error) or not self.parts.compiling.stop():
                raise
            # What the failed pass wrote stays: its batch counts twice in running statistics, and new noise is drawn.
            out = self._gradients(images, y)  # an error of the step itself comes again, and is raised
            log.warning("the compiled step failed (%s: %s); it runs as it is", type(error).__name__, reason(error))
        self.proven.add(kind)
        skipped = self._update(out["task"])
        numbers = {name: value for name, value in out.items() if name not in ("task", "rob", "fit")}
        numbers |= {"task_loss": out["task"].detach(), "skipped": skipped}
        self._accumulate(numbers)

    def _gradients(self, images: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Forward and backward; returns the losses and monitors."""
        self.optimiser.zero_grad(set_to_none=True)  # None, not zero: φ must not move while it is inactive (SPEC 6.3)
        kappa = self._lazy(self.kappa)
        out: dict[str, Tensor] = self.module(
            images,
            y,
            kappa=kappa,
            stage=self.stage,
            active=self.acting,
            epoch=self.epoch,
            noise=self.noise,
        )
        self._backward(out, kappa)
        return out

    def _lazy(self, weight: Tensor) -> Tensor:
        """The weight of a step that stands for `privacy_every` of them."""
        return weight if self.privacy_every == 1 else weight * self.privacy_every

    def _backward(self, out: dict[str, Tensor], kappa: Tensor) -> None:
        parts = self.parts
        if self.stage == "adapt":
            # stage 2 of `progressive`: the task still trains nothing; only φ learns, with factor 1
            if "rob" not in out:
                return
            total = out["rob"] + out["fit"]
            if total.requires_grad:
                total.backward()
            # DistributedDataParallel may have sent zeros to the network; with zero, not None, its weights would decay
            for parameter in parts.model.parameters():
                parameter.grad = None
            return
        if "rob" not in out:
            out["task"].backward()
            return
        parts.composition.backward(
            out["task"],
            out["rob"],
            out["fit"],
            weight=self._lazy(self.weight),
            kappa=kappa,
            encoder=[p for p in parts.model.edge.parameters() if p.requires_grad],
            own=[] if parts.surrogate is None else [p for p in parts.surrogate.parameters() if p.requires_grad],
        )

    @torch.no_grad()
    def pretrain(self, images: Tensor, y: Tensor, rounds_left: int) -> None:
        """Train only the adversaries that ask for at least so many epochs before the first."""
        model = self.parts.model
        x = network_input(images)
        with autocast(x.device, self.parts.precision):
            z = model.edge(x)
            sent = model.transmit(z, self.noise)
        self.parts.train_adversaries(Step(x, y, z, sent, None, 0), rounds_left)

    def _update(self, task: Tensor) -> Tensor:
        """SGD step unless a gradient or the loss is non-finite; returns 1 where the step was skipped."""
        gradients = [p.grad for group in self.optimiser.param_groups for p in group["params"] if p.grad is not None]
        if not gradients:
            return task.new_zeros(())
        # each of the small kernels below takes a GPU two microseconds: a maximum keeps NaN and Inf, and neither minus
        # itself is zero
        largest = torch.stack([*torch._foreach_norm(gradients), task.detach().abs()]).amax()
        bad = (largest - largest != 0).float()
        if task.device.type == "cuda":
            # the fused kernel reads the flag on the device: no synchronisation, so the step can be captured
            self.optimiser.found_inf, self.optimiser.grad_scale = bad, None  # type: ignore[attr-defined]
            self.optimiser.step()
        elif not bool(bad):
            self.optimiser.step()
        return bad

    def _accumulate(self, numbers: dict[str, Tensor]) -> None:
        """One vector for all numbers: a dozen small kernels per number would cost more than the surrogate itself."""
        self.names = tuple(numbers)
        self.newest = torch.stack([value.float() for value in numbers.values()])
        finite = torch.nan_to_num(self.newest, nan=0.0, posinf=0.0, neginf=0.0)
        if self.names in self.sums:
            self.sums[self.names] += finite
        else:
            self.sums[self.names] = finite.double()

    def reset(self, count: int = 0) -> None:
        """Forget the running sums (in place: a captured step keeps writing to the same tensors).

        `count` is the number of steps since the surrogate became active, so that lazy steps begin with one that acts
        and keep their rhythm from epoch to epoch.
        """
        self.count = count
        self.taken.clear()
        for value in self.sums.values():
            value.zero_()

    def read(self) -> dict[str, Any]:
        """Means over the steps of an epoch that gave a number; `skipped` and `nonfinite_...` are counts of steps.

        The only host synchronisation of an epoch. `surrogate_steps` says in how many steps the surrogate acted, and
        `fit_steps` in how many of them its own parameters were fitted.
        """
        totals: dict[str, float] = {}
        steps: dict[str, int] = {}
        for names, taken in self.taken.items():
            for name, value in zip(names, mean_over_processes(self.sums[names]).tolist(), strict=True):
                totals[name] = totals.get(name, 0.0) + value
                steps[name] = steps.get(name, 0) + taken
        means: dict[str, Any] = {n: v if n.startswith(COUNTS) else v / steps[n] for n, v in totals.items()}
        counted = {"task_loss": "steps", "rob_loss": "surrogate_steps", "fit_loss": "fit_steps"}
        return means | {counts: steps[number] for number, counts in counted.items() if number in steps}
