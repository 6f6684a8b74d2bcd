"""The same cells as Ray tasks, on this machine or on a cluster whose machines share the sweep's folder.

Without `RAY_ADDRESS` a Ray of `workers` processes is started here and stopped at the end.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections import deque
from typing import Any

from splitveil.core.errors import MissingExtraError, SplitveilError, reason
from splitveil.experiments.sweep.engine import ATTEMPTS, GOODBYE_SECONDS
from splitveil.experiments.sweep.folder import SweepFolder
from splitveil.experiments.sweep.runner import Outcome, Task, prepare_process, record_error, run_cell


class RayEngine:
    """At most `workers` tasks at a time; Ray itself runs a task again whose worker died."""

    def __init__(self, workers: int, device: str) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere unless the user wants it
        try:
            import ray
        except ImportError:
            raise MissingExtraError("ray", "ray") from None
        self.ray: Any = ray
        self.workers = workers
        self.waiting: deque[Task] = deque()
        self.tasks: dict[Any, Task] = {}
        elsewhere = "RAY_ADDRESS" in os.environ
        if not ray.is_initialized():
            size = {} if elsewhere else {"num_cpus": workers, "include_dashboard": False}
            before = signal.getsignal(signal.SIGTERM)
            ray.init(log_to_driver=False, logging_level=logging.WARNING, **size)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before)  # Ray's own handler would end the sweep without a word
        gpus = float(ray.cluster_resources().get("GPU", 0)) if device == "cuda" else 0.0
        share = min(1.0, int(1e4 * gpus / workers) / 1e4)  # Ray counts a GPU in parts of a ten thousandth
        # max_calls=0: a process lives on for the next cell, so that start-up is paid once, also with a GPU
        remote = ray.remote(num_cpus=1, num_gpus=share, max_retries=ATTEMPTS - 1, max_calls=0)
        self.remote: Any = remote(_cell)
        self.device = device

    def submit(self, task: Task) -> None:
        self.waiting.append(task)
        self._assign()

    def running(self) -> list[str]:
        return [task.id for task in self.tasks.values()]

    def poll(self, seconds: float) -> list[Outcome]:
        if not self.tasks:
            return []
        self.ray.wait(list(self.tasks), num_returns=1, timeout=seconds)
        ready, _ = self.ray.wait(list(self.tasks), num_returns=len(self.tasks), timeout=0)
        outcomes = [self._outcome(reference) for reference in ready]
        self._assign()
        return outcomes

    def close(self) -> None:
        running = list(self.tasks)
        for reference in running:
            self.ray.cancel(reference)  # arrives as KeyboardInterrupt: the cell notes that it was interrupted
        try:
            if running:
                self.ray.wait(running, num_returns=len(running), timeout=GOODBYE_SECONDS)
        finally:
            self.ray.shutdown()

    def _assign(self) -> None:
        while self.waiting and len(self.tasks) < self.workers:
            task = self.waiting.popleft()
            self.tasks[self.remote.remote(task, self.device, self.workers)] = task

    def _outcome(self, reference: Any) -> Outcome:
        task = self.tasks.pop(reference)
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.LocalRayletDiedError:  # no cell's fault, and no cell can run any more
            raise SplitveilError(
                "Ray died on this machine, and the sweep with it.",
                "No cell is lost: run the same command again to go on. Memory is a usual cause: use fewer --workers.",
            ) from None
        except self.ray.exceptions.RayError as error:
            why = reason(error, type(error).__name__)
            failure = SplitveilError(f"The worker process died {ATTEMPTS} times over this cell: {why}")
            return record_error(SweepFolder(task.out).run(task.id), task.id, failure)


def _cell(task: Task, device: str, workers: int) -> Outcome:
    prepare_process(device, workers)
    return run_cell(task)
