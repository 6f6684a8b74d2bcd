"""An orderly stop: SIGTERM, which time limits and schedulers send, does what Ctrl-C does; and Ctrl-C can wait.

Neither interrupts an import. Libraries that are half loaded crash, or take the exception for a feature that is missing
here and go on; so it counts as soon as the import has ended.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

IMPORT = "<frozen importlib._bootstrap>"  # the file of Python's own code that imports
LOOK_SECONDS = 0.05  # so often is looked whether an import has ended
LONGEST_IMPORT = 10.0  # seconds; what runs longer is no import but work, such as a script that a user took for a module

_waiting: set[int] = set()  # signals that came inside an import
_due: set[int] = set()  # those of them that have waited


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


def interrupt(number: int, frame: FrameType | None) -> None:
    """The signal handler. Only the first signal counts: a second one must not interrupt the orderly end."""
    if _counts(number, frame):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt


@contextmanager
def ctrl_c_between_imports() -> Iterator[None]:
    """Within the block Ctrl-C interrupts no import. A program that is told to ignore Ctrl-C goes on ignoring it."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _interrupt_between_imports)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt_between_imports(number: int, frame: FrameType | None) -> None:
    if _counts(number, frame):
        raise KeyboardInterrupt


def _counts(number: int, frame: FrameType | None) -> bool:
    """Whether a signal counts now; one that came inside an import is sent again when that has ended."""
    if number in _due or not _imports(frame):
        _due.discard(number)
        _waiting.discard(number)  # what came before counts with this one, not a second time
        return True
    if number not in _waiting:  # however often Ctrl-C is pressed meanwhile
        _waiting.add(number)
        threading.Thread(target=_send_after_import, args=(number,), daemon=True).start()
    return False


def _send_after_import(number: int) -> None:
    latest = time.monotonic() + LONGEST_IMPORT
    main = threading.main_thread().ident or 0
    while time.monotonic() < latest and _imports(sys._current_frames().get(main)):
        time.sleep(LOOK_SECONDS)
    if number not in _waiting:
        return
    _waiting.discard(number)
    _due.add(number)
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main, number)  # a real signal: it wakes what sleeps
    else:  # Windows
        _thread.interrupt_main(signal.Signals(number))


def _imports(frame: FrameType | None) -> bool:
    """Whether this code was called, however deep, by an import."""
    while frame is not None:
        if frame.f_code.co_filename == IMPORT:
            return True
        frame = frame.f_back
    return False


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
