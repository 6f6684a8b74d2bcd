"""A stated privacy budget, such as "ssim<=0.5", held against the worst case: a gate for continuous integration."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from splitveil.core.errors import QualityGateError, UsageError, nearest

SAFE_SIDE = {"mse": ">=", "ssim": "<=", "psnr": "<="}  # the direction in which a measure protects
IDLE = "but the model is no better than always naming the most frequent class: one that works may leak more"
SANITY_HINT = "Leave out --no-sanity; where the recipe says sanity = false, add --sanity."
_TERM = re.compile(r"\s*([a-z_]+)\s*(<=|>=|<|>)\s*([-+0-9.eE]+)\s*")


@dataclass(frozen=True)
class Term:
    """One condition on the worst case over the attacks."""

    measure: str
    sign: str
    limit: float

    def met(self, value: float) -> bool:
        return {
            "<=": value <= self.limit,
            "<": value < self.limit,
            ">=": value >= self.limit,
            ">": value > self.limit,
        }[self.sign]

    def __str__(self) -> str:
        return f"{self.measure}{self.sign}{self.limit:g}"


def parse_budget(text: str) -> list[Term]:
    """Conditions separated by commas.

    >>> [str(term) for term in parse_budget("ssim<=0.5, mse>=0.02")]
    ['ssim<=0.5', 'mse>=0.02']
    """
    terms = []
    for piece in text.split(","):
        match = _TERM.fullmatch(piece)
        if match is None:
            raise UsageError(f"The budget '{piece.strip()}' is not of the form measure<=number.", "Try 'ssim<=0.5'.")
        measure, sign, number = match.groups()
        if measure not in SAFE_SIDE:
            raise UsageError(f"There is no measure called '{measure}'.", nearest(measure, SAFE_SIDE))
        if sign[0] != SAFE_SIDE[measure][0]:
            raise UsageError(
                f"The budget '{piece.strip()}' asks for more leakage.", f"{measure} protects with {SAFE_SIDE[measure]}."
            )
        try:
            terms.append(Term(measure, sign, float(number)))
        except ValueError:
            raise UsageError(f"'{number}' in the budget is not a number.") from None
    return terms


def judged(terms: list[Term], tree: dict[str, Any]) -> dict[str, Any]:
    """What `check_budget` finds as plain values, for `splitveil audit --json`.

    `reason` says why the budget was not met; without a verdict no term is judged. `surely`: so is the 95 % interval.
    """
    try:
        check_budget(terms, tree)
        reason = None
    except QualityGateError as error:
        reason = error.message
    worst = tree["worst_case"]
    decided = bool(worst) and tree["verdict"] is not None
    return {"met": reason is None, "reason": reason, "terms": [_judged(t, worst) for t in terms] if decided else []}


def _judged(term: Term, worst: dict[str, Any]) -> dict[str, Any]:
    found, interval = worst[term.measure], worst.get(f"{term.measure}_ci95")
    surely = interval is not None and all(map(term.met, [found, *interval]))  # one picture has no interval
    return {"term": str(term), "found": found, "ci95": interval, "met": term.met(found), "surely": surely}


def check_budget(terms: list[Term], tree: dict[str, Any]) -> list[str]:
    """Raise `QualityGateError` (exit code 3) when the worst case of an audit misses a condition.

    Otherwise one sentence for each condition: how it was met, and whether its 95 % interval reaches beyond the limit;
    and one more where the model is of no use.
    """
    if terms and not tree["worst_case"]:
        raise QualityGateError(
            "No attack of this audit made pictures, so there is nothing for a budget to judge.",
            "Add one that does, such as --attack decoder.",
        )
    if terms and tree["verdict"] is None and tree["sanity"] is None:
        raise QualityGateError(
            "There is no verdict: the sanity check was left out, and without it there is none.",
            SANITY_HINT,
        )
    if terms and tree["verdict"] is None:
        raise QualityGateError(
            "There is no verdict: the suite failed its own sanity check, an attack failed, or what was attacked is not "
            "what the model sends.",
            "Read 'warnings', 'sanity' and 'failures' in audit.json.",
        )
    worst = tree["worst_case"]
    missed = [f"{term} (found {worst[term.measure]:.4g})" for term in terms if not term.met(worst[term.measure])]
    if missed:
        raise QualityGateError(
            f"The privacy budget was missed: {'; '.join(missed)}.", "Strengthen the defence, or change the budget."
        )
    idle = [IDLE] if terms and tree.get("works") is False else []
    return [*(_met(term, worst) for term in terms), *idle]


def _met(term: Term, worst: dict[str, Any]) -> str:
    sentence = f"budget met: {term} (found {worst[term.measure]:.4g}"
    low, high = worst.get(f"{term.measure}_ci95") or (worst[term.measure],) * 2
    if term.met(low) and term.met(high):
        return sentence + ")"
    return (
        sentence + f", but its 95 % interval, {low:.4g} to {high:.4g}, reaches beyond the limit: attack more pictures)"
    )
