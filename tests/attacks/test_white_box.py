"""The white-box searches where the answer is known."""

from __future__ import annotations

import pytest
import torch
from tests import worlds
from torch import nn

from splitveil import attacks, defences
from splitveil.attacks.base import Reconstruction, ThreatModel
from splitveil.attacks.optimize import Channel, OptimizeOptions, _Objective, total_variation
from splitveil.attacks.view import View
from splitveil.core.errors import ThreatModelError
from splitveil.models.layers import Normalise
from splitveil.models.split import SplitModel

TARGETS = worlds.pictures(20, seed=2)
WHITE = ThreatModel(features=True, weights=True)


def shallow() -> SplitModel:
    """A noise-free invertible convolution and a sigmoid: a shallow cut."""
    torch.manual_seed(0)
    return worlds.split_model(nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Sigmoid()), channels=4)


def psnr(made: Reconstruction) -> float:
    return float(-10 * torch.tensor(worlds.mean_error(made.images, TARGETS)).log10())


def test_optimize_inverts_a_noise_free_shallow_cut() -> None:
    attack = attacks.create("optimize", steps=200, restarts=1, tv=0.0)
    assert psnr(attack.run(worlds.view(shallow(), WHITE, targets=20))) > 25


def test_an_edge_half_whose_units_all_sleep_at_grey_is_searched_too() -> None:
    """Normalised, a grey picture is zero; without biases every ReLU then stands at its kink, of slope 0 in torch."""
    torch.manual_seed(0)
    layers = [Normalise([0.5], [0.25]), nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.ReLU()]
    view = worlds.view(worlds.split_model(nn.Sequential(*layers), channels=16), WHITE, targets=20)
    assert psnr(attacks.create("optimize", steps=200, restarts=1, tv=0.0).run(view)) > 25


def test_optimize_knows_nothing_from_a_constant_encoder() -> None:
    attack = attacks.create("optimize", steps=20, restarts=1)
    made = attack.run(worlds.view(worlds.constant(), WHITE, targets=20))
    floor = worlds.floor_error(worlds.pictures(200, seed=1), TARGETS)
    assert worlds.mean_error(made.images, TARGETS) > 0.9 * floor


def test_restarts_never_raise_the_objective() -> None:
    """The kept answer of each picture is the one with the lowest objective among the restarts."""
    model = shallow()
    sent = worlds.view(model, WHITE, targets=20).sent

    def mismatch(restarts: int) -> torch.Tensor:
        attack = attacks.create("optimize", steps=5, restarts=restarts, tv=0.0)
        found = attack.run(worlds.view(model, WHITE, targets=20)).images
        return (model.edge(found) - sent).square().flatten(1).mean(1)

    assert bool((mismatch(4) <= mismatch(1) + 1e-9).all())
    assert float((mismatch(1) - mismatch(4)).max()) > 0


def test_refine_improves_a_poor_start() -> None:
    attack = attacks.create("refine", steps=150, lr=0.05, tv=0.0)
    model = shallow()
    scene = worlds.scene(model, targets=20)
    truth = TARGETS.images.float() / 255
    poor = Reconstruction(
        (truth + 0.15 * torch.randn(truth.shape, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    )
    scene.earlier["decoder"] = (ThreatModel(queries=True, auxiliary=True), poor)
    made = attack.run(View(scene, attack.threat_model))
    assert worlds.mean_error(made.images, TARGETS) < 0.2 * worlds.mean_error(poor.images, TARGETS)
    assert made.details["started_from"] == "decoder"


def test_refine_trusts_a_good_start_when_the_feature_is_all_noise() -> None:
    attack = attacks.create("refine", steps=100, tv=0.0)
    scene = worlds.scene(worlds.identity(sigma=50.0), targets=20)
    good = Reconstruction((TARGETS.images.float() / 255).clamp(0.02, 0.98), curve=[(1.0, 1e-3)])
    scene.earlier["decoder"] = (ThreatModel(queries=True, auxiliary=True), good)
    made = attack.run(View(scene, attack.threat_model))
    assert worlds.mean_error(made.images, TARGETS) < 2e-3


def test_refine_starts_from_the_strongest_decoder_there_is() -> None:
    scene = worlds.scene(shallow(), targets=20)
    attack = attacks.create("refine", steps=1, lr=1e-6)
    for place, name in enumerate(("decoder_strong", "decoder")):
        black = attacks.create(name).threat_model
        scene.earlier[name] = (black, Reconstruction(torch.full((20, 1, 8, 8), 0.2 + 0.6 * place)))
    made = attack.run(View(scene, attack.threat_model))
    assert made.details["started_from"] == "decoder_strong"
    assert float(made.images.mean()) == pytest.approx(0.2, abs=0.01)
    del scene.earlier["decoder_strong"]
    made = attack.run(View(scene, attack.threat_model))
    assert made.details["started_from"] == "decoder"
    assert float(made.images.mean()) == pytest.approx(0.8, abs=0.01)


def test_the_channel_is_learned_by_trial() -> None:
    noisy = Channel(worlds.view(worlds.identity(sigma=0.3), WHITE), 1, torch.Generator().manual_seed(0))
    assert noisy.unbiased
    assert noisy.variance == pytest.approx(0.09, rel=0.05)
    silent = Channel(worlds.view(worlds.identity(), WHITE), 1, torch.Generator())
    assert silent.unbiased
    assert silent.variance == 0

    class Halves(nn.Module):
        def transmit(self, z: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
            return z / 2

    model = worlds.identity()
    model.defences["halves"] = Halves()
    channel = Channel(worlds.view(model, WHITE), 1, torch.Generator())
    x = torch.rand(2, 1, 8, 8)
    assert not channel.unbiased
    assert torch.equal(channel.expected(x), model.edge(x) / 2)


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_optimize_ignores_what_was_left_out(p: float) -> None:
    """Values that dropout set to zero say nothing; the prior fills them in from their neighbours."""
    model = worlds.identity()
    model.defences["dropout"] = defences.create("dropout", p=p)
    attack = attacks.create("optimize", steps=200, restarts=1)
    made = attack.run(worlds.view(model, WHITE, targets=20))
    floor = worlds.floor_error(worlds.pictures(200, seed=1), TARGETS)
    assert worlds.mean_error(made.images, TARGETS) < 0.1 * floor


def test_an_erasing_channel_compares_what_arrived() -> None:
    model = worlds.identity()
    model.defences["dropout"] = defences.create("dropout", p=0.5)
    channel = Channel(worlds.view(model, WHITE), 1, torch.Generator().manual_seed(0))
    assert channel.erases
    x = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    z = model.edge(x)
    sent = torch.zeros_like(z)
    sent[0, 0] = z[0, 0] + 0.5  # one of four channels arrived; of the second picture nothing did
    assert channel.mismatch(x, sent).tolist() == pytest.approx([0.25, 0.0], rel=1e-5)


def test_the_scatter_of_a_transmission_is_no_mismatch() -> None:
    """For a random gain of mean 0.8 the search matches 0.8·z; the variance of the gain must not draw it towards 0."""

    class Gain(nn.Module):
        def transmit(self, z: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
            up = torch.empty_like(z).uniform_(generator=generator) < 0.5
            return torch.where(up, 1.4 * z, 0.2 * z)

    model = worlds.identity()
    model.defences["gain"] = Gain()
    channel = Channel(worlds.view(model, WHITE), 1, torch.Generator().manual_seed(0))
    assert not channel.unbiased
    assert not channel.erases
    x = torch.full((4000, 1, 8, 8), 0.5)
    sent = torch.full((4000, 4, 4, 4), 0.3)
    # (0.8·0.5 - 0.3)² = 0.01; the square of one draw would add 0.36·0.25 = 0.09
    assert float(channel.mismatch(x, sent).mean()) == pytest.approx(0.01, abs=2e-3)


@pytest.mark.parametrize("sigma", [0.0, 0.6])
def test_the_less_the_feature_says_the_more_the_prior_does(sigma: float) -> None:
    """mean (E[sent(x)] - z̃)²/s² + (tv + tv_noise·v/s²)·TV(x), of each picture."""
    view = worlds.view(worlds.identity(sigma), WHITE, targets=20)
    objective = _Objective(
        Channel(view, 1, torch.Generator().manual_seed(0)), view.sent, OptimizeOptions(tv=0.01, tv_noise=0.5), None, 0.0
    )
    x = TARGETS.images.float() / 255
    power = view.sent.square().mean()
    mismatch = (torch.nn.functional.pixel_unshuffle(x, 2) - view.sent).square().flatten(1).mean(1)
    expected = mismatch / power + (0.01 + 0.5 * sigma**2 / power) * total_variation(x)
    assert torch.allclose(objective(x), expected, rtol=0.02)  # the variance is found by trial


def test_total_variation_by_hand() -> None:
    x = torch.tensor([[0.0, 1.0], [0.5, 0.5]]).view(1, 1, 2, 2)
    assert float(total_variation(x)) == pytest.approx((0.5 + 0.5) / 2 + (1.0 + 0.0) / 2)
    assert float(total_variation(torch.ones(1, 1, 1, 1))) == 0


def test_optimize_has_no_auxiliary_pictures_and_no_queries() -> None:
    view = worlds.view(shallow(), attacks.create("optimize").threat_model)
    with pytest.raises(ThreatModelError, match="auxiliary"):
        _ = view.auxiliary
    with pytest.raises(ThreatModelError, match="query"):
        view.query(TARGETS.images)


def test_a_weaker_adversary_does_not_see_a_stronger_ones_answers() -> None:
    scene = worlds.scene(shallow(), targets=20)
    scene.earlier["decoder"] = (ThreatModel(queries=True, auxiliary=True), Reconstruction(torch.zeros(20, 1, 8, 8)))
    assert View(scene, WHITE).reconstruction("decoder") is None
    assert View(scene, ThreatModel(queries=True, auxiliary=True, weights=True)).reconstruction("decoder") is not None
