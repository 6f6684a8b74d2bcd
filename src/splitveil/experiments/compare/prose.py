"""A comparison as titled tables and sentences, before anybody chooses Markdown or LaTeX."""

from __future__ import annotations

from dataclasses import dataclass, field

from splitveil.experiments.compare.comparison import Comparison, Table
from splitveil.experiments.compare.equal_accuracy import EqualAccuracy
from splitveil.experiments.compare.estimate import Estimate
from splitveil.experiments.compare.labels import write_settings
from splitveil.experiments.compare.measures import DASH, FINDINGS, MEASURES, SHOWN, WORST, Measure
from splitveil.experiments.compare.pairs import Pair
from splitveil.experiments.compare.record import NOT_ATTACKED
from splitveil.experiments.compare.reference import Beside, Reference, beside

DOMINANCE_SHOWN = 12
SURE = {
    True: "everywhere beyond the intervals",
    False: "not everywhere beyond the intervals",
    None: "without intervals, which need two shared seeds",
}


@dataclass(frozen=True)
class Grid:
    """A table of words."""

    caption: str
    head: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Part:
    """A heading, what to know first, tables, remarks below them, and paragraphs at the end."""

    title: str
    intro: list[str] = field(default_factory=list)
    grids: list[Grid] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    closing: list[str] = field(default_factory=list)


def parts(comparison: Comparison, reference: Reference | None = None) -> list[Part]:
    """The whole comparison in reading order."""
    found = [Part("Remarks on the runs", remarks=comparison.notes)] if comparison.notes else []
    if reference is not None:  # who gives one asks for it first
        found.append(reference_part(comparison, reference))
    first = {id(table.group): table for table in reversed(comparison.tables)}  # findings are told once for all attacks
    return found + [_part(table, comparison, first[id(table.group)] is table) for table in comparison.tables]


def attack_words(attack: str) -> str:
    if not attack:
        return "attacks that make no pictures"
    return "worst case over all attacks" if attack == WORST else f"attack {attack}"


def _part(table: Table, comparison: Comparison, with_findings: bool) -> Part:
    setting, measure = table.group.setting, MEASURES[comparison.view.measure]
    attacked = setting.mode != NOT_ATTACKED
    title = f"{setting.data}, {setting.mode.replace('_', '-')}" + (
        f", {attack_words(table.attack)}" if attacked else ""
    )
    floors = table.group.records[0].floors
    intro = [setting.sentence() + "."]
    if table.group.constant:
        intro.append(f"The same in all cells: {write_settings(table.group.constant)}.")
    if floors and table.attack:
        told = ", ".join(f"{name.replace('_', ' ')} {MEASURES['mse'].write(v)}" for name, v in sorted(floors.items()))
        intro.append(f"MSE of guessing without the feature: {told}.")
    grids = [_cells(table, measure)]
    if with_findings and table.group.findings():
        grids.append(_findings(table))
    if table.equal is not None and table.equal.values:
        grids.append(_equal(table.equal, measure))
    if table.equal is not None and table.equal.tests:
        rows = [[f"{100 * at:.2f}", *_test(pair)] for at, pair in table.equal.tests]
        caption = f"Differences in {measure.title} at equal accuracy, seed by seed"
        grids.append(Grid(caption, ["at accuracy %", *TEST_HEAD], rows))
    testable = [pair for pair in table.tests if pair.test.n > 1]
    if testable:
        rows = [[MEASURES[pair.measure].title, *_test(pair)] for pair in testable]
        grids.append(Grid("Differences at equal strength, seed by seed", ["measure", *TEST_HEAD], rows))
    return Part(title, intro, grids, [*_dominance(table, measure), *table.notes])


def _cells(table: Table, measure: Measure) -> Grid:
    full = ("accuracy", measure.name)  # the others without intervals: a table must fit on a page
    shown = [name for name in SHOWN if any(one.get(table.attack, name) for one in table.summaries)]
    rows = [
        [one.cell.method, one.cell.label or DASH, str(len(one.cell.runs))]
        + [spread(one.get(table.attack, name), MEASURES[name], brief=name not in full) for name in shown]
        for one in table.summaries
    ]
    caption = "Mean ± standard deviation over seeds [95 % interval]"
    return Grid(caption, ["method", "strength", "seeds", *(MEASURES[name].title for name in shown)], rows)


def _findings(table: Table) -> Grid:
    """A row for each thing that an attack without pictures tried to find out."""
    rows = [
        [one.cell.method, one.cell.label or DASH, *what.split(": ", 1)]
        + [spread(found.get(name), measure, brief=name == "guessing") for name, measure in FINDINGS.items()]
        for one in table.summaries
        for what, found in one.findings.items()
    ]
    caption = "Found out without making a picture [95 % interval; guessing has AUC 0.5 and TPR 1 %]"
    titles = [measure.title for measure in FINDINGS.values()]
    return Grid(caption, ["method", "strength", "attack", "finding", *titles], rows)


def spread(found: Estimate | None, measure: Measure, *, brief: bool = False) -> str:
    """For example "85.12 ± 0.31 [84.35, 85.89]"; an interval over pictures is marked, `brief` leaves it out."""
    if found is None:
        return DASH
    words = measure.write(found.mean)
    if found.sd is not None:
        words += f" ± {measure.write(found.sd)}"
    if found.interval is not None and not brief:
        low, high = (measure.write(end) for end in found.interval)
        words += f" [{low}, {high}]" + ("*" if found.over == "pictures" else "")
    return words


def _equal(equal: EqualAccuracy, measure: Measure) -> Grid:
    places = sorted({one.at for one in equal.values})
    values = {(one.method, one.at): one.value for one in equal.values}
    head = ["method", "covers accuracy %", *(f"{measure.title} at {100 * at:.2f} %" for at in places)]
    if equal.range:
        head.append(f"mean {measure.title} from {100 * equal.range[0]:.2f} to {100 * equal.range[1]:.2f} %")
    rows = []
    for method, curve in equal.curves.items():
        row = [method, f"{100 * curve.low:.2f} - {100 * curve.high:.2f}"]
        row += ["not covered" if (found := values[method, at]) is None else spread(found, measure) for at in places]
        if equal.range:
            row.append(spread(equal.areas.get(method), measure))
        rows.append(row)
    return Grid(f"{measure.title} at equal accuracy [95 % interval over seeds]", head, rows)


TEST_HEAD = ["first", "second", "seeds", "first - second", "p (t)", "p (t, Holm)", "p (exact)", "effect g"]


def _test(pair: Pair) -> list[str]:
    test, measure = pair.test, MEASURES[pair.measure]
    difference = measure.write(test.difference)
    if test.low is not None and test.high is not None:
        difference += f" [{measure.write(test.low)}, {measure.write(test.high)}]"
    effect = DASH if test.effect is None else f"{test.effect:.2f} [{test.effect_low:.2f}, {test.effect_high:.2f}]"
    return [
        pair.first,
        pair.second,
        str(test.n),
        difference,
        *(DASH if p is None else f"{p:.3g}" for p in (test.p_t, test.p_t_holm, test.p_exact)),
        effect,
    ]


def _dominance(table: Table, measure: Measure) -> list[str]:
    said = []
    if table.equal is not None:
        for one in table.equal.above:
            where = f"between {100 * one.low:.2f} and {100 * one.high:.2f} % accuracy"
            sure = SURE[one.beyond_intervals]
            if one.share >= 0.9995:
                said.append(f"{one.first} is more private ({measure.title}) than {one.second} {where}, {sure}.")
            else:
                share = f"on {100 * one.share:.0f} % of the range"
                said.append(f"{one.first} and {one.second} cross: the first is more private {share} {where}.")
    pairs = [f"{one.first} over {one.second}" for one in table.dominates]
    if pairs:
        more = f"; and {len(pairs) - DOMINANCE_SHOWN} more" if len(pairs) > DOMINANCE_SHOWN else ""
        told = "; ".join(pairs[:DOMINANCE_SHOWN]) + more
        said.append(f"More accurate and more private at once, beyond the intervals: {told}.")
    return said


def reference_part(comparison: Comparison, reference: Reference) -> Part:
    found, missing = beside(comparison.groups, reference)
    measures = [name for name in MEASURES if any(name in row.values for row in reference.rows)]
    head = [
        "published row",
        "attack",
        "our cell",
        "seeds",
        *(f"{MEASURES[name].title}: ours / published" for name in measures),
    ]
    if reference.tolerance:
        head.append("within tolerance")
    rows = [_beside_row(one, measures, bool(reference.tolerance)) for one in found]
    intro = [reference.source] if reference.source else []
    if reference.tolerance:
        told = ", ".join(
            f"{MEASURES[name].title.split()[0]} {100 * limit:g} {'%' if name == 'mse' else 'points'}"
            for name, limit in reference.tolerance.items()
        )
        intro.append(f"Tolerance: {told}.")
    remarks = [f"Not run here: {'; '.join(missing)}."] if missing else []
    remarks += [f"{row.label}: {row.note}" for row in reference.rows if row.note]
    grids = (
        [Grid("Ours (mean ± standard deviation over seeds) beside published (deviation)", head, rows)] if rows else []
    )
    closing = [reference.explanation] if reference.explanation else []
    return Part(f"Beside published numbers: {reference.title}", intro, grids, remarks, closing)


def _beside_row(one: Beside, measures: list[str], judged: bool) -> list[str]:
    mode = one.group.setting.mode.replace("_", "-")
    row = [one.row.label, f"{one.row.attack}, {mode}", one.cell.name, str(len(one.cell.runs))]
    for name in measures:
        if name not in one.row.values:
            row.append(DASH)
            continue
        measure, ours = MEASURES[name], one.ours.get(name)
        low, high = one.row.values[name]
        published = measure.write(low) if low == high else f"{measure.write(low)}-{measure.write(high)}"
        if ours is None:
            row.append(f"{DASH} / {published}")
            continue
        sd = "" if ours.sd is None else f" ± {measure.write(ours.sd)}"
        gap = one.deviation(name) or 0.0
        told = (
            f"{100 * gap:+.1f} %" if name == "mse" else f"{100 * gap if measure.percent else gap:+.{measure.digits}f}"
        )
        row.append(f"{measure.write(ours.mean)}{sd} / {published} ({told})")
    if judged:
        row.append("yes" if not one.outside else f"no: {', '.join(MEASURES[n].title.split()[0] for n in one.outside)}")
    return row
