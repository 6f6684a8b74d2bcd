"""The grown ensemble of decoders."""

from __future__ import annotations

import pytest
import torch
from tests import worlds

from splitveil import attacks
from splitveil.attacks.base import Reconstruction
from splitveil.attacks.view import Scene, View
from splitveil.core.errors import ThreatModelError
from splitveil.models.split import SplitModel

SMALL = {"blocks": 0, "width": 8, "epochs": 8, "batch_size": 25, "lr": 5e-3, "growths": 1, "augment": False}
TARGETS = worlds.pictures(60, seed=2)


def run(model: SplitModel, **options: object) -> Reconstruction:
    attack = attacks.create("decoder_strong", **{**SMALL, **options})
    return attack.run(worlds.view(model, attack.threat_model))


class Scramble(torch.nn.Module):
    """Sends every pixel, at a place that has nothing to do with where it was."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("order", torch.randperm(64, generator=torch.Generator().manual_seed(4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)[:, self.order].unflatten(1, (4, 4, 4))


def test_a_dense_front_end_undoes_scrambled_positions() -> None:
    model = worlds.split_model(Scramble(), channels=4)
    scene = Scene(model, worlds.patchwork(400, seed=1), worlds.patchwork(40, seed=2))

    def error(kind: str) -> float:
        options = {"growths": 0, "losses": ("mse",), "members": 1, "epochs": 25, "width": 16, "kinds": (kind,)}
        attack = attacks.create("decoder_strong", **SMALL | options)
        return worlds.mean_error(attack.run(View(scene, attack.threat_model)).images, scene.targets)

    assert error("dense") < 0.5 * error("residual")


def test_the_ensemble_is_no_worse_than_its_best_member_on_held_out_pictures() -> None:
    found = run(worlds.identity(0.1))
    tried = list(found.details["tried"].values())
    assert found.curve[-1][1] <= min(tried) * 1.05
    best_so_far = [error for _, error in found.curve[:-1]]
    assert best_so_far == sorted(best_so_far, reverse=True)


def test_growth_stops_when_the_error_does() -> None:
    found = run(worlds.constant(0.1), kinds=("residual",), growths=5, losses=("mse",), epochs=2, gain=0.99)
    assert len(found.details["tried"]) == 2


def test_both_losses_are_tried_on_the_best_shape() -> None:
    found = run(worlds.identity(), kinds=("residual",), growths=0, epochs=2)
    assert [label.split(" ", 1)[1] for label in found.details["tried"]] == ["residual-N0C8", "residual-N0C8 (ssim)"]


def test_a_vector_feature_is_attacked_with_dense_decoders() -> None:
    model = worlds.split_model(torch.nn.Flatten(), channels=64)
    model.cloud = torch.nn.Identity()
    found = run(model, growths=0, epochs=2)
    assert all("dense" in label for label in found.details["tried"])


def test_nothing_is_learned_from_a_constant_encoder() -> None:
    truth = TARGETS.images.double() / 255
    best_constant = float((truth - truth.mean(0)).square().mean())
    assert worlds.mean_error(run(worlds.constant(0.1), growths=0, epochs=3).images, TARGETS) >= best_constant


def test_weights_and_labels_are_hidden() -> None:
    view = worlds.view(worlds.identity(), attacks.create("decoder_strong").threat_model)
    for hidden in ("edge", "auxiliary_labels"):
        with pytest.raises(ThreatModelError, match=hidden):
            getattr(view, hidden)
