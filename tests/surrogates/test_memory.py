"""The ring buffer against lists (SPEC 0.5)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import splitveil as sv
from splitveil.functional.segments import class_segments
from splitveil.surrogates.memory import FeatureMemory

CLASSES = 4


def stored(memory, name="x"):
    """What the memory holds, oldest first, as lists per class."""
    everything = class_segments(
        torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.bool), torch.zeros(CLASSES), 99
    )
    rows, filled = memory.read(name, everything, torch.float64), memory.filled(everything)
    out = []
    for c in range(CLASSES):
        count, total = int(filled[c].sum()), int(memory.appended[c])
        order = [(total - count + k) % memory.size for k in range(count)]
        out.append([rows[c, k].tolist() for k in order])
    return out


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 5), seed=st.integers(0, 10**6), batches=st.lists(st.integers(1, 20), min_size=1, max_size=5))
def test_keeps_the_last_samples_of_each_class_in_order(size, seed, batches):
    generator = torch.Generator().manual_seed(seed)
    memory = FeatureMemory(CLASSES, size, {"x": 3, "slots": 2})
    expected = [[] for _ in range(CLASSES)]
    for number in batches:
        x = torch.randn(number, 3, generator=generator)
        y = torch.randint(CLASSES, (number,), generator=generator)
        keep = torch.rand(number, generator=generator) < 0.8
        memory.append({"x": x, "slots": 2 * x[:, :2]}, y, keep)
        for v, c, kept in zip(x.double().tolist(), y.tolist(), keep.tolist(), strict=True):
            if kept:
                expected[c] = [*expected[c], v][-size:]
    assert stored(memory) == expected
    assert stored(memory, "slots") == [[[2 * v[0], 2 * v[1]] for v in rows] for rows in expected]
    assert memory.count().tolist() == [len(rows) for rows in expected]


def test_many_classes_share_a_bounded_number_of_places():
    sizes = {}
    for classes in (10, 16, 100, 530):
        s = sv.surrogates.create("gated", feature_shape=(8,), num_classes=classes, sigma=0.1)
        sizes[classes] = s.memory.size
    assert sizes == {10: 64, 16: 64, 100: 10, 530: 8}
    for mode in ("faithful", "corrected"):  # a number that was asked for is kept
        s = sv.surrogates.create("gated", feature_shape=(8,), num_classes=100, sigma=0.1, mode=mode, memory=64)
        assert s.memory.size == 64
    s = sv.surrogates.create("gated", feature_shape=(8,), num_classes=100, sigma=0.1, memory_limit=6400)
    assert s.memory.size == 64


@pytest.mark.parametrize("name", ["gated", "slot_cross", "slot_gated", "enhanced"])
def test_a_class_too_large_to_square_is_not_remembered(name):
    """It was computed with zeros in its place (SPEC 0.3), which are no features of anybody."""
    heads = {} if name == "gated" else {"num_heads": 2}
    s = sv.surrogates.create(name, feature_shape=(8, 1, 1), num_classes=2, sigma=0.1, memory=4, **heads)
    z, y = torch.randn(10, 8, 1, 1, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 2
    if s.refresh_needed:
        s.refresh([(z, y)])
    out = s(torch.where((y == 0)[:, None, None, None], z * 1e25, z), y)
    assert out.diagnostics["class_used"].tolist() == [False, True]
    assert s.memory.appended.tolist() == [0, 5]
    assert not s.memory.get_buffer("x")[:4].any()


@pytest.mark.parametrize("name", ["gated", "slot_cross", "slot_gated", "enhanced", "rate"])
def test_a_non_finite_call_leaves_every_buffer_bit_equal(name):
    """Also the spare row that takes masked samples: a state dict shows it (SPEC 0.5)."""
    heads = {"num_heads": 2} if name in ("slot_cross", "enhanced") else {}
    s = sv.surrogates.create(name, feature_shape=(8, 1, 1), num_classes=2, sigma=0.1, memory=4, **heads)
    z, y = torch.randn(20, 8, 1, 1, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 2
    s.refresh([(z, y)])
    s(z, y)  # more samples than places
    before = {key: value.clone() for key, value in s.state_dict().items()}
    bad = z.clone()
    bad[3] = torch.nan
    assert s(bad, y).diagnostics["nonfinite"]
    after = s.state_dict()
    changed = [key for key, value in before.items() if not torch.equal(value, after[key])]
    assert changed == ["shut_off.calls"] * (name == "slot_gated")  # SPEC 4.6: every training forward counts
    assert any(value.any() for value in before.values())
