"""Records kept beside metrics.jsonl: the log file of a run, and TensorBoard scalars where TensorBoard is installed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from splitveil.training import distributed

EpochCallback = Callable[[dict[str, Any]], None]
"""Called with the numbers of each epoch, as metrics.jsonl keeps them."""

FORMAT = "%(asctime)s %(levelname)s %(message)s"


@contextmanager
def recording(folder: Path, on_epoch: EpochCallback | None = None) -> Iterator[EpochCallback]:
    """Keep train.log and tensorboard/ of the run in `folder`; yields what to call with each epoch's numbers.

    The numbers are passed on to `on_epoch`. Only the main process writes; a resumed run appends.
    """
    with ExitStack() as stack:
        board: EpochCallback | None = None
        if distributed.is_main():
            stack.enter_context(_log_file(folder / "train.log"))
            board = stack.enter_context(_tensorboard(folder / "tensorboard"))

        def record(row: dict[str, Any]) -> None:
            if board is not None:
                board(row)
            if on_epoch is not None:
                on_epoch(row)

        yield record


@contextmanager
def _log_file(path: Path) -> Iterator[None]:
    """Everything that `splitveil.*` logs goes to `path` as well, at the level that the user has chosen.

    A program that has not set up logging gets the informative lines too: without a handler they appear nowhere else.
    """
    logger = logging.getLogger("splitveil")
    level = logger.level
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, mode="a", encoding="utf-8")
    handler.setFormatter(logging.Formatter(FORMAT))
    if not logger.hasHandlers():
        logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        handler.close()


@contextmanager
def _tensorboard(path: Path) -> Iterator[EpochCallback | None]:
    """A function that writes one epoch's numbers, or None where TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        yield None
        return
    writer: Any = None

    def write(row: dict[str, Any]) -> None:
        nonlocal writer
        epoch = int(row["epoch"])
        if writer is None:  # a resumed run may repeat epochs: TensorBoard forgets what was written for them
            writer = SummaryWriter(str(path), purge_step=epoch)
        for name, value in row.items():
            if name != "epoch" and isinstance(value, int | float):
                writer.add_scalar(name, value, epoch)
        writer.flush()

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
