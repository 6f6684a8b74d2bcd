"""Sums by class, moments with past samples, and the likelihood, against loops."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from splitveil.functional.assignment import class_softmax, past_square_distances
from splitveil.functional.dispersion import class_mse, mixture_nll, past_moments, weighted_moments
from splitveil.functional.segments import class_segments

F64 = torch.float64


def batch(seed, size, classes):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (size,), generator=generator)
    valid = torch.rand(size, generator=generator) < 0.9
    count = torch.stack([((y == c) & valid).sum() for c in range(classes)]).to(F64)
    return y, valid, count, generator


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 30), classes=st.integers(1, 12), minimum=st.integers(1, 4))
def test_rows_hold_every_class_that_reaches_the_minimum(seed, size, classes, minimum):
    y, valid, count, generator = batch(seed, size, classes)
    segments = class_segments(y, valid, count, size // minimum)
    values = torch.randn(size, 2, generator=generator, dtype=F64)
    total = segments.to_class(segments.sum(values), classes)
    top = segments.to_class(segments.max(values), classes)
    rows = range(classes) if segments.classes is None else segments.classes.tolist()
    for c in range(classes):
        mine = values[(y == c) & valid]
        if c in rows:
            torch.testing.assert_close(total[c], mine.sum(0))
            if len(mine):
                torch.testing.assert_close(top[c], mine.max(0).values)
        else:
            assert count[c] < minimum or minimum > size
            assert (total[c] == 0).all()
    taken = segments.take(segments.of_class(torch.arange(classes)))
    known = [i for i in range(size) if valid[i] and int(y[i]) in rows]
    assert taken[known].tolist() == y[known].tolist()


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 20),
    classes=st.integers(1, 5),
    slots=st.integers(1, 3),
    past=st.integers(0, 4),
    offset=st.sampled_from([0.0, 10.0, 1e4]),
)
def test_moments_equal_loops_with_past_samples(seed, size, classes, slots, past, offset):
    y, valid, count, generator = batch(seed, size, classes)
    segments = class_segments(y, valid, count, classes)
    x = offset + torch.randn(size, 3, generator=generator, dtype=F64)
    weight = torch.rand(size, slots, generator=generator, dtype=F64)
    old = offset + torch.randn(classes, past, 3, generator=generator, dtype=F64)
    old_weight = torch.rand(classes, past, slots, generator=generator, dtype=F64)
    summary = past_moments(old, old_weight) if past else None
    moments = weighted_moments(x, weight, segments, summary)
    for c in range(classes):
        mine = [i for i in range(size) if y[i] == c and valid[i]]
        members = torch.cat([x[mine], old[c]])
        for k in range(slots):
            a = torch.cat([weight[mine, k], old_weight[c, :, k]])
            if not len(a):
                assert moments.mass[c, k] == 0
                assert (moments.var[c, k] == 0).all()
                continue
            mean = (a[:, None] * members).sum(0) / a.sum()
            var = (a[:, None] * (members - mean) ** 2).sum(0) / a.sum()
            torch.testing.assert_close(moments.mass[c, k], a.sum())
            torch.testing.assert_close(moments.mean[c, k], mean)
            torch.testing.assert_close(moments.var[c, k], var, rtol=1e-7, atol=1e-12)


def test_a_large_offset_costs_no_precision_in_float32():
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(50, dtype=torch.long)
    segments = class_segments(y, y >= 0, torch.tensor([50.0]), 1)
    shifted = x + 1000.0
    exact = weighted_moments(shifted.double(), torch.ones(50, 1, dtype=F64), segments).var
    torch.testing.assert_close(
        weighted_moments(shifted, torch.ones(50, 1), segments).var.double(), exact, rtol=1e-6, atol=0
    )


def test_class_softmax_is_a_softmax_per_class_even_for_large_logits():
    y = torch.tensor([0, 1, 0, 2, 1])
    valid = torch.tensor([True, True, True, False, True])
    logits = torch.tensor([[800.0], [-900.0], [801.0], [1e4], [-901.0]], dtype=F64, requires_grad=True)
    segments = class_segments(y, valid, torch.tensor([2.0, 2.0, 0.0], dtype=F64), 2)
    past = torch.tensor([[[799.0], [-torch.inf]], [[-torch.inf], [-torch.inf]]], dtype=F64)
    weight, past_weight = class_softmax(logits, segments, past)
    first = torch.softmax(torch.tensor([800.0, 801.0, 799.0], dtype=F64), 0)
    torch.testing.assert_close(torch.stack([weight[0, 0], weight[2, 0], past_weight[0, 0, 0]]), first)
    torch.testing.assert_close(weight[[1, 4], 0], torch.softmax(torch.tensor([-900.0, -901.0], dtype=F64), 0))
    assert past_weight[1].sum() == 0
    segments.sum(weight * torch.arange(5)[:, None]).sum().backward()
    assert torch.isfinite(logits.grad).all()


def test_past_distances_equal_differences():
    generator = torch.Generator().manual_seed(1)
    past = 50 + torch.randn(3, 4, 5, generator=generator, dtype=F64)
    centroid = 50 + torch.randn(3, 2, 5, generator=generator, dtype=F64)
    expected = (past[:, :, None] - centroid[:, None]).square().sum(-1)
    torch.testing.assert_close(past_square_distances(past, centroid), expected)


@pytest.mark.parametrize("scalar", [False, True])
def test_likelihood_equals_torch_distributions(scalar):
    generator = torch.Generator().manual_seed(2)
    y = torch.tensor([0, 1, 0, 1, 2])
    segments = class_segments(y, y >= 0, torch.tensor([2.0, 2.0, 1.0], dtype=F64), 3)
    x = torch.randn(5, 4, generator=generator, dtype=F64)
    mean = torch.randn(3, 2, 4, generator=generator, dtype=F64)
    var = torch.rand(3, 2, 1 if scalar else 4, generator=generator, dtype=F64) + 0.1
    log_weight = torch.log_softmax(torch.randn(3, 2, generator=generator, dtype=F64), 1)
    used = torch.tensor([True, True, False])
    total = 0.0
    for i in range(4):
        normal = torch.distributions.Normal(mean[y[i]], var[y[i]].sqrt().expand(2, 4))
        total += torch.logsumexp(log_weight[y[i]] + normal.log_prob(x[i]).sum(1), 0)
    torch.testing.assert_close(mixture_nll(x, mean, var, log_weight, segments, used), -total / 4 / 4)
    assert mixture_nll(x, mean, var, log_weight, segments, used & False) == 0


def test_class_mse_is_the_mean_square_per_sample_and_dimension():
    y = torch.tensor([0, 0, 1])
    segments = class_segments(y, y >= 0, torch.tensor([2.0, 1.0, 0.0]), 3)
    x = torch.tensor([[0.0, 2.0], [2.0, 4.0], [5.0, 5.0]])
    centre = torch.tensor([[1.0, 3.0], [5.0, 4.0], [9.0, 9.0]])
    assert class_mse(x, centre, segments).tolist() == [1.0, 0.5, 0.0]
