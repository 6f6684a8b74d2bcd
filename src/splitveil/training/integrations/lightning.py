"""A Lightning callback that adds a surrogate to the loss of any LightningModule.

How it works, and why so. `setup` makes the surrogate a submodule, before optimisers are made and the strategy wraps
the model: it is on the right device, in the checkpoints, and in ``self.parameters()``. `training_step` is wrapped, and
its loss becomes task + weight·loss + fit_loss *before* Lightning sees it. So there is one backward pass, and gradient
accumulation, loss scaling, clipping and DistributedDataParallel treat the sum like any loss. (A second backward in
`on_before_backward` would miss the loss scale of 16-bit precision and break DistributedDataParallel.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import wraps
from itertools import islice
from typing import Any

from torch import Tensor

from splitveil.core.errors import MissingExtraError, UsageError
from splitveil.surrogates.base import Surrogate
from splitveil.training.integrations.term import NAME, EntropyTerm

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:
    raise MissingExtraError("lightning", "lightning") from None


def _second(batch: Any) -> Any:
    return batch[1]


def _forward_first(module: LightningModule, batch: Any) -> Any:
    return module(batch[0])


class SplitveilCallback(Callback):
    """Adds weight·loss + fit_loss of the features at the cut to what `training_step` returns.

    `features` names the layer whose output is sent (a dotted name in the LightningModule); `labels` finds the class
    labels in a batch, by default ``batch[1]``. After each epoch, surrogates with epoch statistics are refreshed with
    the training batches; for that, `forward` runs the model on a batch, by default ``module(batch[0])``. Noise and
    other defences stay in your model, behind the layer. `weight` is the whole factor on the loss: neither the
    surrogate's `loss_scale` nor `wlr` of a recipe is applied to it.

    Build your optimiser from ``self.parameters()``. Over several processes (`ddp`) the surrogate sees the global batch.
    To load a checkpoint without the callback, pass ``strict=False``.

    Example: ``Trainer(callbacks=[SplitveilCallback(surrogate, features="model.edge", weight=16.0)])``
    """

    def __init__(
        self,
        surrogate: Surrogate,
        features: str,
        weight: float,
        *,
        warmup_epochs: int = 1,
        labels: Callable[[Any], Tensor] = _second,
        forward: Callable[[LightningModule, Any], Any] = _forward_first,
    ) -> None:
        self.term = EntropyTerm(surrogate, features, weight, warmup_epochs)
        self.labels, self.forward = labels, forward

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        if not pl_module.automatic_optimization:
            raise UsageError(
                "SplitveilCallback cannot add to the loss of a module with manual optimisation.",
                "Call the surrogate in your training_step instead: loss + weight * out.loss + out.fit_loss.",
            )
        if trainer.precision in ("16-true", "bf16-true"):
            raise UsageError(
                f"Statistics of surrogates need float32; precision '{trainer.precision}' rounds them.",
                f"Use '{str(trainer.precision).replace('true', 'mixed')}'.",
            )
        self.term.attach(pl_module)
        pl_module.training_step = self._with_term(pl_module, pl_module.training_step)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        hint = f"Build your optimiser from self.parameters(), or add self.{NAME}.parameters() in configure_optimizers."
        self.term.begin(trainer.optimizers, hint)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self.term.surrogate.refresh_needed:
            return
        loader, size = trainer.train_dataloader, trainer.num_training_batches
        if isinstance(loader, dict | list | tuple):
            raise UsageError("Epoch statistics need a single training loader.", "Call surrogate.refresh(...) yourself.")
        plain = islice(loader, None if math.isinf(size) else int(size))
        batches = (trainer.strategy.batch_to_device(trainer.precision_plugin.convert_input(batch)) for batch in plain)
        self.term.refresh(pl_module, batches, lambda batch: self.forward(pl_module, batch), self.labels)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        step = vars(pl_module).get("training_step")
        if stage == "fit" and step is not None:
            pl_module.training_step = step.__wrapped__  # what was there before `setup`

    def _with_term(self, module: LightningModule, training_step: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(training_step)  # Lightning looks through `wraps` to see which arguments the step takes
        def step(batch: Any, *args: Any, **kwargs: Any) -> Any:
            epoch = module.current_epoch + 1
            if not self.term.active(epoch):
                return training_step(batch, *args, **kwargs)
            with self.term.listen(module) as heard:
                result = training_step(batch, *args, **kwargs)
            if result is None:  # the step asks to be skipped
                return None
            out = self.term.output(heard, self.labels(batch), epoch)
            names = {"rob_loss": out.loss, "intra_mse": out.intra_mse, **_gates(out.diagnostics)}
            module.log_dict({f"splitveil/{k}": v.detach() for k, v in names.items()}, on_step=False, on_epoch=True)
            if isinstance(result, Mapping):
                return {**result, "loss": result["loss"] + self.term.extra(out)}
            return result + self.term.extra(out)

        return step


def _gates(diagnostics: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: diagnostics[name] for name in ("gate_soft_mean", "gate_hard_mean") if name in diagnostics}
