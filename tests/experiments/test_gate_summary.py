"""Maps as small tables, against loops written from the definitions; and files that are damaged or too many."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from splitveil.experiments import gate_summary
from splitveil.experiments.gate_summary import (
    MOST_CHANNELS,
    MOST_EPOCHS,
    MOST_MAPS,
    MOST_ROWS,
    Values,
    over_training,
    read_maps,
    relative_attention,
    stored_epochs,
    summarise,
)

CLASSES, SLOTS, CHANNELS, HEIGHT, WIDTH = 3, 2, 4, 2, 3
DIM = CHANNELS * HEIGHT * WIDTH


def values(shape: tuple[int, ...], seed: int = 0) -> Values:
    chance = random.Random(seed)
    count = 1
    for size in shape:
        count *= size
    return Values(shape, [chance.random() for _ in range(count)])


def maps(**more: Values) -> dict[str, Values]:
    found = {
        "labels": Values((5,), [0, 2, 0, 2, 0]),
        "class_used": Values((CLASSES,), [1, 0, 1]),
        "resp": values((5, SLOTS), 1),
        "slot_mass": Values((CLASSES, SLOTS), [1.0, 3.0, 0.0, 0.0, 2.0, 2.0]),
        "gate_soft": values((CLASSES, SLOTS, DIM), 2),
        "gate_hard": values((CLASSES, SLOTS, DIM), 3),
        "gate_class": Values((CLASSES,), [0.5, 0.9, 0.7]),
    }
    return found | more


def store(run: Path, epoch: int, **tensors: torch.Tensor) -> Path:
    path = run / "gates" / f"epoch-{epoch:04d}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path)
    return path


def test_slot_mass_is_a_share_of_the_class() -> None:
    assert summarise(maps(), (DIM,))["slot_mass"] == [[0.25, 0.75], None, [0.5, 0.5]]


def test_gates_of_whole_classes_and_of_the_batch() -> None:
    found = summarise(maps(complexity_gate=Values((), [0.375])), (DIM,))
    assert found["class_gate"] == [0.5, 0.9, 0.7]
    assert found["complexity_gate"] == 0.375


def test_gates_by_class_and_by_place_against_loops() -> None:
    given = maps()
    found = summarise(given, (CHANNELS, HEIGHT, WIDTH))["dimension_gate"]
    gate, mass = given["gate_soft"].flat, given["slot_mass"].flat
    places = HEIGHT * WIDTH

    def at(label: int, channel: int, place: int) -> float:
        total = mass[label * SLOTS] + mass[label * SLOTS + 1]
        result = 0.0
        for slot in range(SLOTS):
            weight = mass[label * SLOTS + slot] / total
            result += weight * gate[(label * SLOTS + slot) * DIM + channel * places + place]
        return result

    assert found["by_class"][1] is None  # not in the batch
    for label in (0, 2):
        for channel in range(CHANNELS):
            expected = sum(at(label, channel, place) for place in range(places)) / places
            assert found["by_class"][label][channel] == pytest.approx(expected, abs=1e-4)
    for channel in range(CHANNELS):
        for place in range(places):
            expected = (at(0, channel, place) + at(2, channel, place)) / 2
            assert found["by_place"][channel][place] == pytest.approx(expected, abs=1e-3)
    assert found["places"] == [HEIGHT, WIDTH]
    assert found["channels"] == CHANNELS
    overall = [
        (at(0, channel, place) + at(2, channel, place)) / 2 for channel in range(CHANNELS) for place in range(places)
    ]
    assert found["mean"] == pytest.approx(sum(overall) / DIM, abs=1e-4)


def test_a_gate_without_slot_masses_weights_slots_alike() -> None:
    given = maps()
    del given["slot_mass"]
    found = summarise(given, (DIM,))["snr_gate"]["by_class"][0]
    gate = given["gate_hard"].flat
    assert found == pytest.approx([(gate[d] + gate[DIM + d]) / 2 for d in range(DIM)], abs=1e-4)


def test_many_channels_are_averaged_in_bins() -> None:
    wide = 3 * MOST_CHANNELS + 5
    gate = values((CLASSES, 1, wide), 4)
    found = summarise({"labels": Values((2,), [0, 1]), "gate_soft": gate}, (wide,))["dimension_gate"]
    assert len(found["by_class"][0]) == MOST_CHANNELS
    assert found["channels"] == wide
    assert "by_place" not in found
    edges = [wide * edge // MOST_CHANNELS for edge in range(MOST_CHANNELS + 1)]
    for place, (low, high) in enumerate(pairwise(edges)):
        expected = sum(gate.flat[low:high]) / (high - low)
        assert found["by_class"][0][place] == pytest.approx(expected, abs=1e-4)


def test_a_page_gets_no_more_rows_and_maps_than_it_can_show() -> None:
    many = MOST_ROWS + 1
    given = {"labels": Values((many,), [0] * many), "resp": values((many, 2)), "gate_soft": values((1, 1, 20 * 2))}
    found = summarise(given, (20, 1, 2))
    assert len(found["assignment"]) == MOST_ROWS
    assert len(found["dimension_gate"]["by_class"][0]) == 20
    assert len(found["dimension_gate"]["by_place"]) == MOST_MAPS < 20


def test_a_feature_shape_that_does_not_fit_is_not_used() -> None:
    found = summarise(maps(), (7, 7, 7))["dimension_gate"]
    assert found["channels"] == DIM
    assert "by_place" not in found


def test_relative_attention_is_one_for_equal_weights() -> None:
    # softmax weights of a class, some of whose mass went to past samples
    assert relative_attention([0.2, 0.2, 0.5], [4, 4, 1]) == pytest.approx([1.0, 1.0, 1.0])
    found = relative_attention([0.1, 0.3, 0.0], [4, 4, 1])
    assert found == pytest.approx([0.5, 1.5, 1.0])  # a class without weight says nothing


def test_what_a_surrogate_lacks_is_absent() -> None:
    assert summarise({"labels": Values((2,), [0, 1]), "class_used": Values((2,), [1, 1])}, (4,)) == {}
    found = summarise({"labels": Values((2,), [0, 0]), "attn": Values((2,), [0.25, 0.75])}, (4,))
    assert found == {"labels": [0, 0], "attention": [0.5, 1.5]}


def test_numbers_that_are_not_finite_become_none() -> None:
    found = summarise({"labels": Values((1,), [0]), "resp": Values((1, 2), [float("nan"), 0.5])}, (4,))
    assert found["assignment"] == [[None, 0.5]]


def test_files_are_read_as_torch_reads_them(tmp_path: Path) -> None:
    path = store(
        tmp_path,
        1,
        floats=torch.randn(2, 3),
        doubles=torch.randn(4, dtype=torch.float64),
        labels=torch.tensor([3, -1]),
        flags=torch.tensor([True, False]),
        scalar=torch.tensor(0.5),
    )
    found, expected = read_maps(path), load_file(path)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].shape == tuple(tensor.shape)
        assert list(found[name].flat) == tensor.double().flatten().tolist()


@pytest.mark.parametrize("content", [b"", b"\0" * 7, b"{}" * 40, bytes(range(256))])
def test_a_damaged_file_is_a_value_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match=r"\w"):  # it says something
        read_maps(tmp_path / "x")


def test_a_file_that_is_far_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store(tmp_path, 1, labels=torch.tensor([0]))
    size = path.stat().st_size
    monkeypatch.setattr(gate_summary, "LARGEST_FILE", size)
    assert list(read_maps(path)["labels"].flat) == [0]
    monkeypatch.setattr(gate_summary, "LARGEST_FILE", size - 1)
    with pytest.raises(ValueError, match="too large"):
        read_maps(path)


def test_curves_over_training(tmp_path: Path) -> None:
    for epoch in (2, 3, 10):
        store(
            tmp_path,
            epoch,
            labels=torch.tensor([0, 0, 1, 1]),
            attn=torch.tensor([0.5, 0.5, 0.1, 0.3]),
            slot_mass=torch.tensor([[1.0, float(epoch)], [2.0, 2.0], [0.0, 0.0]]),
            class_used=torch.tensor([True, True, False]),
            gate_soft_mean=torch.tensor(0.25),
            gate_hard_mean=torch.tensor(0.75),
            complexity_gate=torch.tensor(0.5),
            shut=torch.tensor(epoch == 3),
            gate_class=torch.tensor([0.2, 0.4, 9.0]),
        )
    store(tmp_path, 4, labels=torch.tensor([0])).write_bytes(b"torn")
    found = over_training(tmp_path)
    assert found["epochs"] == [2, 3, 10]
    first = [(1 / (1 + epoch) + 0.5) / 2 for epoch in (2, 3, 10)]
    assert [row[0] for row in found["slot_share"]] == pytest.approx(first, abs=1e-4)
    assert found["class_gate"] == pytest.approx([0.3] * 3, abs=1e-4)  # of the classes in the batch
    assert found["dimension_gate"] == [0.25] * 3
    assert found["snr_gate"] == [0.75] * 3
    assert found["complexity_gate"] == [0.5] * 3
    assert found["shut"] == [0.0, 1.0, 0.0]
    # relative weights 1, 1, 0.5, 1.5: N/Σw² = 4/4.5
    assert found["effective_samples"] == pytest.approx([4 / 4.5] * 3, abs=1e-4)


def test_a_curve_that_some_epochs_lack_is_left_out(tmp_path: Path) -> None:
    store(tmp_path, 1, slot_mass=torch.ones(1, 2), gate_soft_mean=torch.tensor(0.5), gate_hard_mean=torch.tensor(0.5))
    store(tmp_path, 2, slot_mass=torch.ones(1, 3), gate_soft_mean=torch.tensor(0.5))
    assert over_training(tmp_path) == {"epochs": [1, 2], "dimension_gate": [0.5, 0.5]}
    assert over_training(tmp_path / "absent") == {}


def test_many_epochs_are_thinned(tmp_path: Path) -> None:
    (tmp_path / "gates").mkdir()
    for epoch in range(1, 1001):
        (tmp_path / "gates" / f"epoch-{epoch:04d}.safetensors").touch()
    (tmp_path / "gates" / "epoch-x.safetensors").touch()
    found = [epoch for epoch, _ in stored_epochs(tmp_path)]
    assert len(found) == MOST_EPOCHS
    assert (found[0], found[-1]) == (1, 1000)
    assert found == sorted(set(found))
