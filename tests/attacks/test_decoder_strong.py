"""The grown ensemble of decoders."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from tests import worlds

from splitveil import attacks
from splitveil.attacks.base import Reconstruction
from splitveil.attacks.decoder_strong import hold_out, vote
from splitveil.attacks.queries import Queries
from splitveil.attacks.view import Scene, View
from splitveil.core.errors import ThreatModelError
from splitveil.data.augment import Augmentation, to_float
from splitveil.models.split import SplitModel

SMALL = {"blocks": 0, "width": 8, "epochs": 8, "batch_size": 25, "lr": 5e-3, "growths": 1, "seeds": 1, "augment": False}
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
        options = {"growths": 0, "losses": ("mse",), "members": 1, "epochs": 12, "width": 16, "kinds": (kind,)}
        attack = attacks.create("decoder_strong", **SMALL | options)
        return worlds.mean_error(attack.run(View(scene, attack.threat_model)).images, scene.targets)

    assert error("dense") < 0.5 * error("residual")


def test_the_ensemble_is_no_worse_than_its_best_member_on_held_out_pictures() -> None:
    found = run(worlds.identity(0.1))
    tried = list(found.details["tried"].values())
    assert found.curve[-1][1] <= min(tried) * 1.02  # the vote is measured on new transmissions of the same pictures
    best_so_far = [error for _, error in found.curve[:-1]]
    assert best_so_far == sorted(best_so_far, reverse=True)


def test_growth_stops_when_the_error_does() -> None:
    found = run(worlds.constant(0.1), kinds=("residual",), growths=5, losses=("mse",), epochs=2, gain=0.99)
    assert len(found.details["tried"]) == 2
    assert not found.details["still_growing"]


def test_growth_that_still_pays_when_it_must_end_is_told() -> None:
    """Two epochs of a tiny decoder are far from enough: twice the width for longer is better."""
    found = run(worlds.identity(), kinds=("residual",), growths=1, losses=("mse",), epochs=2, gain=0.0)
    first, grown = found.details["tried"].values()
    assert grown < first
    assert found.details["still_growing"]


def test_both_losses_are_tried_on_the_best_shape() -> None:
    found = run(worlds.identity(), kinds=("residual",), growths=0, epochs=2)
    assert list(found.details["tried"]) == ["residual-N0C8", "residual-N0C8 (ssim)"]


def test_a_vector_feature_is_attacked_with_dense_decoders() -> None:
    model = worlds.split_model(torch.nn.Flatten(), channels=64)
    model.cloud = torch.nn.Identity()
    found = run(model, growths=0, epochs=2)
    assert all("dense" in label for label in found.details["tried"])


def test_nothing_is_learned_from_a_constant_encoder() -> None:
    truth = TARGETS.images.double() / 255
    best_constant = float((truth - truth.mean(0)).square().mean())
    assert worlds.mean_error(run(worlds.constant(0.1), growths=0, epochs=3).images, TARGETS) >= best_constant


def simplex(gram: torch.Tensor, parts: int = 20) -> float:
    """The lowest w'Gw over a grid of weights >= 0 with sum 1, by trying all of them."""
    size, best = len(gram), float("inf")
    for counts in itertools.product(range(parts + 1), repeat=size):
        if sum(counts) == parts:
            w = [count / parts for count in counts]
            value = sum(w[i] * w[j] * float(gram[i, j]) for i in range(size) for j in range(size))
            best = min(best, value)
    return best


@pytest.mark.parametrize("seed", range(6))
def test_the_vote_finds_the_best_weights_and_is_never_worse_than_one_member(seed: int) -> None:
    stream = torch.Generator().manual_seed(seed)
    common = torch.randn(400, generator=stream, dtype=torch.float64)
    scales = torch.tensor([0.2, 1.0, 3.0], dtype=torch.float64)[:, None]
    errors = common + scales * torch.randn(3, 400, generator=stream, dtype=torch.float64)
    gram = errors @ errors.T / 400
    weights = vote(gram, 3)
    assert float(weights.min()) >= 0
    assert float(weights.sum()) == pytest.approx(1)
    reached = float(weights @ gram @ weights)
    assert reached <= float(gram.diagonal().min())
    assert reached <= simplex(gram) * 1.01
    assert int((vote(gram, 2) > 0).sum()) <= 2


def test_a_useless_member_gets_no_vote() -> None:
    gram = torch.tensor([[1.0, 1.5], [1.5, 4.0]], dtype=torch.float64)  # the second only adds to the first's error
    assert vote(gram, 2).tolist() == [1.0, 0.0]
    assert vote(torch.zeros(2, 2, dtype=torch.float64), 1).sum() == 1  # both are right: any of them


def test_the_plain_decoder_races_too() -> None:
    """Where pictures are augmented, one racer is trained without, exactly as `decoder` is."""
    scene = replace(worlds.scene(worlds.identity(0.1)), augmentation=Augmentation(flip=True))
    options = {"augment": True, "growths": 0, "epochs": 1, "losses": ("mse",)}
    attack = attacks.create("decoder_strong", **SMALL | options)
    found = attack.run(View(scene, attack.threat_model))
    assert list(found.details["tried"]) == [
        "residual-N0C8",
        "residual-N0C8 (augmented)",
        "dense-N0C8 (augmented)",
        "attention-N0C8 (augmented)",
    ]


def test_few_pictures_are_held_out_and_none_of_them_is_trained_on() -> None:
    view = worlds.view(worlds.identity(), attacks.create("decoder_strong").threat_model)
    own, held = hold_out(view, 0.1, 7)
    assert (len(own), len(held)) == (193, 7)
    assert len({row.numpy().tobytes() for row in torch.cat([own, held])}) == 200
    assert len(hold_out(view, 0.1, 2000)[1]) == 20


def test_other_seeds_train_the_winner_from_other_starts() -> None:
    found = run(worlds.identity(), kinds=("residual",), growths=0, losses=("mse",), seeds=3, epochs=2)
    assert list(found.details["tried"]) == ["residual-N0C8", "residual-N0C8 (seed 1)", "residual-N0C8 (seed 2)"]
    assert len(set(found.details["tried"].values())) == 3


def test_weights_and_labels_are_hidden() -> None:
    view = worlds.view(worlds.identity(), attacks.create("decoder_strong").threat_model)
    for hidden in ("edge", "auxiliary_labels"):
        with pytest.raises(ThreatModelError, match=hidden):
            getattr(view, hidden)


def test_augmented_batches_compute_features_of_the_changed_half_alone() -> None:
    asked: list[int] = []
    model = worlds.identity(0.0)
    scene = worlds.scene(model)
    model.edge.register_forward_hook(lambda _, args, __: asked.append(len(args[0])))
    queries = Queries(model.edge, model.transmit, scene.auxiliary.images, Augmentation(flip=True))
    asked.clear()
    sent, target = queries.batch(torch.arange(10), torch.Generator().manual_seed(0))
    assert asked == [5]
    torch.testing.assert_close(sent, model.edge(target))  # each feature belongs to the picture beside it
    assert not torch.equal(target[:5], to_float(scene.auxiliary.images[:5]))
    assert torch.equal(target[5:], to_float(scene.auxiliary.images[5:10]))
