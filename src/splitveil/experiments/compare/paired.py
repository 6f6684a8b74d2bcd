"""Tests between two methods whose runs share seeds, corrected for the number of tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from splitveil.experiments.compare.estimate import LEVEL, estimate

EXACT_UP_TO = 14  # seeds: 16,384 sign patterns; beyond, patterns are drawn
DRAWN = 20_000
ALPHA = 0.05


@dataclass(frozen=True)
class PairedTest:
    """First minus second, over `n` shared seeds.

    `p_t`: paired t test (assumes normal differences). `p_exact`: all sign patterns of the differences (assumes only
    that the two are interchangeable when nothing differs); it cannot go below 2^(1-n). `effect` is Hedges' g of the
    differences, with an interval. `*_holm`: corrected for the family of tests. None: it cannot be had.
    """

    n: int
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p_t: float | None = None
    p_exact: float | None = None
    effect: float | None = None
    effect_low: float | None = None
    effect_high: float | None = None
    p_t_holm: float | None = None
    p_exact_holm: float | None = None


def paired_test(first: Mapping[int, float], second: Mapping[int, float]) -> PairedTest:
    """Compare values per seed over the seeds that both have."""
    shared = sorted(first.keys() & second.keys())
    differences = np.array([first[seed] - second[seed] for seed in shared])
    n = len(differences)
    if n == 0:
        return PairedTest(0)
    found = estimate(differences.tolist())
    if found.sd is None:
        return PairedTest(n, found.mean)
    p_exact = sign_flip_p(differences)
    # Differences that are equal to rounding have no spread: t and the effect size would be infinite.
    if found.sd <= 1e-12 * max(abs(found.mean), 1e-300):
        return PairedTest(n, found.mean, found.low, found.high, 1.0 if found.mean == 0 else None, p_exact)
    t = found.mean / (found.sd / math.sqrt(n))
    p_t = 2 * float(special.stdtr(n - 1, -abs(t)))
    if n < 3:  # the correction for small n is 0 at n = 2: two differences do not fix a scale
        return PairedTest(n, found.mean, found.low, found.high, p_t, p_exact)
    effect, ends = hedges_g(t, n)
    return PairedTest(n, found.mean, found.low, found.high, p_t, p_exact, effect, *ends)


def sign_flip_p(differences: Sequence[float] | np.ndarray) -> float:
    """Share of the sign patterns under which the mean is at least as far from 0 as the observed one.

    >>> sign_flip_p([1.0, 2.0, 3.0])
    0.25
    """
    values = np.asarray(differences, dtype=np.float64)
    n = len(values)
    if n <= EXACT_UP_TO:
        patterns = np.arange(2**n)[:, None] >> np.arange(n) & 1  # [2^n, n]
    else:
        patterns = np.random.default_rng(0).integers(0, 2, (DRAWN, n))
        patterns[0] = 1  # the observed pattern itself: keeps the test valid
    sums = np.abs((2 * patterns - 1) @ values)
    # Sums of the same numbers in another order differ in the last bits; they count as equal.
    return float(np.mean(sums >= abs(values.sum()) - 1e-12 * np.abs(values).sum()))


def hedges_g(t: float, n: int) -> tuple[float, tuple[float, float]]:
    """Mean difference in standard deviations of the differences, corrected for small n, and its interval.

    g = J·t/√n with J = 1 − 3/(4(n−1) − 1) (Hedges 1981). The interval inverts the noncentral t distribution and is for
    the true size itself: J corrects the bias of an estimate and has no place in it (with J, the interval of three seeds
    would hold a true size of 2 in 73 % of the cases, not in 95 %). With few seeds g may so lie far off its middle.
    """
    correction = 1 - 3 / (4 * (n - 1) - 1)
    tail = (1 - LEVEL) / 2
    low, high = (float(special.nctdtrinc(n - 1, p, t)) / math.sqrt(n) for p in (1 - tail, tail))
    return correction * t / math.sqrt(n), (low, high)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction; None stays None and counts for nothing.

    >>> holm([0.01, 0.04, None, 0.03])
    [0.03, 0.06, None, 0.06]
    """
    order = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    running = 0.0
    for rank, (p, place) in enumerate(order):
        running = max(running, min(1.0, (len(order) - rank) * p))
        corrected[place] = running
    return corrected


def corrected(tests: Sequence[PairedTest]) -> list[PairedTest]:
    """The same tests as one family."""
    t, exact = holm([test.p_t for test in tests]), holm([test.p_exact for test in tests])
    return [replace(test, p_t_holm=t[i], p_exact_holm=exact[i]) for i, test in enumerate(tests)]


def power_sentence(seeds: int) -> str | None:
    """What so many seeds cannot show, or None when there are enough."""
    if seeds < 2:
        return f"{seeds} shared seed{'' if seeds == 1 else 's'}: no test is possible."
    smallest = 2.0 ** (1 - seeds)  # two of all sign patterns, the observed one and its mirror image
    if smallest <= ALPHA:
        return None
    return (
        f"{seeds} shared seeds: the exact test cannot go below p = {smallest:g} whatever the data, so it can show "
        f"nothing at {ALPHA:g}; the t test rests on normal differences. Six seeds are the least for the exact test."
    )
