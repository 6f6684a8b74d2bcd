"""Functions that are the identity forwards and something else backwards."""

from __future__ import annotations

import torch

from splitveil.functional.graph import finite_gradient, scale_gradient


def test_a_gradient_that_is_not_finite_becomes_zero_and_the_others_stay() -> None:
    x = torch.tensor([0.0, 4.0, -0.0], requires_grad=True)
    y = finite_gradient(x)
    assert torch.equal(y, x)
    y.backward(torch.tensor([torch.nan, 2.5, torch.inf]))
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 2.5, 0.0]


def test_the_gradient_is_multiplied_and_the_value_is_not() -> None:
    """G_κ of SPEC 6.3."""
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    y = scale_gradient(x, torch.tensor(0.32))
    assert torch.equal(y, x)
    (y**2).sum().backward()
    torch.testing.assert_close(x.grad, 0.32 * 2 * x.detach())
