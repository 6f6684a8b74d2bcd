"""A block to a picture's three channels, filled up to eight as on a GPU, gives the numbers of the plain one."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from splitveil.models import decoders
from splitveil.models.decoders import PreActivationBlock


def passed(block: nn.Module, x: Tensor) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Answer and all gradients; the state afterwards."""
    block.zero_grad(set_to_none=True)
    x = x.clone().requires_grad_()
    answer = block(x)
    answer.sin().sum().backward()
    assert x.grad is not None
    slopes = [parameter.grad for parameter in block.parameters()]
    assert all(slope is not None for slope in slopes)
    return [answer.detach(), x.grad, *slopes], block.state_dict()  # type: ignore[list-item]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("width", [1, 3])
def test_filled_channels_change_no_number(width: int, training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    plain = PreActivationBlock(16, width).double().train(training)
    for value in plain.state_dict().values():
        if value.is_floating_point():
            value.copy_(torch.rand_like(value) + 0.1)  # running statistics and weights that are not 0 and 1
    filled = copy.deepcopy(plain)
    x = torch.randn(5, 16, 6, 6, dtype=torch.float64)
    expected, after = passed(plain, x)
    monkeypatch.setattr(decoders, "wants_lanes", lambda x: True)
    widths = []
    monkeypatch.setattr(
        decoders.F,
        "conv2d",
        lambda *args, real=decoders.F.conv2d, **more: (widths.append(len(args[1])), real(*args, **more))[1],
    )
    found, state = passed(filled, x)
    assert widths == [8, 8, 8]
    for value, right in zip(found, expected, strict=True):
        torch.testing.assert_close(value, right)
    for name, value in state.items():
        torch.testing.assert_close(value, after[name])
