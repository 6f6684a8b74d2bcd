"""A small split network, and what its gradients must be, worked out by hand."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import splitveil as sv
from splitveil.surrogates.base import Surrogate

CLASSES, PIXELS, WIDTH, BATCH, WEIGHT = 3, 6, 4, 12, 7.0


def network() -> nn.Module:
    torch.manual_seed(0)
    edge = nn.Sequential(nn.Linear(PIXELS, WIDTH, bias=False), nn.BatchNorm1d(WIDTH), nn.Sigmoid())
    return nn.Sequential(edge, nn.Linear(WIDTH, CLASSES))


def surrogate(name: str) -> Surrogate:
    torch.manual_seed(1)
    return sv.surrogates.create(name, feature_shape=(WIDTH,), num_classes=CLASSES, sigma=0.05)


def pictures(count: int) -> tuple[Tensor, Tensor]:
    y = torch.arange(count) % CLASSES
    x = torch.randn(count, PIXELS, generator=torch.Generator().manual_seed(2))
    return x + F.one_hot(y, PIXELS), y


def by_hand(
    net: nn.Module, loss: Surrogate, batches: Sequence[tuple[Tensor, Tensor]], weight: float, precision: Any = None
) -> dict[str, Tensor]:
    """Mean over `batches` of ∇task + weight·∇rob (+ ∇fit for the surrogate's own), one backward pass for each part."""
    net, loss = copy.deepcopy(net).train(), copy.deepcopy(loss).train()
    total: dict[str, Tensor] = {}

    def add(value: Tensor, factor: float) -> None:
        named = [*net.named_parameters(), *((f"surrogate.{n}", p) for n, p in loss.named_parameters())]
        gradients = torch.autograd.grad(value, [p for _, p in named], retain_graph=True, allow_unused=True)
        for (name, _), gradient in zip(named, gradients, strict=True):
            if gradient is not None:
                total[name] = total.get(name, torch.zeros(())) + factor * gradient / len(batches)

    for x, y in batches:
        with nullcontext() if precision is None else torch.autocast("cpu", dtype=precision):
            z = net[0](x)  # type: ignore[index]
            add(F.cross_entropy(net[1](z), y), 1.0)  # type: ignore[index]
        if weight > 0:
            out = loss(z, y, epoch=1)
            add(out.loss, weight)
            if out.fit_loss.requires_grad:
                add(out.fit_loss, 1.0)
    return total


def gradients(net: nn.Module, loss: Surrogate) -> dict[str, Tensor]:
    """What a training loop has left in `.grad`."""
    named = [*net.named_parameters(), *((f"surrogate.{n}", p) for n, p in loss.named_parameters())]
    return {name: p.grad.clone() for name, p in named if p.grad is not None}


def assert_same(found: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float = 1e-5) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert torch.allclose(found[name], value, rtol=tolerance, atol=tolerance * float(value.abs().max())), name
