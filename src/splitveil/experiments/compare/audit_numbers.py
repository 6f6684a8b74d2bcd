"""The numbers of an audit.json that are compared: what attacks leave of pictures, and what they find out otherwise."""

from __future__ import annotations

from typing import Any

from splitveil.experiments.compare.measures import FINDINGS, LEAKS, MEASURES, WORST, WORST_ONCE
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
    for measure, value in _extra(tree).items():
        for attack, item in {WORST: value.get("worst_case"), **table(value.get("attacks"))}.items():
            mean, span = number(table(item).get("mean")), interval(table(item).get("ci95"))
            if mean is not None and attack in scores:
                scores[attack][measure] = keep(mean)
                if span is not None:
                    intervals.setdefault(attack, {})[measure] = (keep(span[0]), keep(span[1]))
    return scores, intervals


def extra_of(tree: dict[str, Any]) -> tuple[Numbers, list[str]]:
    """Of each measure beside ours which way is private, and its floor; and the names that ours have already."""
    found = {}
    for name, value in _extra(tree).items():
        larger = value.get("larger_is_private")  # audits of earlier versions do not say it
        found[name] = {"sign": 1.0 if larger is True else -1.0 if larger is False else 0.0}
        floor = number(table(table(value.get("floor")).get("mean_image")).get("mean"))
        found[name] |= {} if floor is None else {"floor": keep(floor)}
    return found, [name for name in table(tree.get("extra")) if name in MEASURES]


def _extra(tree: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: table(value) for name, value in table(tree.get("extra")).items() if name not in MEASURES}


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
