"""`splitveil train`: one run from a recipe."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer


def train(
    recipe: Annotated[str, typer.Argument(help="A recipe: its file, or its name (splitveil list recipes).")],
    out: Annotated[Path | None, typer.Option("--out", help="The run folder (default: runs/RECIPE).")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change one key: section.key=value (repeatable).", show_default=False),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where an earlier call stopped; same recipe, same --set.")
    ] = False,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed, in place of the recipe's.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the resolved configuration and stop.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train one split model into a run folder.

    A recipe is a TOML file; `splitveil show NAME` prints one that comes with Splitveil. After an epoch you read its
    accuracy (on validation pictures), loss (of the task), surrogate (the privacy loss that is added) and spread (of
    features within classes).

    Example: splitveil train demo-fashion-mini --set train.epochs=5 --out runs/first
    """
    from splitveil.cli.progress import epoch_words, progress
    from splitveil.core.config import load_config
    from splitveil.core.recipes import find_recipe

    path = find_recipe(recipe)
    overrides = [*(set_ or []), *([] if seed is None else [f"seed={seed}"])]
    config = load_config(path, overrides)
    if dry_run:
        from splitveil.core.run_folder import starting_run

        if not resume:  # a run under way may outlive the one that it started from
            starting_run(config)
        print(json.dumps(config.model_dump(mode="json"), indent=2) + "\n" if json_ else config.to_toml(), end="")
        return

    from splitveil.core.shell import command
    from splitveil.core.stopping import stopped_in_order
    from splitveil.training.api import train as run_training

    out = Path("runs") / path.stem if out is None else out
    main_process = os.environ.get("RANK", "0") == "0"  # under torchrun only the first process speaks
    # torchrun ends the processes that are left over with SIGTERM, some of them inside a call that no handler reaches
    alone = os.environ.get("WORLD_SIZE", "1") == "1"
    quiet = json_ or not main_process
    with stopped_in_order() if alone else nullcontext(), progress("training", quiet=quiet) as advance:
        folder = run_training(
            config,
            out=out,
            device=device,
            resume=resume,
            on_epoch=lambda row: advance(epoch_words(row), row["epoch"], config.train.epochs),
        )
    if not main_process:
        return
    result = folder.read_json("result.json") or {}
    if json_:
        print(json.dumps({"run": str(folder.path), **result}, indent=2))
    else:
        print(f"accuracy {result['accuracy_late']:.1%} on the test part (mean of the last eighth of epochs)")
        if not result.get("works", True):  # runs of earlier versions do not say it
            print(
                "note: always naming the most frequent class is right as often, up to chance "
                f"({result['accuracy_guessing']:.1%}): train longer, or weaken the defence"
            )
        for event, times in result.get("guards", {}).items():
            if times:
                print(f"{event}: {times}")
        print(f"signature {result['signature']}")
        print(f"The run is in {folder.path}; attack it with: {command('audit', folder.path)}")
