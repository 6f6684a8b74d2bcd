"""What `splitveil explain` and the stored gates of a run hold, as typed values; whatever does not fit is left out."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splitveil.experiments.gate_summary import over_training, read_maps, stored_epochs, summarise
from splitveil.experiments.loose import items, number, read_table, table, text

Row = tuple[float | None, ...]
Matrix = tuple[Row, ...]

MOST = 2000  # rows or columns of anything that is drawn
FILE = "explain/explain.json"


@dataclass(frozen=True)
class Gate:
    """A gate per class and channel, and per channel and place (means over the classes of the batch)."""

    by_class: Matrix  # [C, J]; empty rows for classes that are not in the batch
    channels: int  # J, or more where the columns are bins of channels
    by_place: Matrix  # [J, h·w], empty without places
    places: tuple[int, int]


@dataclass(frozen=True)
class Look:
    """One picture and where each slot looks in it."""

    label: int
    png: str
    slots: Matrix  # [S, h·w]


@dataclass(frozen=True)
class Plane:
    """The features of one run, seen in two planes."""

    run: str
    labels: tuple[int, ...]
    pca: tuple[tuple[float, float], ...]
    ratio: tuple[float | None, float | None]
    tsne: tuple[tuple[float, float], ...]
    neighbours: float | None
    within: float | None


@dataclass(frozen=True)
class Explained:
    """Everything there is to draw about one run; `stored` says that only the maps kept by training are known."""

    class_names: Mapping[int, str] = field(default_factory=dict)
    unit: str = "slot"  # what samples are assigned to
    stored: bool = False
    labels: tuple[int, ...] = ()
    attention: Row = ()
    assignment: Matrix = ()
    slot_mass: Matrix = ()
    gates: Mapping[str, Gate] = field(default_factory=dict)
    epochs: tuple[float, ...] = ()
    slot_share: Matrix = ()  # [epochs, S]
    curves: Mapping[str, Row] = field(default_factory=dict)
    places: tuple[int, int] = (0, 0)
    looks: tuple[Look, ...] = ()
    planes: Mapping[str, Plane] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    signature: str = ""

    def class_name(self, label: int) -> str:
        return self.class_names.get(label, str(label))

    @property
    def known(self) -> bool:
        return bool(self.attention or self.assignment or self.slot_mass or self.gates or self.epochs or self.planes)


COMPONENTS = {"gmm", "enhanced"}  # surrogates that assign samples to the components of a mixture
GATES = ("dimension_gate", "snr_gate")
CURVES = ("dimension_gate", "snr_gate", "class_gate", "complexity_gate", "effective_samples", "shut")


def read_explained(
    run: Path, surrogate: str | None, feature_shape: list[int], class_names: Mapping[int, str]
) -> tuple[Explained, str | None]:
    """explain.json of a run, or the maps that training stored; and what is wrong with explain.json, if anything.

    The maps that training stored do not say what the other arguments do.
    """
    tree, problem = read_table(run / FILE)
    if tree:
        return parse_explained(tree), None
    damaged = None if problem in (None, "missing") else problem
    stored = _stored(run, feature_shape) | {"surrogate": surrogate}
    return dataclasses.replace(parse_explained(stored), stored=True, class_names=class_names), damaged


def _stored(run: Path, feature_shape: list[int]) -> dict[str, Any]:
    for _, path in reversed(stored_epochs(run)):
        try:
            maps = summarise(read_maps(path), feature_shape)
        except (OSError, ValueError):  # damaged: the epoch before will do
            continue
        return {"maps": maps, "training": over_training(run)}
    return {}


def parse_explained(tree: dict[str, Any]) -> Explained:
    maps, training, looks = table(tree.get("maps")), table(tree.get("training")), table(tree.get("looks"))
    labels = _labels(maps.get("labels"))
    attention, assignment = _row(maps.get("attention")), _matrix(maps.get("assignment"))
    epochs = tuple(value for value in _row(training.get("epochs")) if value is not None)
    share = _matrix(training.get("slot_share"))
    gates = {name: gate for name in GATES if (gate := _gate(table(maps.get(name)))) is not None}
    curves = {name: found for name in CURVES if len(found := _row(training.get(name))) == len(epochs) and epochs}
    places = _places(looks.get("places"))
    planes = {name: plane for name, value in table(tree.get("planes")).items() if (plane := _plane(table(value)))}
    return Explained(
        class_names={
            number: name for number, item in enumerate(items(tree.get("class_names"))[:MOST]) if (name := text(item))
        },
        unit="component" if text(tree.get("surrogate")) in COMPONENTS else "slot",
        labels=labels,
        attention=attention if len(attention) == len(labels) else (),
        assignment=assignment if len(assignment) <= len(labels) else (),
        slot_mass=_matrix(maps.get("slot_mass")),
        gates=gates,
        epochs=epochs if share or curves else (),
        slot_share=share if len(share) == len(epochs) else (),
        curves=curves,
        places=places,
        looks=tuple(look for value in items(looks.get("pictures"))[:8] if (look := _look(table(value), places))),
        planes=planes,
        notes=tuple(told for item in items(tree.get("notes")) if (told := text(item))),
        signature=text(tree.get("signature")) or "",
    )


def _row(value: Any) -> Row:
    return tuple(number(item) for item in items(value)[:MOST])


def _matrix(value: Any) -> Matrix:
    """Rows of one width; an absent row (a class that is not in the batch) is a row of None. Ragged: nothing."""
    rows = [_row(item) if item is not None else () for item in items(value)[:MOST]]
    widths = {len(row) for row in rows if row}
    if len(widths) != 1:
        return ()
    width = widths.pop()
    return tuple(row or (None,) * width for row in rows)


def _labels(value: Any) -> tuple[int, ...]:
    return tuple(item if isinstance(item, int) and 0 <= item < MOST else -1 for item in items(value)[:MOST])


def _places(value: Any) -> tuple[int, int]:
    sizes = [item for item in items(value) if isinstance(item, int) and 0 < item <= 256]
    return (sizes[0], sizes[1]) if len(sizes) == 2 else (0, 0)


def _gate(entry: dict[str, Any]) -> Gate | None:
    by_class, by_place, places = _matrix(entry.get("by_class")), _matrix(entry.get("by_place")), entry.get("places")
    if not by_class:
        return None
    height, width = _places(places)
    fits = bool(by_place) and len(by_place[0]) == height * width > 0
    channels = number(entry.get("channels"))
    return Gate(by_class, int(channels or len(by_class[0])), by_place if fits else (), (height, width))


def _look(entry: dict[str, Any], places: tuple[int, int]) -> Look | None:
    png, slots = text(entry.get("png")) or "", _matrix(entry.get("slots"))
    fits = bool(slots) and len(slots[0]) == places[0] * places[1] > 0
    if not fits or len(png) > 200_000:
        return None
    try:  # letters outside of base64, which could end the attribute that holds the picture, are refused
        if not base64.b64decode(png, validate=True).startswith(b"\x89PNG\r\n\x1a\n"):
            return None
    except ValueError:
        return None
    return Look(_labels([entry.get("label")])[0], png, slots)


def _plane(entry: dict[str, Any]) -> Plane | None:
    labels, ratio = _labels(entry.get("labels")), _row(entry.get("pca_ratio"))
    pca, tsne = _points(entry.get("pca"), len(labels)), _points(entry.get("tsne"), len(labels))
    if not pca and not tsne:
        return None
    shares = (ratio[0], ratio[1]) if len(ratio) == 2 else (None, None)
    run = text(entry.get("run")) or "?"
    return Plane(run, labels, pca, shares, tsne, number(entry.get("neighbours")), number(entry.get("within")))


def _points(value: Any, count: int) -> tuple[tuple[float, float], ...]:
    pairs = [_row(item) for item in items(value)[:MOST]]
    points = [(pair[0], pair[1]) for pair in pairs if len(pair) == 2 and pair[0] is not None and pair[1] is not None]
    return tuple(points) if len(points) == len(pairs) == count else ()
