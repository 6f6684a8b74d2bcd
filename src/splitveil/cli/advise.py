"""`splitveil advise`: leakage, accuracy, bytes and edge work at every cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from splitveil.audit.advise import CutAdvice


def advise(
    recipe: Annotated[str, typer.Argument(help="A recipe: its file, or its name (splitveil list recipes).")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the runs (default: runs/advise-RECIPE).")
    ] = None,
    cut: Annotated[list[int] | None, typer.Option("--cut", help="Only this cut (repeatable).")] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", help="Train so long at each cut.", min=1)] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Change one key: section.key=value (repeatable).")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train and attack the recipe at every cut, and show which cuts no other cut beats in everything.

    Example: splitveil advise demo-fashion-mini --epochs 3
    """
    from splitveil.audit.advise import advise as run
    from splitveil.cli.progress import progress
    from splitveil.core.config import load_config
    from splitveil.core.recipes import find_recipe
    from splitveil.core.stopping import stopped_in_order

    path = find_recipe(recipe)
    config = load_config(path, set_ or [])
    folder = Path("runs") / f"advise-{path.stem}" if out is None else out
    with stopped_in_order(), progress("cuts", quiet=json_) as advance:
        found = run(
            config,
            folder,
            epochs=epochs,
            cuts=cut or None,
            device=device,
            progress=advance,
        )
    print(json.dumps([one.to_dict() for one in found], indent=2) if json_ else table(found))


def table(found: list[CutAdvice]) -> str:
    """One line for each cut; a star marks those no other cut beats in everything."""
    lines = [f"{'cut':>4}  {'feature':<12}{'accuracy':>9}{'MSE':>9}{'SSIM':>7}{'bytes':>9}{'edge MACs':>12}"]
    for one in found:
        shape = "x".join(map(str, one.feature_shape))
        lines.append(
            f"{one.cut:>4}{'*' if one.pareto else ' '} {shape:<12}{one.accuracy:>9.1%}{one.mse:>9.4f}{one.ssim:>7.3f}"
            f"{one.bytes_per_image:>9,}{one.edge_macs:>12,}"
        )
    floor = found[0].floor_mse if found else 0.0
    lines.append(f"* not beaten in everything by another cut; guessing the mean picture: MSE {floor:.4f}")
    blind = [str(one.cut) for one in found if one.mse >= one.floor_mse]
    if blind:
        lines.append(
            f"note: at cut {', '.join(blind)} no attack beat the guess. More often than not the attacker had too few "
            "pictures: that ranks nothing."
        )
    idle = [str(one.cut) for one in found if not one.works]
    if idle:
        lines.append(
            f"note: at cut {', '.join(idle)} the model is no better than always naming the most frequent class: train "
            "longer before you judge it."
        )
    return "\n".join(lines)
