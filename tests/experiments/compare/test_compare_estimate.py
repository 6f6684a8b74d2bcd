"""Means and intervals over seeds: by hand, and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from splitveil.experiments.compare.estimate import estimate, t_quantile
from splitveil.experiments.compare.measures import MEASURES


@pytest.mark.parametrize("n", [2, 3, 5, 30])
def test_the_interval_is_students(n: int) -> None:
    values = np.random.default_rng(n).normal(3.0, 2.0, n).tolist()
    total = 0.0
    for value in values:
        total += value
    mean = total / n
    squares = 0.0
    for value in values:
        squares += (value - mean) ** 2
    sd = math.sqrt(squares / (n - 1))
    half = stats.t.ppf(0.975, n - 1) * sd / math.sqrt(n)
    found = estimate(values)
    assert found.n == n
    assert found.over == "seeds"
    assert found.mean == pytest.approx(mean)
    assert found.sd == pytest.approx(sd)
    assert found.interval == pytest.approx((mean - half, mean + half))


def test_one_seed_has_no_spread_but_may_have_an_interval_over_pictures() -> None:
    assert estimate([0.04], (0.038, 0.042)).interval == (0.038, 0.042)
    assert estimate([0.04], (0.038, 0.042)).over == "pictures"
    alone = estimate([0.04])
    assert (alone.n, alone.sd, alone.interval, alone.over) == (1, None, None, "")


def test_quantiles() -> None:
    assert t_quantile(2) == pytest.approx(4.302653)
    assert t_quantile(9) == pytest.approx(2.262157)


@pytest.mark.parametrize("n", [2, 3, 6])
def test_the_interval_covers_as_often_as_it_says(n: int) -> None:
    random = np.random.default_rng(7)
    trials = 4000
    covered = 0
    for row in random.normal(0.85, 0.004, (trials, n)):
        low, high = estimate(row.tolist()).interval or (1.0, 0.0)
        covered += low <= 0.85 <= high
    # 95 % with a standard error of 0.34 points over 4,000 trials: four of them to each side
    assert abs(covered / trials - 0.95) < 4 * math.sqrt(0.95 * 0.05 / trials)


def test_clipping_stays_within_what_a_measure_can_be() -> None:
    assert MEASURES["accuracy"].clip(1.03) == 1.0
    assert MEASURES["mse"].clip(-0.001) == 0.0
    assert MEASURES["mse"].clip(3.0) == 3.0
    assert MEASURES["ssim"].clip(-0.2) == -0.2


def test_numbers_are_written_as_in_a_table() -> None:
    assert MEASURES["accuracy"].write(0.85184) == "85.18"
    assert MEASURES["mse"].write(0.038884) == "0.03888"
    assert MEASURES["psnr"].write(None) == "-"
