"""`splitveil explain`: figures of what a surrogate looks at and of what the features look like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

GATED = ("gated", "slot_gated")  # surrogates that have gates, unless their options turn them off


def explain(
    run: Annotated[Path, typer.Argument(help="A finished run folder.", show_default=False)],
    against: Annotated[
        Path | None,
        typer.Option("--against", help="A run to show as 'before', usually the undefended one.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the SVG files (default: RUN/explain).", show_default=False)
    ] = None,
    num_images: Annotated[int, typer.Option("--num-images", help="Test pictures in PCA and t-SNE.", min=10)] = 500,
    lang: Annotated[str, typer.Option("--lang", help="Language of the figures: en or zh.")] = "en",
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed of pictures and t-SNE (default: the run's).", show_default=False)
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Draw attention, gates, slot masses, and PCA and t-SNE of the features of a finished run, as vector graphics.

    What is drawn is kept in RUN/explain/explain.json, and `splitveil report` shows it. For curves over training, train
    with --set train.store_gates=true.

    Example: splitveil explain runs/demo/defended --against runs/demo/undefended --out figures
    """
    from splitveil.core.errors import UsageError, nearest
    from splitveil.core.places import check_place
    from splitveil.core.run_folder import RunFolder
    from splitveil.core.shell import command
    from splitveil.report.texts import LANGUAGES

    if lang not in LANGUAGES:  # before minutes of work, not after
        raise UsageError(f"There is no language '{lang}'.", nearest(lang, LANGUAGES))
    if out is not None:
        check_place(out, folder=True)
    for one in (run, against):
        if one is not None:
            RunFolder.open(one).weights()  # refused before torch is loaded

    from splitveil.cli.progress import progress
    from splitveil.experiments.explain import explain as look_into
    from splitveil.report.figures.files import write_figures

    with progress("explaining", quiet=json_) as advance:
        found = look_into(
            run,
            against=against,
            num_images=num_images,
            seed=seed,
            device=device,
            progress=advance,
        )
    paths = write_figures(run, run / "explain" if out is None else out, lang=lang)
    if json_:
        drawn = {name: str(path) for name, path in paths.items()}
        print(json.dumps({"run": str(run), "figures": drawn, "notes": found["notes"], "signature": found["signature"]}))
        return
    for path in paths.values():
        print(path)
    for note in found["notes"]:
        print(f"note: {note}")
    for name, plane in found["planes"].items():
        when = f"{name} ({plane['run']})" if len(found["planes"]) > 1 else plane["run"]
        print(
            f"{when}: {plane['neighbours']:.0%} of nearest neighbours are of the same class, "
            f"{plane['within']:.0%} of the variance before noise lies within classes"
        )
    name, recipe = found["surrogate"], run / "config.toml"
    if name in GATED and "snr_gate" not in found["maps"]:
        again = command("train", recipe, "--set", "surrogate.gates=all", "--out", "NEW_DIR")
        print(f"No gate maps: {name} ({found['mode']}) was trained without gates; train it with them: {again}")
    if name is not None and not found["training"]:
        if not found["maps"]:
            print(f"No curves over training: {name} has no attention, slots or gates.")
        elif RunFolder.open(run).config().train.store_gates:
            print(f"No curves over training: {name} acted in no epoch, or the files in {run / 'gates'} are damaged.")
        else:
            again = command("train", recipe, "--set", "train.store_gates=true", "--out", "NEW_DIR")
            print(f"No curves over training: the run did not keep them; train it so that it does: {again}")
    print(found["signature"])
