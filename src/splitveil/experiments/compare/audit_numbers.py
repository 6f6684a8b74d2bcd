"""The numbers of an audit.json that are compared: what attacks leave of pictures, and what they find out otherwise."""

from __future__ import annotations

from typing import Any

from splitveil.experiments.compare.measures import FINDINGS, LEAKS, WORST, WORST_ONCE
from splitveil.experiments.compare.record import keep
from splitveil.experiments.loose import interval, items, number, table

Numbers = dict[str, dict[str, float]]
Spans = dict[str, dict[str, tuple[float, float]]]


def scores_of(tree: dict[str, Any]) -> tuple[Numbers, Spans]:
    """The worst case, each attack, and an attack's other answers (such as "decoder.best_epoch")."""
    entries = {name: table(tree.get(name)) for name in (WORST, WORST_ONCE)}
    for attack, value in table(tree.get("attacks")).items():
        entries[attack] = table(value)
        variants = {key: table(item) for key, item in table(value).items() if "mse" in table(item)}
        entries |= {f"{attack}.{variant}": entry for variant, entry in variants.items()}
    scores, intervals = {}, {}
    for name, entry in entries.items():
        found = {key: keep(v) for key in LEAKS if (v := number(entry.get(key))) is not None}
        spans = {key: span for key in LEAKS if (span := interval(items(entry.get(f"{key}_ci95")))) is not None}
        if found:
            scores[name] = found
        if found and spans:
            intervals[name] = {key: (keep(low), keep(high)) for key, (low, high) in spans.items()}
    return scores, intervals


def findings_of(tree: dict[str, Any]) -> tuple[Numbers, Spans]:
    """What attacks found out without making a picture: an area under the curve, or how often an attribute was named."""
    findings, intervals = {}, {}
    for attack, value in table(tree.get("inference")).items():
        for what, entry in table(table(value).get("findings")).items():
            numbers = table(entry)
            caught = table(numbers.get("tpr_at_1_percent_fpr"))
            values = numbers | {"tpr_at_1_percent_fpr": caught.get("rate")}
            ends = {
                "auc": numbers.get("auc_ci95"),
                "rate": numbers.get("ci95"),
                "tpr_at_1_percent_fpr": caught.get("ci95"),
            }
            found = {key: keep(v) for key in FINDINGS if (v := number(values.get(key))) is not None}
            spans = {key: span for key in found if (span := interval(ends.get(key))) is not None}
            if found:
                findings[f"{attack}: {what}"] = found
            if spans:
                intervals[f"{attack}: {what}"] = {key: (keep(low), keep(high)) for key, (low, high) in spans.items()}
    return findings, intervals
