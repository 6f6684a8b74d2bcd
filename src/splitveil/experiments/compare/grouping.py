"""From records to tables: one per setting, in it methods, in a method its strengths, in a strength its seeds."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from splitveil.experiments.compare.cells import Cell, Group
from splitveil.experiments.compare.labels import (
    WEIGHT,
    acting,
    is_strength,
    method_name,
    short_key,
)
from splitveil.experiments.compare.record import WORDS, Record, Setting, Settings

ALWAYS_SHOWN = (WEIGHT, "defence.noise.sigma")


def group(records: list[Record], *, mix_versions: bool = False) -> tuple[list[Group], list[str]]:
    """Groups in a fixed order, and a sentence on why there is more than one."""
    records, notes = _one_label(_with_plug_ins(records))
    if mix_versions:
        records, mixed = _one_version(records)
        notes += mixed
    records, twins = _without_twins(records)  # after the versions are one: a seed that both have counts once
    notes += twins
    buckets: dict[tuple[Setting, str], list[Record]] = defaultdict(list)
    other_data = _same_seed_other_data(records)
    for record in records:
        key = record.checksum or "" if (record.setting.data, record.setting.protocol) in other_data else ""
        buckets[record.setting, key].append(record)
    for data, protocol in sorted(other_data):
        notes.append(
            f"Runs on {data} ({protocol}) with the same seed have different data checksums: "
            "they were made from different pictures and are shown apart."
        )
    settings = sorted({setting for setting, _ in buckets}, key=str)
    if len(settings) > 1:
        parts = settings[0].differs_from(settings[1:])
        told = "; ".join(f"{WORDS[p]}: {', '.join(sorted({getattr(s, p) for s in settings}))}" for p in parts)
        notes.append(f"These runs do not all compare with each other and are shown in {len(buckets)} parts ({told}).")
    groups = [_group(setting, buckets[setting, key]) for setting, key in sorted(buckets, key=str)]
    return groups, sorted(notes)


def _without_twins(records: list[Record]) -> tuple[list[Record], list[str]]:
    """The same settings and seed twice: the same run given twice counts once; of two runs the newer counts."""
    chosen: dict[str, Record] = {}
    notes = []
    for record in sorted(records, key=lambda one: (one.ended, one.label or "", one.name, str(one.accuracy))):
        # A run without a seed is never a twin: nobody can say what it repeats.
        seed = record.name if record.seed is None else record.seed
        key = str((record.setting, _identity(record.settings), seed, record.checksum))
        twin = chosen.get(key)
        if twin is not None:
            if (twin.accuracy, twin.scores, twin.findings) != (record.accuracy, record.scores, record.findings):
                both = f"{twin.name} and {record.name}" if twin.name != record.name else f"Two runs called {twin.name}"
                notes.append(
                    f"{both} have the same settings and seed {record.seed} but other numbers; the newer one counts."
                )
            elif twin.name != record.name:
                notes.append(f"{twin.name} and {record.name} are the same run; it counts once.")
        chosen[key] = record
    return list(chosen.values()), notes


def _with_plug_ins(records: list[Record]) -> list[Record]:
    """Where a plug-in comes in two versions, its version is a part of the code version of the runs that it trained."""
    versions: dict[str, set[str]] = defaultdict(set)
    for record in records:
        for package, code in record.plug_ins.items():
            versions[package].add(code)
    told = []
    for record in records:
        differing = [f"{package} {code}" for package, code in record.plug_ins.items() if len(versions[package]) > 1]
        code = " with ".join([record.setting.code, *sorted(differing)])
        told.append(replace(record, setting=replace(record.setting, code=code)))
    return told


def _one_version(records: list[Record]) -> tuple[list[Record], list[str]]:
    versions = sorted({record.setting.code for record in records})
    if len(versions) < 2:
        return records, []
    pooled = " and ".join(versions)
    mixed = [replace(record, setting=replace(record.setting, code=pooled)) for record in records]
    return mixed, [f"Runs of different code versions were put together because --mix-versions asked for it: {pooled}."]


def _same_seed_other_data(records: list[Record]) -> set[tuple[str, str]]:
    """Data sets of which one seed has two checksums. (Over seeds they differ by design: the parts are drawn.)"""
    checksums: dict[tuple[str, str, int | None], set[str]] = defaultdict(set)
    for record in records:
        if record.checksum:
            checksums[record.setting.data, record.setting.protocol, record.seed].add(record.checksum)
    return {(data, protocol) for (data, protocol, _), found in checksums.items() if len(found) > 1}


def _group(setting: Setting, records: list[Record]) -> Group:
    names = _method_names(records)
    cells: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record, name in zip(records, names, strict=True):
        cells[name, _identity(record.settings)].append(record)
    everywhere = [record.settings for record in records]
    constant = {
        key: everywhere[0][key]
        for key in ALWAYS_SHOWN
        if len(cells) > 1 and len({str(settings.get(key)) for settings in everywhere}) == 1 and key in everywhere[0]
    }
    told = {
        name: _told([record.settings for record, other in zip(records, names, strict=True) if other == name], constant)
        for name in set(names)
    }
    made = []
    for (name, _), runs in cells.items():
        strength = {key: value for key, value in runs[0].settings.items() if key in told[name]}
        alone = sum(other == name for other, _ in cells) == 1
        made.append(Cell(name, strength, tuple(sorted(runs, key=lambda run: (run.seed or 0, run.name))), alone))
    made.sort(key=lambda cell: (cell.method, [(k, float(v)) for k, v in sorted(cell.strength.items())]))
    notes = sorted([*_missing_seeds(made), *_origins(setting, records)])
    return Group(setting, tuple(made), tuple(notes), constant)


def _told(settings: list[Settings], constant: Mapping[str, Any]) -> set[str]:
    """The strengths that tell the cells of one method apart, and those that are always shown."""
    strengths = {key for one in settings for key, value in one.items() if is_strength(key, value)}
    varying = {key for key in strengths if len({str(one.get(key)) for one in settings}) > 1}
    return varying | {key for key in strengths if key in ALWAYS_SHOWN and key not in constant}


def _origins(setting: Setting, records: list[Record]) -> list[str]:
    """How differently the runs of a group were made."""
    notes = []
    for what, found in (("hardware", {r.hardware for r in records}), ("torch versions", {r.torch for r in records})):
        if len(known := sorted(value for value in found if value)) > 1:
            notes.append(f"The runs were made with different {what}: {', '.join(known)}.")
    if "+)" in setting.code:
        notes.append("The code had local changes when these runs were made ('+' in the version).")
    return notes


def _one_label(records: list[Record]) -> tuple[list[Record], list[str]]:
    """The same settings have the same name, whichever path they came by."""
    labels: dict[str, set[str]] = defaultdict(set)
    for record in records:
        labels[_identity(record.settings)] |= {record.label} if record.label else set()
    notes = [
        f"The same settings are called {' and '.join(sorted(found))}; here: {min(found)}."
        for found in labels.values()
        if len(found) > 1
    ]
    named = [replace(record, label=min(labels[_identity(record.settings)], default=None)) for record in records]
    return named, notes


def _method_names(records: list[Record]) -> list[str]:
    """Names under which everything but strengths is equal; where a name hides a difference, the difference is added."""
    names, bases = [], []
    for record in records:
        settings = record.settings if record.label else acting(record.settings)
        names.append(record.label or method_name(settings))
        bases.append({key: value for key, value in settings.items() if not is_strength(key, value)})
    kinds: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)  # name -> the different bases under it
    for name, base in zip(names, bases, strict=True):
        kinds[name][_identity(base)] = base
    full: dict[tuple[str, str], str] = {}
    for name, found in kinds.items():
        keys = sorted({key for base in found.values() for key in base})
        keys = [key for key in keys if len({str(base.get(key)) for base in found.values()}) > 1]
        for identity, base in found.items():
            told = ", ".join(f"{short_key(key)}={base.get(key, 'none')}" for key in keys)
            full[name, identity] = f"{name} [{told}]" if told else name
    return [full[name, _identity(base)] for name, base in zip(names, bases, strict=True)]


def _identity(settings: Mapping[str, Any]) -> str:
    return json.dumps(sorted(settings.items()), default=str)


def _missing_seeds(cells: list[Cell]) -> list[str]:
    """Cells that lack a seed which others have: their pairs are fewer, and their means are not over the same seeds."""
    expected = {run.seed for cell in cells for run in cell.runs if run.seed is not None}
    lacking: dict[tuple[int, ...], list[str]] = defaultdict(list)  # seeds -> the cells without them: one sentence each
    for cell in cells:
        missing = sorted(expected - {run.seed for run in cell.runs if run.seed is not None})
        if missing and len(missing) < len(expected):
            lacking[tuple(missing)].append(cell.name)
    return [f"No run with seed {', '.join(map(str, seeds))}: {'; '.join(names)}." for seeds, names in lacking.items()]
