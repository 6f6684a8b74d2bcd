"""What somebody reaches who never looks at the feature: an error above these says nothing about leakage."""

from __future__ import annotations

import torch
from torch import Tensor

from splitveil.audit.metrics import PictureScores, compare
from splitveil.data.augment import to_float
from splitveil.data.dataset import ImageSet


def mean_picture(pictures: Tensor) -> Tensor:
    """Mean [ch, h, w] of uint8 pictures, summed in pieces."""
    total = torch.zeros(pictures.shape[1:], dtype=torch.float64, device=pictures.device)
    for piece in pictures.split(4096):
        total += to_float(piece).double().sum(0)
    return (total / len(pictures)).float()


def floors(auxiliary: ImageSet, targets: ImageSet, *, shared_labels: bool = True) -> dict[str, PictureScores]:
    """Scores of the mean picture, and of the mean picture of the true class, both of the attacker's own pictures.

    A class of which the attacker has no picture falls back to the overall mean.
    """
    overall = mean_picture(auxiliary.images)
    constant = overall.expand(len(targets), *overall.shape)
    result = {"mean_image": compare(constant, targets.images)}
    if shared_labels:
        result["class_mean"] = of_classes(auxiliary, targets, targets.labels)
    return result


def of_classes(auxiliary: ImageSet, targets: ImageSet, classes: Tensor) -> PictureScores:
    """Scores of the mean picture of the class [N] that somebody names for each of the targets."""
    answer = mean_picture(auxiliary.images).expand(len(targets), *auxiliary.images.shape[1:]).clone()
    for label in classes.unique().tolist():
        own = auxiliary.images[auxiliary.labels == label]
        if len(own):
            answer[classes == label] = mean_picture(own)
    return compare(answer, targets.images)
