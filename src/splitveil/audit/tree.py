"""From findings to audit.json (layout in DESIGN 2) and the gallery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from splitveil.audit.bounds import compare_with_attacks
from splitveil.audit.findings import Findings
from splitveil.audit.gallery import gallery
from splitveil.audit.groups import exposed, per_group
from splitveil.audit.metrics import PictureScores, worst_case
from splitveil.audit.plan import departures, own_options
from splitveil.audit.remarks import (
    NO_PICTURES,
    fewer_pictures,
    hidden_weights,
    less_than_the_answer,
    missing_counter_attacks,
    missing_noise,
    no_better_than_guessing,
    no_use,
    no_verdict,
    random_edge,
    single_pictures,
    verdict,
    warnings,
)
from splitveil.audit.report import AuditReport
from splitveil.audit.scope import Scope
from splitveil.audit.scoring import with_intervals
from splitveil.core.manifest import now
from splitveil.functional.guessing import beats_guessing, most_frequent


def assemble(
    scope: Scope,
    found: Findings,
    *,
    signature: str,
    about: Mapping[str, Any] | None,
    remarks: Sequence[str],
    seconds: float,
) -> AuditReport:
    """Put everything into one tree; `remarks` are warnings of the caller's."""
    model, subjects, scored = scope.model, scope.subjects, found.scored
    worst = _Worst.of(scope, found)
    once = scored.competing(once=True)
    altered = departures(scope.tier, scope.plan)
    labels = subjects.targets.labels.cpu()
    failures = found.attacked.failures
    tree = {
        "tier": scope.tier,
        "mode": scope.mode,
        "protocol": scope.data.protocol,
        "data": scope.data.name,
        "num_images": len(subjects.targets),
        "auxiliary_images": len(subjects.auxiliary),
        "accuracy": found.accuracy,
        "accuracy_of": model.accuracy_of,
        "accuracy_guessing": most_frequent(labels),
        "works": beats_guessing(found.accuracy, labels),
        "floors": {name: with_intervals([scores]) for name, scores in found.floors.items()},
        "attacks": scored.entries,
        "inference": scored.inferences,
        "worst_case": worst.entry(found) if worst.known else {},
        "worst_case_once": with_intervals([worst_case(once)[0]]) if once else None,
        "per_class": _per_class(worst.scores, worst.class_names),
        "per_group": worst.groups,
        "worst_decile": _worst_decile(worst.scores) if worst.known else {},
        "bound": compare_with_attacks(found.bound, scored.entries),
        "extra": found.extra,
        "sanity": found.sanity,
        "verdict": verdict(worst.scores, worst.guess, failures, found.sanity, worst.doubts) if worst.known else None,
        "failures": failures,
        "skipped": found.attacked.skipped,
        "warnings": [*_warnings(scope, found, worst), *altered, *remarks, *found.remarks],
        "departures": altered,
        "plan": scope.plan,  # the signature has only its checksum
        "own_options": own_options(scope.tier, scope.plan),
        "epochs": scope.epochs,
        "ended": now(),
        "seconds": seconds,
        "signature": signature,
        "about": None if about is None else dict(about),
    }
    return AuditReport(tree, gallery(subjects, scored, worst.scores, worst.winners, worst.class_names))


@dataclass(frozen=True)
class _Worst:
    """The best answer of all attacks to each picture. No attack may have made pictures: then none is `known`."""

    known: bool
    scores: PictureScores  # of the first pictures alone where all attacks stop early: nothing is known of the others
    winners: list[str]
    guess: PictureScores  # the mean picture's, of as many
    class_names: list[str]
    groups: dict[str, Any]
    doubts: list[str]

    @classmethod
    def of(cls, scope: Scope, found: Findings) -> _Worst:
        subjects, guess = scope.subjects, found.floors["mean_image"]
        rivals = found.scored.competing()
        scores, winning = worst_case(rivals) if rivals else (guess.subset(torch.arange(0)), [])
        guess = guess.subset(torch.arange(len(scores))) if rivals else guess
        values = {
            name: of_test[subjects.index.to(of_test.device)] for name, (_, of_test) in scope.data.attributes.items()
        }
        return cls(
            known=bool(rivals),
            scores=scores,
            winners=[name for name, _ in winning],
            guess=guess,
            class_names=[scope.data.class_name(int(label)) for label in subjects.targets.labels.cpu()[: len(scores)]],
            groups=per_group(scores, guess, values) if rivals else {},
            doubts=[*found.doubts, *less_than_the_answer(scores, found.answered, scope.model.accuracy_of)],
        )

    def entry(self, found: Findings) -> dict[str, Any]:
        entries, inferences = found.scored.entries, found.scored.inferences
        rights = {item for entry in [*entries.values(), *inferences.values()] for item in entry["threat_model"]}
        return {
            **with_intervals([self.scores]),
            "seconds": sum(entry["seconds"] for entry in entries.values()),
            "threat_model": sorted(rights),
            "num_images": len(self.scores),
            "winners": {name: self.winners.count(name) / len(self.winners) for name in entries},
        }


def _warnings(scope: Scope, found: Findings, worst: _Worst) -> list[str]:
    """What the findings themselves speak against."""
    model, targets, entries = scope.model, scope.subjects.targets, found.scored.entries
    return [
        *(no_verdict(found.sanity, found.attacked.failures, worst.doubts) if worst.known else [NO_PICTURES]),
        *warnings(entries, worst.guess, len(targets)),
        *no_better_than_guessing(entries, worst.scores, found.floors),
        *exposed(worst.groups, worst.scores, worst.guess),
        *single_pictures(worst.scores, worst.guess),
        *no_use(found.accuracy, targets.labels, model.accuracy_of),
        *fewer_pictures(entries, len(worst.scores)),
        *random_edge(model, targets.images),
        *(missing_noise(model, targets.images) or ([] if found.missing_noise is None else [found.missing_noise])),
        *hidden_weights(model),
        *missing_counter_attacks(model, {*entries, *found.scored.inferences}),
    ]


def _per_class(worst: PictureScores, class_names: list[str]) -> dict[str, Any]:
    result = {}
    for name in dict.fromkeys(class_names):
        members = torch.tensor([place for place, other in enumerate(class_names) if other == name])
        result[name] = worst.subset(members).means() | {"num_images": len(members)}
    return result


def _worst_decile(worst: PictureScores) -> dict[str, Any]:
    """The tenth of the pictures that leaked most, by each measure its own, as in the worst case: the pictures with the
    highest SSIM need not be those with the lowest MSE, and their mean over others would understate the tail."""
    count = max(1, len(worst) // 10)
    tenth = PictureScores(worst.mse.sort().values[:count], worst.ssim.sort(descending=True).values[:count])
    return tenth.means() | {"num_images": count}
