"""`sv.audit` end to end on small worlds."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests import worlds
from torch import nn

import splitveil as sv
from splitveil.attacks.base import Progress, Reconstruction, silent
from splitveil.attacks.decoder import DecoderAttack
from splitveil.attacks.linear import LinearAttack
from splitveil.attacks.view import View
from splitveil.audit.freezing import frozen
from splitveil.audit.subjects import AuditData, choose
from splitveil.core.errors import InputError, SplitveilError, UnknownNameError
from splitveil.data.dataset import ImageSet
from splitveil.models.digest import weights_digest

PLAN = {"decoder": {"blocks": 1, "width": 16, "epochs": 3, "batch_size": 25, "lr": 5e-3}}


def data(aux: int = 100, test: int = 40, **more: object) -> AuditData:
    return AuditData(aux=worlds.pictures(aux, seed=1), test=worlds.pictures(test, seed=2), **more)  # type: ignore[arg-type]


def relabelled(count: int, label: int) -> ImageSet:
    return ImageSet(worlds.pictures(count, seed=8).images, torch.full((count,), label))


def conv_model() -> sv.SplitModel:
    torch.manual_seed(0)
    edge = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), nn.Sigmoid())
    return sv.SplitModel(edge, nn.Sequential(nn.Flatten(), nn.Linear(64, 3)))


def test_the_tree_has_what_the_design_fixes(tmp_path: Path) -> None:
    report = sv.audit(conv_model(), data(), attacks=PLAN, out=tmp_path / "audit")
    tree = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert tree == json.loads(json.dumps(report.tree))
    assert {"tier", "num_images", "floors", "attacks", "worst_case", "bound", "signature"} <= set(tree)
    assert {"mode", "protocol", "per_class", "worst_decile"} <= set(tree)
    entry = tree["attacks"]["decoder"]
    fixed = {"mse", "ssim", "psnr", "mse_ci95", "seconds", "threat_model"}
    assert fixed | {"curve", "best_epoch", "recon_acc", "decoder"} <= set(entry)
    assert fixed <= set(tree["worst_case"])
    assert set(tree["floors"]) == {"mean_image", "class_mean"}
    assert entry["mse_ci95"][0] <= entry["mse"] <= entry["mse_ci95"][1]
    assert tree["worst_case"]["mse"] <= min(entry["mse"], entry["best_epoch"]["mse"])
    assert tree["worst_decile"]["mse"] <= tree["worst_case"]["mse"]
    weights = [row["num_images"] for row in tree["per_class"].values()]
    mean = sum(row["mse"] * row["num_images"] for row in tree["per_class"].values()) / sum(weights)
    assert mean == pytest.approx(tree["worst_case"]["mse"])
    assert not (tmp_path / "audit" / "partial").exists()


def test_a_deep_audit_repeats_every_attack_with_three_seeds_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each seed has its own transmissions and draws; the headline is the mean, the worst case the best of all."""
    made: list[tuple[torch.Tensor, torch.Tensor]] = []
    whole = LinearAttack.run

    def noting(self: LinearAttack, view: View, progress: Progress = silent) -> Reconstruction:
        outcome = whole(self, view, progress)
        made.append((view.sent, outcome.images))
        return outcome

    monkeypatch.setattr(LinearAttack, "run", noting)
    source, model = data(), worlds.identity(sigma=0.3)
    tree = sv.audit(model, source, tier="deep", attacks={"linear": {}}, check_sanity=False).tree
    assert tree["attacks"]["linear"]["seeds"] == len(made) == 3
    sent = torch.stack([one for one, _ in made])
    assert not any(torch.equal(sent[a], sent[b]) for a, b in ((0, 1), (0, 2), (1, 2)))
    truth = source.test.images[choose(source, "training_time", None).index].double() / 255
    errors = torch.stack([(images.double() - truth).square().mean(dim=(1, 2, 3)) for _, images in made])  # [3, N]
    assert tree["attacks"]["linear"]["mse"] == pytest.approx(float(errors.mean()))
    assert tree["worst_case"]["mse"] == pytest.approx(float(errors.amin(0).mean()))


def test_the_accuracy_is_that_on_the_pictures_under_attack() -> None:
    """A cloud half that always names class 0 is right about all of the attacker's pictures, and a quarter of these."""
    model = worlds.identity()
    model.cloud.head.weight.zero_()
    model.cloud.head.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))
    targets = ImageSet(worlds.pictures(40, seed=2).images, (torch.arange(40) % 4).clamp(max=2))
    source = AuditData(aux=relabelled(100, 0), test=targets)
    assert sv.audit(model, source, attacks=["linear"], check_sanity=False).tree["accuracy"] == 0.25


def test_the_gallery_names_pictures_that_exist(tmp_path: Path) -> None:
    source = data(class_names=("up", "across", "down"))
    sv.audit(conv_model(), source, attacks=PLAN, out=tmp_path, num_images=12, check_sanity=False)
    shots = json.loads((tmp_path / "gallery.json").read_text())["images"]
    assert [shot["label"] for shot in shots[:6]] == [0, 1, 2, 0, 1, 2]
    for shot in shots:
        original = np.asarray(Image.open(tmp_path / "original" / f"{shot['index']:05d}.png"))
        assert np.array_equal(original, source.test.images[shot["index"], 0].numpy())
        assert np.asarray(Image.open(tmp_path / "decoder" / f"{shot['index']:05d}.png")).shape == (8, 8)
        assert shot["class_name"] == ("up", "across", "down")[shot["label"]]
        assert shot["worst"]["attack"] == "decoder"
        assert shot["worst"]["mse"] <= shot["attacks"]["decoder"]["mse"]


@pytest.mark.parametrize("training", [True, False])
def test_s8_4_the_model_is_left_as_it_was_to_the_bit(training: bool) -> None:
    model = conv_model().train(training)
    before = weights_digest(model)
    sv.audit(model, data(), attacks=PLAN, num_images=10)
    assert weights_digest(model) == before
    assert all(part.training is training for part in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_s8_4_a_change_of_the_model_does_not_pass_unnoticed() -> None:
    model = conv_model()
    with pytest.raises(SplitveilError, match="changed the weights"), frozen(model):
        model.edge[1].running_mean.add_(1e-3)


@pytest.mark.parametrize("best_epoch", ["second", "shared", "off"])  # only "shared" looks at held-out pictures last
def test_s8_4_the_decoder_is_scored_in_eval_mode(best_epoch: str) -> None:
    """In eval mode the answer for a picture does not depend on which others are decoded with it."""
    plan = {"decoder": {**PLAN["decoder"], "best_epoch": best_epoch}}
    alike = {"model": worlds.identity(), "data": data(test=9), "attacks": plan, "check_sanity": False}
    few = sv.audit(**alike).gallery.pictures["decoder"]
    many = sv.audit(**alike, num_images=3).gallery.pictures["decoder"]
    assert len(many) == 3
    for index, picture in many.items():
        assert torch.equal(picture, few[index])


def test_an_undefended_model_leaks_more_than_a_noisy_one() -> None:
    plan = {"decoder": {**PLAN["decoder"], "kind": "shuffle", "epochs": 12}}
    undefended = sv.audit(worlds.identity(), data(), attacks=plan, check_sanity=False)
    defended = sv.audit(worlds.identity(sigma=1.0), data(), attacks=plan, check_sanity=False)
    assert undefended.worst_case["mse"] < 0.3 * undefended.floors["mean_image"]["mse"]
    assert defended.worst_case["mse"] > 2 * undefended.worst_case["mse"]


def test_an_interrupted_audit_goes_on_after_the_last_finished_attack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, source = conv_model(), data()
    whole = sv.audit(model, source, attacks=PLAN, check_sanity=False)
    monkeypatch.setattr("splitveil.audit.api.assemble", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        sv.audit(model, source, attacks=PLAN, out=tmp_path)
    assert not (tmp_path / "audit.json").exists()
    assert "is read from" not in caplog.text
    monkeypatch.undo()
    monkeypatch.setattr(DecoderAttack, "run", _interrupt)  # would fail if the attack ran again
    resumed = sv.audit(model, source, attacks=PLAN, out=tmp_path, check_sanity=False)
    assert f"the attack 'decoder' is read from {tmp_path / 'partial'}" in caplog.text
    assert resumed.worst_case["mse"] == pytest.approx(whole.worst_case["mse"])
    with pytest.raises(KeyboardInterrupt):
        sv.audit(model, source, attacks=PLAN, out=tmp_path / "other", seed=1, check_sanity=False)


def test_what_was_attacked_under_another_signature_is_not_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal weights behind another noise are another model, which only the signature says."""
    model, source = conv_model(), data()
    monkeypatch.setattr("splitveil.audit.api.assemble", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        sv.audit(model, source, attacks=PLAN, out=tmp_path, signature="noise 0.1", check_sanity=False)
    monkeypatch.undo()
    monkeypatch.setattr(DecoderAttack, "run", _interrupt)
    with pytest.raises(KeyboardInterrupt):  # it attacks
        sv.audit(model, source, attacks=PLAN, out=tmp_path, signature="noise 0.4", check_sanity=False)


def _interrupt(*args: object, **kwargs: object) -> None:
    raise KeyboardInterrupt


def test_one_picture_and_constant_pictures_give_numbers_and_a_warning() -> None:
    one = sv.audit(conv_model(), data(test=1), attacks=PLAN)
    assert one.worst_case["mse_ci95"] is None
    assert any("Only 1 picture" in text for text in one.tree["warnings"])
    grey = worlds.pictures(40, seed=1)
    flat = type(grey)(torch.full_like(grey.images, 7), grey.labels)
    same = AuditData(aux=flat, test=flat, protocol="published")
    found = sv.audit(conv_model(), same, attacks=PLAN)
    assert found.floors["mean_image"]["mse"] == pytest.approx(0, abs=1e-12)
    assert any("hardly differ" in text for text in found.tree["warnings"])


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (sv.SplitModel(nn.Conv2d(3, 4, 3), nn.Flatten()), "edge half does not accept"),
        (sv.SplitModel(nn.Identity(), nn.Linear(5, 2)), "cloud half does not accept"),
        (sv.SplitModel(nn.Identity(), nn.Identity()), "one logit per class"),
        (sv.SplitModel(nn.Identity(), nn.Flatten(), num_classes=3), "gives 64 logits, but there are 3 classes"),
        (sv.SplitModel(nn.Flatten(0), nn.Identity()), "gives \\[128\\] for 2 pictures"),
        (sv.SplitModel(nn.Identity(), nn.Flatten(), image_shape=(3, 8, 8)), "takes pictures of shape"),
    ],
)
def test_halves_that_do_not_fit_are_refused_in_one_sentence(model: sv.SplitModel, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        sv.audit(model, data(), attacks=PLAN)


class Half(nn.Module):
    """Computes in float16, as somebody's model may; takes and, if it says so, gives float32."""

    def __init__(self, layer: nn.Module, back: bool) -> None:
        super().__init__()
        self.layer, self.back = layer.half(), back

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.layer(x.half())
        return z.float() if self.back else z


def test_a_model_in_half_precision_is_told_what_to_do() -> None:
    edge, cloud = nn.Conv2d(1, 4, 3), nn.Sequential(nn.Flatten(), nn.Linear(144, worlds.CLASSES))
    with pytest.raises(InputError, match=r"edge half does not accept.*float16 .*use model\.float\(\)"):
        sv.audit(sv.SplitModel(copy.deepcopy(edge).half(), cloud), data(), attacks=PLAN)
    with pytest.raises(InputError, match=r"cloud half does not accept.*float16 .*use model\.float\(\)"):
        sv.audit(sv.SplitModel(edge, copy.deepcopy(cloud).half()), data(), attacks=PLAN)
    with pytest.raises(InputError, match=r"edge half gives torch\.float16.*end with z\.float\(\)"):
        sv.audit(sv.SplitModel(Half(edge, back=False), Half(cloud, back=True)), data(), attacks=PLAN)
    model = sv.SplitModel(Half(edge, back=True), Half(cloud, back=True))
    assert sv.audit(model, data(), attacks=PLAN, check_sanity=False).tree["failures"] == {}


class ShapeOfTheBatch(nn.Module):
    """Sends more for many pictures than for two."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.adaptive_avg_pool2d(x, 4 if len(x) == 2 else 5)


class SometimesNothing(nn.Module):
    """Fails for one picture of many."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = nn.functional.avg_pool2d(x, 2)
        return torch.where((torch.arange(len(x)) == 7).view(-1, 1, 1, 1), torch.nan, z)


POOL = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model": nn.Linear(3, 3)}, "needs a split model, not a Linear"),
        ({"model": sv.SplitModel(ShapeOfTheBatch(), POOL)}, "for 2 pictures and .* for 40"),
        ({"model": sv.SplitModel(SometimesNothing(), POOL)}, "edge half gives values that are not finite"),
        ({"data": data(test=0)}, "no test picture"),
        ({"data": data(aux=1)}, "1 pictures of its own"),
        ({"data": AuditData(aux=worlds.pictures(20, seed=1, channels=3), test=worlds.pictures(9, seed=2))}, "one size"),
        ({"data": AuditData(aux=relabelled(20, 30), test=worlds.pictures(9, seed=2))}, "from 30 to 30.* 3 classes"),
        ({"data": AuditData(aux=worlds.pictures(20, seed=1), test=relabelled(9, -1))}, "has the label -1"),
        ({"data": data(train=relabelled(9, 3))}, "training pictures have labels from 3 to 3"),
        ({"data": [1, 2]}, "not a list"),
        ({"num_images": 0}, "cannot attack 0 pictures"),
        ({"num_images": 2.5}, "cannot attack 2.5 pictures"),
        ({"num_images": -3}, "cannot attack -3 pictures"),
        ({"attacks": {}}, "No attack was asked for"),
        ({"attacks": ["membership"]}, "No attack gave a result .*trained on"),
        ({"out": __file__}, "is a file"),
        ({"device": "gpu7"}, "no device called 'gpu7'"),
        ({"mode": "training"}, "Did you mean 'training_time'"),
    ],
)
def test_bad_calls_are_refused_in_one_sentence(change: dict[str, object], sentence: str) -> None:
    arguments = {"model": conv_model(), "data": data(), "attacks": PLAN, "check_sanity": False, **change}
    with pytest.raises(SplitveilError, match=f"(?s){sentence}"):
        sv.audit(**arguments)


def test_labels_of_another_meaning_are_taken_where_that_is_said() -> None:
    source = AuditData(aux=relabelled(20, 30), test=worlds.pictures(9, seed=2), shared_labels=False)
    assert sv.audit(conv_model(), source, attacks=PLAN, check_sanity=False).attacks["decoder"]["mse"] > 0


def test_an_attack_that_breaks_down_leaves_the_others_results(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*args: object) -> None:
        raise IndexError("somebody's mistake\nwith details")

    monkeypatch.setattr("splitveil.attacks.linear.LinearAttack.run", breaks)
    found = sv.audit(conv_model(), data(), attacks={**PLAN, "linear": {}})
    assert found.tree["failures"] == {"linear": "IndexError: somebody's mistake"}
    assert list(found.attacks) == ["decoder"]
    assert found.tree["verdict"] is None


def test_unknown_tiers_and_attacks_name_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="smoke"):
        sv.audit(conv_model(), data(), tier="smok")
    with pytest.raises(UnknownNameError, match="decoder"):
        sv.audit(conv_model(), data(), attacks=["decodr"])
    with pytest.raises(InputError, match="No attack"):
        sv.audit(conv_model(), data(), attacks=[])


def test_any_traceable_module_can_be_audited() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 3))
    model = sv.split(net, at="1", example=torch.rand(2, 1, 8, 8))
    found = sv.audit(model, data(), attacks=PLAN, num_images=8, check_sanity=False)
    assert found.tree["num_images"] == 8


def test_an_attack_on_fewer_pictures_can_stand_alone() -> None:
    found = sv.audit(conv_model(), data(), attacks={"optimize": {"steps": 2, "num_images": 7}})
    assert found.tree["num_images"] == 40
    assert found.worst_case["num_images"] == found.attacks["optimize"]["num_images"] == 7
    assert sum(entry["num_images"] for entry in found.tree["per_class"].values()) == 7
    assert len(found.gallery.tree["images"]) == 7
    # the verdict compares the same seven pictures with guessing them
    mean = data().aux.images.double().mean(0)
    guessed = ((found_pictures(7) - mean) / 255).square().mean()
    leak = 1 - found.worst_case["mse"] / float(guessed)
    assert found.tree["verdict"]["leak"] == pytest.approx(leak, rel=1e-4)


def found_pictures(count: int) -> torch.Tensor:
    """The first pictures under attack: one of each class in turn."""
    return choose(data(), "training_time", count).targets.images.double()


def test_one_attack_may_be_named_without_a_list() -> None:
    found = sv.audit(conv_model(), data(), attacks="retrieval", check_sanity=False)
    assert list(found.attacks) == ["retrieval"]
    with pytest.raises(UnknownNameError, match="'decodr'"):
        sv.audit(conv_model(), data(), attacks="decodr")


def test_a_report_prints_as_the_table_and_nothing_else() -> None:
    found = sv.audit(conv_model(), data(), attacks=["retrieval"], check_sanity=False)
    assert str(found) == repr(found)
    assert f"{found.worst_case['mse']:.4f}" in str(found)
    assert "no verdict" in str(found)
    assert len(str(found).splitlines()) < 20
