"""What an engine is: something that takes tasks and later says how they ended. The local one uses processes."""

from __future__ import annotations

import faulthandler
import logging
import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Protocol

from splitveil.core.errors import SplitveilError
from splitveil.core.stopping import ctrl_c_waits, interrupt
from splitveil.experiments.sweep.folder import SweepFolder
from splitveil.experiments.sweep.runner import Outcome, Task, prepare_process, record_error, run_cell

log = logging.getLogger("splitveil.sweep")

ATTEMPTS = 3  # a worker may die so often over one cell: the third time it is the cell's fault
GOODBYE_SECONDS = 30.0  # for a worker that is told to stop: it notes in the manifest that it was interrupted


class Engine(Protocol):
    """Runs tasks somewhere."""

    workers: int

    def submit(self, task: Task) -> None:
        """Queue one task."""

    def poll(self, seconds: float) -> list[Outcome]:
        """Wait at most so long; what has ended since the last call."""

    def running(self) -> list[str]:
        """Ids of the cells that are being worked on."""

    def close(self) -> None:
        """Stop all work; what runs is interrupted and can go on later."""


class LocalEngine:
    """Persistent worker processes, each running cell after cell; one that dies is replaced and its cell goes on."""

    def __init__(self, workers: int, device: str, logfile: Path) -> None:
        self.workers, self.device, self.logfile = workers, device, logfile
        self.waiting: deque[Task] = deque()
        self.crew: list[_Worker] = []
        self.deaths: Counter[str] = Counter()

    def submit(self, task: Task) -> None:
        self.waiting.append(task)
        self._assign()

    def running(self) -> list[str]:
        return [worker.task.id for worker in self.crew if worker.task is not None]

    def poll(self, seconds: float) -> list[Outcome]:
        ready = wait([worker.pipe for worker in self.crew], seconds)
        outcomes = [self._hear(worker) for worker in list(self.crew) if worker.pipe in ready]
        self._assign()
        return [outcome for outcome in outcomes if outcome is not None]

    def _assign(self) -> None:
        for worker in self.crew:
            if worker.task is None and self.waiting:
                worker.give(self.waiting.popleft())
        while self.waiting and len(self.crew) < self.workers:
            self.crew.append(_Worker(self.device, self.workers, self.logfile))
            self.crew[-1].give(self.waiting.popleft())

    def _hear(self, worker: _Worker) -> Outcome | None:
        """A message from a worker, or its death."""
        try:
            outcome: Outcome = worker.pipe.recv()
        except (EOFError, OSError):
            return self._died(worker)
        worker.task = None
        return outcome

    def _died(self, worker: _Worker) -> Outcome | None:
        self.crew.remove(worker)
        worker.process.join(GOODBYE_SECONDS)
        task, code = worker.task, worker.process.exitcode
        if task is None:
            return None
        self.deaths[task.id] += 1
        reason = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        if self.deaths[task.id] < ATTEMPTS:
            log.warning("a worker died (%s) over %s; the cell goes on in a new one", reason, task.label)
            self.waiting.appendleft(task)
            return None
        error = SplitveilError(
            f"The worker process died {ATTEMPTS} times over this cell (the last time by {reason}).",
            f"Memory is a usual cause: use fewer --workers; see {self.logfile.name}.",
        )
        return record_error(SweepFolder(task.out).run(task.id), task.id, error)

    def close(self) -> None:
        try:
            for worker in self.crew:
                worker.pipe.close()
                if worker.task is not None:
                    worker.process.terminate()
            for worker in self.crew:
                worker.process.join(GOODBYE_SECONDS)
        finally:  # also when a second Ctrl-C comes while waiting
            for worker in self.crew:
                worker.process.kill()


class _Worker:
    """A worker process as its parent sees it."""

    def __init__(self, device: str, workers: int, logfile: Path) -> None:
        context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
        self.pipe, theirs = context.Pipe()
        self.task: Task | None = None
        self.process: SpawnProcess = context.Process(target=_work, args=(theirs, device, workers, logfile), daemon=True)
        with ctrl_c_waits(), _deaf():
            self.process.start()
        theirs.close()  # so that the worker's death closes the pipe

    def give(self, task: Task) -> None:
        self.task = task
        with suppress(OSError):  # it has just died: the next poll finds out
            self.pipe.send(task)


def _work(pipe: Connection, device: str, workers: int, logfile: Path) -> None:
    """The life of a worker process."""
    threading.Thread(target=_die_with_parent, daemon=True).start()
    handle = os.open(logfile, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    faulthandler.enable()
    prepare_process(device, workers)
    with suppress(EOFError, OSError, KeyboardInterrupt):  # the parent closed the pipe, or asked to stop
        # Ctrl-C is for the parent, which then tells its workers in this way. Before this line there is no cell to
        # leave in order, and the signal simply ends the process.
        signal.signal(signal.SIGTERM, interrupt)
        while True:
            pipe.send(run_cell(pipe.recv()))


@contextmanager
def _deaf() -> Iterator[None]:
    """A process that starts in here never hears Ctrl-C: it inherits that the signal is blocked."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # it comes with the first process, and its start unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _die_with_parent() -> None:
    """A sweep that was killed must not leave workers behind that write into its cells."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
