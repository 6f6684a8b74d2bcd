"""Learning rate and surrogate weight as functions of the epoch (SPEC 6.2, 6.4, 6.7). Epochs count from 1."""

from __future__ import annotations

import math
from typing import Literal

from splitveil.core.sections import Train

Stage = Literal["task", "adapt", "joint"]


def milestones(train: Train) -> tuple[int, ...]:
    """Epochs from which the rate is lower: 60, 120, 180, 210 of 240 (SPEC 6.7), the same shares of other lengths.

    Fine-tuning: 30, 50, 70 of 80. SPEC does not name its length; with 80 the last stage is an eighth, as above.
    """
    if train.milestones is not None:
        return train.milestones
    shares = (0.25, 0.5, 0.75, 0.875) if train.init_from is None else (0.375, 0.625, 0.875)
    return tuple(sorted({max(2, round(train.epochs * share)) for share in shares}))


def learning_rate(train: Train, epoch: int) -> float:
    """Rate of one epoch."""
    if epoch == 1 and train.first_epoch_lr == "zero":
        return 0.0
    if train.schedule == "cosine":
        # lr_e = lr_min + ½(lr_0 − lr_min)(1 + cos(π·e/E)), e counted from 0 so that the first epoch runs at lr_0
        return train.lr_min + 0.5 * (train.lr - train.lr_min) * (1 + math.cos(math.pi * (epoch - 1) / train.epochs))
    if train.schedule == "multistep":
        return train.lr * train.gamma ** sum(epoch >= milestone for milestone in milestones(train))
    return train.lr


def lr_factor(rule: str | None, lr: float, fine_tuning: bool = False) -> float:
    """w_lr (SPEC 6.4): 1e-3/lr, or 1 once lr < 4.1e-4 or when fine-tuning; `capped` never exceeds 1; `off` is 1."""
    if rule == "off" or lr <= 0 or (rule == "released" and fine_tuning):
        return 1.0
    if rule == "capped":
        return min(1.0, 1e-3 / lr)
    return 1.0 if lr < 4.1e-4 else 1e-3 / lr


def is_active(train: Train, epoch: int) -> bool:
    """active = λ > 0 ∧ epoch > 1 ∧ epoch > warmup_epochs (SPEC 6.2), and not in the task stage."""
    started = epoch > 1 and epoch > (train.warmup_epochs or 0)
    return train.privacy_weight > 0 and started and stage(train, epoch) != "task"


def first_active(train: Train) -> int:
    """The first epoch in which the surrogate acts; 1 where it never does."""
    return next((epoch for epoch in range(1, train.epochs + 1) if is_active(train, epoch)), 1)


def stage(train: Train, epoch: int) -> Stage:
    """`progressive` (N0): task only, then only the surrogate learns, then everything."""
    if not train.progressive or train.privacy_weight == 0:  # without a surrogate there is nothing to wait for
        return "joint"
    if epoch <= train.base_epochs:
        return "task"
    return "adapt" if epoch <= train.base_epochs + train.adapt_epochs else "joint"


def privacy_weight(train: Train, epoch: int) -> float:
    """λ of one epoch: 0 until the surrogate acts on the encoder, then raised linearly where the recipe asks for it."""
    if not _reaches_encoder(train, epoch):
        return 0.0
    if not train.ramp_epochs:
        return train.privacy_weight
    first = next(e for e in range(1, epoch + 1) if _reaches_encoder(train, e))
    return train.privacy_weight * min(1.0, (epoch - first + 1) / train.ramp_epochs)


def _reaches_encoder(train: Train, epoch: int) -> bool:
    return is_active(train, epoch) and stage(train, epoch) == "joint"  # in stage "adapt" only φ learns
