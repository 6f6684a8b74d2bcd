"""A surrogate inside the Trainer of Hugging Face transformers.

Hugging Face's callbacks cannot touch the loss; the place made for it is `compute_loss`. So `with_surrogate` derives a
class from any Trainer class and adds weight·loss + fit_loss there: one backward pass, and gradient accumulation, mixed
precision, clipping and distributed training treat the sum like any loss. The surrogate becomes a submodule of the model
when the trainer is made, so that it moves, is optimised, checkpointed and resumed with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from splitveil.core.errors import InputError, MissingExtraError, UsageError
from splitveil.surrogates.base import Surrogate
from splitveil.training.integrations.term import EntropyTerm

try:
    from transformers import Trainer, TrainerCallback
except ImportError:
    raise MissingExtraError("transformers", "huggingface") from None


def with_surrogate(
    trainer_class: type[Trainer],
    surrogate: Surrogate,
    features: str,
    weight: float,
    *,
    warmup_epochs: int = 1,
    labels: str = "labels",
) -> type[Trainer]:
    """`trainer_class` with the surrogate in its training loss; evaluation is unchanged.

    `features` names the layer of the model whose output is sent (of a tuple, its first entry), `labels` the key of the
    class labels in a batch. `weight` is the whole factor on the loss: neither the surrogate's `loss_scale` nor
    `wlr` of a recipe is applied to it. After each epoch, surrogates with epoch statistics are refreshed with the
    training data. Use the derived class like the original. Before you publish the model:
    ``del model.splitveil_surrogate``.

    Example: ``with_surrogate(Trainer, surrogate, features="edge", weight=0.3)(model=model, args=args)``
    """
    term = EntropyTerm(surrogate, features, weight, warmup_epochs)

    class WithSurrogate(trainer_class):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            if self.args.n_gpu > 1:
                raise UsageError(
                    "Several GPUs in one process (DataParallel) split the batch that the surrogate must see whole.",
                    "Start the script with torchrun, or choose one GPU with CUDA_VISIBLE_DEVICES.",
                )
            term.attach(self.model)
            term.surrogate.to(self.args.device)
            self.add_callback(_Companion(self, term, labels))

        def call_model_init(self, trial: Any = None) -> Any:
            model = super().call_model_init(trial)
            term.attach(model)  # a trainer with `model_init` makes a fresh model for every training
            return model

        def compute_loss(
            self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, **kwargs: Any
        ) -> Any:
            epoch = int(self.state.epoch or 0) + 1
            if not (model.training and term.active(epoch)):
                return super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)
            y = _labels(inputs, labels)  # before the parent's method, which may remove them
            with term.listen(self.model) as heard:
                loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
            extra = term.extra(term.output(heard, y, epoch))
            loss = loss + extra / self._undivided(kwargs.get("num_items_in_batch"))
            return (loss, outputs) if return_outputs else loss

        def _undivided(self, items: Any) -> int:
            """Accumulation steps by which the parent will not divide, because the task loss is an average over all of
            them already (it was told their number of items)."""
            scaled = getattr(self, "loss_is_scaled_for_ga", None)
            if scaled is None:
                scaled = (self.model_accepts_loss_kwargs and items is not None) or self.compute_loss_func is not None
            steps = getattr(self, "current_gradient_accumulation_steps", self.args.gradient_accumulation_steps)
            return int(steps) if scaled else 1

    WithSurrogate.__name__ = WithSurrogate.__qualname__ = f"{trainer_class.__name__}WithSurrogate"
    return WithSurrogate


class _Companion(TrainerCallback):
    """Checks the optimiser when training begins; refreshes epoch statistics when an epoch ends."""

    def __init__(self, trainer: Trainer, term: EntropyTerm, labels: str) -> None:
        self.trainer, self.term, self.labels = trainer, term, labels

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self.term.begin([self.trainer.optimizer], "Add them to the optimiser that you pass, or pass none.")

    def on_epoch_end(self, *args: Any, **kwargs: Any) -> None:
        trainer = self.trainer
        if self.term.surrogate.refresh_needed:
            # the loader for tests: every picture once, and none of its workers are kept
            batches = map(trainer._prepare_inputs, trainer.get_test_dataloader(trainer.train_dataset))
            model = trainer.model
            self.term.refresh(model, batches, lambda b: model(**b), lambda b: _labels(b, self.labels))


def _labels(batch: Mapping[str, Any], key: str) -> Tensor:
    if key not in batch:
        raise InputError(f"A batch has no entry '{key}' (it has {', '.join(batch)}).", "Name it with labels=.")
    y: Tensor = batch[key]
    return y
