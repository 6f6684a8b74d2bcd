"""What is measured, which way is better, and how a number is written."""

from __future__ import annotations

import math
from dataclasses import dataclass

DASH = "-"


@dataclass(frozen=True)
class Measure:
    """One quantity. `sign` +1: more is better for its purpose (useful or private); -1: less is; 0: nobody knows."""

    name: str
    title: str
    sign: int
    digits: int
    percent: bool = False
    low: float = 0.0  # the smallest value there can be, and the largest
    high: float = math.inf
    form: str = "f"  # `digits` behind the point; "g": significant ones

    def write(self, value: float | None) -> str:
        """A value as it stands in a table: fractions in per cent, the rest plainly."""
        if value is None:
            return DASH
        return f"{100 * value if self.percent else value:.{self.digits}{self.form}}"

    def clip(self, value: float) -> float:
        """The nearest value that the quantity can have: an interval beyond it would say nothing more."""
        return min(self.high, max(self.low, value))


MEASURES = {
    measure.name: measure
    for measure in (
        Measure("accuracy", "accuracy %", +1, 2, percent=True, high=1.0),
        Measure("mse", "MSE", +1, 5),
        Measure("ssim", "SSIM", -1, 4, low=-1.0, high=1.0),
        Measure("psnr", "PSNR dB", -1, 2),
        Measure("psnr_batch", "PSNR (batch) dB", -1, 2),
        Measure("recon_acc", "recon_acc %", -1, 2, percent=True, high=1.0),
    )
}


def extra_measure(name: str, sign: int) -> Measure:
    """A measure that audits were given beside ours: its values may be of any size."""
    return Measure(name, name, sign, 4, low=-math.inf, form="g")


LEAKS = tuple(name for name in MEASURES if name != "accuracy")  # what an attack's entry in audit.json may hold
FINDINGS = {  # what is measured of an attack whose outcome is no picture: membership, or an attribute
    measure.name: measure
    for measure in (
        Measure("auc", "AUC", -1, 3, high=1.0),
        Measure("tpr_at_1_percent_fpr", "TPR % at 1 % FPR", -1, 2, percent=True, high=1.0),
        Measure("rate", "right %", -1, 2, percent=True, high=1.0),
        Measure("guessing", "guessing %", +1, 2, percent=True, high=1.0),
    )
}
SHOWN = ("accuracy", "mse", "ssim", "psnr", "recon_acc")
WORST = "worst_case"
WORST_ONCE = "worst_case_once"  # the same over attacks that see each picture sent once
