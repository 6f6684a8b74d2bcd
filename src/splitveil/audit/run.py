"""Attack a finished run: RUN/audit/audit.json, gallery.json and the pictures.

An audit in another mode than the recipe's goes to RUN/audit-MODE, so that both are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

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
from splitveil.core.sections import Audit as AuditSettings
from splitveil.data.dataset import DataParts, Dataset
from splitveil.models.split import SplitModel
from splitveil.training.loaded_run import load_run

Value = TypeVar("Value")
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


@dataclass(frozen=True)
class Case:
    """A model and what an audit must know of it beside its weights; `config` says in [audit] how it is attacked."""

    model: SplitModel
    data: AuditData | DataParts | Dataset
    signature: str
    config: Config = NO_RECIPE
    device: torch.device | None = None  # where its weights are, unless it is said
    about: Mapping[str, Any] | None = None
    remarks: Sequence[str] = ()


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
    pinned = signature(run.config, data=run.parts.checksum[:8])
    case = Case(run.deployed, run.parts, pinned, run.config, remarks=run.doubts)
    return attack(case, mode, run.folder.audit_in(mode, own=run.config.audit.mode), progress, asked)


def attack(case: Case, mode: Mode, out: Path, progress: Progress, asked: Asked) -> AuditReport:
    """Attack a model as the [audit] of its recipe says, unless `asked` says otherwise; the result lies in `out`."""
    settings = case.config.audit
    plan, check_sanity = _plan(settings, asked.get("attacks")), _given(asked.get("sanity"), settings.sanity)
    if asked.get("verdict"):
        _check_verdict(case.model, plan, check_sanity)
    return audit(
        case.model,
        case.data,
        tier=asked.get("tier") or settings.tier,
        mode=mode,
        attacks=plan,
        epochs=asked.get("epochs") or settings.epochs,
        num_images=asked.get("num_images") or settings.num_images,
        seed=_given(asked.get("seed"), case.config.seed),
        device=case.device,
        out=out,
        signature=case.signature,
        check_sanity=check_sanity,
        measures=named(_given(asked.get("measures"), settings.measures)),
        reuse=not asked.get("again"),
        about=case.about,
        remarks=case.remarks,
        progress=progress,
    )


def _given(value: Value | None, otherwise: Value) -> Value:
    return otherwise if value is None else value


def _plan(settings: AuditSettings, names: list[str] | None) -> Mapping[str, Mapping[str, Any]] | None:
    """The attacks with the recipe's options for them; None for those of the tier."""
    if names is None:
        return settings.attacks
    return {name: (settings.attacks or {}).get(name, {}) for name in names}


def _check_verdict(model: SplitModel, plan: Mapping[str, Any] | None, check_sanity: bool) -> None:
    """Refuse settings that give no verdict, before anything is attacked."""
    if not check_sanity:
        raise UsageError(
            "A budget needs the sanity check, which is left out here: without it there is no verdict.", SANITY_HINT
        )
    if plan and not any(_makes_pictures(name, model) for name in plan):
        raise UsageError(
            f"A budget needs an attack that makes pictures of this model: {' and '.join(plan)} "
            f"{'does' if len(plan) == 1 else 'do'} not.",
            "Add one that does, such as --attack decoder.",
        )


def _makes_pictures(name: str, model: SplitModel) -> bool:
    """Whether an attack can give pictures; one of another package is thought to."""
    return name not in WITHOUT_PICTURES and out_of_reach(name, model) is None
