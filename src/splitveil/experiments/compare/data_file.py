"""A comparison's runs as one small file that needs no run folder: `results/*.json`.

A setting is written once: under `common` where all runs agree in it, under `methods` where all runs of one label do, in
the run itself elsewhere. The numbers of the runs are the content; what `compare --json` computes from them and prints
beside them as `summary` is not read back. In files of version 1 there is no `methods`, and each has a summary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from splitveil.core.errors import UsageError
from splitveil.experiments.compare.record import Record, Setting, Settings
from splitveil.experiments.loose import interval, items, number, read_table, table, text

FORMAT = "splitveil comparison 2"
READABLE = (FORMAT, "splitveil comparison 1")


@dataclass(frozen=True)
class DataFile:
    """Records with what a reader must know about them."""

    records: list[Record]
    title: str = ""
    commands: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    view: Mapping[str, Any] = field(default_factory=dict)  # the options of the comparison that wrote the file
    remarks: tuple[str, ...] = ()  # what was left out when the runs were read, and why


def is_data_file(tree: Mapping[str, Any]) -> bool:
    return tree.get("format") in READABLE


def read_data_file(path: Path) -> DataFile:
    """Read a file of `data_text`; anything else is an error that says what it is."""
    tree, problem = read_table(path)
    if problem:
        raise UsageError(f"{path} cannot be read: {problem}.", "Give run folders, or a file that compare wrote.")
    if not is_data_file(tree):
        raise UsageError(
            f"{path} is not a comparison's data file (no format '{FORMAT}').",
            "Write one with: splitveil compare RUN... --out FILE.json",
        )
    settings = [_setting(table(value)) for value in items(tree.get("settings"))]
    common, methods = table(tree.get("common")), table(tree.get("methods"))
    runs = [table(value) for value in items(tree.get("runs"))]
    records = [record for run in runs if (record := _record(run, settings, common, methods))]
    if len(records) < len(runs):
        raise UsageError(f"{path} is damaged: a run in it has no setting.", "Write it again from the run folders.")
    return DataFile(
        records,
        title=text(tree.get("title")) or "",
        commands=_words(tree.get("commands")),
        notes=_words(tree.get("notes")),
        view=table(tree.get("view")),
        remarks=_words(tree.get("remarks")),
    )


def data_text(content: DataFile, summary: Mapping[str, Any] | None = None) -> str:
    """The file's text: one line per run, so that a changed run is one changed line."""
    records = content.records
    settings = list(dict.fromkeys(record.setting for record in records))
    common = agreed([record.settings for record in records])
    labels = dict.fromkeys(record.label for record in records if record.label)
    methods = {
        label: _without(common, agreed([record.settings for record in records if record.label == label]))
        for label in labels
    }
    head: dict[str, Any] = {"format": FORMAT, "title": content.title, "commands": list(content.commands)}
    head |= {"notes": list(content.notes), "view": dict(content.view)}
    head |= {"remarks": list(content.remarks)} if content.remarks else {}
    head |= {"settings": [asdict(setting) for setting in settings], "common": common}
    lines = [f" {_dump(key)}: {_dump(value)}" for key, value in head.items()]
    lines.append(f' "methods": {_lines("{}", [f"{_dump(label)}: {_dump(own)}" for label, own in methods.items()])}')
    runs = [_plain(record, settings.index(record.setting), common, methods) for record in records]
    lines.append(f' "runs": {_lines("[]", [_dump(run) for run in runs])}')
    lines += [] if summary is None else [f' "summary": {_dump(summary)}']
    return "{\n" + ",\n".join(lines) + "\n}\n"


def agreed(tables: list[Settings]) -> dict[str, Any]:
    """What all tables agree in."""
    first = tables[0] if tables else {}
    return {key: value for key, value in first.items() if all(key in other and other[key] == value for other in tables)}


def _without(known: Settings, settings: Settings) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in known}


def _lines(brackets: str, entries: list[str]) -> str:
    return brackets[0] + "\n  " + ",\n  ".join(entries) + "\n " + brackets[1]


def _dump(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


def _plain(record: Record, setting: int, common: Settings, methods: Mapping[str, Settings]) -> dict[str, Any]:
    plain = {part.name: getattr(record, part.name) for part in fields(record) if part.name != "count_kept"}
    told = {**common, **methods.get(record.label or "", {})}
    plain |= {"setting": setting, "settings": _without(told, record.settings)}
    return {key: value for key, value in plain.items() if value not in (None, "", (), {})}


def _setting(entry: dict[str, Any]) -> Setting:
    return Setting(**{part.name: text(entry.get(part.name)) or "" for part in fields(Setting)})


def _record(
    entry: dict[str, Any], settings: list[Setting], common: dict[str, Any], methods: dict[str, Any]
) -> Record | None:
    which, seed, label = number(entry.get("setting", 0)), number(entry.get("seed")), text(entry.get("label"))
    if which is None or not 0 <= which < len(settings):
        return None
    spans = {
        attack: {key: span for key, ends in table(found).items() if (span := interval(ends))}
        for attack, found in table(entry.get("intervals")).items()
    }
    return Record(
        name=text(entry.get("name")) or "?",
        setting=settings[int(which)],
        settings={**common, **table(methods.get(label or "")), **table(entry.get("settings"))},
        seed=None if seed is None else int(seed),
        accuracy=number(entry.get("accuracy")),
        kept=number(entry.get("kept")),
        scores={attack: _numbers(found) for attack, found in table(entry.get("scores")).items()},
        findings={what: _numbers(found) for what, found in table(entry.get("findings")).items()},
        intervals=spans,
        floors=_numbers(entry.get("floors")),
        label=label,
        checksum=text(entry.get("checksum")),
        signature=text(entry.get("signature")),
        hardware=text(entry.get("hardware")),
        torch=text(entry.get("torch")),
        ended=text(entry.get("ended")) or "",
        seconds=number(entry.get("seconds")),
        failures=_words(entry.get("failures")),
        warnings={event: int(times) for event, times in _numbers(entry.get("warnings")).items()},
        idle=True if entry.get("idle") is True else None,
        extra={name: _numbers(found) for name, found in table(entry.get("extra")).items()},
        plug_ins={package: code for package, item in table(entry.get("plug_ins")).items() if (code := text(item))},
    )


def _words(value: Any) -> tuple[str, ...]:
    return tuple(word for item in items(value) if (word := text(item)))


def _numbers(value: Any) -> dict[str, float]:
    return {name: found for name, item in table(value).items() if (found := number(item)) is not None}
