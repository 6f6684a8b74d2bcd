"""What a user may choose about a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from splitveil.core.errors import UsageError
from splitveil.experiments.compare.measures import WORST
from splitveil.experiments.loose import items, number, table, text

LATE, KEPT = "late", "kept"


@dataclass(frozen=True)
class View:
    """Whose answers are scored (`attacks`), by what (`measure`), at which accuracies (`at`; empty: the highest that all
    cover), against which method (`baseline`) or which methods against which (`pairs`; both empty: every pair), and
    whether code versions may be put together. `accuracy`: of the last epochs (`late`) or the attacked weights (`kept`).
    """

    attacks: tuple[str, ...] = (WORST,)
    measure: str = "mse"
    at: tuple[float, ...] = ()
    baseline: str = ""
    pairs: tuple[tuple[str, str], ...] = ()
    mix_versions: bool = False
    accuracy: str = LATE

    def __post_init__(self) -> None:
        if self.accuracy not in (LATE, KEPT):
            raise UsageError(f"There is no accuracy called '{self.accuracy}'.", f"Choose {LATE} or {KEPT}.")
        for accuracy in self.at:
            if not 0 < accuracy < 1:
                raise UsageError(f"--at {accuracy:g} is not an accuracy between 0 and 1.", "For 88 % write 0.88.")
        if self.baseline and self.pairs:
            raise UsageError("A baseline and pairs cannot both say what is tested.", "Give one of them.")
        for place, (first, second) in enumerate(self.pairs):
            if first == second:
                raise UsageError(f"'{first}' cannot be tested against itself.", "A pair names two methods.")
            if {first, second} in [set(pair) for pair in self.pairs[:place]]:  # it would count twice in the correction
                raise UsageError(f"'{first}' and '{second}' are named as a pair twice.", "Name every pair once.")

    def plain(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value != getattr(View(), key)}

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> View:
        """From a data file."""
        attacks = tuple(name for item in items(tree.get("attacks")) if (name := text(item)))
        pairs = [tuple(name for word in items(pair) if (name := text(word))) for pair in items(tree.get("pairs"))]
        at = tuple(value for item in items(tree.get("at")) if (value := number(item)) is not None)
        return cls(
            attacks or (WORST,),
            text(tree.get("measure")) or "mse",
            at,
            text(table(tree).get("baseline")) or "",
            tuple((pair[0], pair[1]) for pair in pairs if len(pair) == 2),
            tree.get("mix_versions") is True,
            text(tree.get("accuracy")) or LATE,
        )
