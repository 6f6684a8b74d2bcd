"""Measures that audits were given beside MSE, SSIM and PSNR, from `extra` in an audit.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from splitveil.experiments.loose import number, table


@dataclass(frozen=True)
class Extra:
    """One measure: which way is more private, where the audit says it, and what guessing the mean picture has."""

    larger_is_private: bool | None
    floor: float | None


def parse_extra(entry: Any) -> Extra:
    larger = table(entry).get("larger_is_private")  # audits of earlier versions do not say it
    floor = table(table(table(entry).get("floor")).get("mean_image"))
    return Extra(larger if isinstance(larger, bool) else None, number(floor.get("mean")))


def means_of(attack: str, tree: dict[str, Any]) -> dict[str, float]:
    """What one attack reached, by each measure that was taken of it."""
    entries = {name: table(table(table(value).get("attacks")).get(attack)) for name, value in tree.items()}
    return {name: mean for name, entry in entries.items() if (mean := number(entry.get("mean"))) is not None}
