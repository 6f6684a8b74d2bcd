"""A comparison's runs as one small file that needs no run folder: `results/*.json`.

`common` holds the settings in which all runs agree; each run lists the rest. The numbers of the runs are the content;
`summary` repeats what was computed from them, for other programs, and is not read back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from splitveil.core.errors import UsageError
from splitveil.experiments.compare.record import Record, Setting
from splitveil.experiments.loose import interval, items, number, read_table, table, text

FORMAT = "splitveil comparison 1"


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
    return tree.get("format") == FORMAT


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
    common = table(tree.get("common"))
    records = [record for value in items(tree.get("runs")) if (record := _record(table(value), settings, common))]
    if len(records) < len(items(tree.get("runs"))):
        raise UsageError(f"{path} is damaged: a run in it has no setting.", "Write it again from the run folders.")
    return DataFile(
        records,
        title=text(tree.get("title")) or "",
        commands=_words(tree.get("commands")),
        notes=_words(tree.get("notes")),
        view=table(tree.get("view")),
        remarks=_words(tree.get("remarks")),
    )


def data_text(content: DataFile, summary: Mapping[str, Any]) -> str:
    """The file's text: one line per run, so that a changed run is one changed line."""
    settings = list(dict.fromkeys(record.setting for record in content.records))
    everything = [record.settings for record in content.records]
    common = {
        key: value
        for key, value in (everything[0] if everything else {}).items()
        if all(key in other and other[key] == value for other in everything)
    }
    head: dict[str, Any] = {"format": FORMAT, "title": content.title, "commands": list(content.commands)}
    head |= {"notes": list(content.notes), "view": dict(content.view)}
    head |= {"remarks": list(content.remarks)} if content.remarks else {}
    head |= {"settings": [asdict(setting) for setting in settings], "common": common}
    lines = [f" {json.dumps(key)}: {_dump(value)}" for key, value in head.items()]
    runs = ",\n  ".join(_dump(_plain(record, settings, common)) for record in content.records)
    lines.append(f' "runs": [\n  {runs}\n ]')
    lines.append(f' "summary": {_dump(summary)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _dump(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


def _plain(record: Record, settings: list[Setting], common: Mapping[str, Any]) -> dict[str, Any]:
    plain = {part.name: getattr(record, part.name) for part in fields(record)}
    plain["setting"] = settings.index(record.setting)
    plain["settings"] = {key: value for key, value in record.settings.items() if key not in common}
    return {key: value for key, value in plain.items() if value not in (None, "", (), {})}


def _setting(entry: dict[str, Any]) -> Setting:
    return Setting(**{part.name: text(entry.get(part.name)) or "" for part in fields(Setting)})


def _record(entry: dict[str, Any], settings: list[Setting], common: dict[str, Any]) -> Record | None:
    which, seed = number(entry.get("setting", 0)), number(entry.get("seed"))
    if which is None or not 0 <= which < len(settings):
        return None
    spans = {
        attack: {key: span for key, ends in table(found).items() if (span := interval(ends))}
        for attack, found in table(entry.get("intervals")).items()
    }
    return Record(
        name=text(entry.get("name")) or "?",
        setting=settings[int(which)],
        settings={**common, **table(entry.get("settings"))},
        seed=None if seed is None else int(seed),
        accuracy=number(entry.get("accuracy")),
        scores={attack: _numbers(found) for attack, found in table(entry.get("scores")).items()},
        findings={what: _numbers(found) for what, found in table(entry.get("findings")).items()},
        intervals=spans,
        floors=_numbers(entry.get("floors")),
        label=text(entry.get("label")),
        checksum=text(entry.get("checksum")),
        signature=text(entry.get("signature")),
        hardware=text(entry.get("hardware")),
        torch=text(entry.get("torch")),
        ended=text(entry.get("ended")) or "",
        seconds=number(entry.get("seconds")),
        failures=_words(entry.get("failures")),
    )


def _words(value: Any) -> tuple[str, ...]:
    return tuple(word for item in items(value) if (word := text(item)))


def _numbers(value: Any) -> dict[str, float]:
    return {name: found for name, item in table(value).items() if (found := number(item)) is not None}
