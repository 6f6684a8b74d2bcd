"""Everything that lives as long as the server does."""

from __future__ import annotations

import logging
import sqlite3
import tempfile
import threading
import time
from pathlib import Path

from splitveil.web.index import Index
from splitveil.web.jobs import Jobs
from splitveil.web.leak.desk import Desk
from splitveil.web.leak.victim import DataSets
from splitveil.web.live import Live
from splitveil.web.worker import Worker

log = logging.getLogger("splitveil.web")

PAUSE = 2.0  # seconds between looks at the folders
SHARE = 0.1  # of the time at most that goes into looking: ten thousand folders take a second to look at
IDLE = 60.0  # after so long without a visitor nobody looks at all


class Services:
    """The index and its keeper, jobs, attackers."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.index = Index(root)
        self.jobs = Jobs(root)
        self.quick, self.slow = Worker("quick"), Worker("slow")
        data_sets = DataSets()
        self.desk = Desk(data_sets, self.quick, self.slow)
        self.live = Live(data_sets, self.quick)
        self.reports: dict[str, Path] = {}
        self._temporary = tempfile.TemporaryDirectory(prefix="splitveil-ui-")
        self._visited = time.monotonic()
        self._stop, self._wake = threading.Event(), threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="splitveil-index", daemon=True)
        self._keeper.start()

    @property
    def temporary(self) -> Path:
        """For files that nobody needs after the server has stopped."""
        return Path(self._temporary.name)

    def visited(self) -> None:
        """Somebody looks at the list."""
        idle = time.monotonic() - self._visited > IDLE
        self._visited = time.monotonic()
        if idle:
            self._wake.set()

    def look_again(self) -> None:
        """The folders have changed just now: do not wait for the next look."""
        self._wake.set()

    def close(self) -> None:
        self._stop.set()
        self._wake.set()
        self.quick.close()
        self.slow.close()
        self._keeper.join(timeout=20)
        self.index.close()
        self._temporary.cleanup()

    def _keep(self) -> None:
        """Keep the index true to the folders."""
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self.index.refresh(stop=self._stop)
            except sqlite3.DatabaseError as error:  # the file was damaged or deleted under us
                log.warning("the index is made anew: %s", error)
                self.index.reopen()
                self._stop.wait(1.0)
                continue
            except OSError as error:  # a drive that went away may come back
                log.warning("%s cannot be read: %s", self.root, error)
            took = time.monotonic() - began
            idle = began - self._visited > IDLE
            self._wake.wait(None if idle else max(PAUSE, took / SHARE))
            self._wake.clear()
