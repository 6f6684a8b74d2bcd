"""What a run is called when no sweep has named it, and which of its settings are strengths.

A method is a surrogate with its mode or preset, and the defences beside it. Its strengths are the numbers below
[surrogate] and [defence.*], and `train.privacy_weight`: turning them moves a run along the method's own curve. Every
other difference makes another method; so does `surrogate.rate_sigma`, which moves the curve itself.
"""

from __future__ import annotations

from typing import Any

from splitveil.core.dotted import flatten
from splitveil.experiments.compare.record import Settings
from splitveil.experiments.loose import text

WEIGHT = "train.privacy_weight"
# parts of the model rather than protections: they do not make an undefended run a defended one
STRUCTURAL = ("bottleneck", "noise")
# A number, but no strength: older runs of the corrected mode lack it, and would share a curve with newer ones.
RATE_SIGMA = "surrogate.rate_sigma"
# Neither changes what a run computes, only what it leaves behind.
IDLE = ("train.checkpoint_every", "train.keep_every", "train.store_gates")


def comparable(config: dict[str, Any]) -> dict[str, Any]:
    """The settings that make a run what it is: without the seed, the audit (it is read from the audit itself) and
    whatever changes nothing, such as the weight of a surrogate that is not there."""
    flat = {key: value for key, value in flatten(config).items() if key != "seed" and key not in IDLE}
    flat = {key: value for key, value in flat.items() if not key.startswith("audit.")}
    if flat.get("surrogate.name") in (None, "none"):
        flat = {key: value for key, value in flat.items() if not key.startswith("surrogate.") and key != WEIGHT}
    if isinstance(flat.get("data.name"), str):
        flat["data.name"] = flat["data.name"].replace("\\", "/").rstrip("/").split("/")[-1]  # no paths of a machine
    return flat


def defences(settings: Settings) -> list[str]:
    """Names of the [defence.*] tables, in their order."""
    return list(dict.fromkeys(key.split(".")[1] for key in settings if key.startswith("defence.")))


def acting(settings: Settings) -> dict[str, Any]:
    """The same without a surrogate that had weight 0: it did not act."""
    silent = settings.get(WEIGHT) == 0
    return {key: value for key, value in settings.items() if not (silent and key.startswith("surrogate."))}


def is_defended(settings: Settings) -> bool:
    """Whether a surrogate or a defence acts besides bottleneck and noise."""
    return "surrogate.name" in acting(settings) or not set(defences(settings)) <= set(STRUCTURAL)


def method_name(settings: Settings) -> str:
    """For example "gmm (gmm.released) + nopeek"; without any protection "noise only" or "undefended"."""
    words = []
    settings = acting(settings)
    surrogate = text(settings.get("surrogate.name"))
    if surrogate:
        kind = text(settings.get("surrogate.preset")) or text(settings.get("surrogate.mode"))
        words.append(f"{surrogate} ({kind})" if kind else surrogate)
    words += [name for name in defences(settings) if name not in STRUCTURAL]
    if words:
        return " + ".join(words)
    return "noise only" if "noise" in defences(settings) else "undefended"


def is_strength(key: str, value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and key != RATE_SIGMA and (key == WEIGHT or key.startswith(("surrogate.", "defence.")))


def short_key(key: str) -> str:
    """A key as it is written in a table.

    >>> short_key("train.privacy_weight"), short_key("defence.noise.sigma"), short_key("surrogate.loss_scale")
    ('weight', 'noise.sigma', 'loss_scale')
    """
    if key == WEIGHT:
        return "weight"
    return key.removeprefix("defence.").removeprefix("surrogate.")


def write_settings(settings: Settings) -> str:
    """For example "weight 16, noise.sigma 0.025"."""
    ordered = sorted(settings.items(), key=lambda item: (item[0] != WEIGHT, item[0]))
    return ", ".join(f"{short_key(key)} {_value(value)}" for key, value in ordered)


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
