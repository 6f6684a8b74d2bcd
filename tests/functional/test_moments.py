"""Moments of clusters over a data set, and expectation-maximisation, against loops and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture

from splitveil.functional import groups as groups_module
from splitveil.functional import moments
from splitveil.functional.em import Mixture, em
from splitveil.functional.groups import group_rows
from splitveil.functional.moments import cluster_covariance, cluster_logdet, cluster_variance


def data(size=90, dim=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, dim, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (size,), generator=generator)
    assignment = torch.randint(0, 2, (size,), generator=generator)
    assignment[y == 1] = 0  # cluster (1, 1) is empty
    return x, y, assignment, torch.randn(3, 2, dim, generator=generator, dtype=torch.float64)


def test_cluster_variance_is_the_mean_square_around_the_given_centre():
    x, y, assignment, centers = data()
    result = cluster_variance(x, group_rows(y, 3), assignment, centers)
    for c in range(3):
        for k in range(2):
            rows = x[(y == c) & (assignment == k)]
            expected = ((rows - centers[c, k]) ** 2).mean(dim=0) if len(rows) else torch.zeros(4, dtype=torch.float64)
            assert torch.allclose(result[c, k], expected, rtol=1e-12)


@pytest.mark.parametrize("dim", [4, 40])  # more and fewer members than dimensions
def test_covariances_and_log_determinants_come_in_slices(dim, monkeypatch):
    x, y, assignment, centers = data(dim=dim)
    monkeypatch.setattr(moments, "CHUNK_ELEMENTS", 2 * dim * dim)
    monkeypatch.setattr(groups_module, "CHUNK_ELEMENTS", 7 * dim)
    component = y * 2 + assignment
    groups = group_rows(component, 6)
    flat = centers.flatten(0, 1)
    logdet = cluster_logdet(x, groups, flat, 0.05)
    slices = list(cluster_covariance(x, groups, flat))
    assert len(slices) == 3
    for some, covariance in slices:
        for j in range(some.start, some.stop):
            diff = x[component == j] - flat[j]
            expected = diff.T @ diff / max(len(diff), 1)
            assert torch.allclose(covariance[j - some.start], expected, rtol=1e-10, atol=1e-12)
            unbiased = diff.T @ diff / max(len(diff) - 1, 1) + 0.05 * torch.eye(dim, dtype=torch.float64)
            assert torch.allclose(logdet[j], torch.linalg.slogdet(unbiased)[1], rtol=1e-9)


def start_of(x, y, classes, clusters, seed):
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(classes, clusters, x.shape[1], generator=generator, dtype=torch.float64)
    weight = torch.rand(classes, clusters, generator=generator, dtype=torch.float64) + 0.2
    variance = torch.rand(classes, clusters, x.shape[1], generator=generator, dtype=torch.float64) + 0.3
    return Mixture(weight / weight.sum(dim=1, keepdim=True), mean, variance)


def em_loop(x, y, start, steps):
    """SPEC 1.2, `fit=em`, sample by sample."""
    weight, mean, variance = (part.numpy().copy() for part in (start.weight, start.mean, start.variance))
    for c in range(weight.shape[0]):
        rows = x.numpy()[y.numpy() == c]
        for _ in range(steps if len(rows) else 0):
            gamma = np.zeros((len(rows), weight.shape[1]))
            for i, row in enumerate(rows):
                for k in range(weight.shape[1]):
                    density = np.exp(-0.5 * ((row - mean[c, k]) ** 2 / variance[c, k]).sum())
                    gamma[i, k] = weight[c, k] * density / np.sqrt(np.prod(2 * np.pi * variance[c, k]))
                gamma[i] /= gamma[i].sum()
            for k in range(weight.shape[1]):
                mass = gamma[:, k].sum()
                weight[c, k] = mass / len(rows)
                mean[c, k] = (gamma[:, k, None] * rows).sum(axis=0) / mass
                square = (gamma[:, k, None] * (rows - mean[c, k]) ** 2).sum(axis=0) / mass
                variance[c, k] = np.maximum(square, 1e-6)
    return weight, mean, variance


def test_em_equals_the_loop_and_leaves_empty_classes_alone():
    x, y, _, _ = data()
    y = torch.where(y == 2, 3, y)  # class 2 has no samples
    start = start_of(x, y, 4, 3, seed=1)
    result = em(x, group_rows(y, 4), start, steps=6)
    for ours, expected in zip((result.weight, result.mean, result.variance), em_loop(x, y, start, 6), strict=True):
        np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-9)
    assert torch.equal(result.mean[2], start.mean[2])


def test_em_reaches_the_likelihood_of_scikit_learn():
    generator = torch.Generator().manual_seed(3)
    mode = torch.randint(0, 2, (400,), generator=generator)
    x = torch.randn(400, 3, generator=generator, dtype=torch.float64) * (1 + mode[:, None]) + 5 * mode[:, None]
    y = torch.zeros(400, dtype=torch.long)
    start = Mixture(
        torch.full((1, 2), 0.5, dtype=torch.float64),
        torch.tensor([[[0.0] * 3, [4.0] * 3]], dtype=torch.float64),
        torch.ones(1, 2, 3, dtype=torch.float64),
    )
    result = em(x, group_rows(y, 1), start, steps=60)
    reference = GaussianMixture(2, covariance_type="diag", means_init=start.mean[0].numpy(), tol=1e-8, max_iter=500)
    reference.fit(x.numpy())
    np.testing.assert_allclose(result.mean[0].numpy(), reference.means_, rtol=1e-3)
    np.testing.assert_allclose(result.variance[0].numpy(), reference.covariances_, rtol=1e-2)


def test_em_floors_the_variance():
    x = torch.zeros(5, 2, dtype=torch.float64)
    start = Mixture(
        torch.ones(1, 1, dtype=torch.float64), torch.ones(1, 1, 2, dtype=torch.float64), torch.zeros(1, 1, 2).double()
    )
    result = em(x, group_rows(torch.zeros(5, dtype=torch.long), 1), start, steps=3)
    assert torch.equal(result.variance, torch.full_like(result.variance, 1e-6))
    assert torch.allclose(result.mean, torch.zeros(1, 1, 2).double())
