"""Class bookkeeping as matrix algebra, so that nothing loops over classes or looks at values on the host; and the two
operations that an absent class would break, division and root.

Legend: B batch, C classes, D feature dim.
"""

from __future__ import annotations

import torch
from torch import Tensor


def class_indicator(y: Tensor, num_classes: int, dtype: torch.dtype, valid: Tensor | None = None) -> Tensor:
    """Indicator matrix of the classes, [C, B]; a sample with `valid` False belongs to no class.

    >>> class_indicator(torch.tensor([0, 2, 2]), 3, torch.float32).sum(dim=1)
    tensor([1., 0., 2.])
    """
    classes = torch.arange(num_classes, device=y.device)
    member = y[None, :] == classes[:, None]  # [C, B]
    if valid is not None:
        member = member & valid[None, :]
    return member.to(dtype)


def safe_divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator / denominator where the denominator is positive, exactly 0 (with zero gradient) elsewhere."""
    positive = denominator > 0
    return torch.where(positive, numerator / torch.where(positive, denominator, torch.ones_like(denominator)), 0.0)


def safe_root(x: Tensor) -> Tensor:
    """√x where x is positive, exactly 0 (with zero gradient) elsewhere: at 0 the derivative of the root is infinite."""
    positive = x > 0
    return torch.where(positive, torch.where(positive, x, 1.0).sqrt(), 0.0)
