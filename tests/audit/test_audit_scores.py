"""Scores, floors, worst cases and intervals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import binom
from tests import worlds
from tests.oracles import image_metrics as oracle
from torch import nn

from splitveil import attacks, defences
from splitveil.attacks.base import Reconstruction
from splitveil.audit import metrics
from splitveil.audit.checks import accuracy_on
from splitveil.audit.floors import floors
from splitveil.audit.inference import Truth
from splitveil.audit.metrics import PictureScores, compare, worst_case
from splitveil.audit.scoring import AttackRun, score, with_intervals
from splitveil.audit.statistics import bootstrap_interval, exact_interval
from splitveil.audit.subjects import Subjects
from splitveil.core.errors import InputError
from splitveil.data.dataset import ImageSet
from splitveil.models.layers import LayeredEdge, Normalise
from splitveil.models.split import SplitModel


def test_compare_matches_the_loops_picture_by_picture() -> None:
    targets = worlds.pictures(3, seed=0)
    answer = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    found = compare(answer, targets.images)
    for place in range(3):
        truth, guess = (targets.images[place].double() / 255).tolist(), answer[place].double().tolist()
        assert float(found.mse[place]) == pytest.approx(oracle.mse(guess, truth), rel=1e-6)
        assert float(found.ssim[place]) == pytest.approx(oracle.ssim(guess, truth), rel=1e-5)
    means = found.means()
    assert means["psnr"] == pytest.approx(np.mean([oracle.psnr(value) for value in found.mse.tolist()]))
    assert means["psnr"] >= means["psnr_batch"] >= means["psnr_of_mean"]


def test_pieces_stay_small_and_change_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, shown = torch.rand(2, 300, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    pictures = (shown * 255).to(torch.uint8)
    largest, ssim = [], metrics.ssim
    monkeypatch.setattr(metrics, "ssim", lambda x, y: (largest.append(5 * x.nbytes), ssim(x, y))[1])
    found = compare(answers, pictures)
    assert max(largest) < 32 * 2**20  # the five maps in one tensor: more than this is never kept by glibc's malloc
    monkeypatch.setattr(metrics, "CHUNK", 300)
    whole = compare(answers, pictures)
    assert torch.equal(found.mse, whole.mse)
    torch.testing.assert_close(found.ssim, whole.ssim, rtol=0, atol=1e-13)


def test_s8_1_perfect_answers() -> None:
    targets = worlds.pictures(4, seed=0)
    means = compare(targets.images.float() / 255, targets.images).means()
    assert means["mse"] == 0
    assert means["ssim"] == pytest.approx(1)
    assert means["psnr"] == means["psnr_batch"] == means["psnr_of_mean"] == pytest.approx(100)


def test_s8_1_a_constant_offset_of_float_pictures() -> None:
    pictures = torch.full((5, 3, 8, 8), 0.3)
    means = compare(pictures + 0.1, pictures).means()
    assert means["mse"] == pytest.approx(0.01, rel=1e-5)
    assert [means[name] for name in ("psnr", "psnr_batch", "psnr_of_mean")] == pytest.approx([20.0] * 3, rel=1e-5)


def test_answers_of_another_shape_or_not_finite_are_refused() -> None:
    targets = worlds.pictures(2, seed=0)
    with pytest.raises(InputError, match="reconstructions are"):
        compare(torch.zeros(2, 1, 8, 7), targets.images)
    with pytest.raises(InputError, match="not finite"):
        compare(torch.full((2, 1, 8, 8), torch.nan), targets.images)


def test_worst_case_is_taken_per_picture_and_then_averaged() -> None:
    first = PictureScores(torch.tensor([0.1, 0.4, 0.3]), torch.tensor([0.9, 0.2, 0.3]))
    second = PictureScores(torch.tensor([0.2, 0.1]), torch.tensor([0.8, 0.7]))
    worst, winners = worst_case({"first": first, "second": second})
    # of the third picture the second attack may know as much as of the others: it has not been asked
    assert worst.mse.tolist() == pytest.approx([0.1, 0.1])
    assert worst.ssim.tolist() == pytest.approx([0.9, 0.7])
    assert winners == ["first", "second"]


def test_each_measure_has_its_own_worst_case() -> None:
    """The answer with the lower error need not be the one that looks more like the picture."""
    near = PictureScores(torch.tensor([0.1]), torch.tensor([0.2]))
    alike = PictureScores(torch.tensor([0.3]), torch.tensor([0.9]))
    worst, winners = worst_case({"near": near, "alike": alike})
    assert (float(worst.mse), float(worst.ssim)) == (pytest.approx(0.1), pytest.approx(0.9))
    assert winners == ["near"]


def test_every_answer_of_every_seed_competes_and_the_headline_is_their_mean() -> None:
    """Two seeds, each with a final and an early-stopped answer: grey pictures that are off by .1, .2, .3 and .4."""
    targets = ImageSet(torch.full((3, 1, 8, 8), 51, dtype=torch.uint8), torch.zeros(3).long())
    subjects = Subjects(targets, targets, torch.arange(3))

    def off(by: float) -> torch.Tensor:
        return torch.full((3, 1, 8, 8), 0.2 + by)

    made = [Reconstruction(off(last), variants={"best_epoch": off(first)}) for last, first in ((0.3, 0.1), (0.4, 0.2))]
    nobody = Truth(None, torch.zeros(0, dtype=torch.bool), {}, {})
    found = score(worlds.identity(), subjects, nobody, {"decoder": AttackRun(attacks.create("decoder"), made, 1.0)})
    errors = sorted(float(one.mse.mean()) for one in found.competing().values())
    assert errors == pytest.approx([0.01, 0.04, 0.09, 0.16], rel=1e-4)
    assert found.entries["decoder"]["mse"] == pytest.approx((0.09 + 0.16) / 2, rel=1e-4)
    assert found.entries["decoder"]["best_epoch"]["mse"] == pytest.approx(0.01, rel=1e-4)  # of the first seed


def test_recon_acc_is_about_the_pictures_that_the_attack_looked_at_and_a_mean_over_its_seeds() -> None:
    """A model that calls pictures bright or dark; of four pictures the attack looked at the first two, one of each."""

    class Bright(nn.Module):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            level = z.flatten(1).mean(1)
            return torch.stack([0.5 - level, level - 0.5], 1)

    images = torch.tensor([0, 255, 255, 0], dtype=torch.uint8).view(4, 1, 1, 1).expand(-1, 1, 8, 8).contiguous()
    targets = ImageSet(images, torch.tensor([0, 1, 1, 0]))
    dark, light = torch.zeros(1, 1, 8, 8), torch.ones(1, 1, 8, 8)
    made = [Reconstruction(torch.cat([dark, light])), Reconstruction(torch.cat([light, light]))]
    nobody = Truth(None, torch.zeros(0, dtype=torch.bool), {}, {})
    runs = {"decoder": AttackRun(attacks.create("decoder"), made, 1.0)}
    model = SplitModel(nn.Identity(), Bright(), num_classes=2).eval()
    found = score(model, Subjects(targets, targets, torch.arange(4)), nobody, runs).entries["decoder"]
    assert found["recon_acc"] == 0.75  # both, and one of two
    assert (found["num_images"], found["seeds"]) == (2, 2)


def test_floors_are_means_of_the_attackers_own_pictures() -> None:
    aux = ImageSet(torch.tensor([0, 100, 200], dtype=torch.uint8).view(3, 1, 1, 1), torch.tensor([0, 0, 1]))
    targets = ImageSet(torch.tensor([50, 250], dtype=torch.uint8).view(2, 1, 1, 1), torch.tensor([0, 2]))
    found = floors(aux, targets)
    assert found["mean_image"].mse.tolist() == pytest.approx([(50 / 255) ** 2, (150 / 255) ** 2])
    # class 0 has mean 50; of class 2 the attacker has no picture, so the overall mean stands in
    assert found["class_mean"].mse.tolist() == pytest.approx([0, (150 / 255) ** 2], rel=1e-6, abs=1e-12)
    assert "class_mean" not in floors(aux, targets, shared_labels=False)


@pytest.mark.parametrize(
    ("seeds", "shift"), [(1, 0.0), *((seeds, shift) for seeds in (2, 3, 5) for shift in (0.0, 0.1, 1.0))]
)
def test_intervals_cover_the_truth_about_as_often_as_they_say(seeds: int, shift: float) -> None:
    """Skewed values, as picture errors are, the same pictures under every seed; each seed shifts all its pictures."""
    random = np.random.default_rng(0)
    hits = 0
    for trial in range(300):
        values = random.gamma(2.0, 1.0, (1, 80)) + random.normal(0, 0.1, (seeds, 80))
        values = values + random.normal(0, shift, (seeds, 1))
        low, high = bootstrap_interval(values, resamples=300, seed=trial)
        hits += low <= 2.0 <= high
    assert 0.90 <= hits / 300 <= 0.99


def test_bootstrap_over_seeds_sees_the_spread_of_the_seeds() -> None:
    random = np.random.default_rng(0)
    pictures = random.normal(0, 0.01, (6, 200))
    shifted = pictures + random.normal(0, 1, (6, 1))
    narrow, wide = bootstrap_interval(pictures), bootstrap_interval(shifted)
    assert wide[1] - wide[0] > 20 * (narrow[1] - narrow[0])


def test_seeds_add_students_interval_of_their_means_to_that_of_the_pictures() -> None:
    """t(2)·s/√3 of the seeds' means 1, 2 and 3, s = 1; with the pictures' part as independent errors add."""
    half = 4.302653 / 3**0.5
    seeds = np.array([[1.0], [2.0], [3.0]])
    assert bootstrap_interval(seeds + np.zeros(50)) == pytest.approx((2 - half, 2 + half), rel=1e-6)
    pictures = np.random.default_rng(0).gamma(2.0, 1.0, 50)
    low, high = bootstrap_interval(pictures)
    middle = pictures.mean()
    wider = (middle + 2 - np.hypot(middle - low, half), middle + 2 + np.hypot(high - middle, half))
    assert bootstrap_interval(seeds + pictures) == pytest.approx(wider, rel=1e-6)


def test_the_interval_of_an_attack_is_over_all_of_its_seeds() -> None:
    runs = [PictureScores(torch.full((4,), mse).double(), torch.full((4,), mse).double()) for mse in (0.01, 0.03)]
    found = with_intervals(runs)
    half = 12.706205 * 0.01  # t(1)·s/√2, s = 0.01·√2
    for key in ("mse", "ssim"):
        assert found[key] == pytest.approx(0.02)
        assert found[f"{key}_ci95"] == pytest.approx([0.02 - half, 0.02 + half], rel=1e-6)


def test_bootstrap_is_repeatable_and_says_nothing_about_one_picture() -> None:
    values = np.arange(10.0)
    assert bootstrap_interval(values, seed=3) == bootstrap_interval(values, seed=3)
    assert bootstrap_interval([1.0]) is None
    assert bootstrap_interval([2.0, 2.0]) == (2.0, 2.0)


@pytest.mark.parametrize(("successes", "trials"), [(1, 12), (30, 40), (11, 12), (500, 1000)])
def test_the_interval_of_a_rate_leaves_a_fortieth_on_either_side(successes: int, trials: int) -> None:
    """Clopper and Pearson: with the lower end as the true rate so many successes or more have probability 2.5 %, with
    the upper end so many or fewer."""
    low, high = exact_interval(successes, trials)
    assert 1 - binom.cdf(successes - 1, trials, low) == pytest.approx(0.025)
    assert binom.cdf(successes, trials, high) == pytest.approx(0.025)


def test_recon_acc_clamps_pictures_once_they_are_normalised() -> None:
    """SPEC 8.2: a pixel of 1 with mean 0.5 and deviation 0.25 is 2, and counts as 1, which is a pixel of 0.75."""
    edge = LayeredEdge(Normalise([0.5], [0.25]), [], "none", 1)
    # class 1 where the normalised pixel is above 1.5: bare pictures show it, clamped ones never do
    cloud = nn.Sequential(nn.Flatten(), nn.Linear(1, 2))
    with torch.no_grad():
        cloud[1].weight.copy_(torch.tensor([[0.0], [1.0]]))
        cloud[1].bias.copy_(torch.tensor([0.0, -1.5]))
    pictures, labels = torch.tensor([1.0, 0.9, 0.5]).view(3, 1, 1, 1), torch.tensor([1, 1, 0])
    assert (cloud(edge(pictures)).argmax(1) == labels).all()
    assert accuracy_on(SplitModel(edge, cloud), pictures, labels) == pytest.approx(1 / 3)


def test_recon_acc_is_of_clean_features() -> None:
    """SPEC 8.2: whatever noise the model sends with, the victim looks at the reconstructions without it."""
    pictures, labels = torch.tensor([0.9, 0.8, 0.1, 0.2]).view(4, 1, 1, 1), torch.tensor([1, 1, 0, 0])
    cloud = nn.Sequential(nn.Flatten(), nn.Linear(1, 2))
    with torch.no_grad():
        cloud[1].weight.copy_(torch.tensor([[0.0], [1.0]]))
        cloud[1].bias.copy_(torch.tensor([0.0, -0.5]))
    model = SplitModel(nn.Identity(), cloud, image_shape=(1, 1, 1), num_classes=2)
    model.defences["noise"] = defences.create("noise", sigma=1e6)
    found = [accuracy_on(model, pictures, labels) for _ in range(8)]
    assert found == [1.0] * 8
