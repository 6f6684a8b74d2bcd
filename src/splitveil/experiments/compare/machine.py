"""A comparison for other programs: one tree for JSON, one long table for CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, fields
from typing import Any

from splitveil.experiments.compare.comparison import Comparison, Table
from splitveil.experiments.compare.equal_accuracy import EqualAccuracy
from splitveil.experiments.compare.estimate import Estimate
from splitveil.experiments.compare.record import Setting, keep
from splitveil.experiments.compare.reference import Reference, beside
from splitveil.experiments.compare.summaries import Summary

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that a spreadsheet would run


def as_tree(comparison: Comparison, reference: Reference | None = None) -> dict[str, Any]:
    """Everything that was computed, to six significant digits."""
    tree: dict[str, Any] = {"tables": [_table(table) for table in comparison.tables], "notes": comparison.notes}
    if reference is not None:
        found, missing = beside(comparison.groups, reference)
        tree["reference"] = {
            "title": reference.title,
            "not_run": missing,
            "rows": [
                {
                    "row": one.row.label,
                    "cell": one.cell.name,
                    "mode": one.group.setting.mode,
                    "deviation": {name: one.deviation(name) for name in one.ours},
                    "outside_tolerance": list(one.outside),
                }
                for one in found
            ],
        }
    rounded: dict[str, Any] = _rounded(tree)
    return rounded


def _table(table: Table) -> dict[str, Any]:
    return {
        "setting": asdict(table.group.setting),
        "attack": table.attack,
        "cells": [
            {
                "method": one.cell.method,
                "strength": dict(one.cell.strength),
                "seeds": [run.seed for run in one.cell.runs],
                "accuracy": _estimate(one.accuracy),
                "leaks": {m: _estimate(found) for m, found in one.leaks.get(table.attack, {}).items()},
                **({"findings": _findings(one)} if one.findings else {}),
            }
            for one in table.summaries
        ],
        "tests": [_drop(asdict(pair)) for pair in table.tests],
        "equal_accuracy": None if table.equal is None else _equal(table.equal),
        "dominates": [[one.first, one.second] for one in table.dominates],
        "notes": table.notes,
    }


def _findings(one: Summary) -> dict[str, Any]:
    return {what: {m: _estimate(e) for m, e in found.items()} for what, found in one.findings.items()}


def _equal(equal: EqualAccuracy) -> dict[str, Any]:
    return {
        "values": [
            {"method": one.method, "at": one.at, "covered": one.value is not None, "value": _estimate(one.value)}
            for one in equal.values
        ],
        "range": equal.range,
        "mean_over_range": {method: _estimate(found) for method, found in equal.areas.items()},
        "tests": [{"at": at, **_drop(asdict(pair))} for at, pair in equal.tests],
        "tests_over_range": [{"low": t.low, "high": t.high, **_drop(asdict(t.pair))} for t in equal.over_range],
        "above": [asdict(one) for one in equal.above],
    }


def _estimate(found: Estimate | None) -> dict[str, Any] | None:
    return None if found is None else _drop(asdict(found))


def _drop(tree: dict[str, Any]) -> dict[str, Any]:
    return {key: _drop(v) if isinstance(v, dict) else v for key, v in tree.items() if v not in (None, "")}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return keep(value) if isinstance(value, float) else value


def as_csv(comparison: Comparison) -> str:
    """One line per setting, cell, attack and measure: all attacks, whichever the tables show. Names that a spreadsheet
    would take for a formula begin with an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    where = [part.name for part in fields(Setting)]
    writer.writerow(
        [*where, "method", "strength", "attack", "measure", "n", "mean", "sd", "low", "high", "interval_over"]
    )
    for table in {id(table.group): table for table in comparison.tables}.values():
        start = [getattr(table.group.setting, name) for name in where]
        for one in table.summaries:
            rows = [("", "accuracy", one.accuracy)]
            every = one.leaks | one.findings
            rows += [(attack, measure, e) for attack, found in every.items() for measure, e in found.items()]
            for attack, measure, found in rows:
                if found is not None:
                    numbers = ["" if v is None else keep(v) for v in (found.mean, found.sd, found.low, found.high)]
                    words = [_inert(word) for word in (*start, one.cell.method, one.cell.label, attack, measure)]
                    writer.writerow([*words, found.n, *numbers, found.over])
    return text.getvalue()


def _inert(word: str) -> str:
    return f"'{word}" if word.startswith(FORMULA) else word
