"""Who leaks: the worst case by attributes of the pictures."""

from __future__ import annotations

import pytest
import torch
from tests import worlds

import splitveil as sv
from splitveil.audit.groups import exposed, per_group
from splitveil.audit.metrics import PictureScores
from splitveil.audit.subjects import AuditData, Mode
from splitveil.data.dataset import ImageSet
from splitveil.report.audit_sentences import in_chinese


def scores(mse: torch.Tensor) -> PictureScores:
    return PictureScores(mse.double(), torch.zeros(len(mse)).double())


GLASSES = torch.arange(120) % 3 == 0


def test_a_group_has_its_own_scores_beside_its_own_guess() -> None:
    spread = torch.linspace(0.9, 1.1, 120)
    worst, guess = scores(torch.where(GLASSES, 0.01, 0.06) * spread), scores(torch.where(GLASSES, 0.05, 0.1) * spread)
    found = per_group(worst, guess, {"glasses": GLASSES.long()})
    assert list(found["glasses"]) == ["0", "1"]
    entry = found["glasses"]["1"]
    assert entry["num_images"] == 40
    assert entry["mse"] == pytest.approx(float(worst.mse[GLASSES].mean()))
    assert entry["guess_mse"] == pytest.approx(float(guess.mse[GLASSES].mean()))
    assert entry["mse_ci95"][0] < entry["mse"] < entry["mse_ci95"][1]
    (said,) = exposed(found, worst, guess)  # .01 of .05 is a fifth; over all it is about a half
    assert said.startswith("Pictures with glasses = 1 leak more than others: the attacks leave 20% of the error")
    assert in_chinese(said) != said


def test_where_attacks_stop_early_only_the_first_pictures_are_grouped() -> None:
    """Of 120 pictures with an attribute the first 30 were attacked, and all of those have the value 7."""
    values = torch.cat([torch.full((30,), 7), torch.zeros(90)]).long()
    found = per_group(scores(torch.full((30,), 0.02)), scores(torch.full((30,), 0.1)), {"kind": values})
    assert {name: entry["num_images"] for name, entry in found["kind"].items()} == {"7": 30}


@pytest.mark.parametrize(("own", "said"), [(0.042, True), (0.045, False)])
def test_a_group_is_named_where_a_fifth_less_is_left_than_over_all(own: float, said: bool) -> None:
    """Of guessing's 0.1 a third of the pictures keeps .042 or .045, the others .06: .78 or .82 of the average."""
    narrow = torch.linspace(0.999, 1.001, 120)  # both lie beyond their intervals
    worst, guess = scores(torch.where(GLASSES, own, 0.06) * narrow), scores(torch.full((120,), 0.1))
    assert bool(exposed(per_group(worst, guess, {"glasses": GLASSES.long()}), worst, guess)) is said


def test_pictures_that_are_easy_to_guess_are_no_finding() -> None:
    """A fifth of the error, but a fifth of the guess's error too."""
    easy = scores(torch.where(GLASSES, 0.01, 0.05) * torch.linspace(0.9, 1.1, 120))
    guess = scores(torch.where(GLASSES, 0.02, 0.1) * torch.linspace(0.9, 1.1, 120))
    assert exposed(per_group(easy, guess, {"glasses": GLASSES.long()}), easy, guess) == []


def test_few_pictures_and_chance_are_no_finding() -> None:
    few = torch.arange(120) < 20
    worst, guess = (
        scores(torch.where(few, 0.001, 0.06) * torch.linspace(0.9, 1.1, 120)),
        scores(torch.full((120,), 0.1)),
    )
    assert exposed(per_group(worst, guess, {"few": few.long()}), worst, guess) == []
    wide = torch.where(GLASSES, torch.where(torch.arange(120) % 4 == 0, 0.16, 0.001), 0.06)  # mean .04, within .02
    worst = scores(wide)
    assert exposed(per_group(worst, guess, {"glasses": GLASSES.long()}), worst, guess) == []


@pytest.mark.parametrize("mode", ["training_time", "inference_time"])
def test_an_audit_attributes_each_picture_to_its_own_group(mode: Mode) -> None:
    """An attribute that is the class must score what the classes score, whichever pictures are under attack."""
    aux, test = worlds.pictures(80, seed=1), worlds.pictures(60, seed=2)
    world = AuditData(aux=aux, test=test, attributes={"kind": (aux.labels, test.labels)})
    tree = sv.audit(worlds.identity(), world, attacks=["linear"], mode=mode, num_images=25, check_sanity=False).tree
    assert list(tree["per_group"]) == ["kind"]
    by_class = {name: entry["mse"] for name, entry in tree["per_class"].items()}
    by_kind = {world.class_name(int(value)): entry["mse"] for value, entry in tree["per_group"]["kind"].items()}
    assert by_kind == pytest.approx(by_class)
    assert len(by_class) > 1


def test_an_audit_names_the_group_that_leaks() -> None:
    class SendsDarkOnes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            dark = (x.flatten(1).mean(1) < 0.5).float().view(-1, 1, 1, 1)
            z = torch.nn.functional.pixel_unshuffle(x, 2)
            return torch.cat([z, torch.ones_like(z[:, :1])], 1) * dark  # linear, where the fifth channel says so

    def dark(part: ImageSet) -> torch.Tensor:
        return (part.images.float().flatten(1).mean(1) < 127.5).long()

    aux, test = worlds.pictures(200, seed=1), worlds.pictures(90, seed=2)
    world = AuditData(aux=aux, test=test, attributes={"dark": (dark(aux), dark(test))})
    found = sv.audit(worlds.split_model(SendsDarkOnes(), 5), world, attacks=["linear"], check_sanity=False)
    assert [text.split(" leak")[0] for text in found.warnings if "leak more" in text] == ["Pictures with dark = 1"]


def test_without_attributes_there_are_no_groups() -> None:
    world = AuditData(aux=worlds.pictures(60, seed=1), test=worlds.pictures(20, seed=2))
    assert sv.audit(worlds.identity(), world, attacks=["linear"], check_sanity=False).tree["per_group"] == {}
