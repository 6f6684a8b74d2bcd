"""Bounds where the truth is known in closed form (SPEC 0.6)."""

from __future__ import annotations

import math

import pytest
import torch
from tests import worlds
from torch import nn

import splitveil as sv
from splitveil.audit.bounds import (
    bounds,
    compare_with_attacks,
    entropy_bound,
    fisher_leakage,
    gaussian_noise,
    information_bound,
)
from splitveil.audit.subjects import AuditData
from splitveil.data.dataset import ImageSet


def gaussian(count: int, dimension: int, spread: float, seed: int = 0) -> torch.Tensor:
    stream = torch.Generator().manual_seed(seed)
    return spread * torch.randn(count, dimension, generator=stream, dtype=torch.float64)


def test_theorem_1_is_tight_for_a_gaussian_source() -> None:
    """x ~ N(0, s²I), z̃ = x + noise: the bound is the error of the best attacker, s²σ²/(s² + σ²), exactly."""
    dimension, s2, sigma2 = 5, 0.3, 0.02
    entropy = 0.5 * dimension * math.log(2 * math.pi * math.e * s2)
    information = 0.5 * dimension * math.log(1 + s2 / sigma2)
    assert entropy_bound(entropy, information, dimension) == pytest.approx(s2 * sigma2 / (s2 + sigma2))


def test_no_attacker_beats_the_bound_and_a_cheat_raises_the_alarm() -> None:
    dimension, s2, sigma2 = 4, 0.25, 0.05
    x = gaussian(20_000, dimension, math.sqrt(s2))
    sent = x + gaussian(20_000, dimension, math.sqrt(sigma2), seed=1)
    information, covariance = information_bound(x, torch.zeros(len(x), dtype=torch.int64), sigma2)
    assert covariance == "full"
    assert information == pytest.approx(0.5 * dimension * math.log(1 + s2 / sigma2), rel=0.02)
    limit = entropy_bound(0.5 * dimension * math.log(2 * math.pi * math.e * s2), information, dimension)
    best = float((sent * s2 / (s2 + sigma2) - x).square().mean())  # the conditional mean, which no attacker beats
    bound = {"available": True, "entropy": {"repeats": {"1": {"mse": limit}}}, "fisher": {}}
    honest = {"best": {"mse": best, "mse_ci95": [best * 0.97, best * 1.03]}}
    assert compare_with_attacks(bound, honest)["alarm"] == []
    cheat = {"cheat": {"mse": best / 2, "mse_ci95": [best * 0.45, best * 0.55]}}
    assert "cheat" in compare_with_attacks(bound, cheat)["alarm"][0]


def test_more_transmissions_are_held_against_the_bound_for_that_noise() -> None:
    kind = {"repeats": {"1": {"mse": 0.1}, "16": {"mse": 0.02}}}
    bound = {"available": True, "entropy": kind, "fisher": kind}
    entry = {"mse": 0.05, "mse_ci95": [0.04, 0.06]}
    found = compare_with_attacks(
        bound, {"once": entry, "average": entry | {"repeats": 16}, "many": entry | {"repeats": 99}}
    )
    assert [text.split("'")[1] for text in found["alarm"]] == ["once"]
    assert found["fisher"]["below"] == ["once"]


def test_theorem_2_by_hand_and_diagonal_is_never_below_full() -> None:
    """Two classes of variance v in each of D dimensions: log 2 + D/2·log(1 + v/σ²)."""
    z = torch.cat([gaussian(3000, 3, 0.2), 100 + gaussian(3000, 3, 0.2, seed=1)])
    labels = torch.arange(2).repeat_interleave(3000)
    found, _ = information_bound(z, labels, 0.01)
    assert found == pytest.approx(math.log(2) + 1.5 * math.log(1 + 4), rel=0.03)
    mixed = gaussian(3000, 3, 0.2) @ torch.tensor([[1.0, 0.9, 0.8], [0.0, 0.3, 0.1], [0.0, 0.0, 0.2]]).double()
    zeros = torch.zeros(3000, dtype=torch.int64)
    full, _ = information_bound(mixed, zeros, 0.01)
    diagonal, kind = information_bound(mixed[:5], zeros[:5], 0.01)
    assert kind == "diagonal"
    assert full < sum(0.5 * math.log(1 + float(v) / 0.01) for v in mixed.var(0))
    assert diagonal > 0


def test_the_covariance_divides_by_the_number_of_samples_full_or_diagonal() -> None:
    """Values of -1 and 1, equally often and independent of each other, have variance 1: D/2·log(1 + 1/σ²)."""
    signs = torch.tensor([[a, b] for a in (-1.0, 1.0) for b in (-1.0, 1.0)])
    one = torch.zeros(4, dtype=torch.int64)
    assert information_bound(signs, one, 0.5) == (pytest.approx(math.log(3)), "full")
    both = torch.cat([signs, signs * 0 + 1], dim=1)  # two constant values more: too few samples for four dimensions
    assert information_bound(both, one, 0.5) == (pytest.approx(math.log(3)), "diagonal")


def test_classes_that_do_not_differ_add_nothing_to_the_information() -> None:
    """One component holds as well as one for each class, and here lacks their log 2: D/2·log(1 + 1/σ²)."""
    signs = torch.tensor([[a, b] for a in (-1.0, 1.0) for b in (-1.0, 1.0)]).repeat(2, 1)
    found, _ = information_bound(signs, torch.arange(2).repeat_interleave(4), 0.5)
    assert found == pytest.approx(math.log(3))


def test_information_falls_with_noise_and_rises_with_repeats() -> None:
    model = worlds.identity(sigma=0.1)
    aux, targets = worlds.pictures(100, seed=1), worlds.pictures(20, seed=2)
    quiet = bounds(model, aux, targets, torch.Generator(), None)["entropy"]["repeats"]
    loud = bounds(worlds.identity(sigma=0.4), aux, targets, torch.Generator(), None)["entropy"]["repeats"]
    assert loud["1"]["factor"] > quiet["1"]["factor"]
    # sixteen transmissions with noise 0.4 are one with noise 0.1
    assert loud["16"]["information_nats"] == pytest.approx(quiet["1"]["information_nats"])
    assert loud["1"]["mse"] is None
    stated = bounds(model, aux, targets, torch.Generator(), -80.0)["entropy"]["repeats"]["1"]
    assert stated["mse"] == pytest.approx(entropy_bound(-80.0, stated["information_nats"], 64))


def test_the_fisher_bound_of_n_transmissions_is_that_of_noise_with_a_variance_n_times_smaller() -> None:
    """Whoever is unbiased and sees a picture itself n times under noise σ errs by σ²/n on average."""
    found = bounds(
        worlds.identity(sigma=0.4), worlds.pictures(50, seed=1), worlds.pictures(5, seed=2), torch.Generator(), None
    )
    limits = {repeats: entry["mse"] for repeats, entry in found["fisher"]["repeats"].items()}
    assert limits == pytest.approx({"1": 0.16, "16": 0.01})


class Mean(nn.Module):
    """Sends the mean of the picture alone: one value."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=(1, 2, 3), keepdim=True)


class Squares(nn.Module):
    """Sends the squares of the values, so that bright pictures leak more than dark ones: J = diag(2x)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.square()


def grey(*levels: float) -> ImageSet:
    """One picture of each level, all of the first class."""
    values = torch.tensor(levels).mul(255).round().to(torch.uint8)
    return ImageSet(values[:, None, None, None].expand(-1, 1, 8, 8).contiguous(), torch.zeros(len(levels)).long())


def test_the_factor_divides_by_the_dimension_of_the_picture() -> None:
    """SPEC 0.6: exp(2·(H - I)/d), d that of the input (64 values), whatever number of them is sent (here one)."""
    model = worlds.split_model(Mean(), 1, sigma=0.5)
    found = bounds(model, grey(0.0, 1.0), grey(0.2), torch.Generator(), None)["entropy"]["repeats"]["1"]
    assert found["information_nats"] == pytest.approx(0.5 * math.log(1 + 0.25 / 0.25))
    assert found["factor"] == pytest.approx(2 ** (-1 / 64))


def test_the_fisher_bound_is_the_mean_of_what_holds_for_each_picture_under_attack() -> None:
    """MSE >= 1/dFIL = σ²/(4x²) of each picture; of the attacker's own, which are brighter, it would be less."""
    levels = (51 / 255, 102 / 255)
    model = worlds.split_model(Squares(), 1, sigma=0.1)
    found = bounds(model, grey(0.9, 1.0), grey(*levels), torch.Generator(), None)["fisher"]
    assert found["repeats"]["1"]["mse"] == pytest.approx(sum(0.01 / (4 * x * x) for x in levels) / 2, rel=1e-4)
    assert found["num_images"] == 2


@pytest.mark.parametrize(("inputs", "features"), [(16, 2), (2, 16)])
def test_dfil_divides_by_the_dimension_of_the_picture(inputs: int, features: int) -> None:
    """SPEC 0.6: dFIL = tr(JᵀJ)/(d·σ²), d that of the input; here J has orthogonal unit columns or rows."""
    edge = nn.Linear(inputs, features, bias=False)
    with torch.no_grad():
        edge.weight.copy_(torch.eye(features, inputs))  # tr(JᵀJ) is the smaller of the two dimensions
    found = fisher_leakage(edge, torch.rand(3, inputs), 0.25, torch.Generator().manual_seed(0))
    assert found.tolist() == pytest.approx([min(inputs, features) / (inputs * 0.25)] * 3, rel=1e-6)


def test_dfil_of_a_linear_encoder_is_its_squared_norm() -> None:
    edge = worlds.Linear()
    x = torch.rand(3, 1, 8, 8)
    found = fisher_leakage(edge, x, 0.04, torch.Generator().manual_seed(0))
    assert found.tolist() == pytest.approx([float(edge.matrix.square().sum()) / (64 * 0.04)] * 3, rel=0.1)
    # of the identity it is exact: every direction has the same length
    identity = fisher_leakage(nn.Identity(), x, 0.04, torch.Generator())
    assert identity.tolist() == pytest.approx([1 / 0.04] * 3)


def test_bounds_apply_to_declared_gaussian_noise_only() -> None:
    assert gaussian_noise(worlds.identity()) is None
    laplace = worlds.identity()
    laplace.defences["noise"] = sv.defences.create("noise", sigma=0.1, law="laplace")
    assert gaussian_noise(laplace) is None
    sigma, before = gaussian_noise(worlds.identity(sigma=0.3)) or (0.0, [])
    assert sigma == pytest.approx(0.3)
    assert before == []


def test_noise_of_learned_scale_is_bounded_by_its_own_scales() -> None:
    """The same picture, the same rms noise; but where the scale is small, more gets through than equal noise lets."""
    aux, targets = worlds.pictures(200, seed=1), worlds.pictures(20, seed=2)
    model = worlds.identity()
    model.image_shape = (1, 8, 8)
    noise = sv.defences.create("noise", sigma=0.2, scale="learned")
    noise.attach(model)
    with torch.no_grad():
        noise.rho[0] -= 3.0  # one of four channels hardly noisy
    model.defences["noise"] = noise
    found = bounds(model, aux, targets, torch.Generator().manual_seed(0), None)
    scale = noise.scale().detach().double()
    z = model.edge(aux.images.float() / 255).double()
    expected = 0.5 * (1 + (z - z.mean(0)).square().mean(0) / scale.square()).log().sum()
    labelled = torch.bincount(aux.labels).double() / len(aux.labels)
    by_class = -(labelled * labelled.log()).sum() + sum(
        share * 0.5 * (1 + (part - part.mean(0)).square().mean(0) / scale.square()).log().sum()
        for label, share in enumerate(labelled)
        for part in [z[aux.labels == label]]
    )
    assert found["sigma"] == pytest.approx(0.2, rel=1e-5)
    assert found["entropy"]["repeats"]["1"]["information_nats"] == pytest.approx(
        float(torch.minimum(expected, by_class)), rel=1e-4
    )
    # tr(J' Σ⁻¹ J)/d of a rearrangement is the mean of the inverse variances
    assert found["fisher"]["dfil"] == pytest.approx(float((1 / scale.square()).mean()), rel=1e-3)


def test_noise_solved_for_a_leakage_has_bounds_too() -> None:
    model = worlds.identity()
    model.defences["fisher"] = sv.defences.create("fisher", sigma=0.3)
    found = bounds(model, worlds.pictures(50, seed=1), worlds.pictures(9, seed=2), torch.Generator(), None)
    assert found["sigma"] == pytest.approx(0.3)
    assert found["fisher"]["repeats"]["1"]["mse"] == pytest.approx(0.09, rel=1e-3)


def test_noise_of_scale_zero_hides_no_bound_of_what_follows() -> None:
    model = worlds.identity()
    model.defences["noise"] = sv.defences.create("noise", sigma=0.0, law="laplace")
    model.defences["fisher"] = sv.defences.create("fisher", sigma=0.3)
    found = bounds(model, worlds.pictures(50, seed=1), worlds.pictures(9, seed=2), torch.Generator(), None)
    assert found["sigma"] == pytest.approx(0.3)
    assert set(found["entropy"]["repeats"]) == {"1", "16"}


def test_the_learned_noise_of_cloak_has_bounds_too() -> None:
    model = worlds.identity()
    model.image_shape = (1, 8, 8)
    cloak = sv.defences.create("cloak", sigma=0.2)
    cloak.attach(model)
    with torch.no_grad():
        cloak.rho[0] = 0.0  # s = 1/2 in one of four channels
    model.defences["cloak"] = cloak
    found = bounds(model, worlds.pictures(50, seed=1), worlds.pictures(9, seed=2), torch.Generator(), None)
    assert found["sigma"] == pytest.approx(((0.25 + 3 * 0.04) / 4) ** 0.5, rel=1e-5)
    # tr(J' Σ⁻¹ J)/d of a rearrangement is the mean of the inverse variances
    assert found["fisher"]["dfil"] == pytest.approx((1 / 0.25 + 3 / 0.04) / 4, rel=1e-3)


def test_repeats_are_not_promised_where_something_random_acts_before_the_noise() -> None:
    model = worlds.identity()
    model.defences["dropout"] = sv.defences.create("dropout", p=0.5)
    model.defences["noise"] = sv.defences.create("noise", sigma=0.1)
    found = bounds(model, worlds.pictures(50, seed=1), worlds.pictures(9, seed=2), torch.Generator(), None)
    assert set(found["entropy"]["repeats"]) == {"1"}
    assert set(found["fisher"]) == {"holds_for"}  # its Jacobian would be that of a feature nobody sends


def test_an_audit_takes_covariances_from_the_attackers_pictures_and_never_from_the_victims() -> None:
    """Who measures the victims' own spread knows what an attacker does not. Black and white: variance 1/4 each."""
    data = AuditData(aux=grey(*[0.0, 1.0] * 15), test=worlds.pictures(9, seed=2))
    tree = sv.audit(worlds.identity(sigma=0.2), data, attacks=["retrieval"], check_sanity=False).tree
    found = tree["bound"]["entropy"]
    assert found["covariance"] == "diagonal"
    assert found["repeats"]["1"]["information_nats"] == pytest.approx(32 * math.log(1 + 0.25 / 0.04), rel=1e-5)


def test_the_audit_reports_bounds_beside_attacks() -> None:
    data = AuditData(aux=worlds.pictures(60, seed=1), test=worlds.pictures(30, seed=2))
    tree = sv.audit(worlds.identity(sigma=0.2), data, attacks=["linear", "retrieval"], check_sanity=False).tree
    assert tree["bound"]["sigma"] == pytest.approx(0.2)
    assert tree["bound"]["fisher"]["repeats"]["1"]["mse"] == pytest.approx(0.04, rel=1e-3)
    assert tree["bound"]["alarm"] == []
    none = sv.audit(worlds.identity(), data, attacks=["linear"], check_sanity=False).tree
    assert none["bound"]["available"] is False
