"""Hold the answers of all attacks against the pictures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from splitveil.attacks.base import Attack, Inference, Outcome, Reconstruction
from splitveil.audit.checks import accuracy_on
from splitveil.audit.inference import Truth, judge
from splitveil.audit.metrics import PictureScores, compare
from splitveil.audit.statistics import bootstrap_interval
from splitveil.audit.subjects import Subjects
from splitveil.core.catalogue import ATTACKS
from splitveil.models.split import SplitModel


@dataclass(frozen=True)
class AttackRun:
    """One attack of an audit: its outcome for every seed."""

    attack: Attack
    outcomes: list[Outcome]
    seconds: float


@dataclass(frozen=True)
class Scored:
    """What the attacks reached: entries of audit.json, and the scores of every picture."""

    entries: dict[str, Any] = field(default_factory=dict)
    inferences: dict[str, Any] = field(default_factory=dict)
    shown: dict[str, PictureScores] = field(default_factory=dict)  # first seed of each attack, for the gallery
    answers: dict[str, Tensor] = field(default_factory=dict)  # the pictures that belong to `shown`
    rivals: dict[str, dict[str, PictureScores]] = field(default_factory=dict)  # every answer of each attack and seed

    def competing(self, *, once: bool = False) -> dict[tuple[str, str], PictureScores]:
        """All answers that compete for the worst case; with `once`, only those that saw a single transmission."""
        return {
            (name, answer): scores
            for name, found in self.rivals.items()
            if not (once and "repeats" in self.entries[name]["threat_model"])
            for answer, scores in found.items()
        }


def score(model: SplitModel, subjects: Subjects, known: Truth, runs: dict[str, AttackRun]) -> Scored:
    """Score every answer of every attack."""
    result = Scored()
    pictures = subjects.targets.images
    for name, run in runs.items():
        common = {
            "seconds": run.seconds,
            "threat_model": run.attack.threat_model.granted(),
            "summary": ATTACKS.describe(name),
        }
        first = run.outcomes[0]
        if isinstance(first, Inference):
            result.inferences[name] = {"findings": judge(first, known), **first.details, **common}
            continue
        made = [outcome for outcome in run.outcomes if isinstance(outcome, Reconstruction)]
        per_seed = [compare(one.images, pictures[: len(one.images)]) for one in made]
        result.shown[name], result.answers[name] = per_seed[0], first.images
        result.entries[name] = {**_entry(model, subjects, made, per_seed), **common}
        result.rivals[name] = {str(number): found for number, found in enumerate(per_seed)}
        for number, one in enumerate(made):
            for variant, images in one.variants.items():
                found = compare(images, pictures[: len(images)])
                result.rivals[name][f"{number} {variant}"] = found
                if number == 0:
                    result.entries[name][variant] = found.means() | _variant_details(variant, one)
    return result


def _entry(
    model: SplitModel, subjects: Subjects, made: list[Reconstruction], per_seed: list[PictureScores]
) -> dict[str, Any]:
    """One attack's numbers; the headline is the mean over seeds of the final answers."""
    first = made[0]
    labels = subjects.targets.labels
    recon_acc = [accuracy_on(model, one.images, labels[: len(one.images)]) for one in made]
    return {
        **first.details,  # first: an option such as `num_images` must not pass for what was done
        **with_intervals(per_seed),
        "recon_acc": sum(recon_acc) / len(recon_acc),
        "num_images": len(first.images),
        "seeds": len(made),
        "curve": [list(pair) for pair in first.curve],
    }


def _variant_details(variant: str, outcome: Reconstruction) -> dict[str, Any]:
    number = outcome.details.get(f"{variant}_number")
    return {} if number is None else {"epoch": number}


def with_intervals(per_seed: list[PictureScores]) -> dict[str, Any]:
    """Means over seeds and pictures with 95 % intervals."""
    means = [one.means() for one in per_seed]
    result: dict[str, Any] = {key: sum(mean[key] for mean in means) / len(means) for key in means[0]}
    for key in ("mse", "ssim", "psnr"):
        table = torch.stack([getattr(one, key) for one in per_seed]).numpy()
        interval = bootstrap_interval(table)
        result[f"{key}_ci95"] = None if interval is None else list(interval)
    return result
