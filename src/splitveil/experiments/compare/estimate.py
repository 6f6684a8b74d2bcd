"""A mean with its spread, and an interval for what other seeds would give."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """`over` says what the interval is over: "seeds", "pictures" (the audit's own, for a single run), or "" (none)."""

    mean: float
    n: int
    sd: float | None = None
    low: float | None = None
    high: float | None = None
    over: str = ""

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)


def t_quantile(degrees: int) -> float:
    """Two-sided quantile of Student's t."""
    from scipy import special  # here, so that a report of single runs starts without it

    return float(special.stdtrit(degrees, 0.5 + LEVEL / 2))


def estimate(values: Sequence[float], pictures: tuple[float, float] | None = None) -> Estimate:
    """Mean, sample standard deviation and t interval, mean ± t(n-1)·sd/√n, over seeds.

    One seed has no spread: then the interval is the audit's own over pictures (`pictures`), if there is one.

    >>> found = estimate([1.0, 2.0, 3.0])
    >>> found.mean, found.sd, round(found.high - found.mean, 3)
    (2.0, 1.0, 2.484)
    """
    n = len(values)
    mean = statistics.fmean(values)
    if n < 2:
        low, high = pictures or (None, None)
        return Estimate(mean, n, None, low, high, "pictures" if pictures else "")
    sd = statistics.stdev(values)
    half = t_quantile(n - 1) * sd / math.sqrt(n)
    return Estimate(mean, n, sd, mean - half, mean + half, "seeds")
