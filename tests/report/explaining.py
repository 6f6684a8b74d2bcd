"""A made-up explain.json with everything in it. The numbers mean nothing; they only have to fit together."""

from __future__ import annotations

import base64
import io
import json
import random
from pathlib import Path
from typing import Any

from PIL import Image

CLASSES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
FIGURES = [
    "attention", "slot_mass", "slot_training", "assignment", "looks", "dimension_gate", "dimension_gate_places",
    "snr_gate", "snr_gate_places", "gate_training", "pca", "tsne",
]  # fmt: skip


def explain_tree(
    *, points: int = 60, classes: int = 10, seed: int = 0, names: tuple[str, ...] = CLASSES
) -> dict[str, Any]:
    chance = random.Random(seed)
    batch, slots, channels, places = 40, 4, 8, (3, 4)
    labels = [n % classes for n in range(batch)]

    def row(count: int) -> list[float]:
        return [round(chance.random(), 3) for _ in range(count)]

    def gate() -> dict[str, Any]:
        by_class: list[list[float] | None] = [row(channels) for _ in range(classes)]
        by_class[1] = None
        return {"by_class": by_class, "channels": channels, "by_place": [row(12) for _ in range(channels)],
                "places": list(places), "mean": 0.5}  # fmt: skip

    def plane(run: str) -> dict[str, Any]:
        return {
            "run": run, "labels": [n % classes for n in range(points)], "dimension": 96, "within": 0.4,
            "pca": [[2 * a - 1, 2 * b - 1] for a, b in (row(2) for _ in range(points))], "pca_ratio": [0.31, 0.12],
            "tsne": [[2 * a - 1, 2 * b - 1] for a, b in (row(2) for _ in range(points))], "neighbours": 0.72,
        }  # fmt: skip

    picture = io.BytesIO()
    Image.new("L", (8, 8), 90).save(picture, "PNG")
    png = base64.b64encode(picture.getvalue()).decode()
    return {
        "run": "defended", "against": "undefended", "surrogate": "slot_gated", "mode": "faithful",
        "data": "fashion-mini", "class_names": [*names, *(f"class {n}" for n in range(len(names), classes))],
        "feature_shape": [channels, *places], "num_images": points, "seed": 1,
        "maps": {
            "labels": labels, "attention": [2 * value for value in row(batch)],
            "assignment": [row(slots) for _ in range(batch)],
            "slot_mass": [None if label == 1 else row(slots) for label in range(classes)],
            "dimension_gate": gate(), "snr_gate": gate(), "class_gate": row(classes),
        },
        "looks": {"places": list(places),
                  "pictures": [{"label": n, "png": png, "slots": [row(12) for _ in range(slots)]} for n in range(3)]},
        "training": {
            "epochs": [2, 3, 4], "slot_share": [row(slots) for _ in range(3)], "dimension_gate": row(3),
            "snr_gate": row(3), "class_gate": [1.0, 1.0, 1.0], "shut": [0.0, 0.0, 1.0],
        },
        "planes": {"before": plane("undefended"), "after": plane("defended")},
        "notes": ["one thing"],
        "signature": "splitveil:0.1.0|explain|seed:1",
    }  # fmt: skip


def add_explain(run: Path, tree: dict[str, Any] | None = None) -> Path:
    (run / "explain").mkdir(exist_ok=True)
    (run / "explain" / "explain.json").write_text(json.dumps(explain_tree() if tree is None else tree))
    return run
