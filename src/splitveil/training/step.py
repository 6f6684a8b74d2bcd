"""One training step (SPEC 6.1), written so that it can be captured: fixed shapes, nothing read on the host.

z = F_e(img);  R = s·rob(z, y);  z̃ = transmit(z);  L_task = CE(F_d(z̃), y) + terms of defences;  compose;  update
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from splitveil.data.augment import to_float
from splitveil.defences.base import Step
from splitveil.models.split import SplitModel
from splitveil.surrogates.base import Surrogate, SurrogateOutput
from splitveil.training.build import defences_of
from splitveil.training.compose import Composition
from splitveil.training.distributed import gather_batch, mean_over_processes
from splitveil.training.schedule import Stage

log = logging.getLogger("splitveil.training")

# numbers that only some surrogates report
GATES = ("gate_soft_mean", "gate_hard_mean", "base_mean", "var_mean")


def _autocast(x: Tensor, precision: torch.dtype, cache: bool = True) -> torch.autocast:
    enabled = precision is not torch.float32
    return torch.autocast(x.device.type, dtype=precision, enabled=enabled, cache_enabled=cache)


def _compiled(part: Callable[..., Any]) -> Callable[..., Any]:
    """`part`, compiled at its first call. Where that fails (no C++ compiler, for one) the reason is logged, and it runs
    as it is: compiling comes before computing, so nothing has happened yet."""
    from torch._dynamo.exc import TorchDynamoException  # takes seconds to import, and few runs compile

    best = torch.compile(part)

    def call(*args: Any) -> Any:
        nonlocal best
        try:
            return best(*args)
        except TorchDynamoException as error:
            if best is part:
                raise
            reason, name = " ".join(str(error).split())[:160], part.__name__.strip("_")
            log.warning("part '%s' of the step could not be compiled (%s); it runs as it is", name, reason)
            best = part
        return best(*args)

    return call


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
        self.own_classifier = surrogate is not None and getattr(surrogate.options, "classifier", "cloud") == "attention"
        self.fit_every: int = 1 if surrogate is None else getattr(surrogate.options, "fit_every", 1)
        self.side: torch.cuda.Stream | None = None
        self.encode, self.task, self.private = self._encode, self._task, self._private

    def accelerate(self, device: torch.device, compiled: bool) -> None:
        """Give the surrogate its stream; compile the three parts one by one (streams cannot cross a compiled graph)."""
        if device.type == "cuda":
            # high priority: a small kernel that waits behind a convolution delays the whole chain
            self.side = torch.cuda.Stream(device, priority=-1)
        if compiled:
            self.encode, self.task = _compiled(self._encode), _compiled(self._task)
            self.private = _compiled(self._private)
            for defence in defences_of(self.model):
                defence.accelerate(_compiled)

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
        with _autocast(x, self.precision):
            sent = self.model.transmit(z, noise)
        if self.has_adversaries and stage != "adapt":
            self.train_adversaries(Step(x, y, z.detach(), sent.detach(), None, epoch))
        result = self.task(x, y, z, sent, epoch)
        if private and self.side is not None:
            torch.cuda.current_stream(z.device).wait_stream(self.side)
        return result | private

    def _encode(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """x = pictures in [0, 1], z = F_e(x)."""
        x = to_float(images).contiguous(memory_format=torch.channels_last)
        with _autocast(x, self.precision):
            return x, self.model.edge(x)

    def _task(self, x: Tensor, y: Tensor, z: Tensor, sent: Tensor, epoch: int) -> dict[str, Tensor]:
        """L_task = CE(F_d(z̃), y) + terms of defences."""
        with _autocast(x, self.precision):
            logits = self._classify(sent)
            task = F.cross_entropy(logits.float(), y) + self._defence_terms(Step(x, y, z, sent, logits, epoch))
        return {"task": task, "correct": (logits.detach().argmax(dim=1) == y).float().mean()}

    def _private(self, z: Tensor, y: Tensor, epoch: int) -> dict[str, Tensor]:
        """R = s·rob and fit_loss, with the monitors."""
        assert self.surrogate is not None
        out = self.surrogate(z, y, epoch=epoch)
        return {
            **self._monitors(out),
            **({"fit_loss": out.fit_loss.detach()} if self.surrogate.fitting else {}),
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
                with _autocast(step.x, self.precision, cache=False), torch.enable_grad():
                    defence.train_adversary(step)

    def _defence_terms(self, step: Step) -> Tensor:
        total = step.z.new_zeros((), dtype=torch.float32)
        for defence in defences_of(self.model):
            term = defence.loss(step)
            if term is not None:
                total = total + term
        return total

    @staticmethod
    def _monitors(out: SurrogateOutput) -> dict[str, Tensor]:
        diagnostics = out.diagnostics
        zero = out.loss.new_zeros(())
        values = {
            "rob_loss": out.loss.detach(),
            "intra_mse": out.intra_mse,
            "intra_mse_raw": diagnostics["intra_mse_raw"],
            "shut": diagnostics.get("shut", zero).float(),
            "nonfinite_features": diagnostics["nonfinite"].float(),
            # the surrogate itself drops a class whose loss is not finite (SPEC 0.3); a count over the epoch
            "nonfinite_rob": (diagnostics["classes_nonfinite"] > 0).float(),
            "no_bank": diagnostics.get("no_bank", zero).float(),
            "classes": diagnostics["class_used"].sum().float(),
        }
        return values | {name: diagnostics[name].float() for name in GATES if name in diagnostics}


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
        self.optimiser.zero_grad(set_to_none=True)  # None, not zero: φ must not move while it is inactive (SPEC 6.3)
        kappa = self._lazy(self.kappa)
        out = self.module(
            images,
            y,
            kappa=kappa,
            stage=self.stage,
            active=self.acting,
            epoch=self.epoch,
            noise=self.noise,
        )
        self._backward(out, kappa)
        skipped = self._update(out["task"])
        numbers = {name: value for name, value in out.items() if name not in ("task", "rob", "fit")}
        numbers |= {"task_loss": out["task"].detach(), "skipped": skipped}
        self._accumulate(numbers)

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
        x = to_float(images).contiguous(memory_format=torch.channels_last)
        with _autocast(x, self.parts.precision):
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
        """Means over the steps of an epoch that gave a number; counts stay counts.

        The only host synchronisation of an epoch. `surrogate_steps` says in how many steps the surrogate acted.
        """
        totals: dict[str, float] = {}
        steps: dict[str, int] = {}
        for names, taken in self.taken.items():
            for name, value in zip(names, mean_over_processes(self.sums[names]).tolist(), strict=True):
                totals[name] = totals.get(name, 0.0) + value
                steps[name] = steps.get(name, 0) + taken
        counts = {"skipped", "nonfinite_rob"}
        means: dict[str, Any] = {n: v if n in counts else v / steps[n] for n, v in totals.items()}
        acted = {"surrogate_steps": steps["rob_loss"]} if "rob_loss" in steps else {}
        return means | {"steps": steps["task_loss"]} | acted
