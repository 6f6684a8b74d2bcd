"""`splitveil audit`: attack a finished run and say how much leaked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from splitveil.audit.subjects import Mode


def audit(
    run: Annotated[Path, typer.Argument(help="A run folder made by splitveil train.")],
    tier: Annotated[str | None, typer.Option(help="smoke, standard or deep (default: the recipe's).")] = None,
    mode: Annotated[str | None, typer.Option(help="training_time or inference_time (default: the recipe's).")] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option("--attack", help="Run this attack only (repeatable; see splitveil list attacks)."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs of each trained attack, instead of the tier's.", min=1)
    ] = None,
    num_images: Annotated[
        int | None, typer.Option(help="Test pictures to attack, instead of the tier's number.", min=1)
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    seed: Annotated[int | None, typer.Option(help="Seed of the attacks (default: the run's).")] = None,
    sanity: Annotated[
        bool | None,
        typer.Option("--sanity/--no-sanity", help="First prove the attacks themselves (default: the recipe's)."),
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option("--measure", help="Also compute this measure: lpips, if you installed its package (repeatable)."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help='Limits of the worst case, e.g. "ssim<=0.5"; exit code 3 if missed.')
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Attack again even where this very audit is finished.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print audit.json instead of a table.")] = False,
) -> None:
    """Attack a finished run and say how much leaked.

    The result is written to RUN/audit, or to RUN/audit-MODE with another --mode than the recipe's. An audit that was
    interrupted goes on after the last attack it finished, and inside a long one after the last network it had trained.
    A finished audit with other settings is kept: it moves to RUN/audit/earlier/1, the next one to earlier/2, and so on.
    Where the same audit of the same weights is finished already, it is read, and --budget is judged on it.

    Example: splitveil audit runs/mine --tier smoke --budget "ssim<=0.5"
    """
    from splitveil.audit.budget import check_budget, parse_budget
    from splitveil.core.run_folder import RunFolder

    terms = [] if budget is None else parse_budget(budget)
    RunFolder.open(run).weights()  # a run that cannot be attacked is refused before torch is loaded

    from splitveil.audit.run import audit_run
    from splitveil.cli.progress import progress

    with progress("attacking", quiet=json_) as advance:
        report = audit_run(
            run,
            tier=tier,
            mode=_mode(mode),
            attacks=attack or None,
            epochs=epochs,
            num_images=num_images,
            seed=seed,
            sanity=sanity,
            measures=measure or None,
            device=device,
            again=again,
            progress=lambda what, done, total: advance(done, total, what),
        )
    print(json.dumps(report.tree, indent=2) if json_ else table(report.tree))
    check_budget(terms, report.tree)


def table(tree: dict[str, Any]) -> str:
    """The numbers a person wants first: floors, attacks, worst case."""
    settings = f"tier {tree['tier']}, {tree['mode']}, {tree['protocol']} protocol"
    lines = [
        f"{tree['num_images']} {'picture' if tree['num_images'] == 1 else 'pictures'} of {tree['data']}, {settings}",
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
        lines.append(f"{name}: " + ", ".join(f"{one} {value['mean']:.4f}" for one, value in values.items()))
    for name, entry in tree.get("inference", {}).items():
        lines += [f"{name}: {what}: {_finding(value)}" for what, value in entry["findings"].items()]
    if not tree["worst_case"]:
        lines.append("no verdict: no attack of this audit made pictures")
    elif tree["verdict"] is None and tree["sanity"] is None:
        lines.append("no verdict: the sanity check of the attacks was left out, and without it there is none")
    elif tree["verdict"] is None:
        lines.append("no verdict: the suite did not prove itself in this run (see sanity and failures in audit.json)")
    else:
        lines.append(f"the attacks came {tree['verdict']['leak']:.0%} of the way from guessing to the picture itself")
    lines += [f"ALARM: {text}" for text in tree["bound"].get("alarm", [])]
    lines += [f"failed: {name}: {why}" for name, why in tree["failures"].items()]
    lines += [f"left out: {name}: {why}" for name, why in tree.get("skipped", {}).items()]
    lines += [f"note: {text}" for text in tree["warnings"]]
    return "\n".join([*lines, tree["signature"]])


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


def _mode(name: str | None) -> Mode | None:
    from splitveil.core.errors import UnknownNameError, nearest

    modes: dict[str, Mode] = {"training_time": "training_time", "inference_time": "inference_time"}
    if name is not None and name not in modes:
        raise UnknownNameError(f"There is no mode called '{name}'.", nearest(name, modes))
    return None if name is None else modes[name]
