"""Records kept beside metrics.jsonl: the log file of a run, and TensorBoard scalars where TensorBoard is installed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from splitveil.training import distributed
from splitveil.training.failures import FULL

EpochCallback = Callable[[dict[str, Any]], None]
"""Called with the numbers of each epoch, as metrics.jsonl keeps them."""

log = logging.getLogger("splitveil.training")

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


class _LogFile(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        """A line that found no room is lost without the traceback that logging prints for it: the terminal has it."""


@contextmanager
def _log_file(path: Path) -> Iterator[None]:
    """Everything that `splitveil.*` logs goes to `path` as well, at the level that the user has chosen.

    A program that has not set up logging gets the informative lines too: without a handler they appear nowhere else.
    """
    logger = logging.getLogger("splitveil")
    level = logger.level
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = _LogFile(path, mode="a", encoding="utf-8")
    handler.setFormatter(logging.Formatter(FORMAT))
    if not logger.hasHandlers():
        logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        with suppress(OSError):
            handler.close()


@contextmanager
def _tensorboard(path: Path) -> Iterator[EpochCallback | None]:
    """A function that writes one epoch's numbers, or None where TensorBoard is not installed.

    Where there is no room for them it says so and gives up: metrics.jsonl has the same numbers, and what training
    itself cannot do without has sentences of its own.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        yield None
        return
    writer: Any = None
    gave_up = False

    def write(row: dict[str, Any]) -> None:
        nonlocal gave_up
        if gave_up:
            return
        try:
            write_row(row)
        except OSError as error:
            gave_up = True
            log.warning("%s cannot be written (%s): TensorBoard gets no further numbers", path, error.strerror or error)

    def write_row(row: dict[str, Any]) -> None:
        nonlocal writer
        epoch = int(row["epoch"])
        if writer is None:  # a resumed run may repeat epochs: TensorBoard forgets what was written for them
            writer = SummaryWriter(str(path), purge_step=epoch)
        for name, value in row.items():
            if name != "epoch" and isinstance(value, int | float):
                writer.add_scalar(name, value, epoch)
        writer.flush()

    try:
        with _no_traceback_of_full_disks():
            yield write
    finally:
        if writer is not None:
            with suppress(OSError):
                writer.close()


@contextmanager
def _no_traceback_of_full_disks() -> Iterator[None]:
    """TensorBoard writes in a thread of its own, whose error `flush` raises again: once is enough."""
    before = threading.excepthook

    def tell(failed: threading.ExceptHookArgs) -> None:
        if not (isinstance(failed.exc_value, OSError) and failed.exc_value.errno in FULL):
            before(failed)

    threading.excepthook = tell
    try:
        yield
    finally:
        threading.excepthook = before
