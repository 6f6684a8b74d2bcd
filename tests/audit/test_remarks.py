"""What an audit says besides the numbers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import torch
from tests import worlds

import splitveil as sv
from splitveil.audit.checks import answers
from splitveil.audit.metrics import PictureScores
from splitveil.audit.plan import departures, make_plan, own_options
from splitveil.audit.remarks import (
    fewer_pictures,
    less_than_the_answer,
    no_better_than_guessing,
    no_use,
    no_verdict,
    single_pictures,
    verdict,
    warnings,
)
from splitveil.audit.subjects import AuditData
from splitveil.data.dataset import ImageSet
from splitveil.report.audit_sentences import in_chinese

FLOOR = PictureScores(*(torch.full((40,), 0.1) for _ in range(2)))


def said(curve: list[list[float]]) -> list[str]:
    return warnings({"decoder": {"curve": curve}}, FLOOR, 40)


def test_a_decoder_that_does_worse_than_least_squares_proves_nothing() -> None:
    def told(decoder: list[float] | None, linear: list[float] | None, strong: list[float] | None = None) -> bool:
        intervals = {"decoder": decoder, "linear": linear, "decoder_strong": strong}
        entries = {name: {"curve": [], "mse_ci95": interval} for name, interval in intervals.items()}
        found = warnings(entries, FLOOR, 40)
        assert all("stays behind least squares" in text and in_chinese(text) != text for text in found)
        return bool(found)

    assert told([0.024, 0.028], [0.019, 0.023])
    assert not told([0.024, 0.028], [0.019, 0.025])  # within the intervals
    assert not told([0.011, 0.012], [0.015, 0.016])
    assert not told(None, [0.015, 0.016])  # one picture has no interval
    assert told([0.024, 0.028], [0.015, 0.016], strong=[0.023, 0.027])
    assert not told([0.024, 0.028], [0.015, 0.016], strong=[0.008, 0.009])  # what a better decoder makes is known
    assert not any("least squares" in text for text in warnings({"linear": {"curve": []}}, FLOOR, 40))


@pytest.mark.parametrize(
    "errors", [[0.109, 0.058], [0.2, 0.1, 0.09], [0.4, 0.3, 0.2, 0.1], [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.38]]
)
def test_an_attack_that_still_learns_is_told_however_short_it_was(errors: list[float]) -> None:
    assert ["Still improving" in text for text in said([[i + 1.0, e] for i, e in enumerate(errors)])] == [True]


def test_one_sentence_speaks_of_all_attacks_that_were_cut_short_alike() -> None:
    improving, settled = [[1.0, 0.4], [2.0, 0.3]], [[1.0, 0.4], [2.0, 0.4]]
    entries = {"decoder": {"curve": improving}, "gan": {"curve": [[1.0, 0.4]]}, "linear": {"curve": settled}}
    entries |= {"average": {"curve": improving}, "prior": {"curve": [[1.0, 0.3]]}}
    entries |= {name: {"curve": [], "still_growing": True} for name in ("decoder_strong", "substitute")}
    told = warnings(entries, FLOOR, 40)
    assert [text.partition(": ")[2] for text in told] == [
        "gan, prior.",
        "decoder_strong, substitute.",
        "decoder, average.",
    ]
    assert all(in_chinese(text) != text for text in told)


def test_a_single_epoch_says_nothing_about_more_of_them() -> None:
    assert ["single pass" in text for text in said([[1.0, 0.1]])] == [True]


@pytest.mark.parametrize("errors", [[], [0.1, 0.0999], [0.1, 0.2], [0.2, 0.1, 0.099], [0.4, 0.1, 0.1, 0.1]])
def test_an_attack_that_has_settled_is_not(errors: list[float]) -> None:
    assert said([[i + 1.0, e] for i, e in enumerate(errors)]) == []


@pytest.mark.parametrize("growing", [True, False])
def test_a_network_that_still_gains_from_growth_is_told_and_its_vote_is_no_course(growing: bool) -> None:
    """The last point of such a curve is the vote of all, nearly always better than the best of them."""
    floor = PictureScores(*(torch.full((40,), 0.1) for _ in range(2)))
    curve = [[1.0, 0.10], [2.0, 0.08], [3.0, 0.08], [4.0, 0.08], [8.0, 0.07]]
    told = warnings({"decoder_strong": {"curve": curve, "still_growing": growing}}, floor, 40)
    assert ["Gained from every growth" in text for text in told] == [True] * growing


def test_two_sizes_of_a_network_are_no_course_of_training() -> None:
    assert said([[10_000.0, 0.1], [20_000.0, 0.05]]) == []


@pytest.mark.parametrize(
    ("count", "words"), [(1, "Only 1 picture was attacked:"), (2, "Only 2 pictures were attacked:")]
)
def test_one_picture_is_not_called_pictures(count: int, words: str) -> None:
    floor = PictureScores(*(torch.full((count,), 0.1) for _ in range(2)))
    (told,) = warnings({}, floor, count)
    assert told.startswith(words)
    assert in_chinese(told) != told
    (fewer,) = fewer_pictures({"optimize": {"num_images": 1}, "decoder": {"num_images": 9}}, count)
    assert ("first picture," in fewer) == (count == 1)


@pytest.mark.parametrize(("count", "said"), [(29, True), (30, False)])
def test_fewer_than_thirty_pictures_make_no_interval(count: int, said: bool) -> None:
    assert bool(warnings({}, scores(0.1, count), count)) is said


def test_pictures_that_hardly_differ_show_nothing() -> None:
    assert ["hardly differ from their mean" in text for text in warnings({}, scores(1e-7), 40)] == [True]


def checked(broken: bool, blind: bool) -> dict:
    return {"passed": broken and blind, "undefended": {"passed": broken}, "constant": {"passed": blind}}


@pytest.mark.parametrize(
    ("sanity", "failures", "words"),
    [
        (checked(False, True), {}, ["sends the picture itself"]),
        (checked(True, False), {}, ["sends nothing"]),
        (checked(False, False), {}, ["sends the picture itself", "sends nothing"]),
        (checked(True, True), {"decoder": "no memory", "linear": "no luck"}, ["decoder and linear broke down"]),
        (None, {"decoder": "no memory"}, ["decoder broke down"]),
    ],
)
def test_why_there_is_no_verdict_is_one_sentence(sanity: dict | None, failures: dict, words: list[str]) -> None:
    (text,) = no_verdict(sanity, failures, [])
    assert text.startswith("There is no verdict: ")
    assert all(word in text for word in words)


@pytest.mark.parametrize(
    ("sanity", "failures", "doubts", "given"),
    [
        (checked(True, True), {}, [], True),
        (None, {}, [], False),
        (checked(False, True), {}, [], False),
        (checked(True, False), {}, [], False),
        (checked(True, True), {"decoder": "no memory"}, [], False),  # the strongest may be the one that is missing
        (checked(True, True), {}, ["another law at the end"], False),
    ],
)
def test_there_is_a_verdict_only_where_nothing_speaks_against_it(
    sanity: dict | None, failures: dict, doubts: list[str], given: bool
) -> None:
    found = verdict(scores(0.02), scores(0.08), failures, sanity, doubts)
    assert (found is not None) is given
    if found is not None:
        assert found["leak"] == pytest.approx(0.75)  # 1 - .02/.08


@pytest.mark.parametrize("sanity", [checked(True, True), None])  # None: the caller left the check out
def test_where_nothing_went_wrong_nothing_is_said(sanity: dict | None) -> None:
    assert no_verdict(sanity, {}, []) == []


def test_a_report_gives_verdict_and_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    world = AuditData(aux=worlds.pictures(80, seed=1), test=worlds.pictures(40, seed=2))
    good = sv.audit(worlds.identity(), world, attacks=["linear"])
    assert good.verdict is not None
    assert good.verdict["leak"] > 0.9
    useless, fewer = good.warnings
    assert "no better than always naming" in useless  # its cloud half was never trained
    assert "not asked for: decoder, average, retrieval" in fewer
    assert (good.tree["works"], good.tree["accuracy_guessing"]) == (False, 19 / 40)  # 19 pictures of one class
    assert good.warnings == good.tree["warnings"]
    monkeypatch.setattr("splitveil.audit.findings.sanity", lambda *_: checked(False, True))
    bad = sv.audit(worlds.identity(), world, attacks=["linear"])
    assert bad.verdict is None
    assert "There is no verdict" in bad.warnings[0]


@pytest.mark.parametrize(("accuracy", "said"), [(0.10, True), (0.45, True), (0.60, True), (0.72, False), (0.90, False)])
def test_a_model_that_is_good_for_nothing_is_named(accuracy: float, said: bool) -> None:
    """100 pictures, 60 of the most frequent class: guessing that one is right for 60 ± 9.8 of 100."""
    labels = torch.tensor([0] * 60 + [1] * 25 + [2] * 15)
    found = no_use(accuracy, labels)
    assert bool(found) is said
    if said:
        assert f"{accuracy:.1%}" in found[0]
        assert in_chinese(found[0]) != found[0]


def scores(mse: float, count: int = 40) -> PictureScores:
    return PictureScores(torch.full((count,), mse), torch.zeros(count))


@pytest.mark.parametrize(("low", "said"), [(0.11, True), (0.10, False), (0.02, False)])
def test_an_attack_that_a_guess_beats_is_no_evidence(low: float, said: bool) -> None:
    """Guessing has 0.1 on the first 20 pictures, which this attack saw, and 0.3 on the others, which it did not."""
    guess = PictureScores(torch.tensor([0.1] * 20 + [0.3] * 20), torch.zeros(40))
    entries = {
        "optimize": {"mse_ci95": [low, 0.9], "num_images": 20},
        "linear": {"mse_ci95": [0.0, 0.1], "num_images": 40},
    }
    found = no_better_than_guessing(entries, scores(0.05), {"mean_image": guess})
    assert ["no evidence for the defence: optimize." in text for text in found] == [True] * said
    assert all(in_chinese(text) != text for text in found)


@pytest.mark.parametrize(("reached", "said"), [(0.05, True), (0.04, True), (0.03, False)])
def test_where_the_class_alone_explains_the_worst_case_it_is_told(reached: float, said: bool) -> None:
    floor_scores = {"mean_image": scores(0.1), "class_mean": scores(0.04)}
    found = no_better_than_guessing({}, scores(reached, 20), floor_scores)
    assert ["MSE 0.0400" in text and "the class and nothing else" in text for text in found] == [True] * said
    assert all(in_chinese(text) != text for text in found)
    assert no_better_than_guessing({}, scores(reached, 0), floor_scores) == []  # no attack made pictures
    assert (
        no_better_than_guessing({}, scores(reached), {"mean_image": scores(0.1)}) == []
    )  # labels that mean another thing


@pytest.mark.parametrize(
    ("attacks", "epochs", "words"),
    [
        (None, None, []),
        (["linear", "retrieval"], None, ["not asked for: decoder, average."]),
        (["decoder", "linear", "average", "retrieval"], None, []),  # a name alone means the tier's own options
        (None, 2, ["decoder.epochs 2 (8), average.epochs 2 (8)."]),
        (
            {"decoder": {"width": 8}, "linear": {}, "average": {}, "retrieval": {}, "gan": {}},
            None,
            ["decoder.width 8 (48)."],
        ),
    ],
)
def test_what_is_less_than_a_tier_does_not_pass_for_it(attacks: object, epochs: int | None, words: list[str]) -> None:
    found = departures("smoke", make_plan("smoke", attacks, epochs))
    assert len(found) == len(words)
    for text, word in zip(found, words, strict=True):
        assert text.endswith(word)
        assert "'smoke'" in text
        assert in_chinese(text) != text


def test_an_audit_says_so_itself() -> None:
    world = AuditData(aux=worlds.pictures(80, seed=1), test=worlds.pictures(40, seed=2))
    found = sv.audit(worlds.constant(), world, attacks=["linear"], epochs=3, check_sanity=False)
    told = found.warnings
    assert (found.tree["plan"], found.tree["epochs"]) == ({"linear": {}}, 3)  # linear has no epochs
    assert abs(datetime.now(UTC) - datetime.fromisoformat(found.tree["ended"])) < timedelta(hours=1)
    assert any("not asked for: decoder, average, retrieval." in text for text in told)
    (departure,) = found.tree["departures"]
    assert departure in told
    assert "tier smoke (altered, see the notes), " in str(found)
    assert any("the class and nothing else" in text for text in told)  # nothing was sent
    noisy = sv.audit(worlds.identity(sigma=0.1), world, attacks=["linear"], check_sanity=False)
    assert "Against the defence 'noise' a knowing attacker would also use decoder, average." in noisy.warnings


@pytest.mark.parametrize(
    ("attacks", "epochs", "own"),
    [
        (None, None, {}),
        (["linear", "optimize"], None, {}),
        ({"decoder": {"width": 8, "blocks": 2}}, None, {"decoder": {"width": 8}}),  # two blocks are the tier's
        ("decoder", 3, {"decoder": {"epochs": 3}}),
    ],
)
def test_options_beside_those_of_the_tier_are_kept(attacks, epochs, own) -> None:
    assert own_options("smoke", make_plan("smoke", attacks, epochs)) == own


@pytest.mark.parametrize(("reached", "said"), [(0.08, True), (0.054, False), (0.02, False)])
def test_attacks_that_read_less_than_the_model_does_have_failed(reached: float, said: bool) -> None:
    """The mean picture of the class it names scores 0.05 ± 0.0016: 0.054 is surely more, but by less than a tenth."""
    answered = PictureScores(torch.tensor([0.04, 0.06] * 20), torch.zeros(40))
    found = less_than_the_answer(scores(reached), answered)
    assert bool(found) is said
    if said:
        assert "0.0500" in found[0]
        assert "0.0800" in found[0]
    later = PictureScores(torch.tensor([0.001, 0.9] * 20), torch.zeros(40))  # costly attacks did not look at these
    both = PictureScores(torch.cat([answered.mse, later.mse]), torch.zeros(80))
    assert less_than_the_answer(scores(reached), both) == found
    assert less_than_the_answer(scores(reached), None) == []
    assert less_than_the_answer(scores(reached, 1), answered) == []


def test_the_answer_is_that_to_what_is_sent() -> None:
    """A cloud half hears the feature with its noise: its answer to the clean one may tell more than it ever says."""
    model, pictures = worlds.identity(sigma=5.0), worlds.pictures(90, seed=2)
    x = pictures.images.float() / 255
    expected = model.cloud(model.send(x, torch.Generator().manual_seed(4))).argmax(1)
    assert not torch.equal(expected, model.cloud(model.edge(x)).argmax(1))
    assert torch.equal(answers(model, pictures.images, torch.Generator().manual_seed(4)), expected)


@pytest.mark.parametrize(("right", "labelled", "doubted"), [(1, 1, True), (-1, 1, False), (1, -1, False)])
def test_a_model_whose_answer_tells_more_than_its_attacks_has_no_verdict(
    right: int, labelled: int, doubted: bool
) -> None:
    """The class is told by a code that no attack of this audit reads, and by nothing else; the cloud half knows it.

    Where it names the other class (`right` = -1), or the attacker's pictures are labelled the wrong way round, nobody
    has a picture that is closer than what the attacks gave.
    """

    class Codes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            dark = (x.flatten(1).mean(1) < 0.5).float()  # the class
            scrambled = x[:, :, ::2, ::2] * 255 * 61.8034 % 1  # [N, 1, 4, 4]
            return (scrambled * 64).round() + dark.view(-1, 1, 1, 1) / 4  # whole numbers, and a quarter more

    class Reads(torch.nn.Module):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            told = (z - z.floor()).flatten(1).mean(1)
            return right * torch.stack([0.125 - told, told - 0.125], 1)

    def world(count: int, seed: int, sign: int = 1) -> ImageSet:
        images = worlds.pictures(count, seed).images
        return ImageSet(images, (sign * images.float().flatten(1).mean(1) < sign * 127.5).long())

    model = sv.SplitModel(Codes(), Reads(), num_classes=2)
    data = AuditData(aux=world(200, 1, labelled), test=world(60, 2))
    found = sv.audit(model, data, attacks=["linear", "retrieval"])
    assert found.tree["accuracy"] == (right + 1) / 2
    assert (found.verdict is None) is doubted
    if not doubted:
        return
    assert found.warnings[0].startswith(
        "There is no verdict: the mean picture of the class that the model itself names"
    )


@pytest.mark.parametrize(
    ("error", "others", "said"), [(0.009, 0.09, True), (0.09, 0.09, False), (0.011, 0.09, False), (0.009, 0.02, False)]
)
def test_pictures_that_are_sent_as_they_are_do_not_hide_behind_the_average(
    error: float, others: float, said: bool
) -> None:
    worst = PictureScores(torch.tensor([error] * 3 + [others] * 37), torch.zeros(40))
    found = single_pictures(worst, scores(0.1))
    assert bool(found) is said
    if said:
        assert found[0].startswith("3 of 40 pictures came back")
        assert in_chinese(found[0]) != found[0]


def test_what_is_left_on_average_is_the_share_of_the_whole_error() -> None:
    """Half of the pictures are ten times as hard to guess: 0.005 and 0.55 of 0.1 and 1 are left, together half."""
    worst = PictureScores(torch.tensor([0.005, 0.55] * 20), torch.zeros(40))
    guess = PictureScores(torch.tensor([0.1, 1.0] * 20), torch.zeros(40))
    (found,) = single_pictures(worst, guess)
    assert "on average 50% of it is left" in found  # .555/1.1; the mean of the two shares would be 30 %


def test_a_picture_that_is_the_mean_itself_is_no_discovery() -> None:
    assert single_pictures(scores(0.0), scores(0.0)) == []


def test_an_audit_tells_of_single_pictures() -> None:
    class SendsDarkOnes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            dark = (x.flatten(1).mean(1) < 0.3).float().view(-1, 1, 1, 1)
            z = torch.nn.functional.pixel_unshuffle(x, 2)
            return torch.cat([z, torch.ones_like(z[:, :1])], 1) * dark  # linear, where the fifth channel says so

    data = AuditData(aux=worlds.pictures(300, seed=1), test=worlds.pictures(100, seed=2))
    dark = int((data.test.images.float().flatten(1).mean(1) < 0.3 * 255).sum())
    found = sv.audit(worlds.split_model(SendsDarkOnes(), 5), data, attacks=["linear"], check_sanity=False)
    assert dark > 3
    assert any(text.startswith(f"{dark} of 100 pictures came back") for text in found.warnings)
