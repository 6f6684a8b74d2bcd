"""Who may see which pictures (DESIGN 5)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from splitveil.core.errors import ConfigError, DataError
from splitveil.data.assembly import assemble
from splitveil.data.dataset import ImageSet
from splitveil.data.protocol import split


def dataset(counts=(40, 40, 40), aux=0, side=2, value=0):
    """Pictures whose first pixel numbers them, so that a part can be traced back."""
    labels = np.concatenate([np.full(count, label) for label, count in enumerate(counts)])
    rng = np.random.default_rng(3)
    rng.shuffle(labels)
    images = rng.integers(0, 256, (len(labels), 1, side, side), dtype=np.uint8)
    images[:, 0, 0, 0] = value
    parts = {"train": (images, labels), "test": (images[:6], labels[:6])}
    if aux:
        parts["aux"] = (images[:aux], np.arange(aux) + 100)
    return assemble("made-up", parts, where="nowhere", class_names=[f"class {i}" for i in range(len(counts))])


def test_disjoint_parts_cover_everything_once_in_class_proportion():
    data = dataset((200, 100, 60))
    parts = split(data, "disjoint", seed=1)
    together = torch.cat([parts.train_index, parts.val_index, parts.aux_index])
    assert torch.equal(together.sort().values, torch.arange(360))
    for part, share in ((parts.train, 0.7), (parts.val, 0.05), (parts.aux, 0.25)):
        counts = torch.bincount(part.labels, minlength=3)
        assert (counts - share * torch.tensor([200.0, 100.0, 60.0])).abs().max() <= 1
    for part, index in ((parts.train, parts.train_index), (parts.val, parts.val_index), (parts.aux, parts.aux_index)):
        assert torch.equal(part.images, data.train.images[index])
        assert torch.equal(part.labels, data.train.labels[index])
    assert parts.test is data.test
    assert parts.protocol == "disjoint"


@pytest.mark.parametrize("counts", [(7, 3, 11), (2, 2, 2), (33, 5, 19)])
def test_uneven_classes_still_get_their_share(counts):
    parts = split(dataset(counts), "disjoint", seed=4)
    total = sum(counts)
    assert abs(len(parts.train) - 0.7 * total) <= 1.5
    assert abs(len(parts.aux) - 0.25 * total) <= 1.5
    assert (torch.bincount(parts.train.labels, minlength=len(counts)) > 0).all()


def test_a_seed_fixes_the_parts_and_the_checksum():
    data = dataset()
    first, again, other = (split(data, "disjoint", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.train_index, again.train_index)
    assert first.checksum == again.checksum
    assert not torch.equal(first.train_index, other.train_index)
    assert first.checksum != other.checksum


def test_the_checksum_sees_content_protocol_and_limit():
    plain = split(dataset(), "disjoint", 1).checksum
    others = [
        split(dataset(value=1), "disjoint", 1).checksum,
        split(dataset(), "published", 1).checksum,
        split(dataset(), "disjoint", 1, limit=60).checksum,
        split(dataset(aux=5), "disjoint", 1).checksum,
    ]
    assert len({plain, *others}) == 5


def test_the_checksum_sees_labels_and_other_pictures_of_an_auxiliary_part():
    data = dataset(aux=5)
    plain = split(data, "disjoint", 1).checksum
    swapped = replace(data, aux=replace(data.aux, images=data.aux.images.flip(0)))
    named = replace(data, test=replace(data.test, labels=data.test.labels.flip(0)))
    assert not torch.equal(data.test.labels, named.test.labels)
    assert len({plain, split(swapped, "disjoint", 1).checksum, split(named, "disjoint", 1).checksum}) == 3


def test_two_pictures_are_the_same_only_where_every_pixel_is():
    images = torch.zeros(3, 3, 32, 32, dtype=torch.uint8)
    images[1, 2, 31, 31] = 1  # the very last one
    first, second, third = ImageSet(images, torch.tensor([0, 1, 2])).fingerprints()
    assert first == third != second


def test_test_pictures_that_the_attacker_brings_along_are_twins_too():
    data = dataset((40, 40))
    other = replace(data, test=replace(data.test, images=255 - data.test.images))
    assert (data.twins(), other.twins()) == (6, 0)
    assert replace(other, aux=other.test.subset(torch.arange(2))).twins() == 2


def test_own_auxiliary_part_goes_to_the_attacker():
    data = dataset((100, 100), aux=30)
    parts = split(data, "disjoint", seed=1)
    assert parts.aux is data.aux
    assert len(parts.aux_index) == 0
    assert (len(parts.train), len(parts.val)) == (190, 10)
    assert torch.equal(torch.cat([parts.train_index, parts.val_index]).sort().values, torch.arange(200))


def test_published_gives_everything_to_both():
    data = dataset((100, 100), aux=30)
    parts = split(data, "published", seed=1)
    assert torch.equal(parts.train.images, data.train.images)
    assert parts.aux is parts.train
    assert torch.equal(parts.aux_index, torch.arange(200))
    assert len(parts.val) == 10
    assert torch.isin(parts.val_index, parts.train_index).all()
    moved = parts.to("cpu")
    assert moved.aux is moved.train


def test_limit_keeps_class_proportion():
    parts = split(dataset((200, 100, 100)), "published", seed=1, limit=40)
    assert torch.bincount(parts.train.labels).tolist() == [20, 10, 10]
    assert len(split(dataset(), "published", seed=1, limit=10_000).train) == 120


def test_a_limit_that_loses_a_class_is_refused():
    with pytest.raises(ConfigError, match=r"data.limit = 2 .*class"):
        split(dataset(), "disjoint", seed=1, limit=2)


def test_a_class_too_small_to_share_is_refused():
    for before in (3, 9, 19):  # the lonely picture of the last class stands at this place of its block of 20
        with pytest.raises(DataError, match="class 1"):
            split(dataset((20 + before, 1)), "disjoint", seed=1)
    assert int((split(dataset((20 + 4, 1)), "disjoint", seed=1).train.labels == 1).sum()) == 1
