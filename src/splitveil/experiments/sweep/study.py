"""One search: the ranges, the goal, the trials so far and what to try next (Optuna decides)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from splitveil.core.errors import MissingExtraError, UsageError
from splitveil.core.seeding import derive_seed
from splitveil.experiments.loose import number, table
from splitveil.experiments.sweep.cells import Cell, make_cell
from splitveil.experiments.sweep.recipe import Method, SweepRecipe

STARTS = (0.5, 0.0, 1.0)  # the first trials: the middle of every range, and both ends
DIGITS = 4  # significant digits of a proposed strength: enough for any purpose, and readable in a table
ASKS = 5  # where Optuna proposes what was tried already, it is asked so often for something else


@dataclass(frozen=True)
class Axis:
    """A range to search: `low` to `high`, evenly in the value or in its logarithm."""

    key: str
    low: float
    high: float
    log: bool = False

    @classmethod
    def parse(cls, text: str) -> Axis:
        """`train.privacy_weight=1:64:log`.

        >>> Axis.parse("train.privacy_weight=1:64:log")
        Axis(key='train.privacy_weight', low=1.0, high=64.0, log=True)
        """
        key, _, span = text.partition("=")
        parts = span.split(":")
        scale = parts.pop() if len(parts) == 3 else ""
        try:
            low, high = map(float, parts)
        except ValueError:
            low = high = math.nan
        axis = cls(key.strip(), low, high, scale == "log")
        if "." not in axis.key or scale not in ("", "log", "linear") or not low < high or not math.isfinite(high - low):
            raise UsageError(
                f"'{text}' is not a range.", "Lowest first, for example: --search train.privacy_weight=1:64:log"
            )
        if axis.log and low <= 0:
            raise UsageError(
                f"'{text}' starts at {low:g}, which has no logarithm.", "Start above 0, or leave out :log."
            )
        return axis

    def __str__(self) -> str:
        """As it is typed."""
        return f"{self.key}={self.low}:{self.high}" + (":log" if self.log else "")

    def at(self, share: float) -> float:
        """The value at a share of the way, 0 to 1."""
        if self.log:
            return self.rounded(self.low * (self.high / self.low) ** share)
        return self.rounded(self.low + share * (self.high - self.low))

    def rounded(self, value: float) -> float:
        """Few digits, inside the range."""
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)


@dataclass(frozen=True)
class Goal:
    """What is searched for: an accuracy, how near is near enough, and how many trials it may cost."""

    target: float
    tolerance: float = 0.002
    trials: int = 12

    @classmethod
    def parse(cls, text: str, tolerance: float | None = None, trials: int | None = None) -> Goal:
        if not text:
            raise UsageError("--search needs an accuracy to aim at.", "For example: --target accuracy=0.88")
        name, _, value = text.partition("=")
        try:
            target = float(value)
        except ValueError:
            target = math.nan
        if name.strip() != "accuracy" or not 0 < target < 1:
            raise UsageError(
                f"'{text}' is not a target.", "Give an accuracy as a fraction, e.g. --target accuracy=0.88"
            )
        return cls(target, cls.tolerance if tolerance is None else tolerance, cls.trials if trials is None else trials)

    def words(self) -> list[str]:
        """The options that ask for it."""
        options = {"target": f"accuracy={self.target}", "trials": self.trials, "tolerance": self.tolerance}
        return [word for name, value in options.items() for word in (f"--{name}", str(value))]


class Study:
    """The search for one method on one data set: its trials so far, and what to try next. `spent`: of what is known
    now, nothing new follows."""

    def __init__(self, recipe: SweepRecipe, method: Method, data: Mapping[str, Any], point: Mapping[str, Any]) -> None:
        self.recipe, self.method, self.data, self.point = recipe, method, data, dict(point)
        self.trials: list[dict[str, Any]] = []
        self.spent = False

    @property
    def name(self) -> str:
        words = [self.method.name, str(self.data.get("name", "")), *(f"{k}={v}" for k, v in self.point.items())]
        return " ".join(word for word in words if word)

    def cells(self, values: Mapping[str, float]) -> list[Cell]:
        """The cells of one trial, one per seed."""
        seeds: list[int | None] = [*self.recipe.sweep.seeds] or [None]
        return [make_cell(self.recipe, self.method, self.data, {**self.point, **values}, seed) for seed in seeds]

    def recall(self, trials: Iterable[Mapping[str, Any]], axes: list[Axis]) -> None:
        """Take over the earlier trials that still mean the same: same cells, inside the ranges."""
        for trial in trials:
            values = {
                key: value for key, item in table(trial.get("values")).items() if (value := number(item)) is not None
            }
            inside = all(axis.low <= values.get(axis.key, math.nan) <= axis.high for axis in axes)
            if inside and [cell.id for cell in self.cells(values)] == trial.get("cells"):
                self.trials.append({"number": len(self.trials), "values": values, "cells": trial["cells"]})

    def propose(self, axes: list[Axis], target: float) -> dict[str, Any] | None:
        """The next trial, one that was not made yet; None where there is none."""
        made = [trial["cells"] for trial in self.trials]
        for values in self._ideas(axes, target):
            cells = [cell.id for cell in self.cells(values)]
            if cells not in made:
                trial = {"number": len(self.trials), "values": values, "cells": cells}
                self.trials.append(trial)
                return trial
        self.spent = True
        return None

    def _ideas(self, axes: list[Axis], target: float) -> Iterator[dict[str, float]]:
        """The middle, both ends, then what Optuna makes of the history: best at an edge, that edge again and again."""
        for share in STARTS:
            yield {axis.key: axis.at(share) for axis in axes}
        for attempt in range(ASKS):
            yield self._ask(axes, target, attempt)

    def _ask(self, axes: list[Axis], target: float, attempt: int) -> dict[str, float]:
        """Optuna's Gaussian process on the squared distance to the target: smooth, so it needs few trials.

        A trial that failed, or that another worker is busy with, counts as bad as the worst one: look elsewhere.
        Further attempts take accuracies for exact, so that nothing better is hoped for where a trial was made.
        """
        optuna = load_optuna()
        space = {axis.key: optuna.distributions.FloatDistribution(axis.low, axis.high, log=axis.log) for axis in axes}
        distances = [(t["accuracy"] - target) ** 2 if t.get("accuracy") is not None else None for t in self.trials]
        worst = max((distance for distance in distances if distance is not None), default=1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # the sampler's own label
            seed = derive_seed(0, "search", self.name, len(self.trials) + attempt) % 2**32
            sampler = optuna.samplers.GPSampler(
                seed=seed, n_startup_trials=len(STARTS), deterministic_objective=attempt > 0
            )
            study = optuna.create_study(sampler=sampler)
            for trial, distance in zip(self.trials, distances, strict=True):
                value = worst if distance is None else distance
                study.add_trial(optuna.create_trial(params=trial["values"], distributions=space, value=value))
            proposed = study.ask(space).params
        return {axis.key: axis.rounded(proposed[axis.key]) for axis in axes}

    def best(self, target: float) -> dict[str, Any] | None:
        known = [trial for trial in self.trials if trial.get("accuracy") is not None]
        return min(known, key=lambda trial: abs(trial["accuracy"] - target), default=None)

    def reached(self, goal: Goal) -> bool:
        best = self.best(goal.target)
        return best is not None and abs(best["accuracy"] - goal.target) <= goal.tolerance

    def summary(self, goal: Goal) -> dict[str, Any]:
        """What sweep.json says about the search."""
        return {
            "method": self.method.name,
            "data": self.data.get("name"),
            "coordinates": self.point,
            "target": goal.target,
            "reached": self.reached(goal),
            "spent": self.spent,
            "best": self.best(goal.target),
            "trials": self.trials,
        }


def load_optuna() -> Any:
    """Optuna, quiet; or an error that says how to get it."""
    try:
        import optuna
    except ImportError:
        raise MissingExtraError("optuna", "sweep") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
