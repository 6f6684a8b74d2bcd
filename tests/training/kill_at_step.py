"""Started from test_resume.py as kill_at_step.py JOBS.json: train runs and end each with SIGKILL at a given moment.

A job is {"recipe", "out", "resume", "moment", "at"}: the process that trains it is killed inside step number `at`
(moment "step": after the weights have moved, before the numbers are kept), or inside checkpoint number `at` (moment
"checkpoint": tensors are written, the JSON file that makes them count is not). Each is a child of this process, which
never trains itself, so that Python and torch are loaded, and the code's checksum is found, once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # optimisers import it in their first step: once here, not in every child

from splitveil.core.code_version import code_version
from splitveil.core.config import Config, load_config
from splitveil.training import checkpoint
from splitveil.training.api import train
from splitveil.training.step import TrainStep


def deadly(function: Callable[..., Any], at: int) -> Callable[..., Any]:
    """`function`, whose call number `at` kills the process instead."""
    calls = 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)

    return wrapped


def work(job: dict[str, Any], config: Config) -> None:
    torch.set_num_threads(1)
    if job["moment"] == "step":
        TrainStep._accumulate = deadly(TrainStep._accumulate, job["at"])  # type: ignore[method-assign]
    else:
        checkpoint.write_json = deadly(checkpoint.write_json, job["at"])
    train(config, out=job["out"], device="cpu", resume=job["resume"])


code_version()
for number, job in enumerate(json.loads(Path(sys.argv[1]).read_text())):
    config = load_config(Path(job["recipe"]))  # loads the code of its surrogate: here, for all children
    child = os.fork()
    if child == 0:
        try:
            work(job, config)
        finally:
            os._exit(3)  # reached the end, or failed
    _, status = os.waitpid(child, 0)
    if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
        sys.exit(f"job {number} was not killed: status {status}")
