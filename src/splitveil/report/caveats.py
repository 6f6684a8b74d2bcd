"""What a reader must know before believing the headline (DESIGN 5)."""

from __future__ import annotations

import math

from splitveil.experiments.loose import table, text
from splitveil.experiments.training_warnings import training_warnings
from splitveil.report import numbers
from splitveil.report.audit_file import Scores
from splitveil.report.caveats_baseline import baseline
from splitveil.report.markup import Phrase, phrase
from splitveil.report.method import Method
from splitveil.report.run import LACKS, Run
from splitveil.report.texts_attacks import ATTACK_NAMES

SEEDS = 3
SETTLED = 0.01  # so far may late epochs lie from the last one, beyond the chance of drawing the pictures
NAMED = 5  # so many unfinished runs are named; the table of runs has all


def caveats(methods: list[Method], headline: Method | None, undefended: Method | None, floor: Scores) -> list[Phrase]:
    """Sentences about the headline (none without one), the undefended model beside it, and the runs on the page."""
    if headline is None:
        return []
    everything = [run for method in methods for run in method.runs]
    runs = [run for run in everything if not run.weaker]
    spoken_of = [headline] if undefended is None or undefended is headline else [headline, undefended]
    changed = [run.name for run in everything if run.changed]
    found = [phrase("caveat.changed", names=_few(changed))] if changed else []
    found += _idle(methods, headline)
    found += _kin(everything)
    found += _lacking(runs)
    found += baseline(methods, headline, undefended, floor)
    found += [phrase("caveat.auditors_accuracy", name=method.label) for method in spoken_of if method.auditors_accuracy]
    found += [stated for method in spoken_of for run in method.counted for stated in _accuracy(run)]
    if not floor.known:
        found.append(phrase("caveat.no_floor"))
    found += _coverage(headline)
    found += _mixed(runs)
    audits = [run.audit for method in spoken_of for run in method.counted]
    if any(audit.sane is False for audit in audits):
        found.append(phrase("caveat.insane"))
    if any(audit.doubted for audit in audits):
        found.append(phrase("caveat.doubted"))
    if any(run.audit.failures for run in runs):
        found.append(phrase("caveat.attacks_failed"))
    if any(audit.warnings for audit in audits):
        found.append(phrase("caveat.warned"))
    counted = [run.name for method in methods for run in method.counted if training_warnings(run.result)]
    if counted:
        found.append(phrase("caveat.counted", names=_few(counted)))
    found += [phrase("caveat.bound", name=m.label) for m in methods if any(run.audit.alarms for run in m.runs)]
    return found


def _lacking(runs: list[Run]) -> list[Phrase]:
    """How many runs did not come to an attack, and why."""
    found = []
    for lack in LACKS:
        if names := [run.name for run in runs if run.lacks == lack]:
            key = f"caveat.{lack}_one" if len(names) == 1 else f"caveat.{lack}"
            found.append(phrase(key, count=len(names), total=len(runs), names=_few(names)))
    return found


def _coverage(headline: Method) -> list[Phrase]:
    """Few seeds, and attacks that nobody tried."""
    found = []
    seeds = len(headline.counted)
    if seeds < SEEDS:
        found.append(phrase("caveat.seeds_one" if seeds == 1 else "caveat.seeds", count=seeds))
    tried = {name for run in headline.counted for name in (*run.audit.attacks, *run.audit.inference)}
    untried = [name for name in ATTACK_NAMES if name not in tried]
    if tried and untried:
        found.append(phrase("caveat.untried", names=", ".join(untried)))
    return found


def _mixed(runs: list[Run]) -> list[Phrase]:
    """In what the runs differ that should be the same for all."""
    found = []
    for name, values in (
        ("data", {run.data_name for run in runs if run.data_name}),
        ("protocol", {run.protocol for run in runs if run.protocol}),
        ("mode", {run.audit.mode for run in runs if run.audit.mode}),
        ("tier", {run.audit.tier for run in runs if run.audit.tier}),
        ("images", {f"{run.audit.num_images:,}" for run in runs if run.audit.num_images}),
        ("limit", _settings(runs, "data", "limit")),
        ("epochs", _settings(runs, "train", "epochs")),
    ):
        if len(values) > 1:
            found.append(phrase(f"caveat.mixed_{name}", values=", ".join(sorted(values, key=_by_size))))
    suites = {frozenset(run.audit.attacks) for run in runs if run.audit.attacks}
    if len(suites) > 1:
        found.append(phrase("caveat.mixed_attacks"))
    return found


def _few(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")


def _idle(methods: list[Method], headline: Method) -> list[Phrase]:
    """Methods whose accuracy needs no picture: the safest model of all is one that learned nothing."""
    if headline.idle:
        names = [run.name for run in headline.counted if run.idle]
        return [
            phrase("caveat.idle")
            if len(names) == len(headline.counted)
            else phrase("caveat.idle_seeds", names=_few(names))
        ]
    names = [run.name for method in methods for run in method.counted if run.idle]
    return [phrase("caveat.idle_others", names=_few(names))] if names else []


def _accuracy(run: Run) -> list[Phrase]:
    """Where the accuracy that a run states is not what the audit measured on the pictures under attack."""
    stated, measured, count = run.accuracy, run.audit.accuracy, run.audit.num_images
    if stated is None or measured is None or not count or run.audit.auditors_accuracy:
        return []
    middle = (stated + measured) / 2
    if abs(stated - measured) <= SETTLED + 3 * math.sqrt(max(middle * (1 - middle), 0) / count):
        return []
    values = {"stated": numbers.percent(stated), "measured": numbers.percent(measured)}
    return [phrase("caveat.other_accuracy", name=run.name, count=count, **values)]


def _kin(runs: list[Run]) -> list[Phrase]:
    """Models that were audited several times, which audit counts, and whether their scores compare at all."""
    families = dict.fromkeys(run.family for run in runs if run.family is not None)
    kin = [[run for run in runs if run.family == family and run.audit.leak.known] for family in families]
    found = []
    for audited in [several for several in kin if len(several) > 1][:NAMED]:
        names, (best,) = ", ".join(run.name for run in audited), [run.name for run in audited if not run.weaker]
        found.append(phrase("caveat.audits", count=len(audited), names=names, name=best))
        pictures = sorted({run.data_name for run in audited if run.data_name})
        if len(pictures) > 1:
            found.append(phrase("caveat.audits_data", values=", ".join(pictures)))
    return found


def _settings(runs: list[Run], section: str, key: str) -> set[str]:
    """The values that the runs' settings give a key; where a run has none, nothing limits it."""
    return {text(table(run.config.get(section)).get(key)) or "all" for run in runs if run.config}


def _by_size(value: str) -> tuple[float, str]:
    """Numbers in their order, words after them."""
    digits = value.replace(",", "")
    return (float(digits) if digits.isdecimal() else float("inf"), value)
