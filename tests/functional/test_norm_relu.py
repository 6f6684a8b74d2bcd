"""Normalisation and ReLU in one: the Triton kernels against float64 arithmetic.

Without a GPU these run where Triton is installed and TRITON_INTERPRET=1 is set: its interpreter executes the kernels.
"""

from __future__ import annotations

import pytest
import torch
from tests.worlds.kernels import DEVICE, NEEDED
from torch import Tensor

from splitveil.functional.norm_relu import norm_relu

pytestmark = NEEDED
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

    def draw(*size):
        return torch.randn(*size, generator=stream)

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


def drawn(*shape: int) -> tuple[Tensor, list[Tensor]]:
    """A batch, and weight, bias, running mean and running variance of its normalisation."""
    stream = torch.Generator().manual_seed(1)
    x = torch.randn(*shape, generator=stream)
    return x.to(DEVICE), [torch.rand(shape[1], generator=stream).to(DEVICE) for _ in range(4)]


def test_channels_to_spare_become_zero_and_change_nothing() -> None:
    x, layer = drawn(5, 3, 6, 6)
    wide = torch.cat([x, torch.zeros(5, 5, 6, 6, device=DEVICE)], dim=1)
    slope = torch.randn(5, 8, 6, 6, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    shift = torch.arange(3.0, device=DEVICE)
    found = []
    for batch in (x, wide):
        given = [value.clone() for value in layer]
        trained = [value.requires_grad_() for value in (batch.clone(), given[0], given[1])]
        y = norm_relu(*trained, *given[2:], shift=shift)
        slopes = torch.autograd.grad(y, trained, slope[:, : batch.shape[1]])
        found.append([y[:, :3], slopes[0][:, :3], *slopes[1:], *given[2:]])
        assert not y[:, 3:].any()
        assert not slopes[0][:, 3:].any()
    for narrow, same in zip(*found, strict=True):
        assert narrow.shape == same.shape
        torch.testing.assert_close(same, narrow)


def test_a_second_backward_pass_gives_the_same_slopes() -> None:
    x, layer = drawn(3, 4, 3, 3)
    trained = [value.requires_grad_() for value in (x, layer[0], layer[1])]
    y = norm_relu(*trained, *layer[2:])
    once, twice = (torch.autograd.grad(y.square().sum(), trained, retain_graph=True) for _ in range(2))
    for first, second in zip(once, twice, strict=True):
        torch.testing.assert_close(second, first)


def test_what_broke_stays_broken() -> None:
    """NaN passes a ReLU, as in torch."""
    x, layer = drawn(2, 3, 4, 4)
    x[1, 1, 2, 3] = torch.nan
    y = norm_relu(x, *layer)
    assert bool(y[:, 1].isnan().all())
    assert not y[:, [0, 2]].isnan().any()


def test_batches_too_large_for_32_bits_are_counted_in_64(monkeypatch: pytest.MonkeyPatch) -> None:
    from splitveil.functional import residual_tiles

    x, layer = drawn(3, 70, 5, 5)
    plain = norm_relu(x, *[value.clone() for value in layer])
    monkeypatch.setattr(residual_tiles, "LARGE", 1)
    assert residual_tiles.Layout(x).tile["WIDE"]
    torch.testing.assert_close(norm_relu(x, *layer), plain)
