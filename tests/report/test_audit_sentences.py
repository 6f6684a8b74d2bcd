"""Every remark that an audit can make has a Chinese form: the page has two languages, and the audit's file one."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from types import ModuleType

import pytest

from splitveil import attacks
from splitveil.audit import extra, other_pictures, remarks, sent_noise, steadiness
from splitveil.report.audit_sentences import AUDIT_SENTENCES, in_chinese

# what stands in the holes of a sentence where a number would not do
FILLED = {
    "attacked": "3 pictures were",
    "where": " in one of the values",
    "first": "first 3 pictures",
    "who": "The model",
    "model.why_hidden": "Only the graphs of the artefact were attacked, because it has no weights",
    "known": "Only the graphs of the artefact were attacked, because it has no weights: an attacker who has the device "
    "may do more, and no bound is known.",
    "model.caveat": "",
    "'; '.join(reasons)": "decoder broke down",
}
NOT_TOLD = ("Give pictures of the same classes in the same order", "It is given reconstructions")  # hints of errors


def sentences(module: ModuleType) -> list[str]:
    """The strings of a module that are whole sentences, with something in their holes."""
    tree = ast.parse(inspect.getsource(module))
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    inside |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.Raise) for part in ast.walk(node)}
    inside |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    found = []
    for node in ast.walk(tree):
        if id(node) in inside:
            continue
        if isinstance(node, ast.JoinedStr):
            found.append("".join(_part(part) for part in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    whole = [one.rstrip() for one in found if len(one) > 30]
    return [one for one in whole if one.endswith(".") and (one[0].isupper() or one[0].isdigit())]


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    return FILLED.get(ast.unparse(part.value), "3")


@pytest.mark.parametrize("module", [remarks, other_pictures, sent_noise, extra], ids=lambda module: module.__name__)
def test_every_remark_of_an_audit_has_a_chinese_form(module: ModuleType) -> None:
    told = [one for one in sentences(module) if not one.startswith(NOT_TOLD)]
    assert told
    assert [one for one in told if in_chinese(one) == one] == []


def test_why_an_attack_has_nothing_to_do_has_a_chinese_form() -> None:
    found = []
    for module in pkgutil.iter_modules(attacks.__path__, "splitveil.attacks."):
        for node in ast.walk(ast.parse(inspect.getsource(importlib.import_module(module.name)))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "NotApplicableError":
                parts = [part.values if isinstance(part, ast.JoinedStr) else [part] for part in node.args]
                found.append(" ".join("".join(map(_part, part)) for part in parts))  # message and hint
    assert len(found) >= 4
    assert [one for one in found if in_chinese(one) == one] == []


@pytest.mark.parametrize("reason", [steadiness.ALONE, steadiness.LATER, "decoder and average broke down"])
def test_the_reasons_for_no_verdict_are_told_one_by_one(reason: str) -> None:
    both = in_chinese(f"There is no verdict: {reason}; linear broke down.")
    assert reason not in both
    assert both == f"没有结论：{in_chinese(reason)}；linear 失败。"  # noqa: RUF001


def test_attacks_that_broke_down_are_listed_as_in_chinese() -> None:
    assert in_chinese("There is no verdict: decoder and linear broke down.") == "没有结论：decoder、linear 失败。"  # noqa: RUF001


@pytest.mark.parametrize(
    "sentence",
    [
        "The attack 'decoder' was still improving when it ended: a longer one would leak more.",
        "The attack 'linear' made a single pass: whether a longer one would leak more is not known.",
        "The attack 'decoder_strong' gained from every growth it was allowed: a larger one would leak more.",
    ],
)
def test_remarks_of_earlier_audits_have_a_chinese_form(sentence: str) -> None:
    assert in_chinese(sentence).startswith(f"攻击 “{sentence.split(chr(39))[1]}” ")


def test_a_number_that_a_sentence_leaves_out_is_one() -> None:
    assert "（1）" in in_chinese("The worst case is over the first picture, which every attack looked at.")  # noqa: RUF001
    assert "（16）" in in_chinese("The worst case is over the first 16 pictures, which every attack looked at.")  # noqa: RUF001


def test_no_sentence_loses_what_its_braces_held() -> None:
    for pattern, chinese in AUDIT_SENTENCES.items():
        named = {int(one) for one in re.findall(r"\{(\d+)\}", chinese)}
        groups = re.compile(pattern).groups
        assert named == set(range(1, groups + 1)), pattern
