"""What the page of one run, and the page that compares some, tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from splitveil.experiments.loose import number, table, text
from splitveil.report.flat_config import flatten
from splitveil.report.markup import Phrase, phrase
from splitveil.report.methods import group_runs
from splitveil.report.run import Run
from splitveil.report.run_files import read_run
from splitveil.web.summary import row_of, signature

MOST_COMPARED = 40


def details(root: Path, folder: Path) -> dict[str, Any]:
    """Everything about one run but its curves."""
    run = read_run(folder)
    audit = run.audit
    floor = audit.floors.get("mean_image")
    return {
        "row": _public(root, run),
        "notes": [_told(note) for note in run.notes],
        "alarms": [_told(note) for note in (*run.damage, *([phrase("caveat.idle")] if run.idle else []))],
        "config": [[key, value] for key, value in flatten(run.config).items()],
        "attacks": [
            {"name": attack.name, "mse": attack.scores.mse, "ssim": attack.scores.ssim, "psnr": attack.scores.psnr,
             "seconds": attack.seconds, "threat_model": list(attack.threat_model)}
            for attack in sorted(audit.attacks.values(), key=lambda one: (one.scores.mse is None, one.scores.mse))
        ],
        "floor": {"mse": floor.mse, "ssim": floor.ssim} if floor else None,
        "facts": _facts(run),
        "cell": run.sweep_method is not None,
    }  # fmt: skip


def _told(words: Phrase) -> dict[str, str]:
    return {"en": words.en, "zh": words.zh}


def _facts(run: Run) -> list[list[str]]:
    """Where the run comes from, as pairs of a text's key and a value."""
    cost, data = table(run.result.get("cost")), table(run.manifest.get("data"))
    versions = ", ".join(f"{key} {value}" for key, value in table(run.manifest.get("versions")).items())
    pairs = {
        "signature": text(run.result.get("signature")),
        "started": text(run.manifest.get("started")),
        "ended": text(run.manifest.get("ended")),
        "protocol": run.protocol or text(data.get("protocol")),
        "bytes": _count(cost.get("bytes_per_image")),
        "macs": _count(cost.get("edge_macs")),
        "revision": text(run.manifest.get("revision")),
        "versions": versions or None,
        "error": run.error or text(run.manifest.get("error")),
    }
    return [[key, value] for key, value in pairs.items() if value]


def _count(value: Any) -> str | None:
    found = number(value)
    return None if found is None else f"{found:,.0f}"


def comparison(root: Path, folders: list[Path]) -> dict[str, Any]:
    """Several runs side by side: their rows, where their settings differ, and the floor they share."""
    methods = group_runs([read_run(folder) for folder in folders])
    place = {id(run): (method.letter, method.colour) for method in methods for run in method.runs}
    runs = [run for method in methods for run in method.runs]  # in the order of their letters
    flats = [flatten(run.config) for run in runs]
    keys = list(dict.fromkeys(key for flat in flats for key in flat))
    differing = [key for key in keys if len({flat.get(key) for flat in flats}) > 1]
    floors = [run.audit.floors["mean_image"] for run in runs if "mean_image" in run.audit.floors]
    return {
        "runs": [
            _public(root, run) | {"letter": place[id(run)][0], "colour": place[id(run)][1],
                                  "mse_ci": run.audit.leak.mse_ci, "ssim_ci": run.audit.leak.ssim_ci}
            for run in runs
        ],
        "differing": [[key, *(flat.get(key) for flat in flats)] for key in differing],
        "same": len(keys) - len(differing),
        "floor": {"mse": floors[0].mse, "ssim": floors[0].ssim} if floors else None,
    }  # fmt: skip


def _public(root: Path, run: Run) -> dict[str, Any]:
    row = row_of(root, run, signature(run.path))
    return {key: value for key, value in row.items() if key not in {"signature", "words"}}
