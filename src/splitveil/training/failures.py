"""Failures that are not the code's: a device without memory, a disk without space. Each is said in a sentence."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from splitveil.core.errors import TrainingError

FULL = (errno.ENOSPC, errno.EDQUOT)
FREE_SPACE = "Free some disk space and continue with --resume; checkpoints that were written before are intact."


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn a lack of memory, or of space for `folder`, into a TrainingError that says what to lower or to free."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory(error) from None
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise TrainingError(f"The disk of {folder} is full.", FREE_SPACE) from None


def is_out_of_memory(error: BaseException) -> bool:
    """torch has a class of its own for GPUs; its CPU allocator and cuBLAS raise RuntimeError with these words."""
    words = ("can't allocate memory", "not enough memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(word in str(error) for word in words)


def out_of_memory(error: BaseException) -> TrainingError:
    """What to tell a user whose device is too small."""
    wanted = re.search(r"tried to allocate ([\d.]+) ?(\w+)", str(error), re.IGNORECASE)
    size = ""
    if wanted is not None:
        number, unit = wanted.groups()
        size = f" {float(number) / 2**20:.0f} MiB more" if unit == "bytes" else f" {number} {unit} more"
    return TrainingError(
        f"Out of memory: training needs{size or ' more than there is'}.",
        "Lower train.batch_size, surrogate.memory or surrogate.proj_dim, or choose a narrower defence.bottleneck.",
    )
