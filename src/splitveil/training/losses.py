"""A training step up to its losses (SPEC 6.1), fit to be captured: fixed shapes, nothing read on the host.

z = F_e(img);  R = s·rob(z, y);  z̃ = transmit(z);  L_task = CE(F_d(z̃), y) + terms of defences
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from splitveil.core.errors import InputError
from splitveil.defences.base import Defence, Step
from splitveil.models.split import SplitModel, transmitted
from splitveil.surrogates.base import Surrogate, SurrogateOutput
from splitveil.training.build import defences_of, own_classifier
from splitveil.training.compiling import Compiling
from splitveil.training.compose import Composition
from splitveil.training.distributed import gather_batch
from splitveil.training.guards import BAD_SENT, BAD_TERM
from splitveil.training.precision import autocast, network_input
from splitveil.training.schedule import Stage

# Single numbers that only some surrogates report keep their names; those of plug-ins, which may be called anything, are
# diag_NAME; what is told in a form of its own is left out.
GATES = ("gate_soft_mean", "gate_hard_mean", "base_mean", "var_mean")
USED = ("intra_mse_raw", "shut", "nonfinite", "fit_nonfinite", "classes_nonfinite", "no_bank", "labels_invalid")


class StepModule(nn.Module):
    """Everything of a step up to the losses. One module, so that DistributedDataParallel can wrap it.

    On a GPU the surrogate runs on a stream of its own beside the cloud half: its many small kernels fit into the gaps
    that the convolutions leave, forwards and backwards.
    """

    def __init__(
        self, model: SplitModel, surrogate: Surrogate | None, composition: Composition, precision: torch.dtype
    ) -> None:
        super().__init__()
        self.model = model
        self.surrogate = surrogate
        self.composition = composition
        self.precision = precision
        self.has_adversaries = any(defence.adversary is not None for defence in defences_of(model))
        self.own_classifier = own_classifier(surrogate) is not None
        self.fit_every: int = 1 if surrogate is None else getattr(surrogate.options, "fit_every", 1)
        self.side: torch.cuda.Stream | None = None
        self.compiling = Compiling()
        self.encode, self.task, self.private = self._encode, self._task, self._private

    def accelerate(self, device: torch.device, compile_parts: bool) -> None:
        """Give the surrogate its stream; compile the three parts one by one (streams cannot cross a compiled graph)."""
        # not where φ classifies as well: its parameters would get gradients from two streams (autograd warns)
        if device.type == "cuda" and not self.own_classifier:
            # high priority: a small kernel that waits behind a convolution delays the whole chain
            self.side = torch.cuda.Stream(device, priority=-1)
        if compile_parts:
            compiled = self.compiling.compiled
            self.encode, self.task, self.private = compiled(self._encode), compiled(self._task), compiled(self._private)
            for defence in defences_of(self.model):
                defence.accelerate(compiled)

    def forward(
        self, images: Tensor, y: Tensor, *, kappa: Tensor, stage: Stage, active: bool, epoch: int, noise: Any
    ) -> dict[str, Tensor]:
        """Losses and monitors as a flat dictionary (a form that DistributedDataParallel understands)."""
        x, z = self.encode(images)
        private: dict[str, Tensor] = {}
        if active and self.surrogate is not None:
            seen = z.detach() if stage == "adapt" else self.composition.enter(z, kappa)  # stage 2: only φ trains
            seen, labels = gather_batch(seen, y)
            if self.side is not None:
                self.side.wait_stream(torch.cuda.current_stream(z.device))
                for used in (seen, labels):
                    used.record_stream(self.side)  # backwards, too: its memory must not be given away before
            with nullcontext() if self.side is None else torch.cuda.stream(self.side):
                private = self.private(seen, labels, epoch)
        with autocast(x.device, self.precision):
            sent, blame = self._transmit(z, noise)
        if self.has_adversaries and stage != "adapt":
            self.train_adversaries(Step(x, y, z.detach(), sent.detach(), None, epoch))
        result = self.task(x, y, z, sent, epoch)
        if private and self.side is not None:
            torch.cuda.current_stream(z.device).wait_stream(self.side)
        return result | blame | private

    def _encode(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """x = pictures in [0, 1], z = F_e(x)."""
        x = network_input(images)
        with autocast(x.device, self.precision):
            return x, self.model.edge(x)

    def _transmit(self, z: Tensor, noise: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """z̃, and for each defence that changes what is sent whether it gave something that is not finite, as first."""
        names, sums = [], [z.detach().sum(dtype=torch.float32)]  # NaN and Inf stay in a sum
        for name, defence in zip(self.model.defences, defences_of(self.model), strict=True):
            learns, z = z.requires_grad, transmitted(z, [defence], noise)
            if learns and not z.requires_grad:
                raise InputError(
                    f"The defence '{name}' sends values without gradient, so that the edge half would learn nothing.",
                    "Where it rounds or chooses, send z + (chosen - z).detach() (docs/extending.md).",
                )
            if type(defence).transmit is not Defence.transmit:
                names.append(f"{BAD_SENT}{name}")
                sums.append(z.detach().sum(dtype=torch.float32))
        if not names:
            return z, {}
        bad = (~torch.isfinite(torch.stack(sums))).float()
        return z, dict(zip(names, bad.diff().clamp(min=0), strict=True))

    def _task(self, x: Tensor, y: Tensor, z: Tensor, sent: Tensor, epoch: int) -> dict[str, Tensor]:
        """L_task = CE(F_d(z̃), y) + terms of defences."""
        with autocast(x.device, self.precision):
            logits = self._classify(sent)
            terms = self._defence_terms(Step(x, y, z, sent, logits, epoch))
            task = F.cross_entropy(logits.float(), y) + sum(terms.values(), torch.zeros((), device=x.device))
        blame = {f"{BAD_TERM}{name}": (~torch.isfinite(term.detach())).float() for name, term in terms.items()}
        return {"task": task, "correct": (logits.detach().argmax(dim=1) == y).float().mean(), **blame}

    def _private(self, z: Tensor, y: Tensor, epoch: int) -> dict[str, Tensor]:
        """R = s·rob and fit_loss, with the monitors."""
        assert self.surrogate is not None
        out = self.surrogate(z, y, epoch=epoch)
        fit = {"fit_loss": out.fit_loss.detach(), "nonfinite_fit": out.diagnostics["fit_nonfinite"].float()}
        return {
            **self._monitors(out),
            **(fit if self.surrogate.fitting else {}),
            "rob": self.surrogate.options.loss_scale * out.loss,
            "fit": out.fit_loss,
        }

    def _classify(self, sent: Tensor) -> Tensor:
        if self.own_classifier:  # SPEC 2.3: these logits replace the cloud path, computed from what was sent
            return self.surrogate.classify(sent).logits  # type: ignore[union-attr,operator]
        return self.model.cloud(sent)

    def train_adversaries(self, step: Step, pretrain: int = 0) -> None:
        """Let defences train their own networks; with `pretrain`, only those that ask for so many epochs of it."""
        for defence in defences_of(self.model):
            if defence.adversary is not None and defence.pretrain_epochs >= pretrain:
                # no cache of cast weights: they change inside
                with autocast(step.x.device, self.precision, cache=False), torch.enable_grad():
                    defence.train_adversary(step)

    def _defence_terms(self, step: Step) -> dict[str, Tensor]:
        """The terms of those defences that have one, by the defence's name."""
        terms: dict[str, Tensor] = {}
        for name, defence in zip(self.model.defences, defences_of(self.model), strict=True):
            term = defence.loss(step)
            if term is None:
                continue
            if not isinstance(term, Tensor) or term.ndim:
                gave = f"the shape {list(term.shape)}" if isinstance(term, Tensor) else f"a {type(term).__name__}"
                raise InputError(f"{type(defence).__name__}.loss gave {gave}, not a tensor with one number, or None.")
            terms[name] = term
        return terms

    @staticmethod
    def _monitors(out: SurrogateOutput) -> dict[str, Tensor]:
        diagnostics = out.diagnostics
        classes, dropped = diagnostics["class_used"].sum(), diagnostics["classes_nonfinite"]
        zero = out.loss.new_zeros(())
        values = {
            "rob_loss": out.loss.detach(),
            "intra_mse": out.intra_mse,
            "intra_mse_raw": diagnostics["intra_mse_raw"],
            "shut": diagnostics.get("shut", zero).float(),
            "nonfinite_feature_steps": diagnostics["nonfinite"].float(),
            # the surrogate itself drops a class whose loss is not finite (SPEC 0.3): any, or half of them
            "nonfinite_rob": (dropped > 0).float(),
            "nonfinite_lost": (diagnostics["nonfinite"] | (dropped >= classes.clamp(min=1))).float(),
            "no_bank": diagnostics.get("no_bank", zero).float(),
            "classes": classes.float(),
        }
        single = {name: value.float() for name, value in diagnostics.items() if value.ndim == 0 and name not in USED}
        return values | {name if name in GATES else f"diag_{name}": value for name, value in single.items()}
