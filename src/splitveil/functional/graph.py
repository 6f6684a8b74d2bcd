"""Operations that act on gradients: identity forwards, something else backwards."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _FiniteGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return torch.nan_to_num(grad, nan=0.0, posinf=0.0, neginf=0.0)


class _ScaleGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(factor)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (factor,) = ctx.saved_tensors
        return grad * factor, None


def finite_gradient(x: Tensor) -> Tensor:
    """Identity whose gradient has every non-finite entry replaced by 0 (SPEC 0.3: never NaN, not even 0·Inf)."""
    return _FiniteGradient.apply(x)


def scale_gradient(x: Tensor, factor: Tensor) -> Tensor:
    """G_κ of SPEC 6.3: identity forwards, multiplies the gradient by κ = `factor` backwards."""
    return _ScaleGradient.apply(x, factor)
