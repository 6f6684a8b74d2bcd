"""Paired tests against obvious loops and against scipy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from splitveil.experiments.compare.paired import (
    DRAWN,
    EXACT_UP_TO,
    hedges_g,
    holm,
    paired_test,
    power_sentence,
    sign_flip_p,
)


def all_sign_patterns(differences: list[float]) -> float:
    """The exact test, written out."""
    observed = abs(sum(differences))
    hits = total = 0
    for signs in itertools.product((-1, 1), repeat=len(differences)):
        total += 1
        hits += abs(sum(s * d for s, d in zip(signs, differences, strict=True))) >= observed - 1e-12
    return hits / total


@pytest.mark.parametrize("n", [1, 2, 3, 6, 10])
def test_the_exact_test_counts_all_sign_patterns(n: int) -> None:
    differences = np.random.default_rng(n).normal(0.3, 1.0, n).tolist()
    assert sign_flip_p(differences) == pytest.approx(all_sign_patterns(differences))


def test_the_exact_test_counts_ties() -> None:
    # Summed in another order the last bits differ: the observed pattern must still be as far from 0 as itself.
    assert sign_flip_p([-0.7, -1.3, -0.6, 0.0]) == 0.25
    assert sign_flip_p([0.1, 0.2, -0.3]) == 1.0


def test_many_seeds_draw_patterns() -> None:
    random = np.random.default_rng(3)
    strong = random.normal(3.0, 1.0, EXACT_UP_TO + 4)
    assert sign_flip_p(strong) == pytest.approx(1 / DRAWN)  # only the observed pattern is as far from 0
    weak = random.normal(0.0, 1.0, EXACT_UP_TO + 4)
    assert sign_flip_p(weak) == pytest.approx(stats.ttest_1samp(weak, 0.0).pvalue, abs=0.05)


@pytest.mark.parametrize("n", [3, 4, 12])
def test_the_t_test_is_scipys(n: int) -> None:
    random = np.random.default_rng(n)
    first, second = random.normal(0.5, 1, n), random.normal(0, 1, n)
    found = paired_test(dict(enumerate(first)), dict(enumerate(second)))
    theirs = stats.ttest_rel(first, second)
    low, high = theirs.confidence_interval(0.95)
    assert found.p_t == pytest.approx(theirs.pvalue)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.difference == pytest.approx(float(np.mean(first - second)))


def test_only_shared_seeds_count() -> None:
    found = paired_test({1: 1.0, 2: 2.0, 3: 9.0}, {1: 0.5, 2: 1.0, 7: -5.0})
    assert found.n == 2
    assert found.difference == pytest.approx(0.75)
    assert paired_test({1: 1.0}, {2: 1.0}).n == 0


def test_one_shared_seed_gives_a_difference_and_no_test() -> None:
    found = paired_test({1: 0.9}, {1: 0.8})
    assert found.difference == pytest.approx(0.1)
    assert (found.low, found.p_t, found.p_exact, found.effect) == (None, None, None, None)


def test_two_seeds_give_no_effect_size() -> None:
    found = paired_test({1: 0.9, 2: 0.8}, {1: 0.7, 2: 0.75})
    assert found.p_t is not None
    assert found.effect is None


def test_equal_differences_have_no_t_and_no_effect() -> None:
    found = paired_test({1: 0.3, 2: 0.4, 3: 0.5}, {1: 0.2, 2: 0.3, 3: 0.4})
    assert found.difference == pytest.approx(0.1)
    assert (found.p_t, found.effect) == (None, None)
    assert found.p_exact == 0.25
    nothing = paired_test({1: 0.3, 2: 0.4}, {1: 0.3, 2: 0.4})
    assert (nothing.difference, nothing.p_t, nothing.p_exact) == (0.0, 1.0, 1.0)


@pytest.mark.parametrize(("n", "smallest"), [(2, 0.5), (3, 0.25), (5, 0.0625), (6, 0.03125)])
def test_the_exact_test_has_a_floor(n: int, smallest: float) -> None:
    found = paired_test({seed: 1.0 + seed for seed in range(n)}, dict.fromkeys(range(n), 0.0))
    assert found.p_exact == smallest


def test_too_few_seeds_are_told() -> None:
    assert "0.25" in (power_sentence(3) or "")
    assert "no test" in (power_sentence(1) or "")
    assert power_sentence(5) is not None
    assert power_sentence(6) is None


@pytest.mark.parametrize(("t", "n"), [(1.5, 3), (-2.0, 4), (8.0, 10), (0.0, 5)])
def test_the_effect_interval_inverts_the_noncentral_t(t: float, n: int) -> None:
    correction = 1 - 3 / (4 * (n - 1) - 1)
    effect, (low, high) = hedges_g(t, n)
    assert effect == pytest.approx(correction * t / math.sqrt(n))
    assert low < high
    # At the lower end, a t as large as ours has probability 2.5 %; at the upper end, one as small.
    for end, below in ((low, 0.975), (high, 0.025)):
        assert stats.nct.cdf(t, n - 1, end * math.sqrt(n)) == pytest.approx(below, abs=1e-5)


@pytest.mark.parametrize(("n", "true"), [(3, 0.0), (3, 2.0), (5, 0.8)])
def test_the_effect_interval_covers_the_true_size_as_often_as_it_says(n: int, true: float) -> None:
    random = np.random.default_rng(5)
    trials = 2000
    sizes, covered = [], 0
    for row in random.normal(true, 1.0, (trials, n)):
        size, (low, high) = hedges_g(float(row.mean() / (row.std(ddof=1) / math.sqrt(n))), n)
        sizes.append(size)
        covered += low <= true <= high
    assert abs(covered / trials - 0.95) < 4 * math.sqrt(0.95 * 0.05 / trials)
    # g itself is right on average; Hedges' correction is exact to a few per cent of it
    assert np.mean(sizes) == pytest.approx(true, abs=4 * np.std(sizes) / math.sqrt(trials) + 0.03 * true)


def holm_by_hand(values: list[float]) -> list[float]:
    result = [0.0] * len(values)
    for place, p in enumerate(values):
        # The largest, over all p values that are not larger, of p times the number of tests not yet rejected.
        result[place] = max(
            min(1.0, q * sum(1 for other in values if (other, values.index(other)) >= (q, values.index(q))))
            for q in values
            if q <= p
        )
    return result


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8, unique=True))
def test_holm_against_its_definition(values: list[float]) -> None:
    assert holm(values) == pytest.approx(holm_by_hand(values))


def test_holm_keeps_the_family_wise_error() -> None:
    random = np.random.default_rng(11)
    trials = 3000
    wrong = sum(min(p for p in holm(row.tolist()) if p is not None) < 0.05 for row in random.random((trials, 6)))
    # Independent true hypotheses: 1 - (1 - 0.05/6)^6 = 4.90 %.
    assert abs(wrong / trials - 0.049) < 4 * math.sqrt(0.049 * 0.951 / trials)


def test_holm_leaves_missing_values_out() -> None:
    assert holm([0.01, None, 0.04]) == [0.02, None, 0.04]
    assert holm([]) == []
