"""Attack a finished run: RUN/audit/audit.json, gallery.json and the pictures.

An audit in another mode than the recipe's goes to RUN/audit-MODE, so that both are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

import torch

from splitveil.attacks.base import Progress, silent
from splitveil.audit.api import audit
from splitveil.audit.attacking import out_of_reach
from splitveil.audit.budget import SANITY_HINT
from splitveil.audit.extra import named
from splitveil.audit.report import AuditReport
from splitveil.audit.sanity import WITHOUT_PICTURES
from splitveil.audit.subjects import AuditData, Mode
from splitveil.core.config import Config
from splitveil.core.errors import UsageError
from splitveil.core.manifest import signature
from splitveil.data.dataset import DataParts, Dataset
from splitveil.models.split import SplitModel
from splitveil.training.loaded_run import load_run

NO_RECIPE = Config(seed=0)  # how a model is attacked that has none, unless the caller says more


class Asked(TypedDict, total=False):
    """What a caller may ask for in place of the recipe's [audit], or of its defaults where there is no recipe.

    `again`: attack also where this very audit is finished; what is not pinned by its weights always is. `verdict`: it
    is needed (a budget will be judged), so refuse settings that give none.
    """

    tier: str | None
    attacks: list[str] | None
    epochs: int | None
    num_images: int | None
    seed: int | None
    sanity: bool | None
    measures: list[str] | None
    again: bool
    verdict: bool


def audit_run(
    path: str | Path,
    *,
    mode: Mode | None = None,
    device: str = "auto",
    progress: Progress = silent,
    **asked: Unpack[Asked],
) -> AuditReport:
    """Attack the run in folder `path` as its recipe's [audit] says, unless an argument (`Asked`) says otherwise.

    Where the very same audit is finished already it is read, unless `again` asks for a new one.
    """
    run = load_run(path, device)
    mode = mode or run.config.audit.mode
    return attack_as(
        run.config,
        run.deployed,
        run.parts,
        mode=mode,
        out=run.folder.audit_in(mode, own=run.config.audit.mode),
        signature=signature(run.config, data=run.parts.checksum[:8]),
        remarks=run.doubts,
        progress=progress,
        **asked,
    )


def _makes_pictures(name: str, model: SplitModel) -> bool:
    """Whether an attack can give pictures; one of another package is thought to."""
    return name not in WITHOUT_PICTURES and out_of_reach(name, model) is None


def attack_as(
    config: Config,
    model: SplitModel,
    data: AuditData | DataParts | Dataset,
    *,
    mode: Mode,
    out: Path,
    signature: str,
    device: torch.device | None = None,
    tier: str | None = None,
    attacks: list[str] | None = None,
    epochs: int | None = None,
    num_images: int | None = None,
    seed: int | None = None,
    sanity: bool | None = None,
    measures: list[str] | None = None,
    again: bool = False,
    verdict: bool = False,
    about: Mapping[str, Any] | None = None,
    remarks: Sequence[str] = (),
    progress: Progress = silent,
) -> AuditReport:
    """Attack a model as the [audit] of its recipe says, unless an argument says otherwise.

    Without a `device` that is done where its weights are.
    """
    settings = config.audit
    check_sanity = settings.sanity if sanity is None else sanity
    if verdict and not check_sanity:
        raise UsageError(
            "A budget needs the sanity check, which is left out here: without it there is no verdict.", SANITY_HINT
        )
    plan: Mapping[str, Mapping[str, Any]] | None = settings.attacks
    if attacks is not None:
        plan = {name: (settings.attacks or {}).get(name, {}) for name in attacks}
    if verdict and plan and not any(_makes_pictures(name, model) for name in plan):
        raise UsageError(
            f"A budget needs an attack that makes pictures of this model: {' and '.join(plan)} "
            f"{'does' if len(plan) == 1 else 'do'} not.",
            "Add one that does, such as --attack decoder.",
        )
    return audit(
        model,
        data,
        tier=tier or settings.tier,
        mode=mode,
        attacks=plan,
        epochs=epochs or settings.epochs,
        num_images=num_images or settings.num_images,
        seed=config.seed if seed is None else seed,
        device=device,
        out=out,
        signature=signature,
        check_sanity=check_sanity,
        measures=named(settings.measures if measures is None else measures),
        reuse=not again,
        about=about,
        remarks=remarks,
        progress=progress,
    )
