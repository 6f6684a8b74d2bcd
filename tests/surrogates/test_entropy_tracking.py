"""The synthetic families and the table made of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.worlds.scripts import load_script

from splitveil.surrogates import estimators

tracking = load_script("benchmarks/entropy_tracking.py")
CLASSES, DIM, families, sample, true_entropy = (
    getattr(tracking, name) for name in ("CLASSES", "DIM", "families", "sample", "true_entropy")
)

NOISE = 0.01


def test_there_are_ten_families_and_one_leaves_the_entropy_alone():
    sweeps = families()
    assert len({family.name for family in sweeps}) == 10
    for family in sweeps:
        ends = [true_entropy(family.law(p), NOISE, samples=4000) for p in (family.parameters[0], family.parameters[-1])]
        assert (abs(ends[1] - ends[0]) < 0.05) is family.constant


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_truth_agrees_with_the_nearest_neighbour_estimate(family):
    law = family.law(family.parameters[6])
    z, y = sample(law, 3000)
    noisy = z + math.sqrt(NOISE) * torch.randn(z.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert estimators.knn(noisy, y) / DIM == pytest.approx(true_entropy(law, NOISE) / DIM, abs=0.08)


def test_samples_have_the_moments_of_the_law():
    law = next(family for family in families() if family.name == "imbalanced").law(0.5)
    z, y = sample(law, 20000)
    assert torch.allclose(torch.bincount(y) / 20000, law.share.float(), atol=0.02)
    assert torch.allclose(torch.cov(z[y == 0].T), law.covariance[0, 0], atol=0.02)
    assert torch.allclose(z[y == 2].mean(dim=0), law.mean[2, 0], atol=0.02)


def test_heavy_tails_keep_their_covariance():
    family = next(family for family in families() if family.name == "heavy tails")
    for parameter in family.parameters:
        law = family.law(parameter)
        total = (law.weight[..., None, None] * law.covariance).sum(dim=1)
        assert torch.allclose(total[0], 0.09 * torch.eye(DIM, dtype=torch.float64))


def test_channel_entropy_is_that_of_the_noise():
    assert tracking.channel_entropy(NOISE) == pytest.approx(DIM * 0.5 * math.log(2 * math.pi * math.e * NOISE))


@pytest.mark.parametrize(("name", "mode"), [("gmm", "corrected"), ("gmm", "faithful"), ("rate", "corrected")])
def test_surrogates_follow_the_scale(name, mode):
    family = families()[0]
    values = [tracking.surrogate_value(name, mode, *sample(family.law(p), 512)) for p in family.parameters[::2]]
    assert values == sorted(values)
    assert values[-1] > values[0]


def test_scores_tell_a_follower_from_a_blind_and_an_inverted_method():
    truth = {family.name: [float(k) for k in range(9)] for family in families()}
    steady = {family.name: [1.0] * 9 if family.constant else truth[family.name] for family in families()}
    follower = tracking.Method("follower", steady)
    blind = tracking.Method("blind", {name: [1.0] * 9 for name in truth})
    inverted = tracking.Method("inverted", {**steady, "modes": truth["modes"][::-1]})
    numb = tracking.Method("numb", {**steady, "modes": [0.01 * k for k in range(9)]})
    assert tracking.fails(follower, truth) == []
    assert len(tracking.fails(blind, truth)) == 10
    assert tracking.fails(inverted, truth) == ["modes"]
    assert tracking.score(inverted, families()[3], truth) == -1
    assert tracking.fails(numb, truth) == ["modes"]
    assert tracking.sensitivity(numb, families()[3], truth) == pytest.approx(0.01)
    page = tracking.markdown([follower, blind, inverted, numb], truth)
    assert "| blind | - |" in page
    assert "(1.00)" in page
    assert "**blind**: does not track the entropy on any family." in page


def laws(name: str) -> list[tuple[float, Any]]:
    (family,) = [one for one in families() if one.name == name]
    return [(parameter, family.law(parameter)) for parameter in family.parameters]


def test_each_family_moves_what_it_says_and_nothing_else() -> None:
    """The words in the table: what a family holds still is what a surrogate must not be fooled by."""
    eye = torch.eye(DIM, dtype=torch.float64)
    for _, law in laws("anisotropic"):  # same total variance
        assert law.covariance.diagonal(dim1=-2, dim2=-1).sum(-1).flatten().tolist() == pytest.approx([0.72] * CLASSES)
    for rank, law in laws("low rank"):  # spread in 0 to 8 directions
        assert int((torch.linalg.eigvalsh(law.covariance[0, 0]) > 1e-3).sum()) == rank
    for r, law in laws("correlated"):  # same variances, correlation grows
        assert torch.allclose(law.covariance[0, 0], 0.09 * (eye + r * (1 - eye)))
    first = laws("common scale")[0][1]
    for s, law in laws("common scale"):  # features and means times one factor
        assert torch.allclose(law.mean, first.mean * s / 0.1)
        assert torch.allclose(law.covariance, first.covariance * (s / 0.1) ** 2)
    for spread, law in laws("sample scale"):  # each sample times its own factor: its mean and its deviation
        factor = 1 + spread * torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0], dtype=torch.float64)
        assert torch.allclose(law.mean, law.mean[:, 2:3] * factor[:, None])
        assert torch.allclose(law.covariance, 0.01 * factor.square()[:, None, None] * eye)
    shares = []
    for _, law in laws("imbalanced"):  # the wide class becomes frequent
        shares.append(float(law.share[int(law.covariance[:, 0, 0, 0].argmax())]))
        assert float(law.share.sum()) == pytest.approx(1)
    assert shares == sorted(shares)
    assert shares[0] < 0.1 < 0.8 < shares[-1]
