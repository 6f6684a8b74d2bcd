"""`sv.audit(model, data)`: what `splitveil audit` does, for any split model and nothing of our trainer."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from splitveil import attacks as attack_family
from splitveil.attacks.base import Attack, Inference, NotApplicableError, Outcome, Progress, Reconstruction, silent
from splitveil.attacks.view import Scene, View
from splitveil.audit.bounds import bounds
from splitveil.audit.checks import check_labels, check_model, count_classes
from splitveil.audit.extra import Measure, chosen, measured, try_out
from splitveil.audit.floors import floors
from splitveil.audit.freezing import frozen
from splitveil.audit.inference import Truth, truth
from splitveil.audit.partial import PartialResults
from splitveil.audit.report import AuditReport, assemble, full_signature
from splitveil.audit.sanity import sanity
from splitveil.audit.scoring import AttackRun, score
from splitveil.audit.subjects import AuditData, Mode, Subjects, choose
from splitveil.audit.tiers import TIERS
from splitveil.core.errors import (
    InputError,
    RunFolderError,
    SplitveilError,
    ThreatModelError,
    UnknownNameError,
    nearest,
)
from splitveil.core.files import check_writable, only_writer
from splitveil.core.seeding import derive_seed, generator
from splitveil.data.dataset import DataParts, Dataset
from splitveil.models.split import SplitModel
from splitveil.training.api import pick_device

log = logging.getLogger("splitveil.audit")

Plan = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Attacked:
    """What the attacks gave; why some broke down (`failures`), and why some had nothing to do (`skipped`)."""

    runs: dict[str, AttackRun]
    failures: dict[str, str]
    skipped: dict[str, str]

    @property
    def made_pictures(self) -> bool:
        return any(isinstance(run.outcomes[0], Reconstruction) for run in self.runs.values())


def audit(
    model: SplitModel,
    data: AuditData | DataParts | Dataset,
    *,
    tier: str = "smoke",
    mode: Mode = "training_time",
    attacks: Mapping[str, Mapping[str, Any]] | list[str] | None = None,
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
    progress: Progress = silent,
) -> AuditReport:
    """Attack a split model and say how much leaked.

    `data` are the parts that `sv.data.load` gives, pictures of your own (`AuditData`), or a whole data set
    (`sv.data.create`): then `seed` picks the quarter of its training pictures that the attacker has.
    `attacks` replaces the tier's own choice: names, or names with options. `epochs` and `num_images` override the
    tier's numbers. With `out`, the result is written below that folder, and a call that was interrupted goes on after
    the last attack it finished, and inside the long ones after the last network they had trained. The model is left as
    it was, to the bit. `input_entropy`, H(x) in nats where it is known (synthetic data), makes the entropy bound
    absolute. `check_sanity=False` saves the time of proving the suite on two models of known answer, and with it the
    verdict. `measures` are further functions of reconstructions and pictures: a mapping of names to functions, a list
    of functions and of known names ("lpips"), or one of either. They are tried on two pictures before any attack runs.
    With `reuse`, a finished audit in `out` is read and returned where everything is the same: weights, pictures,
    settings, and `signature`, which must pin what weights do not say (such as the noise of a defence).

    Example: ``sv.audit(sv.SplitModel(edge, cloud), sv.data.load(config, seed=0), tier="smoke").worst_case["mse"]``
    """
    began = time.monotonic()
    plan = _plan(tier, attacks, epochs)
    further = chosen(measures)
    limits = TIERS[tier]
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
    subjects = choose(everything, mode, limits.num_images if num_images is None else num_images)
    with _held(folder):
        with frozen(model) as digest:
            check_model(model, subjects.targets.images)
            check_labels(model, everything, subjects)
            try_out(further, subjects)
            pins = {
                "tier": tier,
                "mode": mode,
                "images": len(subjects.targets),
                "model": digest[:10],
                "data": everything.checksum(),
                "attack_seed": seed,
            }
            line = full_signature({**pins, "attacks": _digest(plan)}, signature)
            if folder is not None and reuse:
                finished = _finished(folder, line, check_sanity, further)
                if finished is not None:
                    return finished
            partial = PartialResults(None if folder is None else folder / "partial", pins)
            known = truth(everything, subjects, seed)
            attacked = _attack(model, everything, subjects, known, plan, limits.seeds, seed, partial, progress)
            bound = bounds(
                model, subjects.auxiliary, subjects.targets, generator(seed, "bound", device=where), input_entropy
            )
            prove = check_sanity and attacked.made_pictures
            healthy = sanity(subjects.auxiliary, subjects.targets, plan, seed) if prove else None
            scored = score(model, subjects, known, attacked.runs)
            extra, remarks = measured(further, subjects, scored.answers)
            report = assemble(
                model,
                everything,
                subjects,
                scored,
                floors(subjects.auxiliary, subjects.targets, shared_labels=subjects.shared_labels),
                attacked.failures,
                skipped=attacked.skipped,
                bound=bound,
                sanity=healthy,
                extra=extra,
                remarks=remarks,
                pins=pins,
                signature=line,
                seconds=time.monotonic() - began,
            )
        if folder is not None:
            report.save(folder)
            partial.clear()
    return report


@contextmanager
def _held(folder: Path | None) -> Iterator[None]:
    """One audit at a time in a folder, which must be writable: two would mix their results."""
    if folder is None:
        yield
        return
    check_writable(folder)
    with only_writer(folder, who="audit", hint="Wait for it; an audit of another run or mode may run beside it."):
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
    log.warning("%s holds the finished audit of this model with these settings: nothing was attacked again.", folder)
    return report


def _plan(tier: str, attacks: Mapping[str, Mapping[str, Any]] | list[str] | None, epochs: int | None) -> Plan:
    """Attack names with their options, checked before anything runs."""
    if tier not in TIERS:
        raise UnknownNameError(f"There is no tier called '{tier}'.", nearest(tier, TIERS))
    own = TIERS[tier].attacks
    if attacks is None:
        plan = {name: dict(options) for name, options in own.items()}
    elif isinstance(attacks, Mapping):
        plan = {name: {**own.get(name, {}), **options} for name, options in attacks.items()}
    else:
        plan = {name: dict(own.get(name, {})) for name in attacks}
    if not plan:
        raise InputError("No attack was asked for.", "Name at least one, or leave `attacks` out.")
    for name, options in plan.items():
        attack = attack_family.create(name, **options)
        if epochs is not None and "epochs" in type(attack.options).model_fields:
            options["epochs"] = epochs
    return plan


def _digest(plan: Plan) -> str:
    """Pins the attacks and their options in a signature."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()[:8]


def _device(model: SplitModel, device: str | torch.device | None) -> torch.device:
    if device is not None:
        return device if isinstance(device, torch.device) else pick_device(device)
    own = next((tensor.device for tensor in [*model.parameters(), *model.buffers()]), None)
    return torch.device("cpu") if own is None else own


def _attack(
    model: SplitModel,
    data: AuditData,
    subjects: Subjects,
    known: Truth,
    plan: Plan,
    seeds: int,
    seed: int,
    partial: PartialResults,
    progress: Progress,
) -> Attacked:
    """Run every attack of the plan; one that fails is reported and does not stop the others."""
    runs: dict[str, AttackRun] = {}
    failures: dict[str, str] = {}
    skipped: dict[str, str] = {}
    classes = count_classes(model, subjects.targets.images) if subjects.shared_labels else None
    earlier: dict[str, Any] = {}
    for name, options in plan.items():
        outcomes: list[Outcome] = []
        seconds = 0.0
        for number in range(seeds):
            attack = attack_family.create(name, **options)
            scene = Scene(
                model,
                subjects.auxiliary,
                subjects.targets,
                seed=derive_seed(seed, "audit", number),
                augmentation=data.augmentation,
                candidates=known.candidates,
                attributes=known.own,
                num_classes=classes,
                earlier=earlier,
            )
            try:
                outcome, spent = _one(attack, scene, {**options, "number": number}, partial, progress)
            except ThreatModelError:
                raise  # a defect of the attack itself, not of the model
            except NotApplicableError as reason:
                skipped[name] = str(reason).splitlines()[0]
                log.info("the attack '%s' was left out: %s", name, skipped[name])
                break
            except Exception as error:  # whatever the model or a third party's attack raises: keep the others' results
                why = (str(error).strip() or "no reason given").splitlines()[0]
                failures[name] = why if isinstance(error, SplitveilError) else f"{type(error).__name__}: {why}"
                log.warning("the attack '%s' failed: %s", name, failures[name])
                log.debug("its traceback", exc_info=True)
                break
            outcomes.append(outcome)
            seconds += spent
        if outcomes:
            runs[name] = AttackRun(attack, outcomes, seconds)
            if isinstance(outcomes[0], Reconstruction):
                earlier[name] = (attack.threat_model, outcomes[0])
    attacked = Attacked(runs, failures, skipped)
    # an audit that only looks for something else is complete without pictures; one whose attacks broke down is not
    if not runs or (failures and not attacked.made_pictures):
        reasons = "; ".join(f"{name}: {why}" for name, why in {**failures, **skipped}.items())
        raise SplitveilError(
            f"No attack gave a {'reconstruction' if runs else 'result'} ({reasons}).",
            "Mend what is said there, or add an attack that has all it needs, such as retrieval or decoder.",
        )
    return attacked


def _one(
    attack: Attack, scene: Scene, options: dict[str, Any], partial: PartialResults, progress: Progress
) -> tuple[Outcome, float]:
    known = partial.load(attack.name, options)
    if known is not None:
        outcome, seconds = known
        if isinstance(outcome, Inference):
            return outcome, seconds
        device = scene.targets.images.device
        variants = {name: images.to(device) for name, images in outcome.variants.items()}
        return Reconstruction(outcome.images.to(device), variants, outcome.curve, outcome.details), seconds
    began = time.monotonic()
    memory = partial.memory(attack.name, options, scene.targets.images.device)
    view = View(scene, attack.threat_model, attack=f"the attack '{attack.name}'", memory=memory)
    outcome = attack.run(view, progress)
    seconds = time.monotonic() - began
    partial.save(attack.name, options, outcome, seconds)
    return outcome, seconds
