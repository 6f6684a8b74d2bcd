"""An audit as a person reads it first: one table and a few sentences."""

from __future__ import annotations

from typing import Any


def table(tree: dict[str, Any]) -> str:
    """The numbers a person wants first: floors, attacks, worst case."""
    altered = " (altered, see the notes)" if tree.get("departures") else ""
    settings = f"tier {tree['tier']}{altered}, {tree['mode']}, {tree['protocol']} protocol"
    lines = [
        f"{tree['num_images']} {'picture' if tree['num_images'] == 1 else 'pictures'} of {tree['data']}, {settings}",
        *_accuracy(tree),
        f"{'':<24}{'MSE':>9}{'95 % interval':>20}{'SSIM':>8}{'PSNR':>8}",
    ]
    rows = [(f"floor: {name.replace('_', ' ')}", found) for name, found in tree["floors"].items()]
    rows += list(tree["attacks"].items())
    if tree["worst_case"]:
        rows.append(("worst case per picture", tree["worst_case"]))
    for name, found in rows:
        interval = found.get("mse_ci95")
        span = "" if interval is None else f"{interval[0]:.4f} - {interval[1]:.4f}"
        lines.append(f"{name:<24}{found['mse']:>9.4f}{span:>20}{found['ssim']:>8.3f}{found['psnr']:>8.2f}")
    for name, found in tree.get("extra", {}).items():
        values = {"floor": found["floor"]["mean_image"], **found["attacks"]}
        if "worst_case" in found:  # audits of earlier versions have none
            values["worst case per picture"] = found["worst_case"]
        lines.append(f"{name}: " + ", ".join(f"{one} {value['mean']:.4f}" for one, value in values.items()))
    for name, entry in tree.get("inference", {}).items():
        lines += [f"{name}: {what}: {_finding(value)}" for what, value in entry["findings"].items()]
    if not tree["worst_case"]:
        lines.append("no verdict: no attack of this audit made pictures")
    elif tree["verdict"] is None and tree["sanity"] is None:
        lines.append("no verdict: the sanity check of the attacks was left out, and without it there is none")
    elif tree["verdict"] is None and tree["sanity"]["passed"] and not tree["failures"]:
        lines.append("no verdict: these numbers are not to be trusted, and the first note says why")
    elif tree["verdict"] is None:
        lines.append("no verdict: the suite did not prove itself in this run (see sanity and failures in audit.json)")
    else:
        lines.append(f"the attacks came {tree['verdict']['leak']:.0%} of the way from guessing to the picture itself")
    lines += [f"ALARM: {text}" for text in tree["bound"].get("alarm", [])]
    lines += [f"failed: {name}: {why}" for name, why in tree["failures"].items()]
    lines += [f"left out: {name}: {why}" for name, why in tree.get("skipped", {}).items()]
    lines += [f"note: {text}" for text in tree["warnings"]]
    return "\n".join([*lines, tree["signature"]])


def _accuracy(tree: dict[str, Any]) -> list[str]:
    """What the attacked model is good for; audits of earlier versions do not say it."""
    if "accuracy" not in tree:
        return []
    named = f"names the class of {tree['accuracy']:.1%} of them"
    if tree.get("accuracy_of") == "auditor":
        return [f"a classifier of the auditor's own {named}; how many the service itself names is not known"]
    return [f"the model {named}"]


def _finding(value: dict[str, Any]) -> str:
    """Membership (area under the curve, members found) or an attribute (how often it was named, and by guessing)."""
    if "rate" in value:
        low, high = value["ci95"]
        return f"right for {value['rate']:.1%} ({low:.1%} - {high:.1%}), by guessing {value['guessing']:.1%}"
    if value["auc"] is None:
        return str(value["reason"])
    low, high = value["auc_ci95"]
    found = value["tpr_at_1_percent_fpr"]["rate"]
    return f"AUC {value['auc']:.3f} ({low:.3f} - {high:.3f}; 0.5 is guessing), finds {found:.1%} at 1 % false alarms"
