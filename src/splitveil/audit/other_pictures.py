"""Attack a finished run on other pictures than its own: those of another camera, year or place.

The result is no audit of the run as it was trained and does not lie beside one: reports and comparisons read RUN/audit.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Unpack

from splitveil import data as data_family
from splitveil.attacks.base import Progress, silent
from splitveil.audit.report import AuditReport
from splitveil.audit.run import Asked, Case, attack
from splitveil.audit.subjects import AuditData, Mode
from splitveil.core.errors import UsageError
from splitveil.core.manifest import signature
from splitveil.core.run_folder import RunFolder
from splitveil.data.dataset import Dataset, DatasetInfo
from splitveil.training.loaded_run import LoadedRun, load_run


def audit_run_on(
    path: str | Path,
    *,
    data: str,
    image_size: int | None = None,
    out: Path | None = None,
    mode: Mode | None = None,
    device: str = "auto",
    progress: Progress = silent,
    **asked: Unpack[Asked],
) -> AuditReport:
    """Attack the run in folder `path` on the pictures in `data`, of which the attacker gets a quarter of the training
    part; otherwise as its recipe's [audit] says, unless an argument (`Asked`) says more.

    The result lies in OUT/audit (default: runs/audit-NAME-DATA), where `splitveil report OUT` finds it.
    """
    run = load_run(path, device)
    pictures = data_family.create(data, image_size=image_size)
    _check(run.parts.info, pictures.info)
    mode = mode or run.config.audit.mode
    folder = RunFolder(Path("runs") / f"audit-{run.folder.name}-{pictures.info.name}" if out is None else out)
    case = Case(
        run.deployed,
        AuditData.of(pictures, run.config.seed),
        signature(run.config, data=run.parts.checksum[:8]),
        run.config,
        about=_about(run),
        remarks=[*run.doubts, *_remarks(run, pictures)],
    )
    return attack(case, mode, folder.audit_in(mode, own=run.config.audit.mode), progress, asked)


def _check(own: DatasetInfo, other: DatasetInfo) -> None:
    if other.image_shape != own.image_shape:
        raise UsageError(
            f"The run takes pictures of shape {list(own.image_shape)}, but those of {other.name} are "
            f"{list(other.image_shape)}.",
            "Bring an image folder to that side with --image-size.",
        )
    if other.num_classes != own.num_classes:
        raise UsageError(
            f"The run knows {own.num_classes} classes, but {other.name} has {other.num_classes}.",
            f"Give pictures of the same classes in the same order: {', '.join(own.class_names[:10])}"
            + (", ..." if own.num_classes > 10 else "."),
        )


def _remarks(run: LoadedRun, pictures: Dataset) -> list[str]:
    """What a reader of the result must know of the pictures."""
    own, other = run.parts.info, pictures.info
    found = [f"The run was trained on {own.name}; the pictures under attack are those of {other.name}."]
    numbered = tuple(map(str, range(own.num_classes)))  # an .npz need not name its classes
    if numbered not in (own.class_names, other.class_names):
        for number, names in enumerate(zip(own.class_names, other.class_names, strict=True)):
            if names[0] != names[1]:
                found.append(
                    f"Class {number} is '{names[0]}' to the run and '{names[1]}' in {other.name}: unless both mean the "
                    "same, accuracy and recon_acc mean nothing."
                )
                break
    known = set(run.parts.train.fingerprints())
    trained_on = sum(one in known for one in pictures.test.fingerprints())
    if trained_on:
        found.append(f"{trained_on} of the {len(pictures.test)} test pictures of {other.name} were trained on.")
    return found


def _about(run: LoadedRun) -> dict[str, Any]:
    """What the run says of itself, for reports: they read this audit, and the run may lie elsewhere."""
    return {
        "kind": "run",
        "run": run.folder.name,
        "signature": signature(run.config, data=run.parts.checksum[:8]),
        "seed": run.config.seed,
        "data": {"name": run.parts.info.name, "checksum": run.parts.checksum},
        "config": tomllib.loads(run.config.to_toml()),
    }
