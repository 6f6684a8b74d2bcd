"""Runs that were started from the page: each one is a plain `splitveil train` in a process of its own.

They go on when the server stops. Only the server that started a run can stop it; everything else about a run is read
from its folder, whoever started it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splitveil.core.errors import UsageError
from splitveil.core.files import write_atomic
from splitveil.core.shell import command
from splitveil.core.toml import dump_toml
from splitveil.web.summary import run_id

LOGS = ".splitveil-started"  # recipes and logs; hidden, so that nobody takes it for a run
TAIL = 16_000  # bytes of a log that are shown
NAME = re.compile(r"[^\W_][\w.+ -]{0,79}")
MOST = 8  # at once: more would only slow each other down


@dataclass
class Job:
    """One process."""

    name: str
    command: str
    process: subprocess.Popen[bytes]
    log: Path
    stopped: bool = field(default=False)

    def state(self) -> dict[str, Any]:
        code = self.process.poll()
        return {
            "running": code is None,
            "code": code,
            "stopped": self.stopped,
            "pid": self.process.pid,
            "command": self.command,
        }


class Jobs:
    """Starts, stops and remembers runs below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    def start(self, name: str, tree: dict[str, Any], device: str) -> str:
        """Begin a run with the settings in `tree`, in the folder `name`; returns the run's id."""
        if not NAME.fullmatch(name) or name.endswith((".", " ")):
            raise UsageError(
                "A run's name has letters, digits, spaces and . _ + - only, and begins with a letter or digit."
            )
        if not re.fullmatch(r"auto|cpu|cuda(:\d{1,2})?", device):
            raise UsageError(f"There is no device called '{device[:40]}'.", "Use auto, cpu, cuda or cuda:1.")
        folder = self.root / name
        with self._lock:
            if folder.exists():
                raise UsageError(f"There is already a run called '{name}'.", "Choose another name.")
            if sum(job.process.poll() is None for job in self._jobs.values()) >= MOST:
                raise UsageError(f"{MOST} runs are going on already.", "Wait for one of them, or stop one.")
            recipe, log = self.root / LOGS / f"{name}.toml", self.root / LOGS / f"{name}.log"
            write_atomic(recipe, dump_toml(tree))
            words = ["-m", "splitveil", "train", str(recipe), "--out", str(folder), "--device", device]
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [sys.executable, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C in the server's terminal must not end a night's training
                )
            identifier = run_id(self.root, folder)
            shown = command("train", f"{LOGS}/{name}.toml", "--out", name, "--device", device)
            self._jobs[identifier] = Job(name, shown, process, log)
            return identifier

    def stop(self, identifier: str) -> None:
        """Ask a run to end as Ctrl-C does; it keeps its checkpoints and can be resumed."""
        job = self._jobs.get(identifier)
        if job is None:
            raise UsageError("This run was not started here.", "Stop it where it was started, with Ctrl-C.")
        if job.process.poll() is None:
            # asked twice: the first request was not heard
            last = job.stopped
            job.stopped = True
            if os.name == "nt":
                job.process.terminate()
            else:
                os.killpg(job.process.pid, signal.SIGTERM if last else signal.SIGINT)

    def get(self, identifier: str) -> dict[str, Any] | None:
        """State of the job behind a run; None for a run that was not started here."""
        job = self._jobs.get(identifier)
        return None if job is None else job.state()

    def running(self) -> list[Job]:
        return [job for job in self._jobs.values() if job.process.poll() is None]

    def log(self, identifier: str, folder: Path | None) -> str:
        """The end of what the run said: its own output when it was started here, else train.log in its folder."""
        job = self._jobs.get(identifier)
        paths = [job.log] if job else []
        paths += [folder / "train.log"] if folder else []
        return next((words for path in paths if (words := _tail(path))), "")


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            content = file.read(TAIL)
    except OSError:
        return ""
    words = content.decode("utf-8", "replace").replace("\r\n", "\n")
    # a progress bar rewrites its line with carriage returns: the last state is the one to show
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in words.split("\n"))
