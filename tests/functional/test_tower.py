"""A tower of blocks in few kernels: the same numbers as its layers one by one.

Without a GPU these run where Triton is installed and TRITON_INTERPRET=1 is set: its interpreter executes the kernels.
"""

from __future__ import annotations

import copy

import pytest
import torch
from tests.worlds.kernels import DEVICE, NEEDED
from torch import Tensor, nn

from splitveil.attacks.capture import fused
from splitveil.functional.tower import tower
from splitveil.models.decoders import PreActivationBlock, ResidualDecoder

pytestmark = NEEDED


def blocks(count: int, width: int) -> nn.Sequential:
    """Blocks with a ReLU after each; weights and biases far from where they start."""
    torch.manual_seed(width)
    layers = nn.Sequential()
    for _ in range(count):
        layers += nn.Sequential(PreActivationBlock(width, width), nn.ReLU())
    for parameter in layers.parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter, 0.5)
    return layers


def one_by_one(layers: nn.Sequential, x: Tensor, slope: Tensor) -> tuple[Tensor, Tensor, list[Tensor | None]]:
    """Answer, gradient of x and gradients of the parameters, by torch's own layers."""
    layers.zero_grad(set_to_none=True)
    x = x.clone().requires_grad_()
    answer = layers(x)
    answer.backward(slope)
    assert x.grad is not None
    return answer.detach(), x.grad, [parameter.grad for parameter in layers.parameters()]


def at_once(layers: nn.Sequential, x: Tensor, slope: Tensor) -> tuple[Tensor, Tensor, list[Tensor | None]]:
    """The same by `tower`."""
    layers.zero_grad(set_to_none=True)
    x = x.clone().requires_grad_()
    side = torch.cuda.Stream() if DEVICE == "cuda" else None
    answer = tower([block.layers() for block in layers if isinstance(block, PreActivationBlock)], x, side)
    answer.backward(slope)
    assert x.grad is not None
    return answer.detach(), x.grad, [parameter.grad for parameter in layers.parameters()]


@pytest.mark.parametrize(("count", "width", "side"), [(1, 16, 5), (3, 16, 6), (2, 72, 4), (2, 64, 12)])
def test_answers_gradients_and_running_statistics(count: int, width: int, side: int) -> None:
    exact = blocks(count, width).double()
    mine = copy.deepcopy(exact).float().to(DEVICE).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x, slope = torch.rand(9, width, side, side), torch.randn(9, width, side, side)
    expected = one_by_one(exact, x.double(), slope.double())
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        found = at_once(mine, x.to(DEVICE), slope.to(DEVICE))
    torch.testing.assert_close(found[0].cpu().double(), expected[0], rtol=1e-4, atol=1e-4)
    # a number within rounding of a ReLU's kink may fall on its other side, and its slope with it: hence norms
    assert apart(found[1], expected[1]) < 5e-3
    for (name, _), gradient, right in zip(exact.named_parameters(), found[2], expected[2], strict=True):
        assert right is not None
        if name.endswith("first.bias"):  # the normalisation after it takes it out again
            assert gradient is None
            assert float(right.abs().max()) < 1e-9
        else:
            assert gradient is not None
            assert apart(gradient, right) < 5e-3
    for (name, value), right in zip(mine.named_buffers(), exact.buffers(), strict=True):
        if "tracked" not in name:
            torch.testing.assert_close(value.cpu().double(), right, rtol=1e-4, atol=1e-4)


def test_autocast_sets_the_precision_and_gradients_stay_whole() -> None:
    """In half precision it is as near to the exact numbers as torch's own layers are."""
    exact = blocks(2, 16).double()
    mine = copy.deepcopy(exact).float().to(DEVICE).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    theirs = copy.deepcopy(mine)
    x, slope = torch.rand(20, 16, 8, 8), torch.randn(20, 16, 8, 8)
    answer, _, gradients = one_by_one(exact, x.double(), slope.double())
    with torch.autocast(DEVICE, torch.bfloat16):
        found = at_once(mine, x.to(DEVICE), slope.to(DEVICE).bfloat16())
        plain = one_by_one(theirs, x.to(DEVICE).bfloat16(), slope.to(DEVICE).bfloat16())
    assert found[0].dtype == torch.bfloat16
    assert found[1].dtype == torch.float32
    assert apart(found[0], answer) < 2 * apart(plain[0], answer)
    used = [place for place, gradient in enumerate(found[2]) if gradient is not None]
    mine_all, their_all, right_all = (
        torch.cat([values[place].double().cpu().flatten() for place in used])  # type: ignore[union-attr]
        for values in (found[2], plain[2], gradients)
    )
    assert {found[2][place].dtype for place in used} == {torch.float32}  # type: ignore[union-attr]
    assert apart(mine_all, right_all) < 1.5 * apart(their_all, right_all)


@pytest.mark.parametrize(("width", "channels"), [(16, 3), (12, 1), (3, 3)])
def test_a_whole_decoder_with_a_width_of_any_kind(width: int, channels: int) -> None:
    """Filled blocks at either end where widths are no multiples of eight, none where the picture is as wide."""
    torch.manual_seed(width)
    exact = ResidualDecoder((2, 4, 4), (channels, 8, 8), blocks=1, width=width).double()
    for parameter in exact.parameters():
        if parameter.ndim == 1:
            nn.init.normal_(parameter, 0.5, 0.5)
    mine = copy.deepcopy(exact).float().to(DEVICE).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    z, slope = torch.rand(5, 2, 4, 4), torch.randn(5, channels, 8, 8)
    answer = exact(z.double())
    answer.backward(slope.double())
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False), fused(mine):
        found = mine(z.to(DEVICE))
        found.backward(slope.to(DEVICE))
    assert apart(found.detach(), answer.detach()) < 1e-4
    for (name, right), parameter in zip(exact.named_parameters(), mine.parameters(), strict=True):
        assert right.grad is not None
        if parameter.grad is None:  # a bias that a normalisation takes out again
            assert float(right.grad.abs().max()) < 1e-9, name
        else:
            assert parameter.grad.stride() == parameter.stride(), name
            assert apart(parameter.grad, right.grad) < 5e-3, name
    for (name, value), right in zip(mine.named_buffers(), exact.buffers(), strict=True):
        if "tracked" not in name:
            torch.testing.assert_close(value.cpu().double(), right, rtol=1e-4, atol=1e-4)


def apart(value: Tensor, exact: Tensor) -> float:
    return float((value.cpu().double() - exact).norm() / exact.norm())


def test_convolutions_may_answer_in_any_memory_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every library of convolutions keeps channels last; the kernels read memory, not strides."""
    layers = blocks(1, 8).to(DEVICE)
    x, slope = torch.rand(3, 8, 4, 4, device=DEVICE), torch.randn(3, 8, 4, 4, device=DEVICE)
    expected = at_once(copy.deepcopy(layers), x, slope)
    convolution = torch.convolution
    monkeypatch.setattr(torch, "convolution", lambda *given: convolution(*given).contiguous())
    found = at_once(layers, x, slope)
    torch.testing.assert_close(found[:2], expected[:2])
    torch.testing.assert_close(found[2], expected[2])
