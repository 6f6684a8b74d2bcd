# ruff: noqa: RUF001 - the Chinese comma and Greek letters are meant
"""Runs grouped into methods: one method is one configuration, its runs differ in the seed alone.

A method has the letter and the colour under which it appears everywhere on the page.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from splitveil.core import dotted
from splitveil.experiments.compare.estimate import estimate
from splitveil.experiments.compare.labels import STRUCTURAL
from splitveil.experiments.loose import number, table, text
from splitveil.report.audit_file import Scores
from splitveil.report.markup import Phrase, phrase, plain
from splitveil.report.one_model import mark_kin
from splitveil.report.run import Run


@dataclass(frozen=True)
class Method:
    """One configuration and its runs."""

    number: int
    runs: tuple[Run, ...]
    label: Phrase
    short: Phrase
    undefended: bool

    @property
    def letter(self) -> str:
        """A, B, ... Z, AA, AB, ..."""
        name, rest = "", self.number
        while True:
            name, rest = chr(ord("A") + rest % 26) + name, rest // 26 - 1
            if rest < 0:
                return name

    @property
    def colour(self) -> str:
        """CSS class: the undefended method has a colour of its own, the others share eight."""
        return "m-open" if self.undefended else f"m{self.number % 8}"

    @property
    def counted(self) -> tuple[Run, ...]:
        """The runs that means are taken over: of each model the one with the strongest audit, and of them the finished
        ones, or all where none has finished."""
        models = tuple(run for run in self.runs if not run.weaker)
        return tuple(run for run in models if not run.unfinished) or models or self.runs

    def having(self, part: Callable[[Run], bool]) -> tuple[Run, ...]:
        """The counted runs that have something; all that have it, where no counted one does."""
        return tuple(filter(part, self.counted)) or tuple(filter(part, self.runs))

    @property
    def unfinished(self) -> bool:
        """Whether not one of its runs has finished."""
        return all(run.unfinished for run in self.runs)

    @property
    def accuracy(self) -> float | None:
        return mean(map(self.accuracy_of, self.counted))

    @property
    def auditors_accuracy(self) -> bool:
        """Whether what is known of the accuracy is that of a classifier of the auditor's own."""
        return any(self._knows_accuracy(run).auditors_accuracy for run in self.counted)

    def accuracy_of(self, run: Run) -> float | None:
        """Accuracy of the model behind a run: best known where it was trained, least behind an address."""
        return self._knows_accuracy(run).accuracy

    def _knows_accuracy(self, run: Run) -> Run:
        kin = [other for other in self.runs if other is run or (run.family is not None and other.family == run.family)]
        known = [other for other in kin if other.accuracy is not None]
        return min(known, key=lambda one: (one.auditors_accuracy, not one.result, one is not run), default=run)

    @property
    def bare(self) -> bool:
        """Whether nothing at all defends it, as far as is said."""
        run = self.runs[0]
        return run.surrogate is None and not set(run.defences) - set(STRUCTURAL) and run.sigma == 0.0

    @property
    def leak(self) -> Scores:
        """Mean over seeds. One seed keeps its own interval; several give none here, their spread is shown instead."""
        if len(self.counted) == 1:
            return self.counted[0].audit.leak
        scores = [run.audit.leak for run in self.counted]
        return Scores(mean(s.mse for s in scores), mean(s.ssim for s in scores), mean(s.psnr for s in scores))

    def spread(self, value: Callable[[Run], float | None]) -> float | None:
        """Sample standard deviation over seeds; None below two."""
        values = [found for run in self.counted if (found := value(run)) is not None]
        return statistics.stdev(values) if len(values) > 1 else None

    def interval(self, value: Callable[[Run], float | None]) -> tuple[float, float] | None:
        """95 % interval for the mean over seeds; None below two."""
        values = [found for run in self.counted if (found := value(run)) is not None]
        return estimate(values).interval if len(values) > 1 else None

    @property
    def representative(self) -> Run:
        """The run whose pictures stand for the method: of those with pictures, the one that leaks most."""
        return min(
            self.runs,
            key=lambda run: (not run.shots, run.audit.leak.mse if run.audit.leak.mse is not None else float("inf")),
        )


def mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def group_runs(runs: list[Run], *, in_full: bool = False) -> list[Method]:
    """Methods in order of appearance, the undefended one first; labels `in_full` tell strengths even of a lone run."""
    groups: dict[str, list[Run]] = {}
    of_family: dict[int, str] = {}
    for position, run in enumerate(mark_kin(runs)):
        key = _key(run) or f"alone {position}"
        if run.family is not None:
            key = of_family.setdefault(run.family, key)
        groups.setdefault(key, []).append(run)
    open_key = _undefended(groups)
    ordered = sorted(groups.values(), key=lambda group: group is not groups.get(open_key or ""))
    bases = [_label(group[0]) for group in ordered] if in_full else _labels([group[0] for group in ordered])
    shorts = _shorts([group[0] for group in ordered])
    methods = []
    for number_, group in enumerate(ordered):
        undefended = group is groups.get(open_key or "")
        base = bases[number_]
        twins = [other for other, label in zip(ordered, bases, strict=True) if label == base]
        extra = _difference(group, twins) if len(twins) > 1 else ""
        label = Phrase(base.en + extra, base.zh + extra.replace(", ", "，"))
        short = phrase("label.undefended") if undefended else plain(shorts[number_])
        if undefended:
            label = phrase("label.undefended_with", rest=label) if not _bare(group[0]) else phrase("label.undefended")
        methods.append(Method(number_, tuple(group), label, short, undefended))
    return methods


def flatten(tree: Any) -> dict[str, str]:
    """A config as `section.key` -> value, in JSON spelling; empty tables are left out."""
    return {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        for key, value in dotted.flatten(table(tree)).items()
        if value != {}
    }


def _key(run: Run) -> str | None:
    flat = flatten(run.config)
    flat.pop("seed", None)
    return json.dumps(sorted(flat.items())) if flat else None


def _undefended(groups: dict[str, list[Run]]) -> str | None:
    """No surrogate, nothing but structural defences, least noise; a run that is named so wins."""
    candidates = [
        (("undefended" not in group[0].name.lower()), group[0].sigma or 0.0, key)
        for key, group in groups.items()
        if group[0].surrogate is None
        and not set(group[0].defences) - set(STRUCTURAL)
        and (_told(group[0]) or "undefended" in group[0].name.lower())
    ]
    return min(candidates)[2] if candidates else None


def _told(run: Run) -> bool:
    """Whether anything says how the run is defended."""
    return bool(run.config or run.result or run.states_defences)


def _bare(run: Run) -> bool:
    return not run.sigma


def _shorts(runs: list[Run]) -> list[str]:
    """A word or two per method, for captions; lambda and sigma are added only where they are needed to tell apart."""

    def name(run: Run, parts: str) -> str:
        words = [*([run.surrogate] if run.surrogate else []), *(d for d in run.defences if d not in STRUCTURAL)]
        words = [run.sweep_method] if run.sweep_method else words
        if not words:
            return f"σ {run.sigma:g}" if run.sigma is not None else run.name
        strength = {"λ": run.weight, "σ": run.sigma}
        return " ".join([" + ".join(words), *(f"{p}{strength[p]:g}" for p in parts if strength[p] is not None)])

    for parts in ("", "λ", "σ", "λσ"):
        names = [name(run, parts) for run in runs]
        if len(set(names)) == len(names):
            return names
    return names


def _labels(runs: list[Run]) -> list[Phrase]:
    """A label per run, one of each method. A sweep's own name stands alone where no other method has it."""
    named = Counter(run.sweep_method for run in runs)
    return [
        plain(run.sweep_method) if run.sweep_method and named[run.sweep_method] == 1 else _label(run) for run in runs
    ]


def _label(run: Run) -> Phrase:
    """For example "gmm (corrected), weight 16, noise 0.025"; a sweep's own name goes before the surrogate's."""
    if not _told(run):
        return plain(run.name)
    parts: list[Phrase] = []
    if run.sweep_method:
        parts.append(plain(run.sweep_method))
    elif run.surrogate:
        options = table(run.config.get("surrogate"))
        mode = text(options.get("preset")) or text(options.get("mode"))
        parts.append(plain(f"{run.surrogate} ({mode})" if mode else run.surrogate))
    if run.surrogate and run.weight is not None:
        parts.append(phrase("label.weight", value=f"{run.weight:g}"))
    for name, options in run.defences.items():
        if name in STRUCTURAL or run.sweep_method:
            continue
        strength = next((v for key in ("weight", "strength", "rate") if (v := number(table(options).get(key)))), None)
        parts.append(plain(name if strength is None else f"{name} {strength:g}"))
    if run.sigma:
        parts.append(phrase("label.noise", value=f"{run.sigma:g}"))
    if not parts:
        return phrase("label.no_noise")
    return Phrase(", ".join(part.en for part in parts), "，".join(part.zh for part in parts))


def _difference(group: list[Run], twins: list[list[Run]]) -> str:
    """What sets this group apart from others with the same label: up to two config keys, else the folder name."""
    flats = [flatten(twin[0].config) for twin in twins]
    mine = flatten(group[0].config)
    keys = [key for key in mine if key != "seed" and any(flat.get(key) != mine[key] for flat in flats)]
    told = ", ".join(f"{key.removeprefix('train.')} {mine[key]}" for key in keys[:2])
    return f", {told}" if told else f", {group[0].name}"
