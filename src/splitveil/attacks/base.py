"""The contract of an attack: a declared adversary in, an outcome out.

An attack is one file: its `threat_model` says what the adversary may see, its `Options` how hard it tries, and
`run(view, progress)` does the work. It gets a `View` (view.py) that exposes exactly what the threat model grants.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from splitveil.core.errors import InputError
from splitveil.core.options import Options as AnyOptions

if TYPE_CHECKING:
    from splitveil.attacks.view import View


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


@dataclass(frozen=True)
class ThreatModel:
    """What an adversary may see. Everybody knows the shapes and the noise law of what is sent."""

    features: bool = True  # one transmission of each picture under attack
    repeats: bool = False  # further transmissions of the same pictures
    queries: bool = False  # what the device sends for pictures of the adversary's choice
    weights: bool = False  # both halves, and gradients through them
    cloud: bool = False  # the cloud half alone: the adversary is the server
    auxiliary: bool = False  # pictures of its own, from the same world
    labels: bool = False  # labels and other attributes of those pictures
    candidates: bool = False  # pictures, with labels, of which it asks whether they were trained on

    def granted(self) -> list[str]:
        """Names of what is granted, for people and for audit.json."""
        return [item.name for item in fields(self) if getattr(self, item.name)]

    def covers(self, other: ThreatModel) -> bool:
        """Whether this adversary sees everything the other one sees."""
        return set(other.granted()) <= set(self.granted())


@dataclass(frozen=True)
class Reconstruction:
    """Pictures an attack made from what was sent: the first `len(images)` of the pictures under attack, in order.

    `variants` are further answers of the same attack (an early-stopped decoder). `curve` pairs effort (epochs,
    capacity) with the error the attacker itself can measure: it shows whether the attack had converged.
    """

    images: Tensor  # [M, ch, h, w] floats in [0, 1]
    variants: dict[str, Tensor] = field(default_factory=dict)
    curve: list[tuple[float, float]] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Inference:
    """What an attack found out that is not a picture. The attack does not know the truth; the audit does.

    `scores` rate each candidate (higher: rather trained on); `predictions` name a value of an attribute for each
    picture under attack, as "ATTRIBUTE from SOURCE".
    """

    scores: dict[str, Tensor] = field(default_factory=dict)
    predictions: dict[str, Tensor] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)


Outcome = Reconstruction | Inference


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
