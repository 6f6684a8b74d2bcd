"""A budget is met, missed, or nonsense."""

from __future__ import annotations

import pytest

from splitveil.audit.budget import check_budget, judged, parse_budget
from splitveil.core.errors import QualityGateError, UsageError

TREE = {"worst_case": {"mse": 0.03, "ssim": 0.5, "psnr": 15.0}, "verdict": {"leak": 0.5}}


@pytest.mark.parametrize("text", ["ssim<=0.5", "mse>0.02", "psnr<16, ssim <= 0.6", "mse>=3e-2"])
def test_met(text: str) -> None:
    check_budget(parse_budget(text), TREE)


@pytest.mark.parametrize("text", ["ssim<0.5", "mse>=0.04", "ssim<=0.6,psnr<=14.9"])
def test_missed_with_exit_code_three(text: str) -> None:
    with pytest.raises(QualityGateError, match="missed") as caught:
        check_budget(parse_budget(text), TREE)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(("sanity", "sentence"), [({"passed": False}, "failed its own"), (None, "was left out")])
def test_no_verdict_no_pass(sanity: object, sentence: str) -> None:
    tree = TREE | {"verdict": None, "sanity": sanity}
    with pytest.raises(QualityGateError, match=f"no verdict.*{sentence}") as caught:
        check_budget(parse_budget("ssim<=0.9"), tree)
    assert ("--no-sanity" in caught.value.hint) == (sanity is None)
    check_budget([], tree)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("ssim", "not of the form"), ("sim<=0.5", "ssim"), ("ssim>=0.5", "more leakage"), ("mse>=1e", "not a number")],
)
def test_nonsense(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse_budget(text)


def test_a_budget_that_is_met_says_how_and_how_surely() -> None:
    worst = TREE["worst_case"] | {"mse_ci95": [0.028, 0.032], "ssim_ci95": [0.4, 0.6]}
    sentences = check_budget(parse_budget("mse>=0.02, ssim<=0.55, psnr<=16"), TREE | {"worst_case": worst})
    assert sentences[0] == "budget met: mse>=0.02 (found 0.03)"
    assert "ssim<=0.55 (found 0.5" in sentences[1]
    assert "0.4 to 0.6, reaches beyond the limit" in sentences[1]
    assert sentences[2] == "budget met: psnr<=16 (found 15)"  # an audit without intervals
    assert check_budget([], TREE) == []


def test_a_model_of_no_use_meets_its_budget_with_a_remark() -> None:
    """A network that was never trained, or has collapsed, leaks little: the log of a gate must say so."""
    terms = parse_budget("mse>=0.02")
    assert len(check_budget(terms, TREE | {"works": True})) == 1
    assert "no better than always naming the most frequent class" in check_budget(terms, TREE | {"works": False})[1]
    assert check_budget([], TREE | {"works": False}) == []


def test_the_judgement_as_values() -> None:
    tree = TREE | {"worst_case": TREE["worst_case"] | {"mse_ci95": [0.028, 0.032], "ssim_ci95": [0.4, 0.6]}}
    assert judged(parse_budget("mse>=0.02, ssim<=0.55, psnr<=14"), tree) == {
        "met": False,
        "reason": "The privacy budget was missed: psnr<=14 (found 15).",
        "terms": [
            {"term": "mse>=0.02", "found": 0.03, "ci95": [0.028, 0.032], "met": True, "surely": True},
            {"term": "ssim<=0.55", "found": 0.5, "ci95": [0.4, 0.6], "met": True, "surely": False},
            {"term": "psnr<=14", "found": 15.0, "ci95": None, "met": False, "surely": False},
        ],
    }
    assert judged(parse_budget("mse>=0.02"), tree)["reason"] is None


def test_without_an_interval_nothing_is_sure() -> None:
    """One picture has none, however far from the limit it is."""
    (term,) = judged(parse_budget("ssim<=0.9"), TREE)["terms"]
    assert term == {"term": "ssim<=0.9", "found": 0.5, "ci95": None, "met": True, "surely": False}


def test_without_a_verdict_no_condition_is_judged() -> None:
    found = judged(parse_budget("ssim<=0.9"), TREE | {"verdict": None, "sanity": None})
    assert found["met"] is False
    assert "sanity check was left out" in found["reason"]
    assert found["terms"] == []
