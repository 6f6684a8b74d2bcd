"""Run one cell: train it, attack it in every mode, tidy up. Whatever engine calls this, the result is the same.

A cell that was interrupted goes on: training from its last checkpoint, the audit after its last finished attack.
"""

from __future__ import annotations

import gc
import itertools
import logging
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from splitveil.core.code_version import code_version
from splitveil.core.errors import UsageError, sentence
from splitveil.core.files import is_leftover, write_atomic
from splitveil.core.locks import only_writer
from splitveil.core.manifest import now
from splitveil.core.plug_ins import plug_in_failure
from splitveil.core.run_folder import RunFolder
from splitveil.experiments.sweep.cells import Cell
from splitveil.experiments.sweep.damage import weights_are_readable
from splitveil.experiments.sweep.folder import BEGUN, MadeBy, SweepFolder, attacked, note_audit, read_cell

log = logging.getLogger("splitveil.sweep")

Checkpoints = Literal["final", "all", "none"]
LOCK_SECONDS = 60.0  # a worker whose sweep was killed needs a moment to notice and let go of its cell
COMPILED_CELLS = 32  # so many cells share one cache of compiled code; then it starts anew
COMPILED_VERSIONS = 64  # of one function in that cache; torch's own 8 is less than the cells of a sweep may need


@dataclass(frozen=True)
class Task:
    """Everything a worker needs to know about one cell, in plain values."""

    id: str
    label: str
    description: dict[str, Any]
    config: str  # TOML
    out: Path
    device: str
    made_by: MadeBy
    checkpoints: Checkpoints

    @classmethod
    def of(cls, cell: Cell, out: Path, device: str, made_by: MadeBy, checkpoints: Checkpoints) -> Task:
        text = cell.config.to_toml()
        return cls(cell.id, cell.label, cell.description(), text, out, device, made_by, checkpoints)


@dataclass(frozen=True)
class Outcome:
    """How a cell ended; `error` is empty when it is done."""

    id: str
    error: str = ""


def prepare_process(device: str, workers: int) -> None:
    """Set up a process for many cells, one of `workers` on this machine.

    One thread on a CPU: sums then do not depend on how many workers there are. Beside a GPU, the cores are shared out.
    """
    threads = 1 if device == "cpu" else max(1, cores() // workers)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)  # read by libraries that are not loaded yet
    import torch

    torch.set_num_threads(threads)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_code(expected: MadeBy) -> None:
    """A worker must run the code that the sweep was planned with."""
    if code_version() != expected["code"]:
        raise UsageError(
            "The source of Splitveil in this worker is not the one that the sweep was started with.",
            "Start the sweep again; on a cluster, install the same version on every machine.",
        )


def run_cell(task: Task) -> Outcome:
    """Bring one cell to its end. An error is written to the cell's error.json and returned, never raised."""
    run = SweepFolder(task.out).run(task.id)
    try:
        with _alone(task.out / ".locks" / task.id):
            check_code(task.made_by)
            if _lost_weights(run, task):
                log.warning("the weights of %s are gone, and an audit needs them: it is trained again", task.label)
                SweepFolder(task.out).put_aside(task.id)
            _begin(run, task)
            _train_and_attack(run, task)
    except Exception as error:  # one failing cell must not stop the others, whatever is wrong with it
        return record_error(run, task.id, error)
    finally:
        _release_memory()
    return Outcome(task.id)


def record_error(run: RunFolder, cell_id: str, error: Exception) -> Outcome:
    """Write error.json and say the same in one line."""
    text = sentence(plug_in_failure(error) or error)
    details = "".join(traceback.format_exception(error))
    try:
        run.write_json("error.json", {"error": text, "when": now(), "traceback": details})
    except OSError:  # the sweep still hears of it, and a later call runs the cell again
        log.warning("the error of %s could not be written into its folder", cell_id)
    return Outcome(cell_id, text)


def _lost_weights(run: RunFolder, task: Task) -> bool:
    """Trained, not attacked in every mode, and without weights: they were not kept, not copied here, or are damaged."""
    modes = task.description["modes"]
    trained = (run.path / "result.json").exists()
    return trained and not all(attacked(run, mode, modes) for mode in modes) and not weights_are_readable(run)


def _begin(run: RunFolder, task: Task) -> None:
    """config.toml first: with it, training takes the folder for a run to go on with."""
    (run.path / "error.json").unlink(missing_ok=True)
    for path in [path for path in run.path.rglob(".*.part") if is_leftover(path)]:  # of a process that was killed
        path.unlink(missing_ok=True)
    if not (run.path / "config.toml").exists():
        write_atomic(run.path / "config.toml", task.config)
    before = (read_cell(run) or {}).get("made_by", {})
    made_by = {
        key: "+".join(dict.fromkeys([*before.get(key, value).split("+"), value])) for key, value in task.made_by.items()
    }
    audits = (read_cell(run) or {}).get("audits", {})
    run.write_json("cell.json", {**task.description, "audits": audits, "made_by": made_by})


def _train_and_attack(run: RunFolder, task: Task) -> None:
    from splitveil.audit.run import audit_run
    from splitveil.training.api import train

    train(run.config(), out=run.path, device=task.device, resume=True)
    if task.checkpoints != "all":
        _delete_checkpoints(run, but="model.safetensors")  # the others serve only to go on with training
    modes = task.description["modes"]
    for mode in modes:
        if not attacked(run, mode, modes):
            note_audit(run, mode, BEGUN)
            report = audit_run(run.path, mode=mode, device=task.device)
            note_audit(run, mode, report.tree["signature"])
    if task.checkpoints == "none":
        _delete_checkpoints(run)


def _delete_checkpoints(run: RunFolder, but: str = "") -> None:
    for path in run.checkpoints.glob("*"):
        if path.name != but:
            path.unlink(missing_ok=True)


def _release_memory() -> None:
    """Give the next cell the memory that a fresh process would have.

    Compiled code stays: it holds no weights, and a cell of the same shape finds it ready instead of compiling anew.
    """
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if "torch._dynamo" in sys.modules:
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, COMPILED_VERSIONS)
        if next(_ended) % COMPILED_CELLS == 0:
            torch._dynamo.reset()  # each version is tried in turn, so a long list costs time in every step
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


_ended = itertools.count(1)  # cells of this process that may have left compiled code


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold a cell for this process; wait a little for another one that is about to end."""
    patience = time.monotonic() + LOCK_SECONDS
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(only_writer(folder))
                break
            except UsageError:
                if time.monotonic() > patience:
                    raise
                time.sleep(0.5)
        yield
