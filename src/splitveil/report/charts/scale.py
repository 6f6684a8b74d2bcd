"""From data to pixels: a linear scale with round ticks, and thinning of long curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from splitveil.report.numbers import MINUS, quantity

Point = tuple[float, float]


@dataclass(frozen=True)
class Scale:
    """Maps [low, high] linearly to [start, end] pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int = 5, *, whole: bool = False) -> list[float]:
        """Round numbers inside the range, about `count` of them; whole numbers where a half has no meaning."""
        step = round_step((self.high - self.low) / count)
        if whole and step != int(step):
            step = 1.0 if step < 1 else 5.0  # the only steps above 1 that are not whole are 2.5 times a power of ten
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]

    def label(self, tick: float, step: float) -> str:
        """A tick as text; `step` is the distance to the next one."""
        return tick_label(tick, step)


@dataclass(frozen=True)
class LogScale(Scale):
    """Maps [low, high] to pixels so that equal factors are equal distances; for positive numbers."""

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int = 5, *, whole: bool = False) -> list[float]:
        """Powers of ten, with 2 and 5 between them where there is room."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for factors in ((1, 2, 5), (1, 3), (1,)):
            found = [f * 10.0**d for d in decades for f in factors if self.low <= f * 10.0**d <= self.high]
            if len(found) <= count + 1:
                break
        return found or [self.low, self.high]

    def label(self, tick: float, step: float) -> str:
        return quantity(tick).replace(".0", "")


def round_step(raw: float) -> float:
    """The smallest of 1, 2, 2.5, 5, 10 times a power of ten that is at least `raw`.

    >>> round_step(0.013), round_step(3.0)
    (0.02, 5.0)
    """
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * (1 - 1e-9))


def fit(values: Sequence[float], start: float, end: float, *, zero: bool = False, pad: float = 0.06) -> Scale:
    """A scale that shows all values with a little air; `zero` makes it begin at 0 when nothing is negative."""
    low, high = min(values), max(values)
    from_zero = zero and low >= 0
    if from_zero:
        low = 0.0
    width = high - low
    # A curve that is flat to rounding has no range of its own: give it one around its value.
    if width <= 1e-9 * max(abs(low), abs(high)) or width < 1e-30:
        width = abs(high) * 0.2 or 1.0
        low, high = (low, low + width) if from_zero else (low - width / 2, low + width / 2)
    low = low if from_zero else low - pad * width
    return Scale(low, high + pad * width, start, end)


def robust_limit(curves: Sequence[Sequence[float]]) -> float | None:
    """Where to cut an axis that a diverged curve would stretch; None where all values can be shown.

    A curve's size is its first value or its median, whichever is larger: a loss falls from its first value, a penalty
    may begin at zero. Most curves decide (the lower median of the sizes), and only values 10,000 times that are cut.

    >>> robust_limit([[2.3, 0.5, 0.4], [2.3, 3.0, 4e22]]), robust_limit([[2.3, 0.5, 0.4], [2.3, 3.0, 4.0]])
    (3.0, None)
    """
    sizes = sorted(size for values in curves if values and (size := max(abs(values[0]), abs(median(values)))) > 0)
    if not sizes:
        return None
    size = sizes[(len(sizes) - 1) // 2]
    shown = [value for values in curves for value in values]
    if max(shown) <= 1e4 * size:
        return None
    return max((value for value in shown if value <= 100 * size), default=None)


def log_fit(values: Sequence[float], start: float, end: float) -> LogScale:
    """A logarithmic scale that shows all of the positive values."""
    low, high = min(values), max(values)
    air = max((high / low) ** 0.05, 1.05)
    return LogScale(low / air, high * air, start, end)


def tick_label(value: float, step: float) -> str:
    """Just enough decimals to tell neighbouring ticks apart; powers of ten for very large or small ones."""
    if value == 0:
        return "0"
    if abs(value) >= 1e5 or step < 1e-5:
        return f"{value:.3g}".replace("-", MINUS)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    if round(step, digits) != round(step, digits + 1):  # steps of 2.5
        digits += 1
    return f"{value:.{digits}f}".replace("-", MINUS)


def thin(points: Sequence[Point], limit: int = 120) -> list[Point]:
    """At most about `limit` points of a curve: the lowest and the highest of each stretch, so that no spike is lost."""
    if len(points) <= limit:
        return list(points)
    inner = points[1:-1]
    buckets = max(1, (limit - 2) // 2)
    kept: list[Point] = [points[0]]
    for bucket in range(buckets):
        part = inner[bucket * len(inner) // buckets : (bucket + 1) * len(inner) // buckets]
        ends = {min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])}
        kept += sorted(ends)
    return [*kept, points[-1]]
