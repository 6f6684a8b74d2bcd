"""A thread that works off what the pages ask for in the background."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

log = logging.getLogger("splitveil.web")


class ClosedError(Exception):
    """The server is stopping: give up what is under way."""


class Worker:
    """Runs tasks one after the other. A task that takes long calls `check` now and then, which ends it at the close."""

    def __init__(self, name: str) -> None:
        # the newest first: it is what somebody is looking at
        self._tasks: queue.LifoQueue[Callable[[], None] | None] = queue.LifoQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"splitveil-{name}", daemon=True)
        self._thread.start()

    def submit(self, task: Callable[[], None]) -> None:
        self._tasks.put(task)

    def check(self) -> None:
        if self._closed.is_set():
            raise ClosedError

    def close(self) -> None:
        self._closed.set()
        self._tasks.put(None)
        self._thread.join(timeout=20)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None and not self._closed.is_set():
            try:
                task()
            except ClosedError:
                return
            except Exception:  # tasks report their own errors; whatever is left must not end the thread
                log.exception("a background task failed")
