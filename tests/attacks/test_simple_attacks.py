"""Least squares, averaging and retrieval where the answer is known."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from tests import worlds
from torch import Tensor, nn

from splitveil import attacks, defences
from splitveil.attacks.average import leaves_out
from splitveil.attacks.base import Reconstruction
from splitveil.attacks.law import law_of
from splitveil.attacks.pooling import pooled, without_term
from splitveil.attacks.view import View
from splitveil.core.errors import InputError
from splitveil.models.split import SplitModel

SMALL = {"kind": "shuffle", "blocks": 1, "width": 16, "epochs": 15, "batch_size": 25, "lr": 5e-3}
TARGETS = worlds.pictures(60, seed=2)


def error(name: str, model: SplitModel, aux: int = 200, **options: object) -> float:
    attack = attacks.create(name, **options)
    made = attack.run(worlds.view(model, attack.threat_model, aux=aux))
    return worlds.mean_error(made.images, TARGETS)


def test_least_squares_solves_a_linear_encoder_exactly() -> None:
    model = worlds.split_model(worlds.Linear(), channels=4)
    assert error("linear", model, aux=400) < 1e-5


def test_least_squares_tells_nothing_from_a_constant_encoder() -> None:
    truth = TARGETS.images.double() / 255
    best_constant = float((truth - truth.mean(0)).square().mean())
    assert error("linear", worlds.constant(sigma=0.1)) >= best_constant


def test_least_squares_answers_with_the_mean_picture_where_nothing_is_sent() -> None:
    class Zeros(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.new_zeros(len(x), 4, 4, 4)

    floor = worlds.floor_error(worlds.pictures(200, seed=1), TARGETS)
    assert error("linear", worlds.split_model(Zeros())) == pytest.approx(floor, rel=0.05)


def test_least_squares_leaves_large_features_to_others() -> None:
    attack = attacks.create("linear", largest=10)
    with pytest.raises(InputError, match="too many"):
        attack.run(worlds.view(worlds.identity(), attack.threat_model))


@cache
def undefended() -> float:
    return error("decoder", worlds.identity(), **SMALL)


def test_averaging_undoes_part_of_the_noise() -> None:
    """The mean of n transmissions carries noise sigma/sqrt(n), so the answer is as good as at that noise."""
    once = error("decoder", worlds.identity(sigma=0.8), **SMALL)
    averaged = error("average", worlds.identity(sigma=0.8), **SMALL, repeats=16)
    quieter = error("decoder", worlds.identity(sigma=0.2), **SMALL)
    assert averaged < 0.6 * once
    assert averaged == pytest.approx(quieter, rel=0.4)


def test_averaging_collects_what_dropout_left_out() -> None:
    """After 16 transmissions half^16 of the values are missing: the answer is as good as without dropout."""
    model = worlds.identity()
    model.defences["dropout"] = defences.create("dropout", p=0.5)
    once = error("decoder", model, **SMALL)
    collected = error("average", model, **SMALL, repeats=16)
    assert collected < 0.5 * once
    assert collected == pytest.approx(undefended(), rel=0.4)


@pytest.mark.parametrize(
    ("tables", "erases", "unbiased"),
    [
        ({"dropout": {"p": 0.3}}, True, False),
        ({"noise": {"sigma": 0.1}, "dropout": {"p": 0.3}}, True, False),
        ({"dropout": {"p": 0.3}, "noise": {"sigma": 0.1}}, False, False),  # noise hides which values are missing
        ({"noise": {"sigma": 0.1}, "topk": {"p": 0.5}}, False, False),  # what arrives was lifted by its noise
        ({"noise": {"sigma": 0.1}}, False, True),
        ({"topk": {"p": 0.5}}, False, False),
        ({}, False, True),
    ],
)
def test_the_law_of_a_transmission_is_found_by_trial(tables: dict, erases: bool, unbiased: bool) -> None:
    model = worlds.identity()
    for name, options in tables.items():
        model.defences[name] = defences.create(name, **options)
    feature = 0.5 + torch.rand(1, 4, 4, 4, generator=torch.Generator().manual_seed(3))
    law = law_of(model.transmit, feature, torch.Generator().manual_seed(4))
    assert (law.erases, law.unbiased) == (erases, unbiased)


def test_transmissions_are_pooled_over_those_that_arrived() -> None:
    sent = [torch.tensor([1.0, 0.0, 0.0, 4.0]), torch.tensor([3.0, 5.0, 0.0, 0.0]), torch.tensor([2.0, 0.0, 0.0, 2.0])]
    assert pooled(iter(sent)).tolist() == pytest.approx([2.0, 5 / 3, 0.0, 2.0])
    assert pooled(iter(sent), erased=True).tolist() == [2.0, 5.0, 0.0, 3.0]


def shredded(members: int = 8, sigma: float = 0.8) -> SplitModel:
    """The identity behind a set of noise tensors that do not average to zero."""
    model = worlds.identity()
    model.image_shape = tuple(TARGETS.images.shape[1:])  # type: ignore[assignment]
    model.defences["shredder"] = defence = defences.create("shredder", members=members, sigma=sigma, start=0)
    defence.attach(model)
    defence.noise.data += 0.3
    return model.eval().requires_grad_(False)


def test_averaging_subtracts_what_is_drawn_from_a_small_set() -> None:
    """There are only 8 answers to each picture: 16 of them tell all, and the answer is as good as without noise."""
    once = error("decoder", shredded(), **SMALL)
    unmasked = error("average", shredded(), **SMALL, repeats=16)
    assert unmasked < 0.3 * once
    assert unmasked == pytest.approx(undefended(), rel=0.4)


@pytest.mark.parametrize(
    ("tables", "found"),
    [
        ({"shredder": {"members": 8, "start": 0}}, 8),
        ({"shredder": {"members": 2, "start": 0}}, 2),
        ({"shredder": {"members": 1, "start": 0}}, None),  # a shift, which no two transmissions show
        ({"shredder": {"members": 200, "start": 0}}, None),
        ({"shredder": {"members": 8, "start": 0}, "noise": {"sigma": 0.01}}, None),  # noise blurs the set
        ({"noise": {"sigma": 0.1}}, None),
        ({"dropout": {"p": 0.001}}, None),  # few kinds, but what is missing depends on the feature
        ({}, None),
    ],
)
def test_the_terms_of_a_transmission_are_found_by_trial(tables: dict, found: int | None) -> None:
    model = worlds.identity()
    model.image_shape = tuple(TARGETS.images.shape[1:])  # type: ignore[assignment]
    for name, options in tables.items():
        model.defences[name] = defence = defences.create(name, **options)
        defence.attach(model)
    feature = 0.5 + torch.rand(1, *model.feature_shape, generator=torch.Generator().manual_seed(3))
    terms = law_of(model.transmit, feature, torch.Generator().manual_seed(4)).terms
    if found is None:
        assert terms is None
        return
    assert terms is not None
    apart = torch.cdist(terms.flatten(1), model.defences["shredder"].noise.detach().flatten(1))
    assert terms.shape == (found, *model.feature_shape)
    assert apart.amin(1).max() < 1e-5
    assert sorted(apart.argmin(1).tolist()) == list(range(found))  # each of them once


def test_terms_are_told_apart_as_a_loop_tells_them() -> None:
    random = torch.Generator().manual_seed(0)
    terms = torch.randn(5, 3, 2, generator=random).double()
    z = torch.randn(40, 3, 2, generator=random).double()
    drawn = torch.randint(5, (4, 40), generator=random)
    blur = 0.3 * torch.randn(4, 40, 3, 2, generator=random).double()  # so that the best fit is not always the truth
    sent = z + terms[drawn] + blur
    expected = []
    for picture in range(40):
        first = sent[0, picture]
        misfits = [
            sum(
                min(float((other - first + mine - theirs).square().sum()) for theirs in terms)
                for other in sent[1:, picture]
            )
            for mine in terms
        ]
        expected.append(first - terms[misfits.index(min(misfits))])
    assert torch.allclose(without_term(iter(sent), terms=terms), torch.stack(expected))
    exact = z + terms[drawn]
    differ = (drawn != drawn[0]).any(0)  # a picture that drew the same term four times tells nothing
    assert torch.allclose(without_term(iter(exact), terms=terms)[differ], z[differ])
    assert int(differ.sum()) > 30


def test_averaging_finds_nothing_to_average_without_noise() -> None:
    attack = attacks.create("average", **SMALL)
    scene = worlds.scene(worlds.identity())
    decoder = attacks.create("decoder", **SMALL | {"epochs": 1})
    first = decoder.run(View(scene, decoder.threat_model))
    scene.earlier["decoder"] = (decoder.threat_model, first)
    made = attack.run(View(scene, attack.threat_model))
    assert made.details["repeats"] == 1
    assert torch.equal(made.images, first.images)


def test_averaging_collects_also_what_an_edge_half_leaves_out_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is random after such an edge half, so that the law of the transmission says nothing of it."""

    class LosesHalf(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            z = nn.functional.pixel_unshuffle(x, 2) + 0.1  # no value is 0 of its own
            return z * (torch.rand(z.shape) < 0.5)

    decoded: list[Tensor] = []
    calls: list[int] = []
    again = View.send_again

    def noting(self: object, view: View, sent: Tensor, *_: object, **more: int) -> Reconstruction:
        decoded.append(sent)
        assert more["repeats"] == 8  # the decoder learns from as many
        return Reconstruction(torch.zeros(60, 1, 8, 8))

    attack = attacks.create("average", repeats=8, **SMALL)
    monkeypatch.setattr(type(attack), "attack", noting)
    monkeypatch.setattr(View, "send_again", lambda self: (calls.append(1), again(self))[1])
    torch.manual_seed(0)
    view = worlds.view(worlds.split_model(LosesHalf()), attack.threat_model)
    assert attack.run(view).details["repeats"] == 8
    assert len(calls) == 7  # beside the one that every attack sees
    clean = nn.functional.pixel_unshuffle(TARGETS.images.float() / 255, 2) + 0.1
    whole = torch.isclose(decoded[0], view.taming(clean), atol=1e-5)
    assert float(whole.float().mean()) == pytest.approx(1 - 0.5**8, abs=0.005)


def test_a_value_that_is_always_0_was_not_left_out() -> None:
    """Features after a ReLU have many of them; what changes between transmissions is whether others arrive."""
    sent = torch.rand(10, 20, generator=torch.Generator().manual_seed(0)) * (torch.arange(20) < 10)
    assert not leaves_out(sent, sent)
    assert not leaves_out(sent, 2 * sent)  # other noise, the same zeros
    assert leaves_out(sent, sent * (torch.arange(20) > 2))


def test_retrieval_finds_a_picture_the_attacker_owns() -> None:
    """Where the targets are among the own pictures, the nearest neighbour is the picture itself."""
    attack = attacks.create("retrieval", neighbours=(1,))
    scene = worlds.scene(worlds.identity(sigma=0.001))
    scene = type(scene)(scene.model, scene.targets, scene.targets, seed=1)
    made = attack.run(View(scene, attack.threat_model))
    assert worlds.mean_error(made.images, scene.targets) < 1e-9


def test_retrieval_beats_the_mean_picture_only_where_features_tell_something() -> None:
    floor = worlds.floor_error(worlds.pictures(200, seed=1), TARGETS)
    assert error("retrieval", worlds.identity()) < 0.3 * floor
    assert error("retrieval", worlds.constant(sigma=0.1)) > 0.9 * floor


def test_retrieval_chooses_the_number_of_neighbours_without_looking_itself_up() -> None:
    """Of a constant feature many neighbours are best; who finds himself among them believes that one is."""
    attack = attacks.create("retrieval")
    made = attack.run(worlds.view(worlds.constant(sigma=0.1), attack.threat_model))
    assert made.details["neighbours"] == 10


def test_retrieval_with_two_pictures_works() -> None:
    assert error("retrieval", worlds.identity(), aux=2) > 0


@pytest.mark.parametrize("name", ["linear", "average", "retrieval"])
def test_attacks_do_not_touch_what_is_hidden(name: str) -> None:
    """Labels that would poison any statistic and a missing cloud half change nothing."""
    options = SMALL | {"epochs": 1} if name == "average" else {}
    attack = attacks.create(name, **options)
    scene = worlds.scene(worlds.identity(0.1))
    expected = attack.run(View(scene, attack.threat_model)).images
    bare = worlds.identity(0.1)
    bare.cloud = None  # type: ignore[assignment]
    blind = type(scene)(
        bare,
        type(scene.auxiliary)(scene.auxiliary.images, scene.auxiliary.labels * 0 - 9),
        type(scene.targets)(scene.targets.images, scene.targets.labels * 0 - 9),
        seed=scene.seed,
    )
    assert torch.equal(attack.run(View(blind, attack.threat_model)).images, expected)


def test_least_squares_chooses_its_ridge_on_pictures_it_was_not_fitted_to() -> None:
    """Fewer pictures than values, and noise: the smallest ridge fits what it saw without error, and nothing else."""
    attack = attacks.create("linear")
    found = attack.run(worlds.view(worlds.identity(sigma=0.5), attack.threat_model, aux=50))
    assert found.details["ridge"] >= 1e-2
    reached = worlds.mean_error(found.images, worlds.pictures(60, seed=2))
    assert found.details["held_out_mse"] > reached / 3
