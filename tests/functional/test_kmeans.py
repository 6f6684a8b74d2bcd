"""K-means over all classes at once, against loops and against scikit-learn."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from tests.oracles import kmeans as oracle

from splitveil.functional import groups as groups_module
from splitveil.functional.groups import group_mean, group_rows
from splitveil.functional.kmeans import kmeans


def blobs(seed, size=120, classes=3, dim=4, offset=0.0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (size,), generator=generator)
    mode = torch.randint(0, 3, (size,), generator=generator)
    center = torch.randn(classes, 3, dim, generator=generator, dtype=dtype) * 4
    return center[y, mode] + torch.randn(size, dim, generator=generator, dtype=dtype) + offset, y


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 80),
    classes=st.integers(1, 12),
    clusters=st.integers(1, 4),
    steps=st.integers(1, 12),
)
def test_matches_the_loop_per_class(seed, size, classes, clusters, steps):
    x, y = blobs(seed, size, classes)
    init = torch.randn(classes, clusters, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 3
    result = kmeans(x, y, classes, clusters, init=init, max_steps=steps)
    centroids, assignment = oracle.lloyd(x.numpy(), y.numpy(), init.numpy(), steps)
    np.testing.assert_allclose(result.centroids.numpy(), centroids, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(result.assignment.numpy(), assignment)
    counts = np.zeros((classes, clusters), int)
    np.add.at(counts, (y.numpy(), assignment), 1)
    np.testing.assert_array_equal(result.count.numpy(), counts)


def test_s1_7_inertia_never_increases():
    x, y = blobs(1)
    init = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    values = [oracle.inertia(x.numpy(), y.numpy(), init.numpy())]
    for steps in range(1, 12):
        result = kmeans(x, y, 3, 4, init=init, max_steps=steps)
        values.append(oracle.inertia(x.numpy(), y.numpy(), result.centroids.numpy()))
    assert values[1] < values[0]
    assert all(after <= before * (1 + 1e-12) for before, after in pairwise(values))


def test_s1_7_an_empty_cluster_keeps_its_centroid():
    x, y = blobs(3, classes=1)
    init = torch.zeros(1, 3, 4, dtype=torch.float64)
    init[0, 1] = 1e4
    init[0, 2] = 3.0
    result = kmeans(x, y, 1, 3, init=init)
    assert result.count[0, 1] == 0
    assert torch.equal(result.centroids[0, 1], init[0, 1] + 0)
    assert not torch.equal(result.centroids[0, 0], init[0, 0])


@pytest.mark.parametrize("init_power", [1, 2])
def test_seeding_reaches_the_inertia_of_scikit_learn(init_power):
    x, y = blobs(4, size=300, classes=2, dtype=torch.float32)
    best = [np.inf, np.inf]
    for seed in range(10):
        result = kmeans(x, y, 2, 3, init_power=init_power, generator=torch.Generator().manual_seed(seed))
        for c in range(2):
            rows = y.numpy() == c
            value = oracle.inertia(x.numpy()[rows], np.zeros(rows.sum(), int), result.centroids[c : c + 1].numpy())
            best[c] = min(best[c], value)
    for c in range(2):
        reference = KMeans(3, n_init=10, random_state=0).fit(x.numpy()[y.numpy() == c]).inertia_
        assert best[c] == pytest.approx(reference, rel=1e-4)


@pytest.mark.parametrize(("power", "expected"), [(1, 3 / 4), (2, 9 / 10)])
def test_seeds_prefer_far_samples_by_the_stated_power(power, expected):
    # in each of 6000 classes: samples at 0, 1 and 3; after 0, the second seed is drawn with weights 1 : 3^power
    x = torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64).repeat(6000)[:, None]
    y = torch.arange(6000).repeat_interleave(3)
    generator = torch.Generator().manual_seed(0)
    seeds = kmeans(x, y, 6000, 2, init_power=power, max_steps=0, generator=generator).centroids[..., 0].round()
    after_zero = seeds[seeds[:, 0] == 0, 1]
    assert len(after_zero) == pytest.approx(2000, abs=4 * (6000 * 2 / 9) ** 0.5)
    assert (after_zero == 0).sum() == 0
    four_sd = 4 * (expected * (1 - expected) / len(after_zero)) ** 0.5
    assert (after_zero == 3).double().mean().item() == pytest.approx(expected, abs=four_sd)


def test_small_classes_on_a_first_fit_become_their_samples():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    y = torch.tensor([1, 1, 2])
    result = kmeans(x, y, 4, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(result.centroids[0], torch.zeros(3, 2))
    assert torch.allclose(result.centroids[1], x[[0, 1, 0]])
    assert torch.allclose(result.centroids[2], x[[2, 2, 2]])
    assert result.count.tolist() == [[0, 0, 0], [1, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert result.assignment.tolist() == [0, 1, 0]


def test_small_classes_on_a_warm_start_stay_bit_for_bit():
    x, y = blobs(5, size=60, classes=2, dtype=torch.float32)
    y[:] = 0
    y[:2] = 1
    init = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    result = kmeans(x, y, 2, 3, init=init)
    assert torch.equal(result.centroids[1], init[1])
    assert not torch.equal(result.centroids[0], init[0])


def test_a_large_offset_does_not_disturb_float32():
    x, y = blobs(6)
    init = torch.randn(3, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    _, expected = oracle.lloyd(x.numpy(), y.numpy(), init.numpy(), 10)
    shifted = kmeans((x + 1000).float(), y, 3, 3, init=(init + 1000).float(), max_steps=10)
    np.testing.assert_array_equal(shifted.assignment.numpy(), expected)


def test_constant_samples_and_no_samples():
    constant = kmeans(torch.full((9, 2), 0.1), torch.zeros(9, dtype=torch.long), 1, 3)
    assert torch.allclose(constant.centroids, torch.full((1, 3, 2), 0.1))
    assert constant.count.sum() == 9
    nothing = kmeans(torch.zeros(0, 2), torch.zeros(0, dtype=torch.long), 2, 3)
    assert nothing.count.sum() == 0
    assert nothing.assignment.shape == (0,)


def test_chunks_do_not_change_the_result(monkeypatch):
    x, y = blobs(7)
    whole = kmeans(x, y, 3, 3, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(groups_module, "CHUNK_ELEMENTS", 3 * 4 * 5)  # five rows at a time
    assert len(list(group_rows(y, 3).chunks(4))) > 3
    parts = kmeans(x, y, 3, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(whole.assignment, parts.assignment)
    assert torch.allclose(whole.centroids, parts.centroids, rtol=1e-12)


def test_groups_list_every_sample_once():
    group = torch.tensor([2, 0, 2, 2, 4])
    groups = group_rows(group, 6)
    assert groups.count.tolist() == [1, 0, 3, 0, 1, 0]
    assert sorted(groups.index[groups.mask].tolist()) == [0, 1, 2, 3, 4]
    assert torch.equal(groups.scatter(groups.index), torch.arange(5))
    x = torch.arange(10.0).reshape(5, 2)
    mean, nothing = group_mean(x, groups), torch.zeros(2)
    assert torch.equal(mean, torch.stack([x[1], nothing, x[[0, 2, 3]].mean(dim=0), nothing, x[4], nothing]))
