"""An orderly stop: SIGTERM, which time limits and schedulers send, does what Ctrl-C does; and Ctrl-C can wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stopped_in_order() -> Iterator[None]:
    """Within the block SIGTERM raises KeyboardInterrupt, so that the work ends in order; elsewhere it is as before."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may change signals
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def interrupt(number: int, frame: object) -> None:
    """The signal handler. Only the first signal counts: a second one must not interrupt the orderly end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextmanager
def ctrl_c_waits() -> Iterator[None]:
    """What is done in the block is done whole: Ctrl-C counts after it."""
    if threading.current_thread() is not threading.main_thread():  # only there Ctrl-C interrupts anything
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)
