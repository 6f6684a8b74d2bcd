"""How close reconstructions are to the pictures: error of every picture, and the numbers of SPEC 8.2."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from splitveil.core.errors import InputError
from splitveil.data.augment import to_float
from splitveil.functional.psnr import psnr, psnr_batch, psnr_image, psnr_of_mean
from splitveil.functional.ssim import ssim

# Pictures compared at once; scores do not depend on it. The similarity maps of many more outgrow what the C library's
# allocator keeps (32 MiB), and fetching their memory anew from the system takes as long as the arithmetic.
CHUNK = 128

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class PictureScores:
    """Error of each picture: mse [N] and ssim [N], float64 on the CPU."""

    mse: Tensor
    ssim: Tensor

    def __len__(self) -> int:
        return len(self.mse)

    @property
    def psnr(self) -> Tensor:
        return psnr(self.mse)

    def subset(self, index: Tensor) -> PictureScores:
        return PictureScores(self.mse[index], self.ssim[index])

    def means(self) -> dict[str, float]:
        """MSE, SSIM and the three readings of PSNR; `psnr` is the mean over pictures (DESIGN 2)."""
        return {
            "mse": float(self.mse.mean()),
            "ssim": float(self.ssim.mean()),
            "psnr": float(psnr_image(self.mse)),
            "psnr_batch": float(psnr_batch(self.mse)),
            "psnr_of_mean": float(psnr_of_mean(self.mse)),
        }


@torch.no_grad()
def compare(reconstructions: Tensor, pictures: Tensor) -> PictureScores:
    """Scores of float reconstructions [N, ch, h, w] in [0, 1] against pictures of the same shape: uint8, or
    floats in [0, 1].

    In float64: scores are compared, subtracted and resampled afterwards, and nothing here is slow.
    """
    if reconstructions.shape != pictures.shape:
        raise InputError(f"The reconstructions are {list(reconstructions.shape)}, the pictures {list(pictures.shape)}.")
    errors, similarities = [], []
    for answer, picture in zip(reconstructions.split(CHUNK), pictures.split(CHUNK), strict=True):
        x = answer.double()
        y = (picture if picture.is_floating_point() else to_float(picture)).double()
        errors.append((x - y).square().mean(dim=(1, 2, 3)))
        similarities.append(ssim(x, y))
    mse, similarity = torch.cat(errors).cpu(), torch.cat(similarities).cpu()
    if not bool(mse.isfinite().all()):
        raise InputError("The reconstructions hold values that are not finite.")
    return PictureScores(mse, similarity)


def worst_case(scores: Mapping[Name, PictureScores]) -> tuple[PictureScores, list[Name]]:
    """For each picture the answer with the lowest MSE over all attacks, and the name of that attack.

    Only pictures that every attack looked at count: elsewhere the strongest may be missing, and the mean would hide
    what it found. They are the first ones, for every attack takes the pictures in the same order. SSIM is that of the
    same answer, except where another attack's SSIM is higher: each measure reports its own worst case.
    """
    names = list(scores)
    count = min(len(one) for one in scores.values())
    mse = torch.stack([one.mse[:count] for one in scores.values()]).double()
    similarity = torch.stack([one.ssim[:count] for one in scores.values()]).double()
    lowest = mse.min(dim=0)
    return PictureScores(lowest.values, similarity.max(dim=0).values), [names[int(row)] for row in lowest.indices]
