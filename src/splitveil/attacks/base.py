"""The contract of an attack: a declared adversary in, an outcome out.

An attack is one file: its `threat_model` says what the adversary may see, its `Options` how hard it tries, and
`run(view, progress)` does the work. It gets a `View` (view.py) that exposes exactly what the threat model grants.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from splitveil.attacks.outcome import Inference, Outcome, Reconstruction
from splitveil.attacks.threat import ThreatModel
from splitveil.attacks.view import View
from splitveil.core.errors import InputError
from splitveil.core.options import Options as AnyOptions

__all__ = [  # all that the file of an attack needs
    "Attack",
    "Inference",
    "NotApplicableError",
    "Outcome",
    "Progress",
    "Reconstruction",
    "ThreatModel",
    "View",
    "round_of",
    "silent",
]


class NotApplicableError(InputError):
    """Raised by an attack that has nothing to do here, such as membership inference without members.

    The audit says so and goes on; the verdict does not depend on it.
    """


Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


def silent(what: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def round_of(progress: Progress, what: str, number: int = 0, rounds: int = 1) -> Callable[[int, int], None]:
    """A callback for training one network of several: its (epochs done, epochs in all), told as progress of the attack.

    The network is round `number` (from 0) of `rounds`, which are taken to be equally long.
    """

    def report(done: int, total: int) -> None:
        progress(what, number * total + done, rounds * total)

    return report


class Attack(ABC):
    """Base class of all attacks."""

    name: ClassVar[str]
    threat_model: ClassVar[ThreatModel]
    Options: ClassVar[type[AnyOptions]] = AnyOptions

    def __init__(self, options: AnyOptions | None = None) -> None:
        self.options: Any = self.Options() if options is None else options

    @abstractmethod
    def run(self, view: View, progress: Progress = silent) -> Outcome:
        """Attack. Randomness comes from `view.generator(...)` only, so that a seed fixes the outcome."""
