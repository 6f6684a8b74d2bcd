"""An orderly stop: SIGTERM, which time limits and schedulers send, does what Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stopped_in_order() -> Iterator[None]:
    """Within the block SIGTERM, which time limits send, does what Ctrl-C does: the work ends in order."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may change signals
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def interrupt(number: int, frame: object) -> None:
    """Once: a time limit and the parent may both tell a worker, and the second must not break into its goodbye."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt
