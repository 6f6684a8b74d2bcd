"""A comparison as titled tables and sentences, before anybody chooses Markdown or LaTeX."""

from __future__ import annotations

from splitveil.core.listed import listed
from splitveil.experiments.compare.comparison import Comparison, Table
from splitveil.experiments.compare.equal_accuracy import EqualAccuracy
from splitveil.experiments.compare.estimate import Estimate
from splitveil.experiments.compare.labels import write_settings
from splitveil.experiments.compare.measures import DASH, FINDINGS, MEASURES, SHOWN, WORST, Measure
from splitveil.experiments.compare.pairs import Pair
from splitveil.experiments.compare.part import Grid, Part
from splitveil.experiments.compare.record import NOT_ATTACKED
from splitveil.experiments.compare.reference import Reference
from splitveil.experiments.compare.reference_prose import reference_part

DOMINANCE_SHOWN = 12
ABOVE_SHOWN = 5  # pairs of curves that are told in sentences
MANY_TESTS = 40
SURE = {
    True: "everywhere beyond the intervals",
    False: "not everywhere beyond the intervals",
    None: "without intervals, which need two shared seeds",
}


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
    setting, measure = table.group.setting, table.group.measure(comparison.view.measure)
    attacked = setting.mode != NOT_ATTACKED
    title = f"{setting.data}, {setting.mode.replace('_', '-')}" + (
        f", {attack_words(table.attack)}" if attacked else ""
    )
    floors = table.group.floors
    intro = [setting.sentence() + "."]
    if attacked:  # a tier's name says little where a recipe chose single attacks of it
        intro.append(f"Attacks: {', '.join(table.group.ran())}.")
    if table.group.constant:
        intro.append(f"The same in all cells: {write_settings(table.group.constant)}.")
    if floors and table.attack:
        told = ", ".join(f"{name.replace('_', ' ')} {MEASURES['mse'].write(v)}" for name, v in floors.items())
        intro.append(f"MSE of guessing without the feature: {told}.")
    for name, value in (table.group.extra_floors if table.attack else {}).items():
        intro.append(f"{name} of guessing the mean picture: {table.group.measure(name).write(value)}.")
    grids = [_cells(table, measure)]
    if with_findings and table.group.findings():
        grids.append(_findings(table))
    if table.equal is not None:
        grids += _at_equal_accuracy(table.equal, measure)
    testable = [pair for pair in table.tests if pair.test.n > 1]
    if testable:
        rows = [[one.title, *_test(pair, one)] for pair in testable for one in [table.group.measure(pair.measure)]]
        grids.append(Grid("Differences at equal strength, seed by seed", ["measure", *TEST_HEAD], rows))
    remarks = [*_dominance(table, measure), *table.notes]
    if len(testable) > MANY_TESTS and not (comparison.view.baseline or comparison.view.pairs):
        remarks.append(
            f"{len(testable)} tests at equal strength: after the correction for so many little is left to be seen. "
            "With --baseline METHOD, or --pair 'METHOD vs METHOD' for each question you have, there are fewer."
        )
    return Part(title, intro, grids, remarks)


def _at_equal_accuracy(equal: EqualAccuracy, measure: Measure) -> list[Grid]:
    grids = [_equal(equal, measure)] if equal.values else []
    if len(equal.above) > ABOVE_SHOWN:
        grids.append(_above(equal, measure))
    if equal.tests:
        rows = [[f"{100 * at:.2f}", *_test(pair, measure)] for at, pair in equal.tests]
        caption = f"Differences in {measure.title} at equal accuracy, seed by seed"
        grids.append(Grid(caption, ["at accuracy %", *TEST_HEAD], rows))
    if equal.over_range:
        rows = [[f"{100 * one.low:.2f} - {100 * one.high:.2f}", *_test(one.pair, measure)] for one in equal.over_range]
        caption = f"Differences in mean {measure.title} over the accuracies that both cover, seed by seed"
        grids.append(Grid(caption, ["accuracies %", *TEST_HEAD], rows))
    return grids


def _cells(table: Table, measure: Measure) -> Grid:
    full = ("accuracy", measure.name)  # the others without intervals: a table must fit on a page
    known = [table.group.measure(name) for name in (*SHOWN, *table.group.extra)]
    shown = [one for one in known if any(row.get(table.attack, one.name) for row in table.summaries)]
    rows = [
        [one.cell.method, one.cell.label or DASH, str(len(one.cell.runs))]
        + [spread(one.get(table.attack, m.name), m, brief=m.name not in full) for m in shown]
        for one in table.summaries
    ]
    caption = "Mean ± standard deviation over seeds [95 % interval]"
    return Grid(caption, ["method", "strength", "seeds", *(one.title for one in shown)], rows)


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


def _above(equal: EqualAccuracy, measure: Measure) -> Grid:
    """Every curve against every other, where sentences would be too many."""
    shares: dict[tuple[str, str], str] = {}
    for one in equal.above:
        first, second = (0.0, 0.0) if one.same else (one.share, 1 - one.share)
        shares[one.first, one.second] = f"{100 * first:.0f}" + ("*" if one.beyond_intervals else "")
        shares[one.second, one.first] = f"{100 * second:.0f}"
    names = [name for name in equal.curves if any(name in pair for pair in shares)]
    rows = [
        [f"{number} {row}", *(shares.get((row, column), DASH) for column in names)]
        for number, row in enumerate(names, start=1)
    ]
    caption = (
        f"How much of their common accuracies, in %, the row is more private ({measure.title}) than the column "
        "(* everywhere beyond the intervals)"
    )
    return Grid(caption, ["method", *map(str, range(1, len(names) + 1))], rows)


TEST_HEAD = ["first", "second", "seeds", "first - second", "p (t)", "p (t, Holm)", "p (exact)", "effect g"]


def _test(pair: Pair, measure: Measure) -> list[str]:
    test = pair.test
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
    if table.equal is not None and len(table.equal.above) <= ABOVE_SHOWN:  # more are in a table
        for one in table.equal.above:
            where = f"between {100 * one.low:.2f} and {100 * one.high:.2f} % accuracy"
            sure = SURE[one.beyond_intervals]
            if one.same:
                said.append(f"{one.first} and {one.second} have one curve ({measure.title}) {where}.")
            elif one.share >= 0.9995:
                said.append(f"{one.first} is more private ({measure.title}) than {one.second} {where}, {sure}.")
            else:
                share = f"on {100 * one.share:.0f} % of the range"
                said.append(f"{one.first} and {one.second} cross: the first is more private {share} {where}.")
    pairs = [f"{one.first} over {one.second}" for one in table.dominates]
    if pairs:
        told = listed(pairs, DOMINANCE_SHOWN)
        said.append(f"More accurate and more private at once, beyond the intervals: {told}.")
    return said
