"""Run the attacks of a plan one after the other, and keep what each of them gave."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

from splitveil import attacks as attack_family
from splitveil.attacks.base import (
    Attack,
    Inference,
    NotApplicableError,
    Outcome,
    Progress,
    Reconstruction,
    ThreatModel,
)
from splitveil.attacks.view import Scene, View
from splitveil.audit.checks import count_classes
from splitveil.audit.inference import Truth
from splitveil.audit.outcomes import check_outcome
from splitveil.audit.partial import PartialResults
from splitveil.audit.scope import Scope
from splitveil.audit.scoring import AttackRun
from splitveil.audit.tiers import TIERS
from splitveil.core.errors import RunFolderError, ServingError, SplitveilError, ThreatModelError, reason
from splitveil.core.plug_ins import plug_in_failure
from splitveil.core.seeding import derive_seed
from splitveil.models.split import SplitModel

log = logging.getLogger("splitveil.audit")

HIDDEN_WORDS = {"weights": "weights", "cloud": "weights of the cloud half"}


@dataclass(frozen=True)
class Attacked:
    """What the attacks gave; why some broke down (`failures`), and why some had nothing to do (`skipped`)."""

    runs: dict[str, AttackRun]
    failures: dict[str, str]
    skipped: dict[str, str]

    @property
    def made_pictures(self) -> bool:
        return any(isinstance(run.outcomes[0], Reconstruction) for run in self.runs.values())


def run_attacks(scope: Scope, known: Truth, partial: PartialResults, progress: Progress) -> Attacked:
    """Run every attack of the plan; one that fails is reported and does not stop the others.

    Where the model lies behind an address that no longer answers, `ServingError` ends it all; where what was found
    cannot be written, `RunFolderError` does.
    """
    model, subjects = scope.model, scope.subjects
    runs: dict[str, AttackRun] = {}
    failures: dict[str, str] = {}
    skipped: dict[str, str] = {}
    classes = count_classes(model, subjects.targets.images) if subjects.shared_labels else None
    earlier: dict[str, tuple[ThreatModel, Reconstruction]] = {}
    for name, options in scope.plan.items():
        outcomes: list[Outcome] = []
        seconds = 0.0
        if (lacking := out_of_reach(name, model)) is not None:
            skipped[name] = lacking
            log.info("the attack '%s' was left out: %s", name, lacking)
            continue
        for number in range(TIERS[scope.tier].seeds):
            attack = attack_family.create(name, **options)
            scene = Scene(
                model,
                subjects.auxiliary,
                subjects.targets,
                seed=derive_seed(scope.seed, "audit", number),
                augmentation=scope.data.augmentation,
                candidates=known.candidates,
                attributes=known.own,
                num_classes=classes,
                earlier=earlier,
            )
            try:
                outcome, spent = _one(attack, scene, {**options, "number": number}, partial, progress)
            except ThreatModelError:
                raise  # a defect of the attack itself, not of the model
            except ServingError:
                raise  # the endpoint is gone: every attack after this one would only say so again
            except RunFolderError:
                raise  # what was found cannot be kept (a full disk): no fault of the attack
            except NotApplicableError as error:
                skipped[name] = reason(error)
                log.info("the attack '%s' was left out: %s", name, skipped[name])
                break
            except Exception as error:  # whatever the model or a third party's attack raises: keep the others' results
                failures[name] = _why(error)
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


def _why(error: Exception) -> str:
    """What broke an attack; inside another package's code also where."""
    if isinstance(error, SplitveilError):
        return reason(error)
    foreign = plug_in_failure(error)
    return foreign.message if foreign is not None else f"{type(error).__name__}: {reason(error)}"


def out_of_reach(name: str, model: SplitModel) -> str | None:
    """Why no adversary can run an attack on this model; None where one can."""
    hidden = [what for what in attack_family.create(name).threat_model.granted() if what in model.hidden]
    if not hidden:
        return None
    return f"It needs the {' and the '.join(HIDDEN_WORDS[what] for what in hidden)}, {model.out_of_reach}."


def _one(
    attack: Attack, scene: Scene, options: dict[str, Any], partial: PartialResults, progress: Progress
) -> tuple[Outcome, float]:
    """What one attack gave and how long it took: now, or before the audit was interrupted."""
    memory = partial.memory(attack.name, options, scene.targets.images.device)
    view = View(scene, attack.threat_model, attack=f"the attack '{attack.name}'", memory=memory)
    known = partial.load(attack.name, options, view.reconstruction)
    if known is not None:
        log.warning("the attack '%s' is read from %s, where an unfinished audit kept it", attack.name, partial.folder)
        outcome, seconds = known
        if isinstance(outcome, Inference):
            return outcome, seconds
        device = scene.targets.images.device
        variants = {name: images.to(device) for name, images in outcome.variants.items()}
        return Reconstruction(outcome.images.to(device), variants, outcome.curve, outcome.details), seconds
    began = time.monotonic()
    outcome = attack.run(view, progress)
    check_outcome(outcome, view)
    seconds = time.monotonic() - began
    partial.save(attack.name, options, outcome, seconds, view.asked)
    return outcome, seconds
