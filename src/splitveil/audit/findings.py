"""All that an audit finds out about a model, before any of it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from splitveil.attacks.base import Progress
from splitveil.audit.attacking import Attacked, out_of_reach, run_attacks
from splitveil.audit.bounds import bounds
from splitveil.audit.checks import answers, check_sent
from splitveil.audit.extra import Measure, measured
from splitveil.audit.floors import floors, of_classes
from splitveil.audit.inference import truth
from splitveil.audit.metrics import PictureScores
from splitveil.audit.partial import PartialResults
from splitveil.audit.sanity import sanity
from splitveil.audit.scope import Scope
from splitveil.audit.scoring import Scored, score
from splitveil.audit.sent_noise import missing_share
from splitveil.audit.steadiness import Steadiness
from splitveil.training.evaluate import accuracy


@dataclass(frozen=True)
class Findings:
    """What the attacks reached, and what it is held against."""

    attacked: Attacked
    scored: Scored
    bound: dict[str, Any]
    missing_noise: str | None  # how far the noise that is sent falls short of what is stated
    sanity: dict[str, Any] | None  # None where the suite was not to be proved, or made no pictures
    extra: dict[str, Any]
    accuracy: float
    answered: PictureScores | None  # of the mean picture of the class that is named, as `accuracy` counts it
    floors: dict[str, PictureScores]
    doubts: list[str]  # reasons to give no verdict
    remarks: list[str]  # further warnings


def find(
    scope: Scope,
    partial: PartialResults,
    progress: Progress,
    *,
    measures: Mapping[str, Measure],
    input_entropy: float | None,
    check_sanity: bool,
) -> Findings:
    """Attack the model and measure what came back. The model is asked in this order: one of its own randomness would
    answer otherwise in another."""
    model, subjects = scope.model, scope.subjects
    steady = Steadiness(model, subjects.targets.images)  # first: what wears off may be gone after the check
    check_sent(model, subjects)
    known = truth(scope.data, subjects, scope.seed)
    attacked = run_attacks(scope, known, partial, progress)
    missing = missing_share(model, subjects.targets.images)
    bound: dict[str, Any] = {"available": False, "reason": missing}
    if missing is None:
        bound = bounds(model, subjects.auxiliary, subjects.targets, scope.stream("bound"), input_entropy)
    proved = None
    if check_sanity and attacked.made_pictures:
        possible = {name: options for name, options in scope.plan.items() if out_of_reach(name, model) is None}
        proved = sanity(subjects.auxiliary, subjects.targets, possible, scope.seed)
    scored = score(model, subjects, known, attacked.runs)
    extra, broken = measured(measures, subjects, scored.answers)
    useful = float(accuracy(model, subjects.targets, scope.stream("accuracy")))
    answered = None
    if subjects.shared_labels:
        named = answers(model, subjects.targets.images, scope.stream("answers"))
        answered = of_classes(subjects.auxiliary, subjects.targets, named)
    return Findings(
        attacked=attacked,
        scored=scored,
        bound=bound,
        missing_noise=missing,
        sanity=proved,
        extra=extra,
        accuracy=useful,
        answered=answered,
        floors=floors(subjects.auxiliary, subjects.targets, shared_labels=subjects.shared_labels),
        doubts=steady.doubts(),
        remarks=broken,
    )
