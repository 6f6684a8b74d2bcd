"""From scores to audit.json (layout in DESIGN 2) and the gallery."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from splitveil import __version__
from splitveil.audit.bounds import compare_with_attacks
from splitveil.audit.card import card
from splitveil.audit.earlier import set_aside
from splitveil.audit.gallery import Gallery, gallery, select
from splitveil.audit.groups import exposed, per_group
from splitveil.audit.metrics import PictureScores, worst_case
from splitveil.audit.plan import Plan
from splitveil.audit.remarks import (
    NO_PICTURES,
    fewer_pictures,
    hidden_weights,
    less_than_the_answer,
    missing_counter_attacks,
    no_better_than_guessing,
    no_use,
    no_verdict,
    random_edge,
    single_pictures,
    verdict,
    warnings,
)
from splitveil.audit.scoring import Scored, with_intervals
from splitveil.audit.subjects import AuditData, Subjects
from splitveil.audit.table import table
from splitveil.core.errors import RunFolderError
from splitveil.core.files import write_json
from splitveil.core.manifest import now, torch_version
from splitveil.functional.guessing import beats_guessing, most_frequent
from splitveil.models.split import SplitModel

AUDIT, CARD = "audit.json", "card.json"


@dataclass(frozen=True)
class AuditReport:
    """What an audit found. `tree` is audit.json; printed, it is the table of `splitveil audit`."""

    tree: dict[str, Any]
    gallery: Gallery
    folder: Path | None = None  # where it lies, if it was written

    def __str__(self) -> str:
        return table(self.tree)

    def __repr__(self) -> str:
        return str(self)  # a notebook shows this: the numbers, not thousands of lines of pictures

    @property
    def worst_case(self) -> dict[str, Any]:
        return self.tree["worst_case"]

    @property
    def attacks(self) -> dict[str, Any]:
        return self.tree["attacks"]

    @property
    def floors(self) -> dict[str, Any]:
        return self.tree["floors"]

    @property
    def inference(self) -> dict[str, Any]:
        return self.tree["inference"]

    @property
    def verdict(self) -> dict[str, Any] | None:
        """How much leaked, `{"leak": 0 to 1, ...}`; None where the suite is not to be trusted (see `warnings`)."""
        return self.tree["verdict"]

    @property
    def warnings(self) -> list[str]:
        return self.tree["warnings"]

    @classmethod
    def load(cls, folder: str | Path) -> AuditReport:
        """The report that was saved in `folder`; one that is not complete, or was changed since, is an error."""
        place = Path(folder)
        try:
            tree, written = (json.loads((place / name).read_text(encoding="utf-8")) for name in (AUDIT, CARD))
            if card(tree) == written:
                return cls(tree, Gallery.load(place), place)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass  # missing, damaged, or of another version
        raise RunFolderError(f"{folder} holds no complete audit.", "Make it again with: splitveil audit RUN")

    def save(self, folder: str | Path) -> None:
        """Write audit.json last: where it is, everything it speaks of is there too.

        A finished audit with other settings that lies there already is moved to `folder/earlier/NUMBER`.
        """
        folder = Path(folder)
        set_aside(folder, self.tree)
        (folder / AUDIT).unlink(missing_ok=True)
        self.gallery.save(folder)
        write_json(folder / CARD, card(self.tree))
        write_json(folder / AUDIT, self.tree)


def assemble(
    model: SplitModel,
    data: AuditData,
    subjects: Subjects,
    scored: Scored,
    floor_scores: dict[str, PictureScores],
    failures: dict[str, str],
    *,
    skipped: dict[str, str],
    bound: dict[str, Any],
    sanity: dict[str, Any] | None,
    extra: dict[str, Any],
    accuracy: float,
    answered: PictureScores | None,
    doubts: list[str],
    remarks: list[str],
    departures: list[str],
    plan: Plan,
    asked: Plan,
    epochs: int | None,
    pins: dict[str, Any],
    signature: str,
    about: Mapping[str, Any] | None,
    seconds: float,
) -> AuditReport:
    """Put everything into one tree; `remarks` are further warnings, and so are `departures` from the tier's plan.

    `answered` are the scores of the mean picture of the class that the model names (of an endpoint, the auditor's own
    classifier on what it sends); `doubts` are reasons to give no verdict.
    """
    entries, guess = scored.entries, floor_scores["mean_image"]
    rivals = scored.competing()  # none where all attacks look for something else than pictures
    worst, winning = worst_case(rivals) if rivals else (guess.subset(torch.arange(0)), [])
    once = scored.competing(once=True)
    winners = [name for name, _ in winning]
    labels = subjects.targets.labels.cpu()
    # where all attacks stop early, nothing is known of the pictures after that
    class_names = [data.class_name(int(label)) for label in labels[: len(worst)]]
    guess = guess.subset(torch.arange(len(worst))) if rivals else guess
    doubts = [*doubts, *less_than_the_answer(worst, answered, model.accuracy_of)]
    values = {name: of_test[subjects.index.to(of_test.device)] for name, (_, of_test) in data.attributes.items()}
    groups = per_group(worst, guess, values) if rivals else {}
    rights = {item for entry in [*entries.values(), *scored.inferences.values()] for item in entry["threat_model"]}
    tree = {
        "tier": pins["tier"],
        "mode": pins["mode"],
        "protocol": data.protocol,
        "data": data.name,
        "num_images": len(subjects.targets),
        "auxiliary_images": len(subjects.auxiliary),
        "accuracy": accuracy,
        "accuracy_of": model.accuracy_of,
        "accuracy_guessing": most_frequent(labels),
        "works": beats_guessing(accuracy, labels),
        "floors": {name: with_intervals([found]) for name, found in floor_scores.items()},
        "attacks": entries,
        "inference": scored.inferences,
        "worst_case": {}
        if not rivals
        else {
            **with_intervals([worst]),
            "seconds": sum(entry["seconds"] for entry in entries.values()),
            "threat_model": sorted(rights),
            "num_images": len(worst),
            "winners": {name: winners.count(name) / len(winners) for name in entries},
        },
        "worst_case_once": with_intervals([worst_case(once)[0]]) if once else None,
        "per_class": _per_class(worst, class_names),
        "per_group": groups,
        "worst_decile": _worst_decile(worst) if rivals else {},
        "bound": compare_with_attacks(bound, entries),
        "extra": extra,
        "sanity": sanity,
        "verdict": verdict(worst, guess, failures, sanity, doubts) if rivals else None,
        "failures": failures,
        "skipped": skipped,
        "warnings": [
            *(no_verdict(sanity, failures, doubts) if rivals else [NO_PICTURES]),
            *warnings(entries, guess, len(subjects.targets)),
            *no_better_than_guessing(entries, worst, floor_scores),
            *exposed(groups, worst, guess),
            *single_pictures(worst, guess),
            *no_use(accuracy, subjects.targets.labels, model.accuracy_of),
            *fewer_pictures(entries, len(worst)),
            *random_edge(model, subjects.targets.images),
            *hidden_weights(model),
            *missing_counter_attacks(model, {*entries, *scored.inferences}),
            *departures,
            *remarks,
        ],
        "departures": departures,
        "plan": plan,  # the signature has only its checksum
        "own_options": asked,
        "epochs": epochs,
        "ended": now(),
        "seconds": seconds,
        "signature": signature,
        "about": None if about is None else dict(about),
    }
    shown = gallery(
        select(worst),
        subjects.index,
        labels,
        class_names,
        subjects.targets.images,
        scored.answers,
        scored.shown,
        worst,
        winners,
    )
    return AuditReport(tree, shown)


def _per_class(worst: PictureScores, class_names: list[str]) -> dict[str, Any]:
    result = {}
    for name in dict.fromkeys(class_names):
        members = torch.tensor([place for place, other in enumerate(class_names) if other == name])
        result[name] = worst.subset(members).means() | {"num_images": len(members)}
    return result


def _worst_decile(worst: PictureScores) -> dict[str, Any]:
    """The tenth of the pictures that leaked most."""
    count = max(1, len(worst) // 10)
    leaked = worst.mse.argsort(stable=True)[:count]
    return worst.subset(leaked).means() | {"num_images": count}


def full_signature(pins: dict[str, Any], run_signature: str | None) -> str:
    """One line that pins what produced the numbers."""
    parts = "|".join(f"{key}:{value}" for key, value in pins.items())
    start = run_signature or f"splitveil:{__version__}|torch:{torch_version()}"
    return f"{start}|audit|{parts}"
