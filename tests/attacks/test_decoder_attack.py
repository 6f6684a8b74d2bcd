"""The decoder attack (SPEC 8.1) where the answer is known."""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from tests import worlds

from splitveil import attacks
from splitveil.attacks.base import Reconstruction, ThreatModel
from splitveil.attacks.fitting import Fit, FitOptions, fit
from splitveil.attacks.networks import build
from splitveil.attacks.queries import Queries
from splitveil.attacks.view import View
from splitveil.core.errors import InputError, ThreatModelError
from splitveil.data.augment import Augmentation
from splitveil.functional.adam import cosine
from splitveil.models.cost import parameters

SMALL = {"kind": "shuffle", "blocks": 1, "width": 16, "epochs": 20, "batch_size": 25, "lr": 5e-3}


def run(model: object, **options: object) -> Reconstruction:
    attack = attacks.create("decoder", **{**SMALL, **options})
    return attack.run(worlds.view(model, attack.threat_model))


@cache
def undefended() -> float:
    """The error against a model that sends everything."""
    return worlds.mean_error(run(worlds.identity()).images, worlds.pictures(60, seed=2))


def test_breaks_the_identity_and_stays_above_the_floor_of_a_constant_encoder() -> None:
    aux, targets = worlds.pictures(200, seed=1), worlds.pictures(60, seed=2)
    floor = worlds.floor_error(aux, targets)
    assert undefended() < 0.1 * floor
    truth = targets.images.double() / 255
    best_constant = float((truth - truth.mean(0)).square().mean())  # no constant answer can be better than this one
    assert worlds.mean_error(run(worlds.constant(sigma=0.1)).images, targets) >= best_constant


def test_noise_costs_the_attacker() -> None:
    noisy = worlds.mean_error(run(worlds.identity(sigma=0.5)).images, worlds.pictures(60, seed=2))
    assert noisy > 2 * undefended()


def test_curve_and_best_epoch_belong_together() -> None:
    found = run(worlds.identity(), epochs=4)
    errors = [error for _, error in found.curve]
    assert [epoch for epoch, _ in found.curve] == [1.0, 2.0, 3.0, 4.0]
    assert found.details["best_epoch_number"] == 1 + errors.index(min(errors))
    assert found.variants["best_epoch"].shape == found.images.shape


@pytest.mark.parametrize("best_epoch", ["off", "second", "shared"])
def test_the_headline_is_the_last_epoch_and_best_epoch_the_one_chosen(
    best_epoch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC 8.1: `final` is the decoder as it ended; a trained one whose best epoch differs is made by hand here."""

    class Level(torch.nn.Module):
        def __init__(self, level: float) -> None:
            super().__init__()
            self.level = torch.nn.Parameter(torch.tensor(level))

        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return self.level.expand(len(z), 1, 8, 8)

    held_out = []

    def trained(
        memory: object, name: str, decoder: object, queries: object, settings: FitOptions, *_: object, **__: object
    ) -> Fit:
        held_out.append(settings.holdout)
        return Fit(Level(0.7), [(1.0, 0.1), (2.0, 0.3)], 1, {"level": torch.tensor(0.2)})

    monkeypatch.setattr("splitveil.attacks.decoder.fit_once", trained)
    found = run(worlds.identity(), best_epoch=best_epoch)
    assert found.images.unique().tolist() == pytest.approx([0.7])
    assert held_out == {"off": [0.0], "second": [0.0, 0.1], "shared": [0.1]}[best_epoch]  # final trains on everything
    if best_epoch != "off":
        assert found.variants["best_epoch"].unique().tolist() == pytest.approx([0.2])
        assert found.details["best_epoch_number"] == 1


@pytest.mark.parametrize(("best_epoch", "seen"), [("off", 200), ("second", 200), ("shared", 180)])
def test_final_learns_from_all_pictures_unless_one_decoder_gives_both(
    best_epoch: str, seen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[list[int]] = []
    batch = Queries.batch

    def spy(self: Queries, index: torch.Tensor, generator: torch.Generator, repeats: int = 1) -> object:
        used.append(index.tolist())
        return batch(self, index, generator, repeats)

    monkeypatch.setattr(Queries, "batch", spy)
    found = run(worlds.identity(), epochs=1, batch_size=20, best_epoch=best_epoch)
    steps = seen // 20
    assert len({place for piece in used[:steps] for place in piece}) == seen
    assert ("best_epoch" in found.variants) == (best_epoch != "off")
    # a second decoder trains on nine tenths and is watched on the rest
    later = used[steps:]
    assert sum(map(len, later)) == {"off": 0, "second": 200, "shared": 20}[best_epoch]
    if best_epoch == "second":
        assert not set(later[-1]) & {place for piece in later[:-1] for place in piece}
        assert not torch.equal(found.images, found.variants["best_epoch"])


def test_same_seed_same_answer_and_the_global_stream_is_left_alone() -> None:
    torch.manual_seed(11)
    first = run(worlds.identity(0.1), epochs=1).images
    torch.manual_seed(12)
    state = torch.random.get_rng_state()
    assert torch.equal(run(worlds.identity(0.1), epochs=1).images, first)
    # building the small world seeds the stream itself; what the attack does must not move it further
    worlds.identity(0.1)
    after_world = torch.random.get_rng_state()
    run_once = attacks.create("decoder", **SMALL | {"epochs": 1})
    view = worlds.view(worlds.identity(0.1), run_once.threat_model)
    run_once.run(view)
    assert torch.equal(torch.random.get_rng_state(), after_world)
    assert not torch.equal(state, after_world)


def test_trains_on_fresh_transmissions_every_time() -> None:
    view = worlds.view(worlds.identity(0.3), ThreatModel(queries=True, auxiliary=True))
    queries, generator = view.query(view.auxiliary), view.generator("test")
    index = torch.arange(10)
    first, pictures = queries.batch(index, generator)
    second, same = queries.batch(index, generator)
    assert torch.equal(pictures, same)
    assert not torch.equal(first, second)
    spread = (first - second).std()
    assert float(spread) == pytest.approx(0.3 * math.sqrt(2), rel=0.2)
    mean, _ = queries.batch(index, generator, repeats=100)
    clean = worlds.identity().edge(pictures)
    assert float((mean - clean).std()) == pytest.approx(0.03, rel=0.2)


def test_every_epoch_has_an_order_of_its_own_and_every_picture_its_turn() -> None:
    """Ten pictures in batches of four: two are left out in each epoch, and not always the same ones."""
    pictures, orders = worlds.pictures(10, seed=1).images, []

    class Noting(Queries):
        def batch(self, index: torch.Tensor, *rest: object) -> tuple[torch.Tensor, torch.Tensor]:
            orders.append(index.tolist())
            return super().batch(index, *rest)  # type: ignore[arg-type]

    queries = Noting(torch.nn.Identity(), lambda z, _: z, pictures)
    options = FitOptions(epochs=12, batch_size=4, holdout=0.0)
    fit(torch.nn.Conv2d(1, 1, 1), queries, options, torch.Generator().manual_seed(0), lambda *_: None)
    epochs = [tuple(orders[place] + orders[place + 1]) for place in range(0, 24, 2)]
    assert len(orders) == 24
    assert all(len(set(epoch)) == 8 for epoch in epochs)
    assert len(set(epochs)) == 12
    assert {picture for epoch in epochs for picture in epoch} == set(range(10))


def test_half_of_every_batch_is_augmented() -> None:
    view = worlds.view(worlds.identity(), ThreatModel(queries=True, auxiliary=True))
    queries = view.query(view.auxiliary, Augmentation(flip=True, crop=2))
    sent, pictures = queries.batch(torch.arange(40), view.generator("test"))
    plain = view.auxiliary[:40].float() / 255
    changed = (pictures != plain).flatten(1).any(1)
    assert not bool(changed[20:].any())
    assert int(changed[:20].sum()) > 10
    assert torch.equal(sent, worlds.identity().edge(pictures))  # what is sent belongs to the changed picture


def test_features_that_do_not_fit_into_memory_are_recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    view = worlds.view(worlds.identity(0.3), ThreatModel(queries=True, auxiliary=True))
    index = torch.tensor([3, 1])
    cached, _ = view.query(view.auxiliary).batch(index, view.generator("a"))
    monkeypatch.setattr("splitveil.attacks.queries.CACHE_BYTES", {"cpu": 1, "cuda": 1})
    fresh, _ = view.query(view.auxiliary).batch(index, view.generator("a"))
    assert torch.equal(cached, fresh)


def test_spec_decoder_has_its_parameters_and_schedule() -> None:
    decoder = build("residual", (8, 8, 8), (3, 32, 32), blocks=8, width=64, generator=torch.Generator())
    assert parameters(decoder) == 711_539
    assert cosine(1e-3, 1e-5, 0, 50) == pytest.approx(1e-3)
    assert cosine(1e-3, 1e-5, 25, 50) == pytest.approx((1e-3 + 1e-5) / 2)
    assert cosine(1e-3, 1e-5, 49, 50) > 1e-5
    default = attacks.create("decoder").options
    assert (default.epochs, default.batch_size, default.lr, default.weight_decay) == (50, 256, 1e-3, 1e-4)


def test_every_epoch_has_its_rate_and_held_out_pictures_meet_the_decoder_in_eval_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SPEC 8.1: Adam, cosine per epoch from 1e-3 to 1e-5, MSE; the best epoch is chosen in eval mode."""
    rates: list[float] = []
    passes: list[tuple[bool, int]] = []

    class Spy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.level = torch.nn.Parameter(torch.zeros(()))

        def forward(self, z: torch.Tensor) -> torch.Tensor:
            passes.append((self.training, len(z)))
            return self.level.expand(len(z), 1, 8, 8)

    monkeypatch.setattr("splitveil.attacks.fitting.set_rate", lambda _, value: rates.append(value))
    view = worlds.view(worlds.identity(0.1), ThreatModel(queries=True, auxiliary=True))
    options = FitOptions(epochs=4, batch_size=90)
    done = fit(Spy(), view.query(view.auxiliary), options, view.generator("test"), lambda *_: None)
    assert rates == pytest.approx([1e-5 + 0.495e-3 * (1 + math.cos(math.pi * e / 4)) for e in range(4)])
    assert passes == [(True, 90), (True, 90), (False, 20)] * 4  # 200 pictures, a tenth of them held out
    assert len(done.curve) == 4


@pytest.mark.parametrize("kind", ["residual", "shuffle", "dense", "attention"])
@pytest.mark.parametrize("feature", [(4, 4, 4), (2, 3, 5), (1, 8, 8)])
def test_every_kind_of_decoder_gives_pictures(kind: str, feature: tuple[int, ...]) -> None:
    decoder = build(kind, feature, (3, 8, 8), blocks=1, width=16, generator=torch.Generator())
    answer = decoder(torch.rand(2, *feature))
    assert answer.shape == (2, 3, 8, 8)
    assert float(answer.detach().min()) >= 0
    assert float(answer.detach().max()) <= 1


def test_a_feature_without_positions_gets_a_dense_decoder() -> None:
    decoder = build("residual", (6,), (1, 8, 8), blocks=0, width=8, generator=torch.Generator())
    assert decoder(torch.rand(3, 6)).shape == (3, 1, 8, 8)


def test_a_trained_decoder_keeps_no_gradients() -> None:
    """They lie in the memory of the recorded step, all of which would stay for their sake."""
    view = worlds.view(worlds.identity(), attacks.create("decoder").threat_model)
    generator = torch.Generator().manual_seed(0)
    decoder = build("residual", view.feature_shape, view.image_shape, blocks=0, width=4, generator=generator)
    queries = view.query(view.auxiliary)
    fitted = fit(decoder, queries, FitOptions(epochs=1, batch_size=25), generator, lambda done, total: None)
    assert all(parameter.grad is None for parameter in fitted.decoder.parameters())


def test_one_auxiliary_picture_is_refused() -> None:
    attack = attacks.create("decoder", **SMALL)
    with pytest.raises(InputError, match="cannot train"):
        attack.run(View(worlds.scene(worlds.identity(), aux=1), attack.threat_model))


def test_the_adversary_cannot_reach_what_is_hidden() -> None:
    attack = attacks.create("decoder")
    view = worlds.view(worlds.identity(), attack.threat_model)
    for hidden in ("edge", "cloud", "auxiliary_labels", "candidates"):
        with pytest.raises(ThreatModelError, match=hidden):
            getattr(view, hidden)
    with pytest.raises(ThreatModelError, match="send_again"):
        view.send_again()


def test_works_where_everything_hidden_is_absent() -> None:
    """Without a cloud half the attack still runs: it never touches what is hidden."""
    model = worlds.identity(0.1)
    model.cloud = None  # type: ignore[assignment]
    attack = attacks.create("decoder", **SMALL | {"epochs": 1})
    view = worlds.view(model, attack.threat_model)
    assert attack.run(view).images.shape == (60, 1, 8, 8)
