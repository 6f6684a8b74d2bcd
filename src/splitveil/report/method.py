"""One method of a report: runs of one configuration, and the numbers that stand for them.

A method has the letter and the colour under which it appears everywhere on the page.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from splitveil.experiments.compare.estimate import estimate
from splitveil.report.audit_file import Scores
from splitveil.report.markup import Phrase
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
    def failed(self) -> bool:
        """Whether the sweep gave up every one of its runs."""
        return all(run.lacks == "failed" for run in self.runs)

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
    def idle(self) -> bool:
        """Whether one of its runs is: what such a model leaks says nothing about one that works, and is in the mean."""
        return any(run.idle for run in self.counted)

    @property
    def unprotected(self) -> bool:
        """Whether it is said that nothing defends it, or noise alone."""
        run = self.runs[0]
        return not run.protected and (run.says_how_defended or "undefended" in run.name.lower())

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
