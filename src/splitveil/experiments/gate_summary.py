"""What the maps of a surrogate say, as small tables: of one batch, and of one batch per epoch (SPEC 6.8, N3 §7).

`training.gate_maps` says what the maps are. Neither torch nor numpy is needed here: the report reads stored maps.
Legend: B batch, C classes, S slots, D feature dim, J channels (or bins of them), P places of a channel.
"""

from __future__ import annotations

import math
import re
import sys
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import mul
from pathlib import Path
from typing import Any

import safetensors

MOST_EPOCHS = 60  # a curve with more points looks the same
MOST_ROWS = 256  # pictures of which assignments are kept
MOST_CHANNELS = 64  # columns that a page can show; more are averaged in bins
MOST_MAPS = 16  # channels shown place by place
LARGEST_FILE = 64 * 2**20
KINDS = {"F32": "f", "F64": "d", "I64": "q", "I32": "i", "BOOL": "B", "U8": "B"}
GATES = {"dimension_gate": "gate_soft", "snr_gate": "gate_hard"}
LINES = {  # curves over training: a stored number, or the mean of a stored vector over the classes of the batch
    "dimension_gate": "gate_soft_mean",
    "snr_gate": "gate_hard_mean",
    "class_gate": "gate_class",
    "complexity_gate": "complexity_gate",
    "shut": "shut",
}


@dataclass(frozen=True)
class Values:
    """A tensor as plain numbers, in row order."""

    shape: tuple[int, ...]
    flat: Sequence[float]

    def rows(self) -> list[list[float]]:
        """[N, ...] as N lists."""
        width = math.prod(self.shape[1:])
        return [list(self.flat[start : start + width]) for start in range(0, len(self.flat), max(width, 1))]


Maps = Mapping[str, Values]


def read_maps(path: Path) -> dict[str, Values]:
    """The tensors of a safetensors file; ValueError when it is damaged."""
    if path.stat().st_size > LARGEST_FILE:
        raise ValueError(f"{path.name} is too large to be a file of maps")
    try:
        entries = safetensors.deserialize(path.read_bytes())
    except safetensors.SafetensorError as error:
        raise ValueError(str(error)) from None
    found = {}
    for name, entry in entries:
        if entry["dtype"] in KINDS:
            numbers = array(KINDS[entry["dtype"]], bytes(entry["data"]))
            if sys.byteorder == "big":  # the file is little-endian
                numbers.byteswap()
            found[name] = Values(tuple(entry["shape"]), numbers)
    return found


def stored_epochs(run: Path) -> list[tuple[int, Path]]:
    """Epochs of which RUN/gates has maps, at most MOST_EPOCHS of them, always with the first and the last."""
    named = [(re.fullmatch(r"epoch-(\d+)\.safetensors", path.name), path) for path in (run / "gates").glob("epoch-*")]
    found = sorted((int(match[1]), path) for match, path in named if match)
    if len(found) <= MOST_EPOCHS:
        return found
    return [found[round(place * (len(found) - 1) / (MOST_EPOCHS - 1))] for place in range(MOST_EPOCHS)]


def summarise(maps: Maps, feature_shape: Sequence[int]) -> dict[str, Any]:
    """The maps of one batch, reduced to what a figure shows; keys of what the surrogate lacks are absent."""
    summary: dict[str, Any] = {}
    labels = [int(label) for label in maps["labels"].flat] if "labels" in maps else []
    attention, resp, mass = maps.get("attn"), maps.get("resp"), maps.get("slot_mass")
    if attention is not None and len(attention.flat) == len(labels):
        summary["attention"] = _rounded(relative_attention(attention.flat, labels))
    if resp is not None and len(resp.shape) == 2 and resp.shape[0] == len(labels):
        summary["assignment"] = [_rounded(row, 3) for row in resp.rows()[:MOST_ROWS]]
    if mass is not None and len(mass.shape) == 2:
        summary["slot_mass"] = [None if sum(row) <= 0 else _rounded(_shares(row)) for row in mass.rows()]
    for name, key in GATES.items():
        if key in maps and len(maps[key].shape) == 3:
            summary[name] = _gate(maps[key], mass, _used(maps, labels), feature_shape)
    if "gate_class" in maps:
        summary["class_gate"] = _rounded(maps["gate_class"].flat)
    if "complexity_gate" in maps:
        summary["complexity_gate"] = _rounded(maps["complexity_gate"].flat)[0]
    return {"labels": labels, **summary} if summary else {}


def over_training(run: Path) -> dict[str, Any]:
    """Curves from the maps that training stored: epochs, slot shares [epochs, S] and the gates; {} without any.

    A damaged file is left out. A curve that not every epoch has is left out too.
    """
    epochs, rows = [], []
    for epoch, path in stored_epochs(run):
        try:
            maps = read_maps(path)
        except (OSError, ValueError):
            continue
        epochs.append(epoch)
        rows.append(_epoch(maps))
    shared = [key for key in (rows[0] if rows else {}) if all(key in row for row in rows)]
    slots = {len(row["slot_share"]) for row in rows} if "slot_share" in shared else {0}
    if len(slots) > 1:  # files of another run
        shared.remove("slot_share")
    return {"epochs": epochs, **{key: [row[key] for row in rows] for key in shared}} if shared else {}


def relative_attention(weights: Sequence[float], labels: Sequence[int]) -> list[float]:
    """α_m·M_c / Σ_{i in c} α_i: 1 where all samples of the class in this batch weigh the same."""
    count: Counter[int] = Counter(labels)
    total: dict[int, float] = {}
    for weight, label in zip(weights, labels, strict=True):
        total[label] = total.get(label, 0.0) + weight
    return [w * count[y] / total[y] if total[y] > 0 else 1.0 for w, y in zip(weights, labels, strict=True)]


def _epoch(maps: Maps) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "slot_mass" in maps and len(maps["slot_mass"].shape) == 2:
        shares = [_shares(row) for row in maps["slot_mass"].rows() if sum(row) > 0]
        if shares:
            found["slot_share"] = _rounded([sum(column) / len(shares) for column in zip(*shares, strict=True)])
    for name, key in LINES.items():
        if key in maps:
            numbers = maps[key].flat
            if key == "gate_class":
                numbers = [gate for gate, used in zip(numbers, _used(maps, []), strict=False) if used]
            found[name] = _rounded([sum(numbers) / len(numbers)])[0] if len(numbers) else None
    if "attn" in maps and "labels" in maps and len(maps["attn"].flat) == len(maps["labels"].flat):
        weights = relative_attention(maps["attn"].flat, [int(label) for label in maps["labels"].flat])
        # share of the samples that count: (Σα)²/(M·Σα²), 1 for equal weights
        square = sum(weight * weight for weight in weights)
        found["effective_samples"] = _rounded([len(weights) / square])[0] if square > 0 else None
    return found


def _gate(gate: Values, mass: Values | None, used: list[bool], feature_shape: Sequence[int]) -> dict[str, Any]:
    """Gates [C, S, D] as class by channel [C, J] and channel by place [J, P], slots weighted by their mass."""
    classes, slots, dim = gate.shape
    shape = tuple(feature_shape) if math.prod(feature_shape) == dim else (dim,)
    channels, places = shape[0], dim // shape[0]
    weights = mass.rows() if mass is not None and mass.shape == (classes, slots) else [[1.0] * slots] * classes
    per_class: list[list[float] | None] = []  # [C, D], None for a class that is not in the batch
    for number in range(classes):
        total = sum(weights[number])
        if not (number < len(used) and used[number]) or total <= 0:
            per_class.append(None)
            continue
        start = number * slots * dim
        rows = [gate.flat[start + slot * dim : start + (slot + 1) * dim] for slot in range(slots)]
        share = [weight / total for weight in weights[number]]
        per_class.append([sum(map(mul, share, column)) for column in zip(*rows, strict=True)])
    bins = min(channels, MOST_CHANNELS)
    cuts = [channels * edge // bins * places for edge in range(bins + 1)]
    by_class = [None if row is None else _rounded(_means(row, cuts)) for row in per_class]
    known = [row for row in per_class if row is not None]
    overall = [sum(column) / len(known) for column in zip(*known, strict=True)] if known else []
    found: dict[str, Any] = {"by_class": by_class, "channels": channels}
    if overall:
        found["mean"] = _rounded([sum(overall) / len(overall)])[0]
        if len(shape) == 3:
            kept = min(channels, MOST_MAPS)
            found["by_place"] = [_rounded(overall[j * places : (j + 1) * places], 3) for j in range(kept)]
            found["places"] = list(shape[1:])
    return found


def _used(maps: Maps, labels: list[int]) -> list[bool]:
    """Classes that entered the loss of this batch [C]."""
    if "class_used" in maps:
        return [bool(flag) for flag in maps["class_used"].flat]
    return [number in set(labels) for number in range(max(labels, default=-1) + 1)]


def _means(values: Sequence[float], cuts: Sequence[int]) -> list[float]:
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]


def _shares(row: Sequence[float]) -> list[float]:
    total = sum(row)
    return [value / total for value in row]


def _rounded(values: Sequence[float], digits: int = 4) -> list[float | None]:
    """Short numbers for JSON, which knows no NaN."""
    return [round(value, digits) if math.isfinite(value) else None for value in map(float, values)]
