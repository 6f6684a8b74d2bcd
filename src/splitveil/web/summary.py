"""One line of the run list, read from a run folder."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from splitveil.experiments.discover import SIGNS
from splitveil.experiments.loose import number, table, text
from splitveil.report.methods import group_runs
from splitveil.report.run import Run
from splitveil.report.run_files import read_run

WATCHED = (*SIGNS, "checkpoints", "error.json")  # a folder whose files look like this has not changed

COLUMNS = {
    "id": "TEXT PRIMARY KEY", "signature": "TEXT", "name": "TEXT", "folder": "TEXT", "status": "TEXT",
    "method": "TEXT", "method_zh": "TEXT", "surrogate": "TEXT", "data": "TEXT", "model": "TEXT",
    "sigma": "REAL", "weight": "REAL", "seed": "TEXT", "epoch": "INTEGER", "epochs": "INTEGER", "accuracy": "REAL",
    "auditors_accuracy": "INTEGER", "mse": "REAL", "ssim": "REAL", "tier": "TEXT", "started": "TEXT", "seconds": "REAL",
    "has_model": "INTEGER", "notes": "INTEGER", "words": "TEXT",
}  # fmt: skip


def run_id(root: Path, folder: Path) -> str:
    """Name of a run in addresses: its path below the root, percent-encoded, so that any file name survives."""
    return quote(os.fsencode(folder.relative_to(root).as_posix()))


def run_path(root: Path, identifier: str) -> Path:
    """The folder of a run that the index knows (the caller has looked it up: nothing else is ever opened)."""
    return root / os.fsdecode(unquote_to_bytes(identifier))


def readable(name: str) -> str:
    """A file name as text: bytes that are no UTF-8 become replacement marks."""
    return os.fsencode(name).decode("utf-8", "replace")


def signature(folder: Path) -> str:
    """Changes whenever one of the watched files does; costs no more than looking at them."""
    digest = hashlib.blake2b(digest_size=8)
    for name in WATCHED:
        try:
            facts = os.stat(folder / name)
        except OSError:
            digest.update(b"-")
        else:
            digest.update(f"{facts.st_size}/{facts.st_mtime_ns};".encode())
    return digest.hexdigest()


def status_of(run: Run) -> str:
    """finished, running, stopped (no process behind it any more), failed, interrupted, audit (of something that was not
    trained here), or unknown.
    """
    if run.error is not None:  # a cell of a sweep may have been trained and then failed in its audit
        return "failed"
    if run.audit_only:
        return "audit"
    said = text(run.manifest.get("status")) or ("finished" if run.result else "unknown")
    return said if said in {"finished", "running", "stopped", "failed", "interrupted"} else "unknown"


def has_weights(folder: Path) -> bool:
    """Whether there is a checkpoint from which a model can be made."""
    try:
        return (folder / "config.toml").is_file() and any(
            name.endswith(".safetensors") for name in os.listdir(folder / "checkpoints")
        )
    except OSError:
        return False


def summarise(root: Path, folder: Path, mark: str | None = None) -> dict[str, Any]:
    """The row of one run; a damaged folder gives a row with what could be read."""
    return row_of(root, read_run(folder), signature(folder) if mark is None else mark)


def row_of(root: Path, run: Run, mark: str) -> dict[str, Any]:
    """The row of a run that has been read already."""
    method = group_runs([run], in_full=True)[0]  # the cells of a sweep differ in strengths that its names do not say
    last = next((e for row in reversed(run.metrics) if (e := number(row.get("epoch"))) is not None), None)
    relative = run.path.relative_to(root)
    row: dict[str, Any] = {
        "id": run_id(root, run.path),
        "signature": mark,
        "name": readable(run.name),
        "folder": readable(relative.parent.as_posix()) if relative.parent != Path(".") else "",
        "status": status_of(run),
        "method": method.label.en,
        "method_zh": method.label.zh,
        "surrogate": run.surrogate or "none",
        "data": _short(run.data_name),
        "model": text(table(run.config.get("model")).get("name")),
        "sigma": run.sigma,
        "weight": run.weight,
        "seed": run.seed,
        "epoch": None if last is None else int(last),
        "epochs": _whole(table(run.config.get("train")).get("epochs")),
        "accuracy": run.accuracy,
        "auditors_accuracy": int(run.auditors_accuracy),  # of an endpoint: that of a classifier of the auditor's own
        "mse": run.audit.leak.mse,
        "ssim": run.audit.leak.ssim,
        "tier": run.audit.tier,
        "started": text(run.manifest.get("started")),
        "seconds": number(run.result.get("seconds")),
        "has_model": int(has_weights(run.path)),
        "notes": len(run.notes),
    }
    words = (row["name"], row["folder"], row["method"], row["data"], row["model"], row["seed"], *run.defences)
    row["words"] = " ".join(word for word in words if word).lower()
    return {key: _storable(value) for key, value in row.items()}


def _whole(value: Any) -> int | None:
    found = number(value)
    # a column holds 64 bits; nobody trains longer than that
    return None if found is None or abs(found) > 2**62 else int(found)


def _short(data: str | None) -> str | None:
    """A data set given by path is known by its file name: the path would tell about the machine."""
    return data if data is None or not any(mark in data for mark in "/\\") else Path(data.replace("\\", "/")).name


def _storable(value: Any) -> Any:
    """JSON may hold half a surrogate pair, which SQLite cannot store."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
