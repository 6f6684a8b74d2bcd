"""Log-determinants through the smaller matrix."""

from __future__ import annotations

import pytest
import torch

from splitveil.functional.gaussian import component_logdet, gram_logdet, log_pivots


@pytest.mark.parametrize("shape", [(3, 8), (8, 3), (5, 5), (1, 4), (2, 3, 6)])
def test_gram_logdet_equals_the_dense_determinant(shape):
    points = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    dense = torch.linalg.slogdet(torch.eye(shape[-1], dtype=torch.float64) + points.mT @ points)[1]
    result = gram_logdet(points)
    assert torch.allclose(result, dense, rtol=1e-10)
    (gradient,) = torch.autograd.grad(result.sum(), points)
    (reference,) = torch.autograd.grad(dense.sum(), points)
    assert torch.allclose(gradient, reference, rtol=1e-9, atol=1e-12)


def test_pivots_of_a_scattered_block_matrix_sum_to_the_block_determinants():
    generator = torch.Generator().manual_seed(1)
    block = torch.tensor([0, 1, 0, 2, 1, 0])
    root = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    matrix = (root @ root.T + torch.eye(6)) * (block[:, None] == block[None])
    pivots, failed = log_pivots(matrix)
    assert not failed
    for b in range(3):
        rows = (block == b).nonzero()[:, 0]
        expected = torch.linalg.slogdet(matrix[rows][:, rows])[1]
        assert torch.allclose(pivots[rows].sum(), expected, rtol=1e-12)


def test_a_failed_factorisation_is_flagged_and_gives_zero_gradients():
    matrix = torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=torch.float64, requires_grad=True)
    pivots, failed = log_pivots(matrix)
    assert failed
    (gradient,) = torch.autograd.grad(pivots.sum(), matrix)
    assert torch.equal(gradient, torch.zeros_like(gradient))


def test_component_logdet_passes_gradcheck():
    generator = torch.Generator().manual_seed(2)
    root = torch.randn(2, 5, 5, generator=generator, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(root @ root.mT)
    own = torch.tensor([0, 1, 0])
    same = (own[:, None] == own[None]).double()
    rho = torch.tensor([0.4, 1.0, 0.4], dtype=torch.float64)
    diff = torch.randn(3, 5, generator=generator, dtype=torch.float64, requires_grad=True)

    def value(d):
        return component_logdet(d, vectors[own], values[own], rho, same.sum(dim=1), same, 0.1)[0]

    assert torch.autograd.gradcheck(value, (diff,))
