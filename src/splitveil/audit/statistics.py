"""95 % intervals: of means over pictures by resampling, with attack seeds by Student's t; of rates exactly."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.95
RESAMPLES = 2000
CHUNK = 4_000_000  # random indices drawn at once; bounds the memory


def bootstrap_interval(values: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> tuple[float, float] | None:
    """Percentile interval for the mean.

    `values` is [N] (pictures), or [S, N] (seeds x pictures): then the interval also covers what other seeds would have
    given. A few seeds cannot be resampled (three of them never show more than their own range), so their part is
    Student's t·s/√S of the seeds' means, added to either side as independent errors add.
    None when a single picture leaves nothing to resample.

    >>> low, high = bootstrap_interval([0.0, 1.0, 2.0, 3.0])
    >>> 0.0 < low < 1.5 < high < 3.0
    True
    """
    table = np.atleast_2d(np.asarray(values, dtype=np.float64))  # [S, N]
    seeds, count = table.shape
    if count < 2:
        return None
    average = table.mean(axis=0)  # seeds share their pictures
    random = np.random.default_rng(seed)
    means = np.empty(resamples)
    step = max(1, CHUNK // count)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        means[start : start + rows] = average[random.integers(0, count, (rows, count))].mean(axis=1)
    low, high = (float(bound) for bound in np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
    if seeds == 1:
        return low, high
    from scipy.stats import t

    centre = float(average.mean())
    spread = float(t.ppf((1 + LEVEL) / 2, seeds - 1) * table.mean(axis=1).std(ddof=1) / np.sqrt(seeds))
    return centre - float(np.hypot(centre - low, spread)), centre + float(np.hypot(high - centre, spread))


def exact_interval(successes: int, trials: int) -> tuple[float, float]:
    """Clopper-Pearson interval of a rate: covers at least as often as it says, whatever the sample size.

    >>> tuple(round(bound, 4) for bound in exact_interval(0, 10))
    (0.0, 0.3085)
    """
    from scipy.stats import beta

    tail = (1 - LEVEL) / 2
    low = 0.0 if successes == 0 else float(beta.ppf(tail, successes, trials - successes + 1))
    high = 1.0 if successes == trials else float(beta.ppf(1 - tail, successes + 1, trials - successes))
    return low, high
