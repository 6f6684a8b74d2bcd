"""Which method the page speaks about first."""

from __future__ import annotations

from dataclasses import dataclass

from splitveil.report.audit_file import Scores
from splitveil.report.caveats import caveats
from splitveil.report.markup import Phrase
from splitveil.report.method import Method, mean

ACCURACY_PRICE = 0.03  # the headline may cost at most this much accuracy, if any method is that cheap


@dataclass(frozen=True)
class Verdict:
    """The headline method (None when nothing was attacked), the undefended one beside it, and the floor.

    `cheap` and `defended` count the attacked methods that cost little accuracy, and all defended ones.
    """

    headline: Method | None
    undefended: Method | None
    floor: Scores
    caveats: tuple[Phrase, ...]
    cheap: int
    defended: int


def judge(methods: list[Method]) -> Verdict:
    """Of the defended methods that work and cost little accuracy, the one that leaks least; else whatever there is."""
    everything = [method for method in methods if method.leak.known]
    attacked = [method for method in everything if not method.idle] or everything
    undefended = next((method for method in attacked if method.undefended), None)
    defended = [method for method in attacked if _defended(method, undefended)]
    cheap = [method for method in defended if _price(method, undefended, defended) <= ACCURACY_PRICE]
    pool = cheap or defended or ([undefended] if undefended else attacked)
    headline = min(pool, key=_protection) if pool else None
    # the headline's own floor: another run may have been attacked on other pictures
    ranked = [] if headline is None else [headline, *(method for method in pool if method is not headline)]
    floor = next((found for method in ranked if (found := _floor(method)).known), Scores())
    said = tuple(caveats(methods, headline, undefended, floor))
    return Verdict(headline, undefended, floor, said, len(cheap), len(defended))


def _defended(method: Method, undefended: Method | None) -> bool:
    """By a surrogate or a defence, or by more noise than the undefended model has. With as much noise it is another
    undefended model: what it leaks less is due to its other settings."""
    if not method.unprotected:
        return True
    return undefended is not None and (method.runs[0].sigma or 0.0) > (undefended.runs[0].sigma or 0.0)


def _floor(method: Method) -> Scores:
    """Guessing the mean picture, over the same runs as the method's own numbers: each seed has other pictures."""
    floors = [run.audit.floors["mean_image"] for run in method.counted if "mean_image" in run.audit.floors]
    return Scores(mean(one.mse for one in floors), mean(one.ssim for one in floors), mean(one.psnr for one in floors))


def _price(method: Method, undefended: Method | None, defended: list[Method]) -> float:
    """Accuracy lost, beside the undefended model; without one beside the most accurate method on the same data, which
    costs something itself: at least this much."""
    beside = [undefended] if undefended else [other for other in defended if _data(other) == _data(method) is not None]
    best = max((other.accuracy for other in beside if other.accuracy is not None), default=None)
    if best is None or method.accuracy is None:
        return 0.0
    return round(best - method.accuracy, 9)  # .90 - .87 is more than .03 in binary


def _data(method: Method) -> str | None:
    """What the method's accuracy was measured on; None where it compares with no other."""
    run = method.runs[0]
    return run.data_name if run.says_how_defended and not method.auditors_accuracy else None


def _protection(method: Method) -> tuple[float, float]:
    """Sorts best protection first: highest MSE, then lowest SSIM."""
    leak = method.leak
    return (-(leak.mse if leak.mse is not None else -1.0), leak.ssim if leak.ssim is not None else 1.0)
