"""The privacy card: one machine-readable page that two people can compare, with a digest that shows a later change."""

from __future__ import annotations

from typing import Any

from splitveil.core.pins import sealed

FORMAT = "splitveil-privacy-card/1"
LIMITS = [
    "Errors are those of the attacks that were run; a stronger attack may leak more.",
    "Intervals cover the choice of pictures (and of attack seeds where several were run), not other data.",
    "worst_decile takes for each measure the tenth of the pictures that is worst by it, not one tenth for all.",
    "Only a bound that says it holds for every attacker is a guarantee.",
]
_SCORES = ("mse", "ssim", "psnr", "mse_ci95", "ssim_ci95", "psnr_ci95", "recon_acc", "threat_model", "num_images")


def card(tree: dict[str, Any]) -> dict[str, Any]:
    """The card of an audit, from audit.json's tree."""
    content = {
        "format": FORMAT,
        "data": tree["data"],
        "protocol": tree["protocol"],
        "mode": tree["mode"],
        "tier": tree["tier"],
        "num_images": tree["num_images"],
        "accuracy": tree["accuracy"],
        "accuracy_of": tree["accuracy_of"],
        "works": tree["works"],
        "floors": {name: _scores(entry) for name, entry in tree["floors"].items()},
        "attacks": {name: _scores(entry) for name, entry in tree["attacks"].items()},
        "inference": {name: entry["findings"] for name, entry in tree["inference"].items()},
        "worst_case": _scores(tree["worst_case"]),
        "worst_case_once": None if tree["worst_case_once"] is None else _scores(tree["worst_case_once"]),
        "worst_decile": _scores(tree["worst_decile"]),
        "per_class": {name: _scores(entry) for name, entry in tree["per_class"].items()},
        "per_group": {
            name: {value: _scores(entry) | {"guess_mse": entry["guess_mse"]} for value, entry in values.items()}
            for name, values in tree.get("per_group", {}).items()
        },
        "bound": tree["bound"],
        "extra": tree["extra"],
        "sanity": tree["sanity"],
        "verdict": tree["verdict"],
        "failures": tree["failures"],
        "skipped": tree["skipped"],
        "warnings": tree["warnings"],
        "departures": tree["departures"],
        "limits": LIMITS,
        "signature": tree["signature"],
    }
    return sealed(content)


def _scores(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: entry[key] for key in _SCORES if key in entry}
