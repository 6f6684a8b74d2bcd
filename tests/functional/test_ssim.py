"""SSIM and PSNR against loops and against closed cases (SPEC 8.2, S8.1, S8.2)."""

from __future__ import annotations

import pytest
import torch
from tests.oracles import image_metrics as oracle

from splitveil.core.errors import InputError
from splitveil.functional.psnr import psnr, psnr_batch, psnr_image, psnr_of_mean
from splitveil.functional.ssim import ssim


def pair(shape: tuple[int, ...], seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(shape, generator=generator, dtype=torch.float64)
    return x, (x + 0.2 * torch.randn(shape, generator=generator, dtype=torch.float64)).clamp(0, 1)


@pytest.mark.parametrize("shape", [(1, 7, 9), (3, 13, 12), (1, 1, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_s8_2_ssim_matches_direct_evaluation(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, y = pair((2, *shape))
    found = ssim(x.to(dtype), y.to(dtype))
    expected = [oracle.ssim(a.tolist(), b.tolist()) for a, b in zip(x, y, strict=True)]
    assert found.tolist() == pytest.approx(expected, rel=1e-5)


def test_s8_1_identical_pictures() -> None:
    x, _ = pair((3, 3, 8, 8))
    assert ssim(x, x).tolist() == pytest.approx([1.0] * 3, abs=1e-12)
    assert psnr(torch.zeros(3)).tolist() == [100.0] * 3


def test_s8_1_constant_offset_gives_twenty_decibels() -> None:
    x = torch.full((5, 1, 6, 6), 0.3, dtype=torch.float64)
    mse = (x + 0.1 - x).square().mean(dim=(1, 2, 3))
    assert float(mse.mean()) == pytest.approx(0.01)
    for reading in (psnr_image, psnr_batch, psnr_of_mean):
        assert float(reading(mse)) == pytest.approx(20.0, abs=1e-9)


def test_s8_2_psnr_ordering_and_size_weights() -> None:
    mse = torch.rand(600, generator=torch.Generator().manual_seed(1), dtype=torch.float64) ** 3 + 1e-4
    image, batch, whole = float(psnr_image(mse)), float(psnr_batch(mse)), float(psnr_of_mean(mse))
    assert image > batch > whole
    pieces = [mse[:256], mse[256:512], mse[512:]]
    expected = sum(len(piece) * oracle.psnr(float(piece.mean())) for piece in pieces) / 600
    assert batch == pytest.approx(expected)
    assert image == pytest.approx(sum(oracle.psnr(value) for value in mse.tolist()) / 600)


def test_ssim_is_differentiable_and_lowest_at_inversion() -> None:
    x, y = pair((2, 1, 6, 6))
    assert torch.autograd.gradcheck(lambda a: ssim(a, y), (x.clone().requires_grad_(),))
    checkers = (torch.arange(8)[:, None] + torch.arange(8)).remainder(2).double()[None, None]
    assert float(ssim(checkers, 1 - checkers)) < -0.5


def test_ssim_refuses_other_shapes() -> None:
    with pytest.raises(InputError, match="one shape"):
        ssim(torch.zeros(2, 1, 4, 4), torch.zeros(2, 1, 4, 5))
