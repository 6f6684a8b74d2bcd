"""Membership and attribute inference where the answer is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests import worlds
from torch import nn

from splitveil import attacks
from splitveil.attacks import membership as membership_module
from splitveil.attacks.base import Inference, Reconstruction, ThreatModel
from splitveil.attacks.membership import MembershipOptions, confidence, fresh_copy, likelihood_ratio, train_classifier
from splitveil.attacks.view import Scene, View
from splitveil.audit.inference import Truth, judge, membership, truth
from splitveil.audit.subjects import AuditData, Mode, choose
from splitveil.core.errors import InputError, ThreatModelError
from splitveil.data.dataset import ImageSet
from splitveil.models.split import SplitModel


def noise_pictures(count: int, seed: int) -> ImageSet:
    """Pictures and labels without any connection: whoever is right about them has learned them by heart."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, 1, 8, 8), generator=generator, dtype=torch.uint8)
    return ImageSet(images, torch.randint(0, 3, (count,), generator=generator))


def model_that_learned(pictures: ImageSet | None) -> SplitModel:
    torch.manual_seed(0)
    edge = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU())
    model = SplitModel(edge, nn.Linear(48, 3), num_classes=3)
    if pictures is not None:
        options = MembershipOptions(epochs=60, batch_size=20, lr=5e-3)
        train_classifier(edge, model.cloud, lambda z, _: z, pictures, options, torch.Generator().manual_seed(0), None)
    return model.eval().requires_grad_(False)


def infer(model: SplitModel, data: AuditData, **options: object) -> dict[str, dict[str, object]]:
    subjects = choose(data, "training_time", None)
    known = truth(data, subjects, seed=0)
    scene = Scene(
        model, subjects.auxiliary, subjects.targets, candidates=known.candidates, attributes=known.own, num_classes=3
    )
    attack = attacks.create("membership", **options)
    outcome = attack.run(View(scene, attack.threat_model))
    assert isinstance(outcome, Inference)
    return judge(outcome, known)


DATA = AuditData(aux=noise_pictures(80, 1), test=noise_pictures(60, 2), train=noise_pictures(60, 3))


def test_a_model_that_learned_by_heart_gives_its_members_away() -> None:
    found = infer(model_that_learned(DATA.train), DATA, shadows=4, epochs=20, batch_size=20, lr=5e-3)
    for statistic in ("loss", "likelihood_ratio"):
        assert found[statistic]["auc"] > 0.8
        assert found[statistic]["auc_ci95"][0] > 0.6
        assert found[statistic]["accuracy_of_attack"]["ci95"][0] > 0.5


def test_a_model_that_never_saw_them_does_not() -> None:
    found = infer(model_that_learned(None), DATA, shadows=0)
    assert set(found) == {"loss"}
    low, high = found["loss"]["auc_ci95"]
    assert low < 0.5 < high


@pytest.mark.parametrize("num_classes", [None, 3])
def test_shadow_models_are_told_apart_by_what_they_saw(
    num_classes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every candidate is seen by one model of each pair; here a shadow model is sure (1) of just what it was given.

    Own pictures join where their labels name classes; candidates among them must not come in by that back door.
    """
    candidates, others = noise_pictures(40, 1), noise_pictures(30, 2)
    own = ImageSet(torch.cat([others.images, candidates.images]), torch.cat([others.labels, candidates.labels]))
    attack = attacks.create("membership", shadows=6)
    trained: set[frozenset[bytes]] = set()

    def train(self: object, view: View, pictures: ImageSet, generator: torch.Generator) -> tuple[ImageSet, None]:
        trained.add(frozenset(pictures.fingerprints()))
        return pictures, None

    monkeypatch.setattr(type(attack), "_train", train)

    def sure(pictures: ImageSet, _: None, asked: ImageSet) -> torch.Tensor:
        known = set(pictures.fingerprints())
        return torch.tensor([float(one in known) for one in asked.fingerprints()])

    monkeypatch.setattr(membership_module, "confidence", sure)
    view = View(Scene(worlds.identity(), own, candidates, num_classes=num_classes), attack.threat_model)
    inside, outside = attack._shadows(view, candidates, lambda *_: None)  # type: ignore[attr-defined]
    assert torch.equal(inside, torch.ones(3, 40))
    assert torch.equal(outside, torch.zeros(3, 40))
    assert len(trained) == 6  # every pair has other halves: a pair that is repeated would say nothing new


def test_a_shadow_model_answers_as_the_victim_does_in_eval_mode() -> None:
    """With batch normalisation in training mode the candidates asked at once would change each other's answers."""
    edge, cloud = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64)), nn.Sequential(nn.Linear(64, 3), nn.Dropout(0.5))
    options, pictures = MembershipOptions(epochs=1, batch_size=20), noise_pictures(40, 1)
    train_classifier(edge, cloud, lambda z, _: z, pictures, options, torch.Generator().manual_seed(0), None)
    together = confidence(edge, cloud, pictures)
    assert torch.allclose(confidence(edge, cloud, pictures.subset(torch.arange(5))), together[:5])


def test_the_threshold_of_an_accuracy_never_sees_the_candidates_it_is_judged_on() -> None:
    """One half has members above strangers, the other strangers above members: what is learned on one fails here."""
    members = np.array([True, False, False, True] * 25)
    scores = np.where(np.arange(100) % 2 == 0, members, ~members) + np.random.default_rng(0).uniform(0, 0.1, 100)
    assert membership(scores, members)["accuracy_of_attack"]["rate"] == 0


def test_no_threshold_lies_between_equal_scores() -> None:
    """50 members and 10 strangers: calling everybody a member is right more often than only those who score 1."""
    scores, members = np.array([0.0] * 40 + [1.0] * 20), np.array([False] * 10 + [True] * 50)
    assert membership(scores.repeat(2), members.repeat(2))["accuracy_of_attack"]["rate"] == pytest.approx(50 / 60)


def test_guessing_names_what_is_most_frequent_among_the_attackers_own_pictures() -> None:
    """Not among the pictures under attack, of which the attacker knows nothing."""
    own, targets = torch.tensor([0, 0, 1]), torch.tensor([1, 1, 1, 0])
    known = Truth(None, torch.zeros(0, dtype=torch.bool), {"hat": own}, {"hat": targets})
    found = judge(Inference(predictions={"hat from feature": torch.tensor([1, 0, 1, 0])}), known)["hat from feature"]
    assert (found["rate"], found["guessing"]) == (0.75, 0.25)
    far = Truth(None, known.members, {"far from home": own}, {"far from home": targets})
    assert judge(Inference(predictions={"far from home from feature": targets}), far).popitem()[1]["rate"] == 1


def test_membership_numbers_by_hand() -> None:
    members = np.array([True] * 100 + [False] * 100)
    perfect = membership(
        np.concatenate([np.full(100, 2.0), np.full(100, 1.0)])[np.argsort(_mix())], members[np.argsort(_mix())]
    )
    assert perfect["auc"] == 1
    assert perfect["tpr_at_1_percent_fpr"]["rate"] == 1
    assert perfect["accuracy_of_attack"]["rate"] == 1
    same = membership(np.zeros(200), members)
    assert same["auc"] == pytest.approx(0.5)
    assert same["tpr_at_1_percent_fpr"]["rate"] == 0
    # 3 members, 2 others: pairs ordered rightly 4 of 6
    small = membership(np.array([5.0, 1.0, 4.0, 3.0, 2.0]), np.array([True, True, True, False, False]))
    assert small["auc"] == pytest.approx(4 / 6)


def test_members_are_counted_as_found_only_where_at_most_one_stranger_in_a_hundred_is_accused() -> None:
    """150 strangers score 0 to 149: one of them may be accused, so the limit is 148. Two would be 1.3 %."""
    scores = np.concatenate([np.arange(150.0), np.full(20, 148.5), np.full(10, 147.5), np.full(70, -1.0)])
    found = membership(scores, np.arange(250) >= 150)["tpr_at_1_percent_fpr"]
    assert found["rate"] == pytest.approx(0.2)
    assert found["ci95"][0] < 0.2 < found["ci95"][1]


@pytest.mark.parametrize("strangers", [99, 100, 1000, 2900])
def test_one_false_alarm_in_a_hundred_is_allowed_and_not_one_more(strangers: int) -> None:
    """Of 100·k strangers k may be accused: the member just above the next one is found, the one at it is not."""
    allowed = strangers // 100
    limit = strangers - 1 - allowed
    scores = np.concatenate([np.arange(float(strangers)), [limit, limit + 0.5]])
    found = membership(scores, np.arange(strangers + 2) >= strangers)["tpr_at_1_percent_fpr"]
    assert found["rate"] == 0.5


def test_the_interval_of_the_area_is_hanley_and_mcneils() -> None:
    """48 of 60 members score above all 30 strangers, 12 below: A = .8, Q1 = A/(2 - A) = 2/3, Q2 = 2A²/(1 + A) = .7111,
    variance (.16 + 59·(Q1 - .64) + 29·(Q2 - .64))/1800 = .04592²; 1.96 of that to either side."""
    scores = np.concatenate([np.full(48, 2.0), np.zeros(12), np.ones(30)])
    found = membership(scores, np.arange(90) < 60)
    assert found["auc"] == pytest.approx(0.8)
    assert found["auc_ci95"] == pytest.approx([0.71, 0.89], abs=1e-4)


def _mix() -> np.ndarray:
    return np.random.default_rng(0).permutation(200)


def test_confidence_is_the_log_odds_of_the_true_label() -> None:
    model = model_that_learned(None)
    pictures = noise_pictures(5, 9)
    p = model.cloud(model.edge(pictures.images.float() / 255)).double().softmax(1)
    own = p.gather(1, pictures.labels[:, None])[:, 0]
    assert torch.allclose(confidence(model.edge, model.cloud, pictures), (own / (1 - own)).log(), atol=1e-5)


def test_likelihood_ratio_by_hand() -> None:
    inside = torch.tensor([[2.0, 6.0], [4.0, 8.0]]).double()
    outside = torch.tensor([[-1.0, 3.0], [1.0, 5.0]]).double()
    # every variance is 2; means 3 and 0, 7 and 4: the shift is 3 for both, and what is between them is 1.5 and 5.5
    # every shadow model has spread 2, and all their mean is 3.5; the victim has mean 20 and spread 10
    found = likelihood_ratio(torch.tensor([30.0, 10.0]).double(), inside, outside)
    assert found.tolist() == pytest.approx([3 * (5.5 - 1.5) / 2, 3 * (1.5 - 5.5) / 2], rel=1e-5)


def test_a_candidates_own_shift_counts_as_far_as_it_stands_out_of_the_noise() -> None:
    inside = torch.tensor([[2.0, 6.5], [4.0, 8.5]]).double()
    outside = torch.tensor([[-1.0, 3.0], [1.0, 5.0]]).double()
    victim = torch.tensor([30.0, 10.0]).double()
    # variance 2, so noise 2 in a shift; shifts 3 and 3.5 vary by 0.0625 only: both count as 3.25
    # between the means lie 1.5 and 5.75; the victim, matched to mean 3.625 and spread 2.125, is 5.75 and 1.5
    found = likelihood_ratio(victim, inside, outside)
    assert found.tolist() == pytest.approx([3.25 * 4.25 / 2, -3.25 * 4.25 / 2], rel=1e-5)
    # 40 more for one: shifts 3 and 43.5 vary by 410.0625, of which noise explains 2; each keeps 408.0625/410.0625
    inside[:, 1] += 40
    share = 408.0625 / 410.0625
    centre, spread, mean = torch.tensor([1.5, 25.75]).double(), (22.25 + 22.25 + 2 + 2) / 4, 109 / 8
    matched = mean + spread * torch.tensor([1.0, -1.0]).double()
    shift = 23.25 + share * torch.tensor([-20.25, 20.25]).double()
    torch.testing.assert_close(
        likelihood_ratio(victim, inside, outside), shift * (matched - centre) / 2, rtol=1e-5, atol=0
    )


def drawn_confidences(
    pairs: int, members: torch.Tensor, own_shift: float = 0.0, scale: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """φ of a victim, of shadow models that saw the candidates, and of others: difficulty, shift and noise."""
    stream = torch.Generator().manual_seed(pairs)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=stream, dtype=torch.float64)

    difficulty = 2 * draw(len(members))
    shift = (1 + own_shift * draw(len(members))).clamp_min(0)
    victim = scale * (difficulty + shift * members + draw(len(members)))
    inside = difficulty + shift + 0.7 * draw(pairs, len(members))
    return victim, inside, difficulty + draw(pairs, len(members))


@pytest.mark.parametrize("pairs", [1, 4, 16])
@pytest.mark.parametrize("own_shift", [0.0, 1.0])
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_shadow_models_help_also_against_a_victim_that_is_surer_than_they(
    pairs: int, own_shift: float, scale: float
) -> None:
    members = torch.arange(2000) % 2 == 0
    confidences = drawn_confidences(pairs, members, own_shift, scale)
    with_shadows = membership(likelihood_ratio(*confidences).numpy(), members.numpy())["auc"]
    assert with_shadows > membership(confidences[0].numpy(), members.numpy())["auc"] + 0.05


def test_how_sure_the_victim_is_of_everything_says_nothing_of_members() -> None:
    victim, inside, outside = drawn_confidences(4, torch.arange(50) % 2 == 0)
    torch.testing.assert_close(
        likelihood_ratio(5 * victim + 30, inside, outside), likelihood_ratio(victim, inside, outside)
    )


def test_shadow_models_that_learned_nothing_give_no_nan() -> None:
    same = torch.zeros(2, 3).double()
    assert bool(likelihood_ratio(torch.zeros(3).double(), same, same).isfinite().all())


def test_a_shadow_model_starts_from_scratch_and_leaves_the_victim_alone() -> None:
    model = model_that_learned(None)
    before = model.cloud.weight.clone()
    twin = fresh_copy(model.cloud)
    assert not torch.equal(twin.weight, before)
    assert torch.equal(model.cloud.weight, before)
    assert twin.weight.requires_grad
    assert not model.cloud.weight.requires_grad


def test_membership_without_training_pictures_says_so() -> None:
    attack = attacks.create("membership")
    with pytest.raises(InputError, match="trained on"):
        attack.run(worlds.view(worlds.identity(), attack.threat_model))


def test_candidates_do_not_say_which_of_them_are_members() -> None:
    known = truth(DATA, choose(DATA, "training_time", None), seed=0)
    assert known.candidates is not None
    trained = {picture.tobytes() for picture in DATA.train.images.numpy()}  # type: ignore[union-attr]
    actual = [picture.tobytes() in trained for picture in known.candidates.images.numpy()]
    assert known.members.tolist() == actual
    assert 0.3 < np.mean(actual[:60]) < 0.7  # mixed, not one after the other
    tested = {picture.tobytes() for picture in DATA.test.images.numpy()}  # strangers nobody trained on, nor owns
    assert [picture.tobytes() in tested for picture in known.candidates.images.numpy()] == [not one for one in actual]


def test_bright_means_brighter_than_the_attackers_average_picture() -> None:
    dark, light = (
        ImageSet(torch.full((9, 1, 8, 8), level, dtype=torch.uint8), torch.zeros(9).long()) for level in (50, 99)
    )
    data = AuditData(aux=dark, test=light)
    known = truth(data, choose(data, "training_time", None), seed=0)
    assert (known.own["bright"].tolist(), known.targets["bright"].tolist()) == ([0] * 9, [1] * 9)


@pytest.mark.parametrize("mode", ["training_time", "inference_time"])
def test_attributes_go_with_their_pictures(mode: Mode) -> None:
    """An attribute that is the sum of a picture's values belongs to it on both sides, whichever pictures they are."""
    aux, test = noise_pictures(50, 1), noise_pictures(40, 2)
    sums = tuple(part.images.long().sum(dim=(1, 2, 3)) for part in (aux, test))
    data = AuditData(aux=aux, test=test, attributes={"sum": (sums[0], sums[1])})
    subjects = choose(data, mode, None)
    known = truth(data, subjects, seed=0)
    assert torch.equal(known.own["sum"], subjects.auxiliary.images.long().sum(dim=(1, 2, 3)))
    assert torch.equal(known.targets["sum"], subjects.targets.images.long().sum(dim=(1, 2, 3)))


def attribute(model: SplitModel, **earlier: Reconstruction) -> dict[str, dict[str, float]]:
    data = AuditData(aux=worlds.pictures(200, seed=1), test=worlds.pictures(60, seed=2))
    subjects = choose(data, "training_time", None)
    known = truth(data, subjects, seed=0)
    scene = Scene(model, subjects.auxiliary, subjects.targets, attributes=known.own, num_classes=3)
    for name, made in earlier.items():
        scene.earlier[name] = (ThreatModel(queries=True, auxiliary=True), made)
    attack = attacks.create("attribute", epochs=30, batch_size=25, hidden=32, lr=5e-3)
    return judge(attack.run(View(scene, attack.threat_model)), known)


def test_attributes_are_read_from_a_feature_that_shows_them() -> None:
    found = attribute(worlds.identity())
    assert found["bright from feature"]["rate"] > 0.9
    assert found["class from feature"]["rate"] > found["class from feature"]["guessing"] + 0.2


def test_attributes_are_not_read_from_a_constant_feature() -> None:
    found = attribute(worlds.constant(0.1))
    for name in ("bright from feature", "class from feature"):
        assert found[name]["ci95"][0] <= found[name]["guessing"] + 0.05


def test_attributes_are_read_from_a_perfect_reconstruction() -> None:
    data = AuditData(aux=worlds.pictures(200, seed=1), test=worlds.pictures(60, seed=2))
    truth_pictures = choose(data, "training_time", None).targets.images.float() / 255
    found = attribute(worlds.constant(0.1), decoder=Reconstruction(truth_pictures))
    assert found["bright from reconstruction"]["rate"] > 0.9


def test_attribute_inference_may_not_see_the_weights() -> None:
    view = worlds.view(worlds.identity(), attacks.create("attribute").threat_model)
    for hidden in ("edge", "cloud", "candidates"):
        with pytest.raises(ThreatModelError, match=hidden):
            getattr(view, hidden)
