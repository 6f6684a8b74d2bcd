"""Hold what attacks inferred against the truth that only the audit knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splitveil.attacks.base import Inference
from splitveil.audit.floors import mean_picture
from splitveil.audit.statistics import exact_interval
from splitveil.audit.subjects import AuditData, Subjects
from splitveil.core.seeding import generator
from splitveil.data.augment import to_float
from splitveil.data.dataset import ImageSet

CANDIDATES = 1000  # at most so many members, and as many non-members
FALSE_ALARMS = 0.01  # membership is judged by how many members are found at this rate of false alarms


@dataclass(frozen=True)
class Truth:
    """What attacks must not know: which candidates were trained on, and the attributes of the pictures under attack."""

    candidates: ImageSet | None
    members: Tensor  # [candidates] bool
    own: dict[str, Tensor]  # attributes of the attacker's pictures
    targets: dict[str, Tensor]  # the same attributes of the pictures under attack


def truth(data: AuditData, subjects: Subjects, seed: int) -> Truth:
    """Draw candidates, and collect attributes that both sides have.

    `bright` (brighter than the attacker's average picture) exists for all pictures and is no class of the model.
    """
    candidates, members = None, torch.zeros(0, dtype=torch.bool)
    count = 0 if data.train is None else min(CANDIDATES, len(data.train), len(subjects.targets))
    if data.train is not None and count > 0:
        stream = generator(seed, "candidates")
        inside = data.train.subset(torch.randperm(len(data.train), generator=stream)[:count])
        outside = subjects.targets.subset(torch.randperm(len(subjects.targets), generator=stream)[:count])
        order = torch.randperm(2 * count, generator=stream)
        both = ImageSet(torch.cat([inside.images, outside.images]), torch.cat([inside.labels, outside.labels]))
        candidates, members = both.subset(order), order < count
    level = mean_picture(subjects.auxiliary.images).mean()
    own = {"bright": _bright(subjects.auxiliary.images, level)}
    targets = {"bright": _bright(subjects.targets.images, level)}
    if subjects.shared_labels:
        own["class"], targets["class"] = subjects.auxiliary.labels, subjects.targets.labels
    for name, (of_aux, of_test) in data.attributes.items():
        places = subjects.own_index
        own[name] = of_aux if places is None else of_test[places.to(of_test.device)]
        targets[name] = of_test[subjects.index.to(of_test.device)]
    return Truth(candidates, members, own, targets)


def _bright(images: Tensor, level: Tensor) -> Tensor:
    return torch.cat([(to_float(piece).mean(dim=(1, 2, 3)) > level).long() for piece in images.split(4096)])


def judge(outcome: Inference, known: Truth) -> dict[str, Any]:
    """Numbers for audit.json."""
    found: dict[str, Any] = {}
    for name, scores in outcome.scores.items():
        found[name] = membership(scores.cpu().numpy(), known.members.numpy())
    for name, predictions in outcome.predictions.items():
        attribute = name.rsplit(" from ", 1)[0]
        right = predictions.to(known.targets[attribute].device) == known.targets[attribute][: len(predictions)]
        found[name] = {
            **_rate(int(right.sum()), len(right)),
            "guessing": _majority(known.own[attribute], known.targets[attribute][: len(predictions)]),
        }
    return found


def _majority(own: Tensor, targets: Tensor) -> float:
    """Rate of always naming what is most frequent among the attacker's own pictures."""
    return float((targets == own.mode().values).double().mean())


def membership(scores: np.ndarray, members: np.ndarray) -> dict[str, Any]:
    """Area under the ROC curve, members found at 1 % false alarms, and the accuracy of a threshold, with intervals.

    The threshold of the accuracy is chosen on one half of the candidates and judged on the other, so its interval is
    exact (Clopper-Pearson). The interval of the area is Hanley and McNeil's (1982).
    """
    positive, negative = int(members.sum()), int((~members).sum())
    if positive < 2 or negative < 2:
        return {"auc": None, "reason": "too few candidates"}
    from scipy.stats import rankdata  # takes a second to import, and few audits ask for it

    area = float((rankdata(scores)[members].sum() - positive * (positive + 1) / 2) / (positive * negative))
    allowed = int(round(FALSE_ALARMS * negative, 9))  # 0.01·2900 is a little less than 29
    limit = np.sort(scores[~members])[negative - 1 - allowed]
    half = np.arange(len(scores)) % 2 == 0
    threshold = _best_threshold(scores[half], members[half])
    right = int(((scores[~half] > threshold) == members[~half]).sum())
    return {
        "auc": area,
        "auc_ci95": list(_area_interval(area, positive, negative)),
        "tpr_at_1_percent_fpr": _rate(int((scores[members] > limit).sum()), positive),
        "accuracy_of_attack": _rate(right, int((~half).sum())),
        "candidates": len(scores),
    }


def _best_threshold(scores: np.ndarray, members: np.ndarray) -> float:
    """The value above which calling a candidate a member is right most often."""
    order = np.argsort(scores)
    ranked = scores[order]
    right = np.concatenate([[members.sum()], members.sum() + np.cumsum(np.where(members[order], -1, 1))])
    # no threshold lies between equal scores, such as those of a model that is sure of everything
    right[1:-1][ranked[1:] == ranked[:-1]] = -1
    best = int(right.argmax())
    return float(-np.inf if best == 0 else ranked[best - 1])


def _area_interval(area: float, positive: int, negative: int) -> tuple[float, float]:
    from scipy.stats import norm

    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    variance = area * (1 - area) + (positive - 1) * (q1 - area**2) + (negative - 1) * (q2 - area**2)
    error = norm.ppf(0.975) * np.sqrt(max(variance, 0.0) / (positive * negative))
    return max(0.0, float(area - error)), min(1.0, float(area + error))


def _rate(successes: int, trials: int) -> dict[str, Any]:
    return {"rate": successes / trials, "ci95": list(exact_interval(successes, trials))}
