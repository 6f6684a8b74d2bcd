"""`splitveil demo`: the main job end to end on embedded pictures: train two models, attack both, show them."""

from __future__ import annotations

import json
import shutil
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
FAST = ["train.epochs=10", "data.limit=4000"]


def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for the two runs and report.html.")] = Path("runs/demo"),
    fast: Annotated[bool, typer.Option("--fast", help="A shorter version, for a first look.")] = False,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train an undefended and a defended model on embedded pictures, attack both, write the report.

    Run it again after an interruption and it goes on. Run it again when it has finished and it only rewrites the page.

    Example: splitveil demo --out runs/demo
    """
    from splitveil.core.config import load_config
    from splitveil.core.recipes import find_recipe
    from splitveil.report import build_report

    results = {}
    for name, overrides in RUNS.items():
        config = load_config(find_recipe(RECIPE), [*(FAST if fast else []), *overrides])
        results[name] = _one_run(name, config, out / name, fast, device, json_)
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
    print(f"\nThe report is in {page}")


def worst_case_words(attacks: list[str]) -> str:
    """What the last column of the table is the worst of."""
    from splitveil.core.catalogue import ATTACKS

    if len(attacks) == 1:
        return f"Only the attack {attacks[0]} ran, so it is the worst case."
    words = "Worst case: the best of all attacks, picture by picture"
    repeats = any(ATTACKS.load(name).threat_model.repeats for name in attacks)
    return words + (",\nsome of which see the same picture sent several times." if repeats else ".")


def _one_run(name: str, config: Config, folder: Path, fast: bool, device: str, quiet: bool) -> dict[str, Any]:
    from splitveil.audit.run import audit_run
    from splitveil.cli.progress import epoch_words, progress
    from splitveil.core.run_folder import RunFolder
    from splitveil.training.api import train

    if (folder / "config.toml").exists() and RunFolder.open(folder).config() != config:
        shutil.rmtree(folder)  # made by another version of the demo, or by the other of --fast and the full one
    with progress(f"training {name}", quiet=quiet) as advance:
        run = train(
            config,
            out=folder,
            device=device,
            resume=(folder / "config.toml").exists(),
            on_epoch=lambda row: advance(row["epoch"], config.train.epochs, epoch_words(row)),
        )
    audit = run.read_json("audit/audit.json")
    if audit is None:
        with progress(f"attacking {name}", quiet=quiet) as advance:
            audit = audit_run(
                folder,
                tier="smoke",
                attacks=["decoder"] if fast else None,
                device=device,
                progress=lambda what, done, total: advance(done, total, what),
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
        "signature": audit["signature"],
    }
