"""The order of pictures in an epoch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from splitveil.core.config import load_config
from splitveil.core.errors import ConfigError
from splitveil.training.batches import epoch_order
from splitveil.training.engine import Engine

MakeEngine = Callable[..., Engine]


def test_every_picture_comes_once_and_the_last_batch_is_filled_up() -> None:
    order = epoch_order(torch.zeros(50, dtype=torch.long), 16, seed=1, epoch=2, balanced=None)
    assert len(order) == 64  # SPEC 6.1: full batches only
    assert order[:50].sort().values.tolist() == list(range(50))
    assert len(set(order[50:].tolist())) == 14


def test_balanced_batches_hold_p_classes_with_q_samples() -> None:
    labels = torch.arange(60) % 5
    order = epoch_order(labels, 6, seed=1, epoch=2, balanced=(3, 2))
    assert len(order) == 60
    for batch in order.split(6):
        assert len(set(batch.tolist())) == 6
        assert sorted(labels[batch].unique(return_counts=True)[1].tolist()) == [2, 2, 2]


def test_an_epoch_of_balanced_batches_has_as_many_pictures_as_any_other(make_engine: MakeEngine) -> None:
    engine = make_engine("train.batch_size=100000", "train.balanced_batches=[2, 4]")  # batch_size does not count
    size = len(engine.parts.train)
    assert engine.steps == -(-size // 8)
    assert sum(len(labels) for _, labels in engine._batches(1)) == engine.steps * 8


@pytest.mark.parametrize("value", ["[0, 5]", "[3, 0]", "[-2, -5]"])
def test_a_batch_of_nothing_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="at least 1 class with 1 sample"):
        load_config(overrides=[f"train.balanced_batches={value}"])
