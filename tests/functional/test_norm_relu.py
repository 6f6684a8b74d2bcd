"""Normalisation and ReLU in one: the Triton kernels against float64 arithmetic.

Without a GPU these run where Triton is installed and TRITON_INTERPRET=1 is set: its interpreter executes the kernels.
"""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

from splitveil.functional.norm_relu import norm_relu

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1", reason="needs a GPU or Triton's interpreter"
    ),
]
EPS, MOMENTUM = 1e-5, 0.1


def oracle(x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Answer, means and unbiased variances in float64, channel by channel."""
    columns, means, variances = [], [], []
    for channel in range(x.shape[1]):
        values = x[:, channel]
        mean = values.sum() / values.numel()
        square = ((values - mean) ** 2).sum()
        normal = (values - mean) / torch.sqrt(square / values.numel() + EPS)
        answer = weight[channel] * normal + bias[channel]
        columns.append(torch.clamp(answer, min=0) if relu else answer)
        means.append(mean)
        variances.append(square / (values.numel() - 1))
    return torch.stack(columns, dim=1), torch.stack(means), torch.stack(variances)


@pytest.mark.parametrize("shape", [(4, 8, 5, 5), (3, 3, 7, 7), (6, 64, 8, 8), (2, 70, 9, 9), (70, 96, 8, 8)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.bfloat16, 8e-3)])
@pytest.mark.parametrize("relu", [True, False])
def test_values_gradients_and_running_statistics(
    shape: tuple[int, ...], dtype: torch.dtype, tolerance: float, relu: bool
) -> None:
    stream = torch.Generator().manual_seed(shape[1])
    channels = shape[1]
    draw = lambda *size: torch.randn(*size, generator=stream)  # noqa: E731 - one stream for all
    # means far from zero beside small spreads: where a careless variance loses its digits
    x = (draw(*shape) * 0.5 + 5 * draw(1, channels, 1, 1)).to(dtype)
    weight, bias, slope = draw(channels), draw(channels), draw(*shape).to(dtype)
    running_mean, running_var = draw(channels), draw(channels).abs()
    exact = [value.double().requires_grad_() for value in (x, weight, bias)]
    answer, means, variances = oracle(*exact, relu)
    expected = torch.autograd.grad(answer, exact, slope.double())
    mine = [value.to(DEVICE).requires_grad_() for value in (x, weight, bias)]
    after_mean, after_var = running_mean.clone().to(DEVICE), running_var.clone().to(DEVICE)
    found = norm_relu(*mine, after_mean, after_var, momentum=MOMENTUM, eps=EPS, relu=relu)
    slopes = torch.autograd.grad(found, mine, slope.to(DEVICE))
    assert found.dtype == dtype

    def close(value: Tensor, truth: Tensor, allowed: float) -> None:
        assert float((value.detach().cpu().double() - truth).abs().max()) <= allowed * float(truth.abs().max())

    close(found, answer.detach(), tolerance)
    close(slopes[0], expected[0], tolerance)
    close(slopes[1], expected[1], 5e-5)
    close(slopes[2], expected[2], 5e-5)
    close(after_mean, (1 - MOMENTUM) * running_mean.double() + MOMENTUM * means.detach(), 1e-6)
    close(after_var, (1 - MOMENTUM) * running_var.double() + MOMENTUM * variances.detach(), 1e-5)


def test_a_shift_moves_the_running_mean_alone() -> None:
    x = torch.randn(300, 8, 4, 4, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    ones, zeros, shift = torch.ones(8, device=DEVICE), torch.zeros(8, device=DEVICE), torch.arange(8.0, device=DEVICE)
    means, variances = [zeros.clone(), zeros.clone()], [ones.clone(), ones.clone()]
    plain = norm_relu(x, ones, zeros, means[0], variances[0], momentum=MOMENTUM)
    moved = norm_relu(x, ones, zeros, means[1], variances[1], momentum=MOMENTUM, shift=shift)
    torch.testing.assert_close(moved, plain)
    torch.testing.assert_close(means[1], means[0] + MOMENTUM * shift)
    torch.testing.assert_close(variances[1], variances[0])
