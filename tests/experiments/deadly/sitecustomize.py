"""Python loads a file of this name before all else; test_sweep_engines.py puts its folder on the PYTHONPATH of a sweep.

A process that is about to note epoch 5 of a cell ends there, as by kill -9, once for each file in DEATHS. Nobody has to
find it and to be quicker than it is.
"""

import os
import signal
import sys
from pathlib import Path

DEATHS = Path(os.environ["SPLITVEIL_TEST_DEATHS"])
BEFORE = 4  # epochs


def watch(event: str, arguments: tuple[object, ...]) -> None:
    if event != "open" or not str(arguments[0]).endswith("metrics.jsonl") or not arguments[2] & os.O_APPEND:  # type: ignore[operator]
        return
    path = Path(str(arguments[0]))
    if path.exists() and path.read_bytes().count(b"\n") == BEFORE:
        for death in DEATHS.iterdir():
            try:
                death.unlink()
            except FileNotFoundError:  # another process took it
                continue
            os.kill(os.getpid(), signal.SIGKILL)


sys.addaudithook(watch)
