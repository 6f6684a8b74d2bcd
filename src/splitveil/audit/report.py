"""From the outcomes of attacks to audit.json (layout in DESIGN 2) and the gallery."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from splitveil import __version__
from splitveil.attacks.base import Attack, Inference, Outcome, Reconstruction
from splitveil.audit.bounds import compare_with_attacks
from splitveil.audit.card import card
from splitveil.audit.checks import accuracy_on
from splitveil.audit.gallery import Gallery, gallery, select
from splitveil.audit.inference import Truth, judge
from splitveil.audit.metrics import PictureScores, compare, worst_case
from splitveil.audit.statistics import bootstrap_interval
from splitveil.audit.subjects import AuditData, Subjects
from splitveil.core.catalogue import ATTACKS
from splitveil.core.files import write_json
from splitveil.models.split import SplitModel


@dataclass(frozen=True)
class AttackRun:
    """One attack of an audit: its outcome for every seed."""

    attack: Attack
    outcomes: list[Outcome]
    seconds: float


@dataclass(frozen=True)
class AuditReport:
    """What an audit found. `tree` is audit.json."""

    tree: dict[str, Any]
    gallery: Gallery

    @property
    def worst_case(self) -> dict[str, Any]:
        return self.tree["worst_case"]

    @property
    def attacks(self) -> dict[str, Any]:
        return self.tree["attacks"]

    @property
    def floors(self) -> dict[str, Any]:
        return self.tree["floors"]

    def save(self, folder: Path) -> None:
        """Write audit.json last: where it is, everything it speaks of is there too."""
        (folder / "audit.json").unlink(missing_ok=True)
        self.gallery.save(folder)
        write_json(folder / "card.json", card(self.tree))
        write_json(folder / "audit.json", self.tree)


def assemble(
    model: SplitModel,
    data: AuditData,
    subjects: Subjects,
    floor_scores: dict[str, PictureScores],
    known: Truth,
    runs: dict[str, AttackRun],
    failures: dict[str, str],
    bound: dict[str, Any],
    sanity: dict[str, Any] | None,
    pins: dict[str, Any],
    signature: str | None,
    seconds: float,
) -> AuditReport:
    """Score everything and put it into one tree."""
    entries: dict[str, Any] = {}
    inferences: dict[str, Any] = {}
    scores: dict[str, PictureScores] = {}  # first seed of each attack: what the gallery shows
    rivals: dict[str, PictureScores] = {}  # every answer of every attack and seed: they compete for the worst case
    answers: dict[str, Tensor] = {}
    for name, run in runs.items():
        common = {
            "seconds": run.seconds,
            "threat_model": run.attack.threat_model.granted(),
            "summary": ATTACKS.describe(name),
        }
        if isinstance(run.outcomes[0], Inference):
            inferences[name] = {"findings": judge(run.outcomes[0], known), **run.outcomes[0].details, **common}
            continue
        made = [outcome for outcome in run.outcomes if isinstance(outcome, Reconstruction)]
        per_seed = [compare(one.images, subjects.targets.images[: len(one.images)]) for one in made]
        scores[name], answers[name] = per_seed[0], made[0].images
        entries[name] = {**_entry(model, subjects, made, per_seed), **common}
        for number, one in enumerate(made):
            rivals[f"{name}/{number}"] = per_seed[number]
            for variant, images in one.variants.items():
                found = compare(images, subjects.targets.images[: len(images)])
                rivals[f"{name}/{number}/{variant}"] = found
                if number == 0:
                    entries[name][variant] = found.means() | _variant_details(variant, one)
    worst, winning = worst_case(rivals)
    once = {
        name: found for name, found in rivals.items() if "repeats" not in entries[name.split("/")[0]]["threat_model"]
    }
    winners = [name.split("/")[0] for name in winning]
    labels = subjects.targets.labels.cpu()
    class_names = [data.class_name(int(label)) for label in labels]
    tree = {
        "tier": pins["tier"],
        "mode": pins["mode"],
        "protocol": data.protocol,
        "data": data.name,
        "num_images": len(subjects.targets),
        "auxiliary_images": len(subjects.auxiliary),
        "floors": {name: _with_intervals([found]) for name, found in floor_scores.items()},
        "attacks": entries,
        "inference": inferences,
        "worst_case": {
            **_with_intervals([worst]),
            "seconds": sum(run.seconds for run in runs.values()),
            "threat_model": sorted({item for run in runs.values() for item in run.attack.threat_model.granted()}),
            "winners": {name: winners.count(name) / len(winners) for name in entries},
        },
        "worst_case_once": _with_intervals([worst_case(once)[0]]) if once else None,
        "per_class": _per_class(worst, class_names),
        "worst_decile": _worst_decile(worst),
        "bound": compare_with_attacks(bound, entries),
        "sanity": sanity,
        "verdict": _verdict(worst, floor_scores["mean_image"], failures, sanity),
        "failures": failures,
        "warnings": [
            *_warnings(entries, floor_scores["mean_image"], len(subjects.targets)),
            *_missing_counter_attacks(model, set(runs)),
        ],
        "seconds": seconds,
        "signature": _signature(pins, signature),
    }
    places = select(worst)
    shown = gallery(
        places, subjects.index, labels, class_names, subjects.targets.images, answers, scores, worst, winners
    )
    return AuditReport(tree, shown)


def _entry(
    model: SplitModel, subjects: Subjects, made: list[Reconstruction], per_seed: list[PictureScores]
) -> dict[str, Any]:
    """One attack's numbers; the headline is the mean over seeds of the final answers."""
    first = made[0]
    labels = subjects.targets.labels
    recon_acc = [accuracy_on(model, one.images, labels[: len(one.images)]) for one in made]
    return {
        **_with_intervals(per_seed),
        "recon_acc": sum(recon_acc) / len(recon_acc),
        "num_images": len(first.images),
        "seeds": len(made),
        "curve": [list(pair) for pair in first.curve],
        **first.details,
    }


def _variant_details(variant: str, outcome: Reconstruction) -> dict[str, Any]:
    number = outcome.details.get(f"{variant}_number")
    return {} if number is None else {"epoch": number}


def _with_intervals(per_seed: list[PictureScores]) -> dict[str, Any]:
    """Means over seeds and pictures with 95 % intervals."""
    means = [one.means() for one in per_seed]
    result: dict[str, Any] = {key: sum(mean[key] for mean in means) / len(means) for key in means[0]}
    for key in ("mse", "ssim", "psnr"):
        table = torch.stack([getattr(one, key) for one in per_seed]).numpy()
        interval = bootstrap_interval(table)
        result[f"{key}_ci95"] = None if interval is None else list(interval)
    return result


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


def _verdict(
    worst: PictureScores, floor: PictureScores, failures: dict[str, str], sanity: dict[str, Any] | None
) -> dict[str, Any] | None:
    """How far the attacks came from guessing (0) to the picture (1); None where the suite is not to be trusted."""
    if sanity is None or not sanity["passed"] or failures:
        return None
    guess, leaked = float(floor.mse.mean()), float(worst.mse.mean())
    return {"leak": 1 - leaked / guess if guess > 0 else 0.0, "measure": "1 - worst-case MSE / MSE of the mean picture"}


def _warnings(entries: dict[str, Any], floor: PictureScores, num_images: int) -> list[str]:
    found = []
    if num_images < 30:
        found.append(f"Only {num_images} pictures were attacked: the intervals mean little.")
    if float(floor.mse.mean()) < 1e-6:
        found.append("The pictures hardly differ from their mean: no attack can show anything on them.")
    for name, entry in entries.items():
        tail = [error for _, error in entry["curve"]]
        if len(tail) >= 4 and tail[-1] < 0.97 * tail[len(tail) * 3 // 4 - 1]:
            found.append(f"The attack '{name}' was still improving when it ended: a longer one would leak more.")
    return found


def _missing_counter_attacks(model: SplitModel, run: set[str]) -> list[str]:
    """A defence names the attacks that a knowing adversary would use; say which of them this tier left out."""
    found = []
    for name, defence in model.defences.items():
        missing = [attack for attack in getattr(defence, "counter_attacks", ()) if attack not in run]
        if missing:
            found.append(f"Against the defence '{name}' a knowing attacker would also use {', '.join(missing)}.")
    return found


def _signature(pins: dict[str, Any], run_signature: str | None) -> str:
    """One line that pins what produced the numbers."""
    parts = "|".join(f"{key}:{value}" for key, value in pins.items())
    start = run_signature or f"splitveil:{__version__}|torch:{torch.__version__.split('+')[0]}"
    return f"{start}|audit|{parts}"
