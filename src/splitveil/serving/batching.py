"""Micro-batching: requests that wait at the same time go through the network together.

One thread runs the network. It takes what came while it was busy, up to `max_batch` pictures; where fewer wait it can
give others `max_wait_ms` to come, which pays only where the network costs far more than a request. Every picture's
answer is its own: the network treats rows independently, so the answers are those of one request at a time, up to the
rounding of another order of summation.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from splitveil.core.errors import ServingError
from splitveil.serving.wire import Values


class BusyError(ServingError):
    """More waits than the server wants to keep; the same request may succeed a moment later."""


@dataclass(frozen=True, eq=False)
class _Job:
    values: Values  # [B, ...]
    answer: Future[Values] = field(default_factory=Future)


STOP = _Job(np.zeros(0, np.float32))


class Batcher:
    """Runs `network` on batches. `observe` is told the size of each; `max_waiting` pictures may wait at once."""

    def __init__(
        self,
        network: Callable[[Values], Values],
        *,
        max_batch: int = 64,
        max_wait_ms: float = 0.0,
        max_waiting: int = 4096,
        observe: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._network, self._observe = network, observe
        self._max_batch, self._max_wait, self._max_waiting = max_batch, max_wait_ms / 1000, max_waiting
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting, self._closed = 0, False
        self._thread = threading.Thread(target=self._work, name="splitveil-batches", daemon=True)
        self._thread.start()

    def submit(self, values: Values) -> Future[Values]:
        """The answer for `values` [B, ...], as soon as there is one. `BusyError` where too many wait already."""
        job = _Job(values)
        with self._lock:
            if self._closed:
                raise BusyError("The server is shutting down.")
            # one message alone is always taken: its size has a limit of its own
            if self._waiting and self._waiting + len(values) > self._max_waiting:
                raise BusyError("The server has too much to do.", "Try again in a moment.")
            self._waiting += len(values)
            self._jobs.put(job)
        return job.answer

    def close(self) -> None:
        """Answer what waits, then stop."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._jobs.put(STOP)
        self._thread.join()

    def _work(self) -> None:
        following: _Job | None = None
        while True:
            first = following or self._jobs.get()
            if first is STOP:
                return
            batch, following = self._gather(first)
            with self._lock:
                self._waiting -= sum(len(job.values) for job in batch)
            # who has hung up in the meantime needs no answer
            self._answer([job for job in batch if job.answer.set_running_or_notify_cancel()])

    def _gather(self, first: _Job) -> tuple[list[_Job], _Job | None]:
        """A batch that begins with `first`; and the job that ended it, where one did: it begins the next."""
        batch, size, end = [first], len(first.values), time.monotonic() + self._max_wait
        while size < self._max_batch:
            try:
                following = self._jobs.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                break
            if following is STOP or size + len(following.values) > self._max_batch:
                return batch, following
            batch.append(following)
            size += len(following.values)
        return batch, None

    def _answer(self, batch: list[_Job]) -> None:
        if not batch:
            return
        try:
            answers = self._run(np.concatenate([job.values for job in batch]))
        except Exception as error:  # whatever the network raises: the thread must live on
            if len(batch) == 1:
                batch[0].answer.set_exception(error)
                return
            for job in batch:  # one by one: who did not cause it gets an answer
                self._answer([job])
            return
        start = 0
        for job in batch:
            job.answer.set_result(answers[start : start + len(job.values)])
            start += len(job.values)

    def _run(self, values: Values) -> Values:
        parts = []
        for start in range(0, len(values), self._max_batch):  # a message may have more pictures than a batch
            part = values[start : start + self._max_batch]
            parts.append(self._network(part))
            self._observe(len(part))
        return np.concatenate(parts)
