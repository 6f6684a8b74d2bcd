"""`sv.audit(model, data)`: what `splitveil audit` does, for any split model and nothing of our trainer."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from splitveil.attacks.base import Progress, silent
from splitveil.audit.checks import check_labels, check_model
from splitveil.audit.extra import Measure, chosen, try_out
from splitveil.audit.findings import find
from splitveil.audit.freezing import frozen
from splitveil.audit.partial import PartialResults
from splitveil.audit.plan import digest, make_plan
from splitveil.audit.report import AuditReport, full_signature
from splitveil.audit.scope import Scope
from splitveil.audit.subjects import AuditData, Mode, choose
from splitveil.audit.tiers import TIERS
from splitveil.audit.tree import assemble
from splitveil.core.errors import InputError, RunFolderError
from splitveil.core.locks import only_writer
from splitveil.data.dataset import DataParts, Dataset
from splitveil.models.split import SplitModel, device_of
from splitveil.training.device import pick_device

log = logging.getLogger("splitveil.audit")


def audit(
    model: SplitModel,
    data: AuditData | DataParts | Dataset | str | PathLike[str],
    *,
    tier: str = "smoke",
    mode: Mode = "training_time",
    attacks: Mapping[str, Mapping[str, Any]] | Sequence[str] | str | None = None,
    epochs: int | None = None,
    num_images: int | None = None,
    seed: int = 0,
    device: str | torch.device | None = None,
    out: str | Path | None = None,
    signature: str | None = None,
    input_entropy: float | None = None,
    check_sanity: bool = True,
    measures: Mapping[str, Measure] | Sequence[str | Measure] | str | Measure | None = None,
    reuse: bool = False,
    about: Mapping[str, Any] | None = None,
    remarks: Sequence[str] = (),
    progress: Progress = silent,
) -> AuditReport:
    """Attack a split model and say how much leaked.

    `data` are the parts that `sv.data.load` gives, pictures of your own (`AuditData`), or a whole data set
    (`sv.data.create`, or its name or path): then `seed` picks the quarter of its training pictures that the attacker
    has. `attacks` replaces the tier's own choice: one name, several, or names with options. `epochs` and `num_images`
    override the tier's numbers. With `out`, the result is written below that folder, and a call that was interrupted
    goes on after the last attack it finished, and inside the long ones after the last network they had trained. The
    model is left as it was, to the bit. `input_entropy`, H(x) in nats where it is known (synthetic data), makes the
    entropy bound absolute. `check_sanity=False` saves the time of proving the suite on two models of known answer, and
    with it the verdict. `measures` are further functions of reconstructions and pictures: a mapping of names to
    functions, a list of functions and of known names ("lpips"), or one of either. They are tried on two pictures before
    any attack runs. With `reuse`, a finished audit in `out` is read and returned where everything is the same: weights,
    pictures, settings, and `signature`, which must pin what weights do not say (such as the noise of a defence).
    `about` goes into audit.json as it is: what reports are to tell of a model that lies in no run folder. `remarks` are
    sentences of the caller's that join the warnings.

    Example: ``sv.audit(sv.SplitModel(edge, cloud), sv.data.load(config.data, seed=0), tier="smoke").worst_case["mse"]``
    """
    began = time.monotonic()
    plan = make_plan(tier, attacks, epochs)
    further = chosen(measures)
    if not isinstance(model, SplitModel):
        raise InputError(
            f"An audit needs a split model, not a {type(model).__name__}.",
            "Make one with sv.SplitModel(edge, cloud) or sv.split(module, at=...).",
        )
    folder = None if out is None else Path(out)
    if folder is not None and folder.exists() and not folder.is_dir():
        raise InputError(f"The result of an audit is a folder, but {out} is a file.", "Name another place.")
    if reuse and signature is None:
        raise InputError("reuse=True needs signature=.", "Only that tells models of equal weights apart.")
    everything = AuditData.of(data, seed)
    where = _device(model, device)
    model.to(where)
    everything = everything.to(where)
    subjects = choose(everything, mode, TIERS[tier].num_images if num_images is None else num_images)
    scope = Scope(model, everything, subjects, tier, mode, plan, epochs, seed)
    with _held(folder):
        with frozen(model) as weights:
            check_model(model, subjects.targets.images)
            check_labels(model, everything, subjects)
            try_out(further, subjects)
            pins = scope.pins(weights, further)
            line = full_signature({**pins, "attacks": digest(plan)}, signature)
            # with the caller's signature: equal weights may send something else, through another noise
            made_from = full_signature(pins, signature)
            partial = PartialResults(None if folder is None else folder / "partial", made_from)
            if folder is not None and reuse:
                finished = _finished(folder, line, check_sanity, further)
                if finished is not None:
                    partial.clear(plan, TIERS[tier].seeds)  # spared by a kill after the result was written
                    return finished
            found = find(
                scope,
                partial,
                progress,
                measures=further,
                input_entropy=input_entropy,
                check_sanity=check_sanity,
            )
            seconds = time.monotonic() - began
            report = assemble(scope, found, signature=line, about=about, remarks=remarks, seconds=seconds)
        if folder is not None:
            report.save(folder)
            report = replace(report, folder=folder)
            partial.clear(plan, TIERS[tier].seeds)
    return report


@contextmanager
def _held(folder: Path | None) -> Iterator[None]:
    """One audit at a time in a folder, which must be writable: two would mix their results."""
    if folder is None:
        yield
        return
    hint = "Wait for it; an audit of another run or mode may run beside it."
    with only_writer(folder, who="audit", hint=hint, tidy=True):
        yield


def _finished(folder: Path, signature: str, check_sanity: bool, measures: Mapping[str, Measure]) -> AuditReport | None:
    """The audit that lies in `folder`, if it is complete, nothing in it failed, and it answers this very call."""
    try:
        report = AuditReport.load(folder)
    except RunFolderError:
        return None
    tree = report.tree
    proved = not tree["attacks"] or (tree["sanity"] is not None) == check_sanity  # without pictures nothing is proved
    if tree["signature"] != signature or not proved or set(tree["extra"]) != set(measures) or tree["failures"]:
        return None
    log.warning(
        "%s holds the finished audit of this model with these settings: nothing was attacked again (--again does).",
        folder,
    )
    return report


def _device(model: SplitModel, device: str | torch.device | None) -> torch.device:
    if device is None:
        return device_of(model)
    return device if isinstance(device, torch.device) else pick_device(device)
