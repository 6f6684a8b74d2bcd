"""Models and data that Splitveil did not make: what an audit finds out for itself, and what it is told."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests import worlds
from torch import Tensor, nn

import splitveil as sv
from splitveil.attacks import queries
from splitveil.attacks.base import Reconstruction
from splitveil.attacks.queries import Queries, repeatable
from splitveil.attacks.retrieval import RetrievalAttack
from splitveil.attacks.view import Scene
from splitveil.audit.subjects import AuditData, choose, without_twins
from splitveil.core.errors import InputError
from splitveil.core.options import Options
from splitveil.data.dataset import ImageSet
from splitveil.defences.base import Defence

DATA = AuditData(aux=worlds.pictures(80, seed=1), test=worlds.pictures(30, seed=2))


def plain() -> sv.SplitModel:
    """Two modules and nothing said about them."""
    torch.manual_seed(0)
    return sv.SplitModel(nn.PixelUnshuffle(2), worlds.Cloud(4))


class Noisy(nn.Module):
    """An edge half that adds its own noise, as somebody's model may."""

    def forward(self, x: Tensor) -> Tensor:
        z = nn.functional.pixel_unshuffle(x, 2)
        return z + 0.3 * torch.randn_like(z)


class Broken(Defence):
    """Sends NaN in place of what lies above `limit`."""

    limit = 0.0

    def transmit(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return torch.where(z > self.limit, torch.nan, z)


@pytest.mark.parametrize("part", ["first", "test", "aux"])
def test_a_defence_that_sends_what_is_not_finite_is_named(part: str) -> None:
    """For the first pictures, which are looked at anyway, for one of those under attack, or for one of the attacker's.

    Attacks on the last two would fail one by one, and those that do not (retrieval) would look harmless.
    """
    data = replace(DATA, aux=ImageSet(DATA.aux.images // 2, DATA.aux.labels))
    data = replace(data, test=ImageSet(DATA.test.images // 2, DATA.test.labels))
    model = plain()
    model.defences["mine"], model.defences["after"] = (Broken(Options()) for _ in range(2))
    model.defences["mine"].limit = 0.0 if part == "first" else 0.9
    model.defences["after"].limit = 2.0
    if part != "first":
        getattr(data, part).images[-1] = 255
    with pytest.raises(InputError, match="The defence 'mine' gives values that are not finite") as caught:
        sv.audit(model, data, attacks=["retrieval"], check_sanity=False)
    assert "transmit" in caught.value.hint


def test_classes_are_counted_where_the_model_does_not_say_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise attacks that use labels would take the attacker's labels for those of another world."""
    seen: list[int | None] = []
    original = Scene.__init__

    def watch(self: Scene, *args: object, **more: object) -> None:
        original(self, *args, **more)  # type: ignore[arg-type]
        seen.append(self.num_classes)

    monkeypatch.setattr(Scene, "__init__", watch)
    sv.audit(plain(), DATA, attacks=["linear"], check_sanity=False)
    sv.audit(plain(), replace(DATA, shared_labels=False), attacks=["linear"], check_sanity=False)
    assert seen == [worlds.CLASSES, None]


def test_a_random_edge_half_sends_fresh_features_in_every_draw() -> None:
    pictures = DATA.aux.images
    assert not repeatable(Noisy(), pictures)
    assert repeatable(nn.PixelUnshuffle(2), pictures)
    model = sv.SplitModel(Noisy(), worlds.Cloud(4))
    asked = Queries(model.edge, model.transmit, pictures)
    index = torch.arange(20)
    first, second = (asked.batch(index, torch.Generator())[0] for _ in range(2))
    assert float((first - second).std()) == pytest.approx(0.3 * 2**0.5, rel=0.1)


def test_an_audit_says_that_an_edge_half_is_random() -> None:
    model = sv.SplitModel(Noisy(), worlds.Cloud(4))
    found = sv.audit(model, DATA, attacks=["linear"], check_sanity=False).tree["warnings"]
    assert any("other features each time" in text for text in found)
    calm = sv.audit(plain(), DATA, attacks=["linear"], check_sanity=False).tree["warnings"]
    assert not any("other features each time" in text for text in calm)


def test_features_of_a_repeatable_edge_half_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    original = queries.features

    def watch(edge: nn.Module, pictures: Tensor) -> Tensor:
        sizes.append(len(pictures))
        return original(edge, pictures)

    monkeypatch.setattr(queries, "features", watch)
    model = plain()
    asked = Queries(model.edge, model.transmit, DATA.aux.images)
    for _ in range(5):
        asked.batch(torch.arange(40), torch.Generator())
    assert sizes.count(80) == 1


def test_attributes_that_the_user_knows_are_attacked() -> None:
    """Whether a ramp rises to the right is in the picture, so it is in what an open model sends."""

    def rising(part: ImageSet) -> Tensor:
        return (part.images[:, 0, :, -1].float().mean(1) > part.images[:, 0, :, 0].float().mean(1)).long()

    def dark(part: ImageSet) -> Tensor:
        return (part.images.float().mean(dim=(1, 2, 3)) < 128).long()

    test = worlds.pictures(200, seed=2)
    data = AuditData(
        aux=worlds.pictures(300, seed=1),
        test=test,
        attributes={
            "rising": (rising(worlds.pictures(300, seed=1)), rising(test)),
            "dark from afar": (dark(worlds.pictures(300, seed=1)), dark(test)),
        },
    )
    plan = {"linear": {}, "attribute": {"epochs": 30, "batch_size": 50, "lr": 5e-3}}
    for mode in ("training_time", "inference_time"):
        report = sv.audit(plain(), data, attacks=plan, mode=mode, check_sanity=False)  # type: ignore[arg-type]
        for name in ("rising", "dark from afar"):
            found = report.tree["inference"]["attribute"]["findings"][f"{name} from feature"]
            assert found["rate"] > 0.8
            low, high = found["ci95"]
            assert low < found["rate"] <= high


@pytest.mark.parametrize(
    "values",
    [
        (torch.zeros(80, dtype=torch.int64), torch.zeros(29, dtype=torch.int64)),
        (torch.zeros(80), torch.zeros(30)),
        (torch.full((80,), -1), torch.zeros(30, dtype=torch.int64)),
    ],
)
def test_attributes_that_do_not_fit_the_pictures_are_refused(values: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(InputError, match="'glasses' needs an int64 value"):
        replace(DATA, attributes={"glasses": values})


def test_the_attributes_of_an_audit_are_pinned() -> None:
    some = torch.zeros(80, dtype=torch.int64), torch.zeros(30, dtype=torch.int64)
    other = torch.zeros(80, dtype=torch.int64), torch.ones(30, dtype=torch.int64)
    sums = {replace(DATA, attributes=known).checksum() for known in ({}, {"a": some}, {"a": other}, {"b": some})}
    assert len(sums) == 4


def test_in_inference_time_the_attackers_labels_are_those_of_the_test_part() -> None:
    found = choose(replace(DATA, shared_labels=False), "inference_time", None)
    assert found.shared_labels
    assert not choose(replace(DATA, shared_labels=False), "training_time", None).shared_labels


def test_a_few_twins_of_a_data_set_are_left_out_and_many_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    own = worlds.pictures(300, seed=1)
    few = ImageSet(torch.cat([own.images, DATA.test.images[:2]]), torch.cat([own.labels, DATA.test.labels[:2]]))
    many = ImageSet(torch.cat([own.images, DATA.test.images[:9]]), torch.cat([own.labels, DATA.test.labels[:9]]))
    with caplog.at_level(logging.WARNING):
        assert torch.equal(without_twins(few, DATA.test).images, own.images)
    assert ["2 of the attacker's 302 pictures" in record.message for record in caplog.records] == [True]
    assert without_twins(many, DATA.test) is many
    assert without_twins(own, DATA.test) is own


class InPlace(nn.Module):
    """Begins with an operation in place, as many models do."""

    def __init__(self, first: nn.Module) -> None:
        super().__init__()
        self.first = first

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.pixel_unshuffle(self.first(x), 2)


class Normalises(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sub_(0.5).div_(0.25)


def test_an_edge_half_that_spoils_its_input_is_refused() -> None:
    """The attacker's targets and the reconstructions would be spoilt with it."""
    model = sv.SplitModel(InPlace(Normalises()), worlds.Cloud(4))
    with pytest.raises(InputError, match="changes the pictures it is given"):
        sv.audit(model, DATA, attacks=["linear"])


def test_harmless_work_in_place_on_either_side_of_the_cut_is_no_obstacle() -> None:
    cloud = nn.Sequential(nn.ReLU(inplace=True), worlds.Cloud(4))
    model = sv.SplitModel(InPlace(nn.ReLU(inplace=True)), cloud)
    model.defences["noise"] = sv.defences.create("noise", sigma=0.1)
    network = {"kind": "residual", "blocks": 0, "width": 4, "epochs": 1, "batch_size": 20}
    plan = {"optimize": {"steps": 5}, "substitute": {**network, "substitute_epochs": 1, "substitute_width": 4}}
    tree = sv.audit(model, DATA, attacks=plan, check_sanity=False).tree
    assert tree["failures"] == {}
    assert set(tree["attacks"]) == set(plan)
    assert tree["bound"]["fisher"]["dfil"] > 0


@pytest.mark.parametrize("hide", [torch.Tensor.detach, torch.round])
def test_a_search_through_an_edge_half_without_gradient_is_left_out_and_said(hide: Callable[[Tensor], Tensor]) -> None:
    class Hides(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.pixel_unshuffle(hide(4 * x), 2)

    plan = {"linear": {}, "optimize": {"steps": 5}, "prior": {"epochs": 1, "width": 8, "steps": 2, "inner": 1}}
    tree = sv.audit(sv.SplitModel(Hides(), worlds.Cloud(4)), DATA, attacks=plan, check_sanity=False).tree
    assert set(tree["attacks"]) == {"linear"}
    assert all("passes no gradient" in tree["skipped"][name] for name in ("optimize", "prior"))
    constant = sv.audit(worlds.constant(), DATA, attacks=plan, check_sanity=False).tree
    assert constant["skipped"] == {}  # nothing is hidden where there is nothing


def test_an_attack_counts_the_pictures_it_attacked_not_those_it_might_have() -> None:
    tree = sv.audit(plain(), DATA, attacks={"optimize": {"steps": 2}}, check_sanity=False).tree
    assert tree["attacks"]["optimize"]["num_images"] == 30
    assert tree["attacks"]["optimize"]["steps"] == 2


def test_the_worst_case_is_about_pictures_that_every_attack_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """One attack is perfect on the few pictures it has time for: the mean over all would hide that."""
    chosen = choose(DATA, "training_time", None)
    solved = Reconstruction(chosen.targets.images[:10].float() / 255)
    monkeypatch.setattr(RetrievalAttack, "run", lambda self, view, progress=None: solved)
    tree = sv.audit(worlds.identity(sigma=2.0), DATA, attacks=["linear", "retrieval"], check_sanity=False).tree
    assert tree["attacks"]["linear"]["num_images"] == 30
    assert tree["worst_case"]["num_images"] == 10
    assert tree["worst_case"]["mse"] < 1e-9
    assert sum(entry["num_images"] for entry in tree["per_class"].values()) == 10
    assert any("first 10 pictures" in text for text in tree["warnings"])


def test_the_call_of_design_2_with_a_data_set_as_it_is_created() -> None:
    model = sv.models.create("tiny", image_shape=(1, 28, 28), num_classes=10)
    report = sv.audit(model, sv.data.create("fashion-mini"), attacks=["retrieval"], num_images=10, check_sanity=False)
    assert 0 < report.worst_case["mse"] < 2 * report.floors["mean_image"]["mse"]


def test_a_plain_module_as_a_defence_is_one_sentence_and_its_hint() -> None:
    model = worlds.identity()
    model.defences["mine"] = nn.ReLU()
    data = AuditData(aux=worlds.pictures(40, seed=1), test=worlds.pictures(12, seed=2))
    with pytest.raises(InputError, match=r"^The defence ReLU has no transmit\(z, generator\)\. Derive it") as error:
        sv.audit(model, data)
    assert ".." not in str(error.value)


class Large(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 1e5 * nn.functional.pixel_unshuffle(x, 2)


@pytest.mark.parametrize(("edge", "missing"), [(nn.PixelUnshuffle(2), False), (Large(), True), (Noisy(), False)])
def test_an_audit_says_that_noise_is_nothing_beside_the_features(edge: nn.Module, missing: bool) -> None:
    model = sv.SplitModel(edge, worlds.Cloud(4))
    model.defences["noise"] = sv.defences.create("noise", sigma=0.1)
    found = sv.audit(model, DATA, attacks=["retrieval"], check_sanity=False).warnings
    assert any("states noise (noise), but two transmissions" in text for text in found) == missing


def test_an_audit_says_that_a_defence_adds_no_noise() -> None:
    model = sv.SplitModel(nn.PixelUnshuffle(2), worlds.Cloud(4))
    model.defences["noise"] = sv.defences.create("noise", sigma=0.5)
    model.defences["noise"].transmit = lambda z, generator=None: z  # type: ignore[assignment]
    found = sv.audit(model, DATA, attacks=["retrieval"], check_sanity=False).warnings
    assert any("such noise hides nothing" in text for text in found)
