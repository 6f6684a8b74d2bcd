"""An audit of attacks whose answers are known: every number that it states can be made by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests import worlds
from torch import Tensor

import splitveil as sv
from splitveil.attacks.average import AverageAttack
from splitveil.attacks.base import Reconstruction
from splitveil.attacks.linear import LinearAttack
from splitveil.attacks.retrieval import RetrievalAttack
from splitveil.audit.card import card
from splitveil.audit.metrics import PictureScores
from splitveil.audit.subjects import AuditData
from splitveil.audit.tree import _worst_decile
from splitveil.data.dataset import ImageSet

COUNT, FIRST = 40, 30  # pictures under attack, and those that the costliest attack looks at
OFF = torch.linspace(0.01, 0.28, COUNT, dtype=torch.float64)  # how far each answer lies off, in every pixel


def pictures(count: int, seed: int) -> ImageSet:
    random = torch.Generator().manual_seed(seed)
    images = torch.randint(64, 128, (count, 1, 8, 8), generator=random, dtype=torch.uint8)
    return ImageSet(images, torch.arange(count) % 3)  # classes in turn: the order under attack is their own


@pytest.fixture(scope="module")
def tree() -> dict[str, Any]:
    """`linear` is off by OFF, early-stopped by a tenth of it in the first picture; `retrieval` by OFF the other way
    round; `average`, which saw each picture 8 times, by a half of OFF, on the first pictures only."""
    targets, aux = pictures(COUNT, seed=2), pictures(100, seed=1)
    truth = targets.images.double() / 255

    def answers(off: Tensor) -> Tensor:
        return (truth[: len(off)] + off.view(-1, 1, 1, 1)).float()

    early = OFF.clone()
    early[0] /= 10
    known = {
        LinearAttack: Reconstruction(answers(OFF), variants={"best_epoch": answers(early)}),
        RetrievalAttack: Reconstruction(answers(OFF.flip(0)), details={"num_images": 7}),
        AverageAttack: Reconstruction(answers(OFF[:FIRST] / 2), details={"repeats": 8}),
    }
    with pytest.MonkeyPatch.context() as patch:
        for attack, outcome in known.items():
            patch.setattr(attack, "run", lambda self, view, progress=None, outcome=outcome: outcome)
        groups = {"late": (torch.zeros(100).long(), (torch.arange(COUNT) >= 20).long())}
        data = AuditData(aux=aux, test=targets, attributes=groups)
        found = sv.audit(worlds.identity(sigma=0.2), data, attacks=["linear", "retrieval", "average"])
        return found.tree


EARLY = torch.cat([OFF[:1] / 10, OFF[1:]])
ONCE = torch.minimum(EARLY, OFF.flip(0)).square()  # error of each picture under the best answer
WORST = torch.minimum(ONCE[:FIRST], (OFF[:FIRST] / 2).square())


def test_each_attack_has_the_error_of_its_final_answers(tree: dict[str, Any]) -> None:
    entries = tree["attacks"]
    assert entries["linear"]["mse"] == pytest.approx(float(OFF.square().mean()), rel=1e-4)
    assert entries["average"]["mse"] == pytest.approx(float((OFF[:FIRST] / 2).square().mean()), rel=1e-4)
    assert entries["linear"]["best_epoch"]["mse"] == pytest.approx(float(EARLY.square().mean()), rel=1e-4)
    assert [entries[name]["num_images"] for name in ("linear", "retrieval", "average")] == [COUNT, COUNT, FIRST]
    assert (tree["num_images"], tree["auxiliary_images"]) == (COUNT, 100)


def test_the_worst_case_takes_the_best_answer_for_each_picture_that_all_looked_at(tree: dict[str, Any]) -> None:
    assert tree["worst_case"]["num_images"] == FIRST
    assert tree["worst_case"]["mse"] == pytest.approx(float(WORST.mean()), rel=1e-4)
    assert tree["worst_case"]["psnr"] == pytest.approx(float(-10 * WORST.log10().mean()), rel=1e-4)
    assert any("over the first 30 pictures" in text for text in tree["warnings"])


def test_who_sees_a_picture_once_has_less(tree: dict[str, Any]) -> None:
    assert tree["worst_case_once"]["mse"] == pytest.approx(float(ONCE.mean()), rel=1e-4)
    assert tree["worst_case_once"]["mse"] > 1.01 * tree["worst_case"]["mse"]


def test_attacks_are_held_against_the_bounds(tree: dict[str, Any]) -> None:
    """Whoever is unbiased and sees the picture itself once under noise .2 errs by .04 or more."""
    assert {"linear", "retrieval"} <= set(tree["bound"]["fisher"]["below"])
    assert tree["bound"]["alarm"] == []


def test_the_shares_of_the_winners_are_shares_of_the_pictures(tree: dict[str, Any]) -> None:
    """Half of OFF is less than OFF from behind up to some place; the first picture is the early-stopped answer's."""
    halves = int((OFF[1:FIRST] / 2 < OFF.flip(0)[1:FIRST]).sum())
    won = {"linear": 1, "average": halves, "retrieval": FIRST - 1 - halves}
    assert min(won.values()) > 0
    assert tree["worst_case"]["winners"] == pytest.approx({name: count / FIRST for name, count in won.items()})


def test_the_worst_decile_is_the_tenth_that_leaked_most(tree: dict[str, Any]) -> None:
    assert tree["worst_decile"]["num_images"] == 3
    assert tree["worst_decile"]["mse"] == pytest.approx(float(WORST.sort().values[:3].mean()), rel=1e-4)


def test_each_measure_has_its_own_worst_tenth() -> None:
    """The picture with the highest SSIM has the highest error: its SSIM is the tenth's, its error is not."""
    scores = PictureScores(torch.linspace(0.01, 0.1, 20).double(), torch.linspace(0.05, 1, 20).double())
    found = _worst_decile(scores)
    assert found["num_images"] == 2
    assert found["mse"] == pytest.approx(float(scores.mse[:2].mean()))
    assert found["ssim"] == pytest.approx(float(scores.ssim[-2:].mean()))
    assert found["psnr"] == pytest.approx(float(scores.psnr.sort().values[-2:].mean()))
    assert found["psnr_of_mean"] == pytest.approx(float(-10 * scores.mse[:2].mean().log10()))


def test_classes_and_groups_have_the_worst_case_of_their_own_pictures(tree: dict[str, Any]) -> None:
    classes = {name: (entry["mse"], entry["num_images"]) for name, entry in tree["per_class"].items()}
    for start in range(3):
        assert classes[str(start)] == (pytest.approx(float(WORST[start::3].mean()), rel=1e-4), 10)
    late = tree["per_group"]["late"]
    assert (late["0"]["mse"], late["0"]["num_images"]) == (pytest.approx(float(WORST[:20].mean()), rel=1e-4), 20)
    assert (late["1"]["mse"], late["1"]["num_images"]) == (pytest.approx(float(WORST[20:].mean()), rel=1e-4), 10)


def test_floors_and_remarks_are_about_their_own_pictures(tree: dict[str, Any]) -> None:
    aux, targets = pictures(100, seed=1), pictures(COUNT, seed=2)
    guess = (targets.images.double() - aux.images.double().mean(0)).div(255).square().mean(dim=(1, 2, 3))
    assert tree["floors"]["mean_image"]["mse"] == pytest.approx(float(guess.mean()), rel=1e-4)
    bare = int((0.1 * guess[:FIRST] >= WORST).sum())
    left = float(WORST.mean() / guess[:FIRST].mean())
    assert 0 < bare < FIRST
    assert left > 0.5
    (told,) = [text for text in tree["warnings"] if "came back with a tenth" in text]
    assert told.startswith(f"{bare} of {FIRST} pictures")
    assert f"{left:.0%} of it is left" in told


def test_the_card_says_what_the_audit_says_and_all_that_speaks_against_it(tree: dict[str, Any]) -> None:
    page = card(tree)
    for key in ("accuracy", "works", "sanity", "verdict", "failures", "skipped", "warnings", "departures"):
        assert page[key] == tree[key], key
    assert page["warnings"]  # fewer attacks than the tier has
    for measure in ("mse", "ssim", "psnr", "mse_ci95"):
        for key in ("worst_case", "worst_case_once"):
            assert page[key][measure] == tree[key][measure]
        for key in ("floors", "attacks"):
            for name, entry in tree[key].items():
                assert page[key][name][measure] == entry[measure]
