"""Who leaks: the worst case over the groups that attributes make, such as people with and without glasses.

A defence may hide the average and expose one group. Errors of groups do not compare as they are, because some pictures
are easier to guess than others; so each is held against guessing the mean picture in the same group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from splitveil.audit.metrics import PictureScores
from splitveil.audit.scoring import with_intervals

FEWEST = 30  # pictures in a group of which something is said
MARGIN = 0.8  # a group leaks more where what is left of the guess's error is a fifth less than over all pictures

Groups = dict[str, dict[str, dict[str, Any]]]
"""Attribute -> value -> scores of the pictures with that value, and `guess_mse`, what the mean picture scores there."""


def per_group(worst: PictureScores, guess: PictureScores, attributes: Mapping[str, Tensor]) -> Groups:
    """`worst` and `guess` are of the same pictures, of which `attributes` holds a value each; it may hold more."""
    found: Groups = {}
    for name, every in attributes.items():
        values = every[: len(worst)].cpu()
        found[name] = {}
        for value in values.unique().tolist():
            members = torch.nonzero(values == value)[:, 0]
            scores = with_intervals([worst.subset(members)])
            found[name][str(value)] = scores | {
                "guess_mse": float(guess.mse[members].mean()),
                "num_images": len(members),
            }
    return found


def exposed(groups: Groups, worst: PictureScores, guess: PictureScores) -> list[str]:
    """A sentence for each group that leaks more than the average picture does, beyond its interval."""
    if not groups or not len(worst):
        return []
    left = float(worst.mse.mean()) / max(float(guess.mse.mean()), 1e-12)  # all pictures may be the mean picture
    said = []
    for name, values in groups.items():
        for value, entry in values.items():
            guessed, interval = entry["guess_mse"], entry["mse_ci95"]
            if entry["num_images"] < FEWEST or interval is None or guessed <= 0:
                continue
            own = entry["mse"] / guessed
            if own < MARGIN * left and interval[1] / guessed < left:
                said.append(
                    f"Pictures with {name} = {value} leak more than others: the attacks leave {own:.0%} of the error "
                    f"of guessing, and {left:.0%} over all pictures."
                )
    return said
