"""Convolutions whose weights get their gradient beside the chain: the same numbers as torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from splitveil.functional.beside import convolve_beside

CUDA = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
LAYERS = {
    "plain": lambda: nn.Conv2d(4, 6, 3, padding=1),
    "no bias": lambda: nn.Conv2d(4, 6, 1, bias=False),
    "strided": lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1),
    "transposed": lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1),
}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=CUDA)])
@pytest.mark.parametrize("name", sorted(LAYERS))
def test_answers_and_gradients_are_those_of_the_layer(name: str, device: str) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name]().double().to(device)
    start = torch.rand(3, 4, 8, 8, dtype=torch.float64, device=device)
    side = torch.cuda.Stream() if device == "cuda" else None
    found = []
    for beside in (False, True):
        x = start.clone().requires_grad_()
        layer.zero_grad(set_to_none=True)
        y = convolve_beside(layer, x, side) if beside else layer(x)
        y.sin().sum().backward()
        found.append([y.detach(), x.grad, *(parameter.grad for parameter in layer.parameters())])
    for expected, value in zip(*found, strict=True):
        torch.testing.assert_close(value, expected)


def test_gradients_add_up_like_torchs_own() -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(2, 2, 3)
    x = torch.rand(1, 2, 5, 5, requires_grad=True)
    convolve_beside(layer, x, None).sum().backward()
    assert layer.weight.grad is not None
    once = layer.weight.grad.clone()
    convolve_beside(layer, x, None).sum().backward()
    torch.testing.assert_close(layer.weight.grad, 2 * once)


def test_autocast_sets_the_precision_and_gradients_stay_whole() -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(4, 4, 3)
    x = torch.rand(2, 4, 6, 6, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = convolve_beside(layer, x, None)
        same = layer(x)
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, same)
    y.float().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32
    assert x.grad is not None
    assert x.grad.dtype == torch.float32


@pytest.mark.parametrize("needs", [True, False])
def test_a_bias_may_be_left_out_and_then_gets_no_gradient(needs: bool) -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(4, 6, 3)
    assert layer.bias is not None
    x = torch.rand(2, 4, 8, 8, requires_grad=needs)
    y = convolve_beside(layer, x, None, biased=False)
    torch.testing.assert_close(y + layer.bias[:, None, None], layer(x))
    y.sum().backward()
    assert layer.weight.grad is not None
    assert layer.bias.grad is None


@pytest.mark.parametrize("needs", [True, False])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("more", "surplus"), [(5, 0), (0, 3), (5, 3)])
def test_channels_to_spare_change_no_number(more: int, surplus: int, biased: bool, needs: bool) -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(4, 3, 3, padding=1).double()
    start = torch.rand(2, 4 + surplus, 6, 6, dtype=torch.float64)  # what is in a surplus channel does not matter
    found = []
    for beside in (False, True):
        x = start.clone().requires_grad_(needs)
        layer.zero_grad(set_to_none=True)
        if beside:
            y = convolve_beside(layer, x, None, biased=biased, more=more)
            assert y.shape[1] == 3 + more
            assert not y[:, 3:].any()
            y.square().sum().backward()
        else:
            y = nn.functional.conv2d(x[:, :4], layer.weight, layer.bias if biased else None, padding=1)
            y.square().sum().backward()
        found.append([y[:, :3].detach(), x.grad, layer.weight.grad, layer.bias.grad])  # type: ignore[union-attr]
    for expected, value in zip(*found, strict=True):
        torch.testing.assert_close(value, expected)
    assert layer.weight.grad is not None
    assert layer.weight.grad.stride() == layer.weight.stride()  # as fused optimisers want it
