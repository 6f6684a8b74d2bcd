"""`splitveil demo`: the main job end to end, on embedded or own pictures: train two models, attack both, show them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from splitveil.core.config import Config

RECIPE = "demo-fashion-mini"
RUNS: dict[str, list[str]] = {  # the same network twice; what differs is the defence
    "undefended": ["surrogate.name=none", "defence.noise.sigma=0.0"],
    "defended": [],
}
FAST = ["train.epochs=8", "data.limit=3000"]


def demo(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for the two runs and report.html (default: runs/demo, with --data runs/demo-NAME).",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            help="Your own pictures instead: an image folder, an .npz or a data set's name.",
            show_default=False,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change one key of both runs: section.key=value (repeatable). Defences and surrogate: of the defended "
            "run alone.",
            show_default=False,
        ),
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="A shorter version, for a first look.")] = False,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train an undefended and a defended model on embedded pictures, or on yours, attack both, write the report.

    Run it again after an interruption and it goes on. Run it again when it has finished and it only rewrites the page.
    Runs with other settings that lie in its place are kept: they move to OUT/.aside. So are audits of your own: they
    move to RUN/audit/earlier.

    Example: splitveil demo --out runs/demo

    Example: splitveil demo --data photos/ --set train.epochs=60 --out runs/mine
    """
    from splitveil.core.config import load_config
    from splitveil.core.recipes import find_recipe
    from splitveil.core.shell import command
    from splitveil.report import build_report

    if out is None:
        out = Path("runs") / ("demo" if data is None else f"demo-{Path(data).resolve().stem}")
    pictures = {} if data is None else {"data": {"name": data}}
    shared = [*(FAST if fast else []), *(set_ or [])]
    configs = {  # both are read before anything runs
        name: load_config(find_recipe(RECIPE), [*_of_both(shared, name), *overrides], **pictures)
        for name, overrides in RUNS.items()
    }
    results = {name: _one_run(name, config, out / name, fast, device, json_) for name, config in configs.items()}
    page = build_report([out / name for name in RUNS], out / "report.html")
    if json_:
        print(json.dumps({"report": str(page), "runs": results}, indent=2))
        return
    floor = results["undefended"]["floor_mse"]
    print(f"\n{'':<12}{'accuracy':>10}{'decoder MSE':>13}{'SSIM':>8}{'worst case':>12}")
    for name, row in results.items():
        print(f"{name:<12}{row['accuracy']:>10.1%}{row['mse']:>13.4f}{row['ssim']:>8.3f}{row['worst_case_mse']:>12.4f}")
    print(f"Guessing the mean picture scores MSE {floor:.4f}. {worst_case_words(results['defended']['attacks'])}")
    print("Higher MSE is better for privacy.")
    if blind := [name for name, row in results.items() if row["worst_case_mse"] >= row["floor_mse"]]:
        more = "leave out --fast" if fast else "try: " + command("audit", out / blind[-1], "--tier", "standard")
        print(
            f"note: no attack beat that guess: {' and '.join(blind)}; beyond it a larger MSE is a weaker attack, not a "
            f"safer model: give more pictures, or {more}"
        )
    if idle := [name for name, row in results.items() if not row["works"]]:
        print(
            f"note: no better than always naming the most frequent class: {' and '.join(idle)}; such a model says "
            "nothing about one that works: train longer, for example with --set train.epochs=100"
        )
    print(f"\nThe report is in {page}")


def _of_both(overrides: list[str], name: str) -> list[str]:
    """What --set changes in a run: whatever defends is not for the undefended one."""
    return [one for one in overrides if name != "undefended" or not one.startswith(("defence.", "surrogate."))]


def worst_case_words(attacks: list[str]) -> str:
    """What the last column of the table is the worst of."""
    from splitveil.core.catalogue import ATTACKS

    if len(attacks) == 1:
        return f"Only the attack {attacks[0]} ran; worst case: the best of its answers, picture by picture."
    words = "Worst case: the best of all attacks, picture by picture"
    repeats = any(ATTACKS.load(name).threat_model.repeats for name in attacks)
    return words + (",\nsome of which see the same picture sent several times." if repeats else ".")


def _set_aside(folder: Path) -> None:
    """Keep a run with other settings, of the other of --fast and the full demo or somebody's own, out of the way."""
    aside = folder.parent / ".aside"
    aside.mkdir(exist_ok=True)
    number = sum(1 for path in aside.iterdir() if path.name.startswith(folder.name)) + 1
    kept = folder.rename(aside / f"{folder.name}-{number}")
    print(f"{folder} held a run with other settings, which is now in {kept}.", file=sys.stderr)


def _one_run(name: str, config: Config, folder: Path, fast: bool, device: str, quiet: bool) -> dict[str, Any]:
    from splitveil.audit.run import audit_run
    from splitveil.cli.progress import epoch_words, progress
    from splitveil.core.run_folder import RunFolder
    from splitveil.training.api import train

    if (folder / "config.toml").exists() and RunFolder.open(folder).config() != config:
        _set_aside(folder)
    with progress(f"training {name}", quiet=quiet) as advance:
        run = train(
            config,
            out=folder,
            device=device,
            resume=(folder / "config.toml").exists(),
            on_epoch=lambda row: advance(epoch_words(row), row["epoch"], config.train.epochs),
        )
    with progress(f"attacking {name}", quiet=quiet) as advance:
        audit = audit_run(  # reads the one that is there if it is this very one, and not one of the user's own
            folder,
            tier="smoke",
            attacks=["decoder"] if fast else None,
            device=device,
            progress=advance,
        ).tree
    result = run.read_json("result.json") or {}
    return {
        "run": str(folder),
        "accuracy": result["accuracy_late"],
        "mse": audit["attacks"]["decoder"]["mse"],
        "ssim": audit["attacks"]["decoder"]["ssim"],
        "attacks": list(audit["attacks"]),
        "worst_case_mse": audit["worst_case"]["mse"],
        "floor_mse": audit["floors"]["mean_image"]["mse"],
        "works": result.get("works", True),  # runs of earlier versions do not say it
        "signature": audit["signature"],
    }
