"""Entropy estimators against closed forms and numerical integration."""

from __future__ import annotations

import math

import pytest
import torch

from splitveil.core.errors import InputError
from splitveil.functional.entropy import gaussian_entropy, knn_entropy, mixture_entropy_bounds
from splitveil.surrogates import estimators

GAUSS = 0.5 * math.log(2 * math.pi * math.e)  # entropy of N(0, 1)


def normal(size, dim, seed=0, scale=1.0):
    return torch.randn(size, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale


@pytest.mark.parametrize(("dim", "scale"), [(1, 1.0), (2, 0.01), (4, 3.0)])
def test_knn_finds_the_entropy_of_a_gaussian(dim, scale):
    truth = dim * (GAUSS + math.log(scale))
    assert knn_entropy(normal(4000, dim, scale=scale)).item() == pytest.approx(truth, abs=0.1)


def test_knn_needs_more_samples_than_neighbours():
    assert math.isfinite(knn_entropy(normal(4, 2), k=3).item())
    with pytest.raises(ValueError, match="need more than 3 samples, not 3"):
        knn_entropy(normal(3, 2), k=3)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_knn_finds_the_entropy_of_a_uniform_law(k):
    x = torch.rand(4000, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * torch.tensor([2.0, 5.0])
    assert knn_entropy(x, k).item() == pytest.approx(math.log(10.0), abs=0.08)


def test_knn_equals_the_formula_written_out():
    x = normal(20, 3)
    total = 0.0
    for i in range(20):
        distances = sorted((x[i] - x[j]).norm().item() for j in range(20) if j != i)
        total += math.log(distances[1])  # k = 2
    harmonic = sum(1 / n for n in range(1, 20)) - 1.0  # ψ(20) − ψ(2)
    expected = harmonic + math.log(4 / 3 * math.pi) + 3 * total / 20
    assert knn_entropy(x, 2).item() == pytest.approx(expected, rel=1e-12)


def test_knn_of_coinciding_samples_is_minus_infinity():
    assert knn_entropy(torch.zeros(5, 2), 3).item() == -math.inf


def test_gaussian_entropy_has_the_closed_form():
    assert gaussian_entropy(torch.diag(torch.tensor([4.0, 9.0]))).item() == pytest.approx(2 * GAUSS + math.log(6))
    assert gaussian_entropy(torch.zeros(2, 2)).item() == -math.inf


@pytest.mark.parametrize("separation", [0.0, 1.0, 3.0, 20.0])
def test_mixture_bounds_enclose_the_entropy_by_integration(separation):
    weight = torch.tensor([0.3, 0.7], dtype=torch.float64)
    sd = torch.tensor([1.0, 0.5], dtype=torch.float64)
    grid = torch.linspace(-30, 50, 400001, dtype=torch.float64)
    density = sum(weight[k] * torch.distributions.Normal(separation * k, sd[k]).log_prob(grid).exp() for k in range(2))
    truth = -torch.trapezoid(torch.special.xlogy(density, density), grid).item()
    lower, upper = mixture_entropy_bounds(weight, sd.square().reshape(2, 1, 1))
    assert lower.item() <= truth <= upper.item() + 1e-12  # equal to rounding where the modes are far apart
    if separation == 20.0:  # separated modes: the upper bound is tight
        assert upper.item() == pytest.approx(truth, abs=1e-6)
        assert lower.item() < truth - 0.5


def test_a_component_without_weight_does_not_count():
    covariance = torch.stack([torch.eye(2), torch.zeros(2, 2)]).double()
    lower, upper = mixture_entropy_bounds(torch.tensor([1.0, 0.0]).double(), covariance)
    assert lower.item() == pytest.approx(2 * GAUSS)
    assert upper.item() == pytest.approx(2 * GAUSS)


def test_conditional_entropy_averages_the_classes_and_ignores_their_means():
    y = torch.arange(6000) % 3
    scale = torch.tensor([0.1, 1.0, 5.0], dtype=torch.float64)
    z = normal(6000, 2) * scale[y, None] + 100.0 * y[:, None]
    truth = 2 * GAUSS + 2 * scale.log().mean().item()
    for estimate in (estimators.knn(z, y), estimators.gaussian(z, y)):
        assert estimate == pytest.approx(truth, abs=0.1)
    assert estimators.mixture(z, y, num_clusters=1) == pytest.approx(estimators.gaussian(z, y), rel=1e-9)


def test_gaussian_is_above_and_mixture_tight_on_separated_modes():
    mode = torch.arange(4000) // 2 % 2
    z = normal(4000, 2) + 30.0 * mode[:, None]
    y = torch.arange(4000) % 2
    truth = 2 * GAUSS + math.log(2)
    assert estimators.gaussian(z, y) > truth + 1
    assert estimators.mixture(z, y, num_clusters=2) == pytest.approx(truth, abs=0.05)
    assert estimators.knn(z, y) == pytest.approx(truth, abs=0.1)


def test_noise_adds_the_variance_of_the_channel():
    z, y = normal(5000, 2, scale=0.5), torch.zeros(5000, dtype=torch.long)
    truth = 2 * GAUSS + math.log(0.25 + 0.75)
    assert estimators.gaussian(z, y, noise=0.75) == pytest.approx(truth, abs=0.03)
    assert estimators.gaussian(torch.zeros(10, 3), torch.zeros(10, dtype=torch.long), noise=1.0) == pytest.approx(
        3 * GAUSS
    )


def test_small_classes_are_left_out_and_bad_input_is_refused():
    z, y = normal(101, 2), torch.zeros(101, dtype=torch.long)
    y[-1] = 1
    assert estimators.knn(z, y) == pytest.approx(estimators.knn(z[:-1], y[:-1]), rel=1e-12)
    assert math.isnan(estimators.knn(z[:2], y[:2]))
    with pytest.raises(InputError, match="belong"):
        estimators.knn(z, y[:-1])
    with pytest.raises(InputError, match="NaN"):
        estimators.gaussian(z * torch.nan, y)
