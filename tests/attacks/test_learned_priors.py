"""The attacks `substitute`, `gan` and `prior` where the answer is known."""

from __future__ import annotations

import pytest
import torch
from tests import worlds
from torch import nn

from splitveil import attacks
from splitveil.attacks.base import Reconstruction
from splitveil.attacks.gan import Critic, gradient_penalty
from splitveil.attacks.queries import Queries
from splitveil.attacks.substitute import SubstituteEdge, mmd
from splitveil.attacks.view import Scene, View
from splitveil.core.errors import ThreatModelError
from splitveil.data.dataset import ImageSet
from splitveil.models.split import SplitModel

DECODER = {"kind": "shuffle", "blocks": 1, "width": 16, "epochs": 10, "batch_size": 25, "lr": 5e-3}
OPTIONS: dict[str, dict[str, object]] = {
    "substitute": DECODER | {"substitute_epochs": 25, "substitute_width": 16, "substitute_lr": 3e-3},
    "gan": DECODER | {"gan_epochs": 2, "gan_batch_size": 25, "critic_width": 4, "critic_steps": 2},
    "prior": {"width": 16, "epochs": 25, "batch_size": 25, "lr": 3e-3, "steps": 10, "inner": 5, "samples": 2},
}


def lopsided(count: int, seed: int) -> ImageSet:
    """Ramps, dark on the left and bright on the right, mostly dark: mirrored or inverted they would look different."""
    grey = worlds.pictures(count, seed)
    values = (grey.images.double() / 255) ** 2 * torch.linspace(0.2, 1, worlds.SIDE)
    return ImageSet((values * 255).round().to(torch.uint8), grey.labels)


def run(name: str, model: SplitModel, make: object = worlds.pictures, **options: object) -> tuple[float, float]:
    """The attack's error, and that of the mean picture."""
    aux, targets = make(200, 1), make(60, 2)  # type: ignore[operator]
    scene = Scene(model, aux, targets, seed=3, num_classes=worlds.CLASSES)
    attack = attacks.create(name, **OPTIONS[name] | options)
    made = attack.run(View(scene, attack.threat_model))
    assert isinstance(made, Reconstruction)
    return worlds.mean_error(made.images, targets), worlds.floor_error(aux, targets)


def pooled(sigma: float = 0.0) -> SplitModel:
    return worlds.split_model(nn.AvgPool2d(2), channels=1, sigma=sigma)


def test_substitute_imitates_an_edge_half_it_never_saw() -> None:
    error, floor = run("substitute", pooled(), lopsided)
    assert error < 0.5 * floor


def test_the_substitutes_decoder_learns_from_what_is_sent_noise_and_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder of clean features would meet noise for the first time in what it is to decode."""
    learned_from: list[Queries] = []

    class EnoughError(Exception):
        pass

    def fit_once(memory: object, step: str, decoder: nn.Module, queries: Queries, *_: object) -> None:
        learned_from.append(queries)
        raise EnoughError

    monkeypatch.setattr("splitveil.attacks.substitute.fit_once", fit_once)
    with pytest.raises(EnoughError):
        run("substitute", pooled(sigma=0.7), substitute_epochs=1)
    same = torch.zeros(100, dtype=torch.int64)
    sent, _ = learned_from[0].batch(same, torch.Generator().manual_seed(0))  # one picture a hundred times
    assert float(sent.std(0).mean()) == pytest.approx(0.7, rel=0.1)


def test_substitute_leaves_labels_alone_that_do_not_name_the_models_classes() -> None:
    """The pictures of a data set's own auxiliary part have classes of their own."""
    aux = worlds.pictures(50, 1)
    strangers = ImageSet(aux.images, aux.labels + 50)
    attack = attacks.create("substitute", **OPTIONS["substitute"] | {"epochs": 1, "substitute_epochs": 1})
    scene = Scene(pooled(), strangers, worlds.pictures(20, 2), seed=3)
    assert len(attack.run(View(scene, attack.threat_model)).images) == 20


def test_gan_breaks_the_identity() -> None:
    error, floor = run("gan", worlds.identity())
    assert error < 0.2 * floor


def test_prior_fills_in_what_the_feature_leaves_out() -> None:
    """Only the left half is sent: who knows how pictures look can complete it, who only knows smoothness cannot."""

    class LeftHalf(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, :, :, : worlds.SIDE // 2]

    model = worlds.split_model(LeftHalf(), channels=1)
    error, floor = run("prior", model)
    search = attacks.create("optimize", steps=100, restarts=1)
    scene = Scene(model, worlds.pictures(200, 1), worlds.pictures(60, 2), seed=3)
    without = worlds.mean_error(search.run(View(scene, search.threat_model)).images, scene.targets)
    assert error < 0.25 * floor
    assert error < 0.85 * without


@pytest.mark.parametrize("name", ["substitute", "gan", "prior"])
def test_nothing_is_learned_from_a_constant_encoder(name: str) -> None:
    targets = worlds.pictures(60, 2)
    truth = targets.images.double() / 255
    best_constant = float((truth - truth.mean(0)).square().mean())
    quick = {"prior": {"epochs": 3}, "gan": {"epochs": 3}, "substitute": {"epochs": 3, "substitute_epochs": 2}}[name]
    error, _ = run(name, worlds.constant(0.1), **quick)
    assert error >= best_constant


def _touch(view: View, what: str) -> None:
    found = getattr(view, what)
    if what == "query":
        found(view.sent)
    elif what == "send_again":
        found()


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("substitute", ("edge", "query", "candidates", "send_again")),
        ("gan", ("edge", "cloud", "auxiliary_labels")),
        ("prior", ("auxiliary_labels", "candidates", "query")),
    ],
)
def test_hidden_things_stay_hidden(name: str, hidden: tuple[str, ...]) -> None:
    view = worlds.view(worlds.identity(), attacks.create(name).threat_model)
    for what in hidden:
        with pytest.raises(ThreatModelError, match=what):
            _touch(view, what)


def test_substitute_never_runs_the_victims_edge_half() -> None:
    """Only the transmissions of the targets, made before, depend on it."""

    class Once(nn.Module):
        forbidden = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert not self.forbidden, "the secret edge half was used"
            return nn.functional.avg_pool2d(x, 2)

    edge = Once()
    attack = attacks.create("substitute", **OPTIONS["substitute"] | {"epochs": 1, "substitute_epochs": 1})
    scene = Scene(
        worlds.split_model(edge, 1), worlds.pictures(60, 1), worlds.pictures(30, 2), num_classes=worlds.CLASSES
    )
    view = View(scene, attack.threat_model)
    assert view.sent.shape == (30, 1, 4, 4)
    edge.forbidden = True
    assert attack.run(view).images.shape == (30, 1, 8, 8)


@pytest.mark.parametrize("feature", [(4, 4, 4), (2, 3, 5), (1, 8, 8), (12,)])
def test_the_imitation_has_the_shape_of_the_feature(feature: tuple[int, ...]) -> None:
    assert SubstituteEdge((1, 8, 8), feature, 8)(torch.rand(2, 1, 8, 8)).shape == (2, *feature)


def test_mmd_is_zero_for_equal_samples_and_grows_with_the_difference() -> None:
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    assert float(mmd(x, x)) == pytest.approx(0, abs=1e-6)
    assert float(mmd(x, x + 3)) > 5 * float(mmd(x, x + 0.3)) > 0


def test_gradient_penalty_of_a_linear_critic_is_known() -> None:
    class Slope(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 3 * x[:, 0, 0, 0]

    real, fake = torch.rand(2, 5, 1, 4, 4)
    assert float(gradient_penalty(Slope(), real, fake, torch.Generator())) == pytest.approx(4.0)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (1, 3, 3)])
def test_the_critic_takes_any_picture(shape: tuple[int, ...]) -> None:
    assert Critic(shape, 4)(torch.rand(2, *shape)).shape == (2,)
