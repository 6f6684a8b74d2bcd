"""Attack a finished run: RUN/audit/audit.json, gallery.json and the pictures.

An audit in another mode than the recipe's goes to RUN/audit-MODE, so that both are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from splitveil.attacks.base import Progress, silent
from splitveil.audit.api import audit
from splitveil.audit.extra import named
from splitveil.audit.report import AuditReport
from splitveil.audit.subjects import Mode
from splitveil.core.manifest import signature
from splitveil.training.api import load_run


def audit_run(
    path: str | Path,
    *,
    tier: str | None = None,
    mode: Mode | None = None,
    attacks: list[str] | None = None,
    epochs: int | None = None,
    num_images: int | None = None,
    seed: int | None = None,
    sanity: bool | None = None,
    measures: list[str] | None = None,
    device: str = "auto",
    again: bool = False,
    progress: Progress = silent,
) -> AuditReport:
    """Attack the run in folder `path` as its recipe's [audit] says, unless an argument says otherwise.

    Where the very same audit is finished already it is read, unless `again` asks for a new one.
    """
    run = load_run(path, device)
    settings = run.config.audit
    extra = named(settings.measures if measures is None else measures)
    mode = mode or settings.mode
    plan: Mapping[str, Mapping[str, Any]] | None = settings.attacks
    if attacks is not None:
        plan = {name: (settings.attacks or {}).get(name, {}) for name in attacks}
    return audit(
        run.model,
        run.parts,
        tier=tier or settings.tier,
        mode=mode,
        attacks=plan,
        epochs=epochs or settings.epochs,
        num_images=num_images or settings.num_images,
        seed=run.config.seed if seed is None else seed,
        out=run.folder.audit_in(mode, own=settings.mode),
        signature=signature(run.config, data=run.parts.checksum[:8]),
        check_sanity=settings.sanity if sanity is None else sanity,
        measures=extra,
        reuse=not again,
        progress=progress,
    )
