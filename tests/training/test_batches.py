"""The order of pictures in an epoch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from splitveil.core.config import load_config
from splitveil.core.errors import ConfigError
from splitveil.data.augment import Augmentation
from splitveil.training import engine as engine_module
from splitveil.training.batches import epoch_order
from splitveil.training.engine import Engine

MakeEngine = Callable[..., Engine]


def test_every_picture_comes_once_and_the_last_batch_is_filled_up() -> None:
    order = epoch_order(torch.zeros(50, dtype=torch.long), 16, seed=1, epoch=2, balanced=None)
    assert len(order) == 64  # SPEC 6.1: full batches only
    assert order[:50].sort().values.tolist() == list(range(50))
    assert len(set(order[50:].tolist())) == 14


@pytest.mark.parametrize("balanced", [None, (4, 4)])
def test_every_epoch_and_every_seed_has_an_order_of_its_own(balanced: tuple[int, int] | None) -> None:
    def order(seed: int, epoch: int) -> list[int]:
        return epoch_order(torch.arange(50) % 5, 16, seed, epoch, balanced).tolist()

    assert order(1, 2) == order(1, 2)
    assert order(1, 2) != order(1, 3)
    assert order(1, 2) != order(2, 2)


def test_every_epoch_moves_a_picture_in_its_own_way(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "epoch_order", lambda labels, size, *_: torch.arange(2 * size))
    engine = make_engine()
    engine.augmentation = Augmentation(crop=2, flip=True)
    first, again, second = (torch.cat([images for images, _ in engine._batches(epoch)]) for epoch in (1, 1, 2))
    assert torch.equal(first, again)
    assert (first != second).flatten(1).any(dim=1).float().mean() > 0.8  # two moves of a picture are rarely the same


def test_every_epoch_has_noise_of_its_own(make_engine: MakeEngine) -> None:
    """Transmission, dropout and the surrogate's own draws: the same in the same epoch, other ones in the next."""
    engine = make_engine(surrogate={"name": "slot_gated"})

    def draws(epoch: int) -> list[torch.Tensor]:
        engine.epoch = epoch
        engine._seed_streams()
        own = engine.surrogate.noise_generator  # type: ignore[union-attr]
        return [torch.rand(4, generator=source) for source in (engine.step.noise, torch.default_generator, own)]

    first, second = draws(1), draws(2)
    for epoch, earlier in ((2, second), (1, first)):
        assert all(torch.equal(a, b) for a, b in zip(draws(epoch), earlier, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    engine.rank = 1  # another process: it sends other pictures, but has the same surrogate on the global batch
    assert [torch.equal(a, b) for a, b in zip(draws(1), first, strict=True)] == [False, False, True]


def test_balanced_batches_hold_p_classes_with_q_samples() -> None:
    labels = torch.arange(60) % 5
    order = epoch_order(labels, 6, seed=1, epoch=2, balanced=(3, 2))
    assert len(order) == 60
    for batch in order.split(6):
        assert len(set(batch.tolist())) == 6
        assert sorted(labels[batch].unique(return_counts=True)[1].tolist()) == [2, 2, 2]


def test_balanced_batches_need_as_many_pictures_of_the_smallest_class() -> None:
    labels = torch.tensor([0] * 9 + [1] * 3)
    assert len(epoch_order(labels, 6, seed=1, epoch=1, balanced=(2, 3))) == 12
    with pytest.raises(ConfigError, match="the smallest with 3 pictures"):
        epoch_order(labels, 8, seed=1, epoch=1, balanced=(2, 4))


def test_an_epoch_of_balanced_batches_has_as_many_pictures_as_any_other(make_engine: MakeEngine) -> None:
    engine = make_engine("train.batch_size=100000", "train.balanced_batches=[2, 4]")  # batch_size does not count
    size = len(engine.parts.train)
    assert engine.steps == -(-size // 8)
    assert sum(len(labels) for _, labels in engine._batches(1)) == engine.steps * 8


@pytest.mark.parametrize("value", ["[0, 5]", "[3, 0]", "[-2, -5]"])
def test_a_batch_of_nothing_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="at least 1 class with 1 sample"):
        load_config(overrides=[f"train.balanced_batches={value}"])
