"""Which pictures the epoch statistics come from (SPEC 1.2): clean ones, or augmented ones as in the released code."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests import worlds
from torch import Tensor

from splitveil.core.config import load_config
from splitveil.data.augment import Augmentation, to_float
from splitveil.data.dataset import ImageSet
from splitveil.training.engine import Engine
from splitveil.training.refresh import refresh

MakeEngine = Callable[..., Engine]
RELEASED = {"name": "gmm", "preset": "gmm.released"}


def seen(engine: Engine, epoch: int) -> tuple[Tensor, Tensor]:
    """Features and labels that the surrogate is given after `epoch`."""
    caught: list[tuple[Tensor, Tensor]] = []
    assert engine.surrogate is not None
    engine.surrogate.refresh = lambda batches: caught.extend(batches)  # type: ignore[method-assign]
    engine.epoch = epoch
    engine.model.train()
    engine._refresh()
    assert engine.model.training  # the encoder is in eval mode for the features only
    return torch.cat([z for z, _ in caught]), torch.cat([y for _, y in caught])


@torch.no_grad()
def features(engine: Engine, images: Tensor) -> Tensor:
    engine.model.eval()
    return engine.model.edge(to_float(images)).flatten(1)


def distance_to_nearest(z: Tensor, y: Tensor, others: Tensor, labels: Tensor) -> Tensor:
    """Of each z, to the nearest of `others` with the same label."""
    far = torch.cdist(z.flatten(1).double(), others.double())
    return torch.where(y[:, None] == labels[None, :], far, torch.inf).min(dim=1).values


def every_move(images: Tensor, reach: int) -> Tensor:
    """All crops and flips of every picture, [moves · B, ch, h, w]."""
    height, width = images.shape[2:]
    padded = F.pad(images, (reach, reach, reach, reach))
    crops = [
        padded[:, :, top : top + height, left : left + width]
        for top in range(2 * reach + 1)
        for left in range(2 * reach + 1)
    ]
    return torch.cat([moved for crop in crops for moved in (crop, crop.flip(-1))])


@pytest.fixture
def make(make_engine: MakeEngine) -> Callable[..., Engine]:
    def build(surrogate: dict[str, Any], *overrides: str) -> Engine:
        engine = make_engine(*overrides, surrogate=surrogate)
        if engine.augmentation is not None:
            engine.augmentation = Augmentation(crop=1, flip=True)
        return engine

    return build


@pytest.mark.parametrize(
    ("surrogate", "override"),
    [
        ({"name": "gmm"}, "data.augment=true"),
        ({"name": "gmm", "preset": "gmm.paper"}, "data.augment=true"),
        ({"name": "enhanced", "bank_every": 1}, "data.augment=true"),
        (RELEASED, "data.augment=false"),
        (RELEASED | {"bank_images": "clean"}, "data.augment=true"),
    ],
)
def test_statistics_come_from_the_pictures_as_they_are(
    make: Callable[..., Engine], surrogate: dict[str, Any], override: str
) -> None:
    engine = make(surrogate, override)
    z, y = seen(engine, 2)
    train = engine.parts.train
    clean = features(engine, train.images)
    assert distance_to_nearest(z, y, clean, train.labels).max() < 1e-5
    assert distance_to_nearest(clean, train.labels, z.flatten(1), y).max() < 1e-5  # none is left out


@pytest.mark.parametrize("surrogate", [RELEASED, {"name": "gmm", "mode": "faithful"}])
def test_the_released_code_augments_them(make: Callable[..., Engine], surrogate: dict[str, Any]) -> None:
    engine = make(surrogate)
    z, y = seen(engine, 2)
    train = engine.parts.train
    assert len(z) == len(train)
    moved = distance_to_nearest(z, y, features(engine, train.images), train.labels) > 1e-4
    assert 0.8 < moved.float().mean() < 1  # one in eighteen stays where it is
    allowed = features(engine, every_move(train.images, 1))
    assert distance_to_nearest(z, y, allowed, train.labels.repeat(18)).max() < 1e-5


def test_augmentation_belongs_to_the_epoch(make: Callable[..., Engine]) -> None:
    engine = make(RELEASED)
    first, _ = seen(engine, 1)
    second, _ = seen(engine, 2)
    torch.rand(7)  # whatever else is drawn in between
    again, _ = seen(engine, 1)
    assert torch.equal(first, again)
    # other moves, not only another order
    assert not torch.allclose(first.sum(dim=0), second.sum(dim=0), rtol=1e-4)


def test_a_bank_may_serve_several_epochs(make: Callable[..., Engine]) -> None:
    engine = make({"name": "enhanced", "bank_every": 4})
    fitted: list[int] = []
    assert engine.surrogate is not None
    engine.surrogate.refresh = lambda batches: fitted.append(engine.epoch)  # type: ignore[method-assign]
    timed = []
    for engine.epoch in range(1, 10):
        timed += [engine.epoch] if engine._refresh().get("refresh_seconds", -1.0) >= 0 else []
    assert fitted == [1, 5, 9]
    assert timed == fitted  # the time is told where there was something to do


class Records:
    """In place of a surrogate: keeps the labels of what it is given, batch by batch."""

    refresh_needed = True

    def __init__(self, *, in_training_batches: bool = False, **options: Any) -> None:
        self.refresh_in_training_batches = in_training_batches
        self.options = SimpleNamespace(**options)
        self.batches: list[list[float]] = []

    def refresh(self, batches: Any) -> None:
        self.batches = [z.flatten(1)[:, 0].tolist() for z, _ in batches]


def given(surrogate: Records, epoch: int = 1, *overrides: str) -> list[list[float]]:
    """What the surrogate is given of 40 pictures, dark ones first; a feature is the picture itself."""
    grey = torch.arange(40, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 8, 8).contiguous()
    part = ImageSet(grey, torch.arange(40) // 20)
    config = load_config(None, overrides=["train.batch_size=16", *overrides])
    if refresh(surrogate, worlds.identity(), part, config, epoch, torch.float32):  # type: ignore[arg-type]
        return surrogate.batches
    return []


def test_a_bank_of_a_few_samples_has_some_of_all_classes_and_others_every_epoch() -> None:
    first, again, other = (given(Records(bank_samples=10), epoch)[0] for epoch in (1, 1, 2))
    assert len(first) == len(set(first)) == 10
    assert min(first) < 20 / 255 < max(first)  # pictures may lie class by class in the file
    assert first == again != other


def test_the_bank_is_of_all_pictures_in_batches_as_large_as_the_surrogate_wants_them() -> None:
    (whole,) = given(Records())
    assert sorted(whole) == pytest.approx([level / 255 for level in range(40)])
    assert [len(batch) for batch in given(Records(in_training_batches=True))] == [16, 16, 8]


def test_without_a_weight_nothing_is_fitted() -> None:
    assert given(Records(), 1, "train.privacy_weight=0") == []
