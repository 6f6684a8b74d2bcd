"""SPEC 6.2, 6.4, 6.7: rates, factors, triggers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from splitveil.core.sections import Train
from splitveil.training.engine import Engine
from splitveil.training.schedule import is_active, learning_rate, lr_factor, privacy_weight, stage


@pytest.mark.parametrize(("lr", "factor"), [(0.05, 0.02), (0.01, 0.1), (0.002, 0.5), (4e-4, 1.0), (8e-5, 1.0)])
def test_s6_2_wlr_released(lr: float, factor: float) -> None:
    assert lr_factor("released", lr) == pytest.approx(factor)


def test_s6_2_wlr_is_discontinuous_only_when_released() -> None:
    assert lr_factor("released", 4.2e-4) == pytest.approx(2.381, abs=5e-4)
    assert lr_factor("released", 4.099e-4) == 1.0
    assert lr_factor("released", 4.1e-4) == pytest.approx(1e-3 / 4.1e-4)  # 1 only if lr < 4.1e-4 (SPEC 6.4)
    assert lr_factor("capped", 4.2e-4) == 1.0
    assert lr_factor("capped", 0.05) == pytest.approx(0.02)
    assert lr_factor("off", 0.05) == 1.0


@pytest.mark.parametrize(
    ("epoch", "lr"),
    [
        (1, 0.0),
        (2, 0.05),
        (59, 0.05),
        (60, 0.01),
        (119, 0.01),
        (120, 0.002),
        (180, 4e-4),
        (209, 4e-4),
        (210, 8e-5),
        (240, 8e-5),
    ],
)
def test_multistep_follows_the_table_of_spec_6_4(epoch: int, lr: float) -> None:
    assert learning_rate(Train(epochs=240, first_epoch_lr="zero"), epoch) == pytest.approx(lr)


def test_first_epoch_trains_by_default() -> None:
    assert learning_rate(Train(epochs=240), 1) == 0.05


def test_120_epochs_use_30_60_90_105() -> None:
    train = Train(epochs=120)
    drops = [e for e in range(2, 121) if learning_rate(train, e) < learning_rate(train, e - 1)]
    assert drops == [30, 60, 90, 105]


def test_cosine_starts_at_lr_and_ends_above_lr_min() -> None:
    train = Train(epochs=10, schedule="cosine", lr=0.1, lr_min=0.01)
    assert learning_rate(train, 1) == pytest.approx(0.1)
    assert learning_rate(train, 6) == pytest.approx(0.055)
    assert learning_rate(train, 10) == pytest.approx(0.01 + 0.045 * (1 + math.cos(0.9 * math.pi)))


def test_the_first_active_epoch_is_warmup_plus_one_but_never_the_first() -> None:
    def first(**options: object) -> int:
        train = Train(epochs=20, **options)  # type: ignore[arg-type]
        return next(e for e in range(1, 21) if is_active(train, e))

    assert first(warmup_epochs=0) == 2
    assert first(warmup_epochs=1) == 2
    assert first(warmup_epochs=5) == 6
    assert not any(is_active(Train(epochs=20, warmup_epochs=0, privacy_weight=0.0), e) for e in range(1, 21))


def test_the_weight_ramps_up_linearly_after_warm_up() -> None:
    train = Train(epochs=20, warmup_epochs=3, ramp_epochs=4, privacy_weight=8.0)
    assert [privacy_weight(train, e) for e in (3, 4, 5, 6, 7, 8)] == [0.0, 2.0, 4.0, 6.0, 8.0, 8.0]


def test_the_ramp_begins_when_the_surrogate_reaches_the_encoder() -> None:
    train = Train(epochs=20, progressive=True, base_epochs=2, adapt_epochs=3, ramp_epochs=4, privacy_weight=8.0)
    assert [privacy_weight(train, e) for e in range(3, 11)] == [0.0, 0.0, 0.0, 2.0, 4.0, 6.0, 8.0, 8.0]


def test_without_a_weight_there_are_no_stages() -> None:
    train = Train(epochs=20, progressive=True, privacy_weight=0.0)
    assert {stage(train, epoch) for epoch in range(1, 21)} == {"joint"}


def test_progressive_stages() -> None:
    train = Train(epochs=20, progressive=True, base_epochs=2, adapt_epochs=3, warmup_epochs=0)
    assert [stage(train, e) for e in (1, 2, 3, 5, 6)] == ["task", "task", "adapt", "adapt", "joint"]
    assert not is_active(train, 2)
    assert is_active(train, 3)


def test_without_a_surrogate_progressive_training_wastes_no_epoch(make_engine: Callable[..., Engine]) -> None:
    stages = ("train.progressive=true", "train.base_epochs=1", "train.adapt_epochs=1")
    engines = [make_engine(*stages, name="staged"), make_engine(name="plain")]
    for engine in engines:
        engine.run()
    staged, plain = (engine.model.state_dict() for engine in engines)
    assert all(torch.equal(value, plain[name]) for name, value in staged.items())


@pytest.mark.parametrize("epochs", range(1, 13))
def test_the_first_epoch_runs_at_the_full_rate_however_short_the_run(epochs: int) -> None:
    train = Train(epochs=epochs, lr=0.05, schedule="multistep")
    assert learning_rate(train, 1) == 0.05
