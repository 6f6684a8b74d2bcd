"""SSIM and PSNR against another project's (SPEC 8.2), which takes seconds to load: only the tests themselves do."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from splitveil.functional.psnr import psnr
from splitveil.functional.ssim import RADIUS, ssim


def pictures() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(3, 3, 24, 20, generator=generator)
    return x, (x + 0.2 * torch.randn(x.shape, generator=generator)).clamp(0, 1)


def test_ssim_is_theirs_inside_a_frame_of_zeros() -> None:
    """They mirror pictures at the border; inside a frame half as wide as the window they see zeros, as SPEC has it."""
    from torchmetrics.functional.image import structural_similarity_index_measure

    x, y = pictures()
    framed = [F.pad(one, [RADIUS] * 4) for one in (x, y)]
    _, whole = structural_similarity_index_measure(*framed, data_range=1.0, reduction="none", return_full_image=True)
    inside = whole[..., RADIUS:-RADIUS, RADIUS:-RADIUS]
    assert inside.shape == x.shape
    assert ssim(x, y).tolist() == pytest.approx(inside.mean(dim=(1, 2, 3)).tolist(), rel=1e-5)


def test_psnr_is_theirs() -> None:
    from torchmetrics.functional.image import peak_signal_noise_ratio

    x, y = pictures()
    theirs = peak_signal_noise_ratio(y, x, data_range=1.0, reduction="none", dim=(1, 2, 3))
    assert psnr((x - y).square().mean(dim=(1, 2, 3))).tolist() == pytest.approx(theirs.tolist(), rel=1e-5)
