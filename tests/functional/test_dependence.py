"""Distance correlation, HSIC and COCO against loops, hand-worked cases and what they must tell apart."""

from __future__ import annotations

import math

import pytest
import torch

from splitveil.core.errors import InputError
from splitveil.functional.dependence import (
    alignment,
    coco,
    distance_correlation,
    distances,
    gaussian_kernel,
    hsic,
    squared_distances,
)


def rows(n, d, seed=0, dtype=torch.float64):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def loop_distance_correlation(x, z, unbiased=False):
    """Székely, Rizzo and Bakirov 2007 (and the bias-corrected form of 2013), as written, with loops."""
    n = len(x)

    def centred(points):
        a = [[math.dist(p, q) for q in points] for p in points]
        total = sum(map(sum, a))
        out = [[0.0] * n for _ in range(n)]
        for i in range(n):
            for j in range(n):
                if unbiased:
                    if i != j:
                        out[i][j] = a[i][j] - sum(a[i]) / (n - 2) - sum(a[j]) / (n - 2) + total / ((n - 1) * (n - 2))
                else:
                    out[i][j] = a[i][j] - sum(a[i]) / n - sum(a[j]) / n + total / n**2
        return out

    a, b = centred(x.tolist()), centred(z.tolist())

    def inner(p, q):
        return sum(p[i][j] * q[i][j] for i in range(n) for j in range(n))

    ratio = inner(a, b) / math.sqrt(inner(a, a) * inner(b, b))
    return ratio if unbiased else math.sqrt(ratio)


@pytest.mark.parametrize("unbiased", [False, True])
def test_distance_correlation_against_loops(unbiased):
    x, z = rows(7, 3, 1), rows(7, 2, 2)
    value = distance_correlation(x, z, unbiased=unbiased)
    assert float(value) == pytest.approx(loop_distance_correlation(x, z, unbiased), rel=1e-10)


def test_the_unbiased_form_needs_four_samples():
    assert math.isfinite(float(distance_correlation(rows(4, 2), rows(4, 2, 1), unbiased=True)))
    for few in (2, 3):
        with pytest.raises(InputError, match="4 or more"):
            distance_correlation(rows(few, 2), rows(few, 2, 1), unbiased=True)


def test_hand_worked_case():
    """x = -1, 0, 1 and y = x²: dCov² = 72/729, dVar = 360/729 and 144/729, so dCor² = 72/√(360·144) = 1/√10."""
    x = torch.tensor([[-1.0], [0.0], [1.0]])
    assert float(distance_correlation(x, x**2)) == pytest.approx(10**-0.25, rel=1e-6)


def test_squared_distances_would_miss_the_parabola():
    """The mutation that public code makes: with squared distances the same formula gives 0 for y = x²."""
    x = torch.tensor([[-1.0], [0.0], [1.0]], dtype=torch.float64)
    a, b = squared_distances(x), squared_distances(x**2)
    centre = torch.eye(3, dtype=torch.float64) - 1 / 3
    assert abs(float(((centre @ a @ centre) * (centre @ b @ centre)).sum())) < 1e-12


def test_zero_for_independent_and_clearly_positive_for_a_parabola():
    n = 300
    independent, dependent = [], []
    for seed in range(12):
        x, noise = rows(n, 1, seed), rows(n, 1, seed + 100)
        independent.append(float(distance_correlation(x, noise, unbiased=True)))
        dependent.append(float(distance_correlation(x, x**2, unbiased=True)))
    mean = sum(independent) / len(independent)
    spread = (sum((v - mean) ** 2 for v in independent) / (len(independent) - 1)) ** 0.5
    assert abs(mean) < 4 * spread / math.sqrt(len(independent))
    assert min(dependent) > 0.15
    assert min(dependent) > 10 * max(map(abs, independent))
    plain = [float(distance_correlation(rows(size, 1, 5), rows(size, 1, 6))) for size in (30, 600)]
    assert plain[1] < 0.5 * plain[0]  # the plain estimate is biased, and the bias goes away with the batch


def test_line_gives_one_and_scale_and_shift_do_not_matter():
    x = rows(9, 1)
    assert float(distance_correlation(x, -3 * x + 2)) == pytest.approx(1.0, rel=1e-9)
    z = rows(9, 4, 3)
    assert float(distance_correlation(x, z)) == pytest.approx(float(distance_correlation(5 * x, 0.1 * z + 7)), rel=1e-9)


def test_gradient_of_distance_correlation():
    z = rows(6, 3, 4).requires_grad_()
    x = rows(6, 2, 5)
    assert torch.autograd.gradcheck(lambda v: distance_correlation(x, v), (z,))
    assert torch.autograd.gradcheck(lambda v: distance_correlation(x, v, unbiased=True), (z,))


def test_equal_rows_and_constants_have_finite_gradients():
    z = torch.ones(5, 3, requires_grad=True)
    value = distance_correlation(rows(5, 2, dtype=torch.float32), z)
    value.backward()
    assert float(value.detach()) == 0.0
    assert torch.equal(z.grad, torch.zeros(5, 3))
    pair = rows(6, 3, 8, torch.float32)
    pair[1] = pair[0]
    pair.requires_grad_()
    distance_correlation(rows(6, 2, 9, torch.float32), pair).backward()
    assert bool(torch.isfinite(pair.grad).all())


def test_distances_in_float32_far_from_the_origin():
    x = rows(6, 3, 1)
    exact = torch.cdist(x, x)
    assert torch.allclose(distances((x + 1000).float()).double(), exact, rtol=1e-3, atol=1e-3)


def test_hsic_against_loops():
    k, kl = gaussian_kernel(rows(6, 2, 1)), gaussian_kernel(rows(6, 3, 2))
    n = 6
    h = [[(i == j) - 1 / n for j in range(n)] for i in range(n)]
    total = 0.0
    for a in range(n):
        for b in range(n):
            for c in range(n):
                for d in range(n):
                    total += float(k[a, b]) * h[b][c] * float(kl[c, d]) * h[d][a]
    assert float(hsic(k, kl)) == pytest.approx(total / (n - 1) ** 2, rel=1e-10)


def test_kernel_by_hand():
    """Points 0, 1: squared distances 0 1 1 0, mean ½, so k_01 = exp(-1/(2·½)) = 1/e; width 2 gives e^(-1/4)."""
    x = torch.tensor([[0.0], [1.0]])
    assert float(gaussian_kernel(x)[0, 1]) == pytest.approx(math.exp(-1))
    assert float(gaussian_kernel(x, width=2.0)[0, 1]) == pytest.approx(math.exp(-0.25))


def test_alignment_is_one_with_itself_and_small_for_independent():
    k = gaussian_kernel(rows(200, 1, 1))
    assert float(alignment(k, k)) == pytest.approx(1.0, rel=1e-9)
    assert float(alignment(k, gaussian_kernel(rows(200, 1, 2)))) < 0.1
    assert float(alignment(k, torch.ones_like(k))) == pytest.approx(0.0, abs=1e-9)


def test_coco_against_eigenvalues():
    k, kl = gaussian_kernel(rows(8, 2, 1)), gaussian_kernel(rows(8, 2, 2))
    centre = torch.eye(8, dtype=torch.float64) - 1 / 8
    eigenvalues = torch.linalg.eigvals(centre @ k @ centre @ centre @ kl @ centre).real
    assert float(coco(k, kl, iterations=500)) == pytest.approx(math.sqrt(float(eigenvalues.max())) / 8, rel=1e-8)


def test_gradients_of_hsic_alignment_and_coco():
    z, kl = rows(6, 2, 3).requires_grad_(), gaussian_kernel(rows(6, 2, 4))
    with torch.no_grad():
        width = squared_distances(z).mean()

    def kernel(v):
        return torch.exp(-squared_distances(v) / (2 * width))

    for measure in (hsic, alignment, lambda a, b: coco(a, b, iterations=800)):
        assert torch.autograd.gradcheck(lambda v, m=measure: m(kernel(v), kl), (z,), atol=1e-6)
