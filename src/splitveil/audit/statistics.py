"""Intervals for means over pictures (and over attack seeds) by resampling."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

RESAMPLES = 2000
CHUNK = 4_000_000  # random indices drawn at once; bounds the memory


def bootstrap_interval(
    values: ArrayLike, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float] | None:
    """Percentile interval for the mean.

    `values` is [N] (pictures), or [S, N] (seeds x pictures): then seeds are drawn with replacement as well, so that
    the interval covers what another seed would have given. None when a single picture leaves nothing to resample.

    >>> low, high = bootstrap_interval([0.0, 1.0, 2.0, 3.0])
    >>> 0.0 < low < 1.5 < high < 3.0
    True
    """
    table = np.atleast_2d(np.asarray(values, dtype=np.float64))  # [S, N]
    seeds, count = table.shape
    if count < 2:
        return None
    random = np.random.default_rng(seed)
    means = np.empty(resamples)
    step = max(1, CHUNK // count)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        pictures = random.integers(0, count, (rows, count))
        if seeds == 1:
            means[start : start + rows] = table[0][pictures].mean(axis=1)
        else:
            chosen = random.integers(0, seeds, (rows, seeds))
            # the mean over drawn seeds of the drawn pictures: seeds share their pictures
            average = np.stack([table[chosen[row]].mean(axis=0) for row in range(rows)])  # [rows, N]
            means[start : start + rows] = np.take_along_axis(average, pictures, axis=1).mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def exact_interval(successes: int, trials: int, *, level: float = 0.95) -> tuple[float, float]:
    """Clopper-Pearson interval of a rate: covers at least as often as it says, whatever the sample size.

    >>> tuple(round(bound, 4) for bound in exact_interval(0, 10))
    (0.0, 0.3085)
    """
    from scipy.stats import beta

    tail = (1 - level) / 2
    low = 0.0 if successes == 0 else float(beta.ppf(tail, successes, trials - successes + 1))
    high = 1.0 if successes == trials else float(beta.ppf(1 - tail, successes + 1, trials - successes))
    return low, high
