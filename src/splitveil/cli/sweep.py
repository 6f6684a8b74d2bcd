"""`splitveil sweep`: many runs from one recipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    from splitveil.experiments.sweep.recipe import SweepRecipe
    from splitveil.experiments.sweep.runner import Checkpoints


def sweep(
    recipe: Annotated[str, typer.Argument(help="A recipe, with or without a \\[sweep] table: its file or its name.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the sweep (default: runs/RECIPE).", show_default=False)
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change one key of the shared part: section.key=value (repeatable)."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", help="Only this method of the recipe; without methods: a surrogate (repeatable)."),
    ] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="For example 1,2,3.")] = None,
    data: Annotated[str | None, typer.Option("--data", help="Data sets, for example cifar10,cifar100.")] = None,
    mode: Annotated[
        list[str] | None, typer.Option("--mode", help="Audit mode, training_time or inference_time (repeatable).")
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option("--grid", help="One more axis, or other values of one: section.key=a,b,c (repeatable)."),
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="local or ray.")] = "local",
    workers: Annotated[
        int | None, typer.Option("--workers", help="Runs at the same time (default: what suits this machine).", min=1)
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    checkpoints: Annotated[
        str, typer.Option("--checkpoints", help="What stays of a finished cell: final weights, all, or none.")
    ] = "final",
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run failed cells again, and failed attacks.")
    ] = False,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Keep finished cells of other code, torch, device or pictures in the table.")
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export", help="Keep all finished cells, without weights, in this .tar.gz: go on with it elsewhere."
        ),
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option("--search", help="Tune a strength with Optuna: section.key=low:high[:log] (repeatable)."),
    ] = None,
    target: Annotated[str, typer.Option("--target", help="What --search aims at: accuracy=0.88.")] = "",
    trials: Annotated[
        int | None, typer.Option("--trials", help="At most so many per method and data set (default: 12).", min=1)
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance", help="A search ends when the accuracy is so near its target (default: 0.002).", min=0
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print the cells in the order in which they run, name those that can never train, and stop.",
        ),
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print sweep.json at the end.")] = False,
) -> None:
    """Train and attack every cell of a grid: methods x data sets x strengths x seeds.

    Start it again after an interruption and it goes on; a finished cell never runs twice. A cell that fails is recorded
    and does not stop the others; cells that can never train are named before the first one starts.

    Example: splitveil sweep sweep-demo --workers 2 --out runs/sweep
    """
    from splitveil.core.errors import SplitveilError, UsageError
    from splitveil.experiments.sweep.call import parse_axis
    from splitveil.experiments.sweep.live import Settings
    from splitveil.experiments.sweep.recipe import load_sweep
    from splitveil.experiments.sweep.study import Axis, Goal

    plan = load_sweep(
        recipe,
        overrides=set_,
        methods=method,
        seeds=_numbers(seeds),
        data=_data_sets(data),
        modes=mode,
        grid=_by_key("--grid", [parse_axis(text) for text in grid or []]),
    )
    if search or target:
        axes, goal = [Axis.parse(text) for text in search or []], Goal.parse(target, tolerance, trials)
        _by_key("--search", [(axis.key, axis) for axis in axes])
        if not axes:
            raise UsageError("--target needs something to tune.", "For example: --search train.privacy_weight=1:64:log")
        if dry_run:
            raise UsageError(
                "The cells of a search are not known beforehand: each trial follows from those before it.",
                "Leave out --dry-run, or --search and --target.",
            )
    elif trials is not None or tolerance is not None:
        example = "--search train.privacy_weight=1:64:log --target accuracy=0.88"
        raise UsageError("--trials and --tolerance belong to a search.", f"For example: {example}")
    out = Path("runs") / plan.name if out is None else out
    kept = cast("Checkpoints", checkpoints)  # a slip is refused with the other settings
    settings = Settings(out, engine, workers, device, kept, retry_failed, mixed, export)
    if dry_run:
        _show_plan(plan, engine, json_)
        return

    from splitveil.cli.sweep_progress import sweep_progress
    from splitveil.core.places import check_place
    from splitveil.core.shell import command
    from splitveil.experiments.sweep.api import run_sweep
    from splitveil.experiments.sweep.search import run_search
    from splitveil.experiments.sweep.table import asked, table

    if export is not None:
        check_place(export)
    with sweep_progress(quiet=json_) as watch:
        tree = run_search(plan, settings, axes, goal, watch) if search else run_sweep(plan, settings, watch)
    if json_:
        print(json.dumps(tree, indent=2))
    else:
        print(table(tree))
        done = any(entry["status"] == "done" for entry in tree["cells"])
        print(f"The cells are in {out / 'cells'}" + (f"; compare them with: {command('compare', out)}" if done else ""))
        if done and "compare" in tree:
            _compare(out, tree["compare"])
    failed = [entry for entry in asked(tree)[0] if entry["status"] == "failed"]
    if failed:
        names = ", ".join(f"{entry['method']} seed {entry['seed']} ({entry['id']})" for entry in failed)
        raise SplitveilError(
            f"{len(failed)} {'cell' if len(failed) == 1 else 'cells'} failed: {names}.",
            f"See {out / 'cells' / failed[0]['id'] / 'error.json'}; run failed cells again with --retry-failed.",
        )


def _compare(out: Path, wanted: dict[str, Any]) -> None:
    """The comparison that the recipe asks for: published numbers beside ours on the terminal, everything in a file."""
    from splitveil.core.errors import SplitveilError
    from splitveil.core.files import write_atomic
    from splitveil.experiments.compare.collect import collect
    from splitveil.experiments.compare.comparison import compare
    from splitveil.experiments.compare.prose import parts
    from splitveil.experiments.compare.reference import find_reference, read_reference
    from splitveil.experiments.compare.reference_prose import reference_part
    from splitveil.experiments.compare.render import as_markdown, as_text
    from splitveil.experiments.compare.view import View

    try:
        name = wanted.get("reference")
        published = read_reference(find_reference(name)) if name else None
        found = collect([out])
        comparison = compare(found.records, View.of(wanted), found.notes)
    except SplitveilError as error:  # the cells are done all the same: an attack was left out by --set, say
        print(f"Not compared: {error}")
        return
    write_atomic(out / "comparison.md", as_markdown(parts(comparison, published)))
    if published is not None:
        print(f"\n{as_text([reference_part(comparison, published)])}")
    print(f"The whole comparison is in {out / 'comparison.md'}")


def _show_plan(plan: SweepRecipe, engine: str, json_: bool) -> None:
    from splitveil.experiments.sweep.cells import expand, seed_by_seed
    from splitveil.experiments.sweep.needs import foresee

    cells = seed_by_seed(expand(plan))
    foresee(cells, engine)
    if json_:
        print(json.dumps([cell.description() for cell in cells], indent=2))
        return
    for cell in cells:
        same = f"  (also: {', '.join(cell.also)})" if cell.also else ""
        print(f"{cell.id}  {cell.label}{same}")
    print("1 cell" if len(cells) == 1 else f"{len(cells)} cells")


def _numbers(text: str | None) -> list[int] | None:
    from splitveil.core.errors import UsageError

    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--seeds '{text}' is not a list of whole numbers.", "For example: --seeds 1,2,3") from None


def _data_sets(text: str | None) -> list[str] | None:
    from splitveil.core.errors import UsageError

    if text is None:
        return None
    names = [part.strip() for part in text.split(",")]
    if not all(names):
        raise UsageError(f"--data '{text}' is not a list of data sets.", "For example: --data cifar10,cifar100")
    return names


def _by_key(option: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that is given twice: the first of its values would be lost."""
    from splitveil.core.errors import UsageError

    found = dict(pairs)
    if len(found) < len(pairs):
        key = next(key for place, (key, _) in enumerate(pairs) if key in dict(pairs[:place]))
        raise UsageError(f"{option} names '{key}' twice.", "Give everything about one key in one option.")
    return found
