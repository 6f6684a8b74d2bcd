"""`audit/gallery.json` as typed values: the test pictures that are shown, and how close each attack came to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from splitveil.experiments.loose import items, table, text
from splitveil.report.audit_file import Scores, parse_scores


@dataclass(frozen=True)
class Shot:
    """One test picture in the gallery: its scores per attack, and which attack came closest."""

    index: int
    label: str
    scores: Mapping[str, Scores]
    best_attack: str | None
    best: Scores


def parse_gallery(tree: dict[str, Any]) -> list[Shot]:
    shots = []
    for value in items(tree.get("images")):
        entry = table(value)
        index = entry.get("index")
        if isinstance(index, bool) or not isinstance(index, int) or index < 0:
            continue
        scores = {name: parse_scores(value) for name, value in table(entry.get("attacks")).items()}
        worst = table(entry.get("worst"))
        best = text(worst.get("attack"))
        if best is None:
            # The same rule as Audit.strongest: lowest MSE wins.
            best = min(
                (n for n in scores if scores[n].mse is not None), key=lambda n: scores[n].mse or 0.0, default=None
            )
        # The numbers under a picture are those of the picture shown, which is the attack's final answer; "worst" may
        # speak of another answer of the same attack (an early-stopped one) that the gallery has no picture of.
        shown = scores.get(best or "", Scores())
        label = text(entry.get("class_name")) or text(entry.get("label")) or "?"
        shots.append(Shot(index, label, scores, best, shown if shown.known else parse_scores(worst)))
    return shots


def class_names(gallery: Mapping[str, Any]) -> dict[int, str]:
    """Names of the classes as far as the gallery shows them."""
    entries = [table(item) for item in items(gallery.get("images"))]
    pairs = [(entry.get("label"), text(entry.get("class_name"))) for entry in entries]
    return {label: name for label, name in pairs if isinstance(label, int) and name}
