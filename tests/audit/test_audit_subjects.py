"""Who attacks with what (SPEC 8.1, S8.3; DESIGN 5)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests import worlds

import splitveil as sv
from splitveil.audit.subjects import AuditData, choose, in_turn
from splitveil.core.errors import InputError
from splitveil.data.dataset import DataParts, Dataset, ImageSet
from splitveil.data.protocol import split


def numbered(count: int, start: int = 0, classes: int = 10) -> ImageSet:
    """1 x 1 x 4 pictures whose bytes spell their own number."""
    number = torch.arange(start, start + count)
    images = torch.stack([number // 256**power % 256 for power in range(4)], dim=1).to(torch.uint8)
    return ImageSet(images[:, None, None, :], number % classes)


def numbers(pictures: ImageSet) -> list[int]:
    values = pictures.images[:, 0, 0].long()
    return sorted((values * torch.tensor([256**power for power in range(4)])).sum(1).tolist())


def test_s8_3_inference_time_uses_these_test_pictures_and_no_training_picture() -> None:
    data = AuditData(aux=numbered(5000, start=100_000), test=numbered(10_000))
    found = choose(data, "inference_time", None)
    assert numbers(found.auxiliary) == list(range(9000))
    assert numbers(found.targets) == list(range(9000, 10_000))
    assert sorted(found.index.tolist()) == list(range(9000, 10_000))


def test_training_time_attacks_the_test_part_with_the_auxiliary_part() -> None:
    data = AuditData(aux=numbered(50, start=1000), test=numbered(40))
    found = choose(data, "training_time", None)
    assert numbers(found.auxiliary) == list(range(1000, 1050))
    assert numbers(found.targets) == list(range(40))


def test_the_first_pictures_are_balanced_and_keep_their_place() -> None:
    test = ImageSet(numbered(30).images, torch.tensor([2] * 10 + [0] * 15 + [1] * 5))
    found = choose(AuditData(aux=numbered(5, start=99), test=test), "training_time", 9)
    assert found.targets.labels.tolist() == [0, 1, 2] * 3
    assert found.index.tolist() == [10, 25, 0, 11, 26, 1, 12, 27, 2]
    assert torch.equal(test.images[found.index], found.targets.images)


def test_in_turn_is_a_permutation_with_gaps_and_absent_classes() -> None:
    labels = torch.tensor([5, 5, 2, 5, 2, 5])
    order = in_turn(labels)
    assert order.tolist() == [2, 0, 4, 1, 3, 5]


def test_overlap_is_refused_unless_the_published_protocol_is_named() -> None:
    aux, test = numbered(30), numbered(20, start=25)
    with pytest.raises(InputError, match="5 of the 20 pictures"):
        choose(AuditData(aux=aux, test=test), "training_time", None)
    assert len(choose(AuditData(aux=aux, test=test, protocol="published"), "training_time", None).targets) == 20


def test_nothing_to_attack_or_to_train_on_is_one_sentence() -> None:
    with pytest.raises(InputError, match="no test picture"):
        choose(AuditData(aux=numbered(5), test=numbered(0)), "training_time", None)
    with pytest.raises(InputError, match="1 pictures of its own"):
        choose(AuditData(aux=numbered(1), test=numbered(5, start=9)), "training_time", None)
    with pytest.raises(InputError, match="AuditData"):
        AuditData.of(worlds.pictures(3, seed=0))  # type: ignore[arg-type]


def test_a_whole_data_set_is_divided_as_a_run_divides_it() -> None:
    data = AuditData.of(sv.data.create("fashion-mini"), seed=3)
    parts = AuditData.of(sv.data.load(sv.load_config().data, seed=3))
    assert data.protocol == "disjoint"
    assert torch.equal(data.aux.images, parts.aux.images)
    assert torch.equal(data.test.images, parts.test.images)
    assert not torch.equal(data.aux.images, AuditData.of(sv.data.create("fashion-mini"), seed=4).aux.images)
    assert AuditData.of("fashion-mini", seed=3).checksum() == data.checksum()
    assert AuditData.of("fashion-mini").train is None  # nobody says what the model was trained on


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_float_pictures_are_refused_with_the_way_to_convert_them(dtype: torch.dtype) -> None:
    pictures = torch.rand(3, 1, 2, 2).to(dtype)
    with pytest.raises(InputError, match=r"uint8 \[N, ch, h, w\].*\(images \* 255\)\.round\(\)\.to\(torch\.uint8\)"):
        ImageSet(pictures, torch.zeros(3, dtype=torch.int64))
    ImageSet((pictures * 255).round().to(torch.uint8), torch.zeros(3, dtype=torch.int64))


def test_whole_numbers_of_another_type_are_not_to_be_multiplied() -> None:
    with pytest.raises(InputError, match="uint8") as refused:
        ImageSet(torch.zeros(3, 1, 2, 2, dtype=torch.int64), torch.zeros(3, dtype=torch.int64))
    assert "255" not in str(refused.value)


def test_the_refusal_of_an_overlap_names_both_ways_to_allow_it() -> None:
    with pytest.raises(InputError, match=r"data\.protocol = 'published'.*AuditData\(protocol='published'\)"):
        choose(AuditData(aux=numbered(20), test=numbered(5)), "training_time", None)
    allowed = AuditData(aux=numbered(20), test=numbered(5), protocol="published")
    assert len(choose(allowed, "training_time", None).targets) == 5


def test_a_whole_data_set_is_split_by_the_seed_and_says_nothing_of_members() -> None:
    whole = sv.data.create("fashion-mini")
    found, other = AuditData.of(whole, seed=3), AuditData.of(whole, seed=4)
    assert (len(found.aux), len(found.test), found.protocol, found.name) == (2500, 2000, "disjoint", "fashion-mini")
    assert found.train is None
    assert found.checksum() == AuditData.of(whole, seed=3).checksum() != other.checksum()


def parts(protocol: str, *, own: bool = False) -> DataParts:
    """Of 800 training pictures of which two are test pictures, too; with `own`, the data set brings the attacker's."""
    info = replace(sv.data.create("fashion-mini").info, image_shape=(1, 1, 4))
    train = ImageSet(torch.cat([numbered(798).images, numbered(2, start=5000).images]), torch.arange(800) % 10)
    return split(Dataset(info, train, numbered(40, start=5000), numbered(60, start=9000) if own else None), protocol, 0)


def test_twins_of_test_pictures_are_left_out_of_the_attackers_unless_the_protocol_is_the_published_one() -> None:
    held = parts("disjoint")
    twins = set(numbers(held.aux)) & set(numbers(held.test))
    assert twins
    found = AuditData.of(held)
    assert not set(numbers(found.aux)) & set(numbers(found.test))
    assert len(found.aux) == len(held.aux) - len(twins)
    published = AuditData.of(parts("published"))
    assert len(published.aux) == 800
    assert len(set(numbers(published.aux)) & set(numbers(published.test))) == 2


def test_an_auxiliary_part_of_the_data_set_has_labels_of_its_own() -> None:
    """They name other subjects: no class mean may be made of them, and no class be read by their means."""
    assert not AuditData.of(parts("disjoint", own=True)).shared_labels
    assert AuditData.of(parts("disjoint")).shared_labels
