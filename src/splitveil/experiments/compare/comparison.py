"""The whole comparison: every group under every attack asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from splitveil.core.errors import UnknownNameError, UsageError, nearest
from splitveil.experiments.compare.accuracies import accuracy_notes
from splitveil.experiments.compare.cells import Group
from splitveil.experiments.compare.dominance import Dominates, cell_dominance
from splitveil.experiments.compare.equal_accuracy import EqualAccuracy, equal_accuracy
from splitveil.experiments.compare.grouping import group
from splitveil.experiments.compare.guessing import guessing_notes
from splitveil.experiments.compare.measures import LEAKS, WORST
from splitveil.experiments.compare.naming import meant, variants
from splitveil.experiments.compare.paired import power_sentence
from splitveil.experiments.compare.pairs import Pair, cell_tests, twins, untested
from splitveil.experiments.compare.record import NOT_ATTACKED, Record
from splitveil.experiments.compare.summaries import Summary, seed_notes, summarise
from splitveil.experiments.compare.training_notes import training_notes
from splitveil.experiments.compare.view import KEPT, View


@dataclass(frozen=True)
class Table:
    """One group under one attack; `attack` is empty where no attack asked for made pictures."""

    group: Group
    attack: str
    summaries: list[Summary]
    tests: list[Pair]
    equal: EqualAccuracy | None
    dominates: list[Dominates]
    notes: list[str]


@dataclass(frozen=True)
class Comparison:
    """All tables, and what must be said about the whole."""

    view: View
    tables: list[Table]
    notes: list[str]

    @property
    def records(self) -> list[Record]:
        """Every record that counted, once."""
        return [record for one in self.groups for record in one.records]

    @property
    def groups(self) -> list[Group]:
        """Every group once, whether one attack was asked for or several."""
        return list({id(table.group): table.group for table in self.tables}.values())


def compare(records: list[Record], view: View | None = None, notes: list[str] | None = None) -> Comparison:
    """Compare records; `notes` are sentences from reading them. The order of the records changes nothing."""
    view = view or View()
    records = [replace(record, count_kept=view.accuracy == KEPT) for record in records]
    groups, said = group(records, mix_versions=view.mix_versions)
    pictures = {attack for one in groups for attack in one.attacks()}
    known = pictures.union(*(_finders(one) for one in groups))
    for attack in view.attacks:
        usual = attack == WORST and not pictures  # nobody asked for it: it is what a view has without being told
        if known and attack not in known and not usual:
            raise UnknownNameError(f"No audit here has the attack '{attack}'.", nearest(attack, sorted(known)))
    if view.measure not in LEAKS:
        _check_extra(view, groups)
    methods = {method for one in groups for method in one.methods}
    if view.baseline and not variants(view.baseline, methods):
        raise UnknownNameError(f"There is no method called '{view.baseline}' here.", nearest(view.baseline, methods))
    said += _missing(view, methods)
    tables = [_table(one, view, attack) for one in groups for attack in _shown(one, view)]
    return Comparison(view, tables, [*(notes or []), *said])


def check_named(pairs: list[tuple[str, str]], comparison: Comparison) -> None:
    """Refuse pairs that a caller names now, not a recipe, where a method of theirs is missing and no pair is whole."""
    methods = {method for one in comparison.groups for method in one.methods}
    unknown = [name for pair in pairs for name in pair if not variants(name, methods)]
    if unknown and not any(meant(first, second, methods) for first, second in pairs):
        name = unknown[0]
        raise UnknownNameError(f"There is no finished run of a method called '{name}' here.", nearest(name, methods))


def _check_extra(view: View, groups: list[Group]) -> None:
    """Refuse a measure that is not ours where the runs do not have it, or nobody knows which way of it is private."""
    name, having = view.measure, [one for one in groups if view.measure in one.extra]
    if not having:
        known = [*LEAKS, *dict.fromkeys(extra for one in groups for extra in one.extra)]
        raise UsageError(f"There is no measure called '{name}'.", nearest(name, known))
    if not all(one.measure(name).sign for one in having):
        raise UsageError(
            f"The audits do not say which way of '{name}' is more private, or contradict each other.",
            f"Audit these runs again: splitveil audit RUN --measure {name} --again",
        )
    records = [record for one in having for record in one.records]
    taken = sorted({attack for record in records for attack, found in record.scores.items() if name in found})
    for attack in view.attacks:
        if attack not in taken:
            raise UsageError(f"No audit here has '{name}' of '{attack}'.", f"It was taken of: {', '.join(taken)}.")


def _missing(view: View, methods: set[str]) -> list[str]:
    """One sentence on the methods of pairs that no run here has: all of them failed, or they were not chosen."""
    missing = dict.fromkeys(name for pair in view.pairs for name in pair if not variants(name, methods))
    return [f"Not tested, because no finished run is here: {'; '.join(missing)}."] if missing else []


def _shown(one: Group, view: View) -> list[str]:
    """The attacks asked for that made pictures; "" once where accuracy and findings are all there is, or was asked."""
    asked = [attack for attack in view.attacks if attack in one.attacks()]
    alone = not one.attacks() or not _finders(one).isdisjoint(view.attacks)
    return asked or ([""] if alone else [])


def _finders(one: Group) -> set[str]:
    return {what.partition(":")[0] for what in one.findings()}


def _table(one: Group, view: View, attack: str) -> Table:
    summaries, measure = summarise(one), one.measure(view.measure)
    tests = cell_tests(one, view, attack)
    equal = equal_accuracy(one, view, attack) if attack else None
    notes = [*one.notes, *guessing_notes(one, attack), *training_notes(one)]
    notes += [
        *seed_notes(summaries, attack, measure),
        *accuracy_notes(one, view),
        *untested(one, view, tests),
        *twins(one),
    ]
    read = [] if equal is None else [*(pair for _, pair in equal.tests), *(one.pair for one in equal.over_range)]
    seeds = {pair.test.n for pair in [*tests, *read]}
    notes += [sentence for n in sorted(seeds) if (sentence := power_sentence(n))]
    if equal is not None:
        notes += equal.notes
    elif one.setting.mode == NOT_ATTACKED:
        notes.append("These runs have not been attacked: only accuracy is compared.")
    else:
        notes.append("No attack here made pictures: accuracy and what the attacks found out are compared.")
    return Table(one, attack, summaries, tests, equal, cell_dominance(summaries, attack, measure), notes)
