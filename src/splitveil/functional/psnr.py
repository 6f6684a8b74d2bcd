"""Peak signal-to-noise ratio in decibels for pictures in [0, 1], in the three readings of SPEC 8.2.

They differ only in where the logarithm is taken, and by convexity always
`psnr_image >= psnr_batch >= psnr_of_mean`.
"""

from __future__ import annotations

from torch import Tensor

MSE_FLOOR = 1e-10  # SPEC 8.2: a perfect reconstruction gives 100 dB instead of infinity
BATCH = 256  # SPEC 8.2: the notes' number is taken over batches of this size


def psnr(mse: Tensor) -> Tensor:
    """-10 log10(MSE), element by element."""
    return -10 * mse.clamp_min(MSE_FLOOR).log10()


def psnr_image(mse: Tensor) -> Tensor:
    """Mean over pictures of their own PSNR; `mse` [N] holds the error of each picture."""
    return psnr(mse).mean()


def psnr_batch(mse: Tensor) -> Tensor:
    """PSNR of each batch's error, averaged with the batch sizes as weights."""
    total = mse.new_zeros(())
    for piece in mse.split(BATCH):
        total = total + psnr(piece.mean()) * len(piece)
    return total / len(mse)


def psnr_of_mean(mse: Tensor) -> Tensor:
    """PSNR of the error over all pictures."""
    return psnr(mse.mean())
