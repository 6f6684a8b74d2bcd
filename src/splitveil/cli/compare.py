"""`splitveil compare`: methods side by side over seeds, at equal accuracy."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from splitveil.core.recipes import PUBLISHED
from splitveil.core.shell import shown_path

VERSUS = re.compile(r"\s+vs\.?\s+", re.IGNORECASE)


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run folders, sweeps, folders that contain some, or results/*.json.", show_default=False),
    ],
    at: Annotated[
        list[float] | None,
        typer.Option("--at", help="Interpolate at this accuracy, e.g. 0.88 (repeatable; default: the highest common)."),
    ] = None,
    attack: Annotated[
        list[str] | None, typer.Option("--attack", help="Score this attack (repeatable; default: worst_case).")
    ] = None,
    measure: Annotated[
        str | None, typer.Option(help="mse, ssim, psnr, psnr_batch or recon_acc (default: mse).")
    ] = None,
    accuracy: Annotated[
        str | None,
        typer.Option(help="late, the mean of the last epochs (default), or kept, that of the attacked weights."),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Test every method against this one only, instead of all pairs.")
    ] = None,
    pair: Annotated[
        list[str] | None,
        typer.Option("--pair", help="Test only these two methods (repeatable): --pair 'gmm vs noise only'."),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(help="Published numbers to set beside ours: a TOML file, or notes, n1, defences, tuning."),
    ] = None,
    mix_versions: Annotated[
        bool, typer.Option("--mix-versions", help="Put runs of different code versions into one table.")
    ] = False,
    format_: Annotated[
        str | None,
        typer.Option("--format", help="text, markdown, latex, csv or json (default: by the suffix of --out)."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write to this file (.txt, .md, .tex, .csv, .json).")] = None,
    figure: Annotated[Path | None, typer.Option(help="Also draw privacy against accuracy into this .svg file.")] = None,
    title: Annotated[str | None, typer.Option(help="Title, kept in a .json file.")] = None,
    note: Annotated[
        list[str] | None, typer.Option("--note", help="A sentence for readers, kept in a .json file (repeatable).")
    ] = None,
    command: Annotated[
        list[str] | None,
        typer.Option(
            "--command",
            help="How the runs were made, kept in a .json file (repeatable). This very command is added as the last "
            "one unless one of them is a splitveil compare.",
        ),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print runs and result as JSON.")] = False,
) -> None:
    """Compare methods: mean, spread and interval per cell, paired tests, and MSE at equal accuracy.

    Runs of different code versions, data, protocols, tiers or attack settings are never put into one table. A .json
    file holds everything the tables need and is small enough to commit; compare reads it back.

    Example: splitveil compare runs/sweep --at 0.88 --out table.md
    """
    from splitveil.core.errors import UnknownNameError, UsageError, nearest
    from splitveil.core.files import check_place, write_atomic
    from splitveil.experiments.compare.at_accuracy import unread
    from splitveil.experiments.compare.collect import collect
    from splitveil.experiments.compare.comparison import compare as compare_records
    from splitveil.experiments.compare.data_file import DataFile, read_data_file
    from splitveil.experiments.compare.formats import choose_format, write_as
    from splitveil.experiments.compare.naming import meant, variants
    from splitveil.experiments.compare.reference import find_reference, read_reference
    from splitveil.experiments.compare.stored import stored_options
    from splitveil.experiments.compare.view import View

    if figure is not None and figure.suffix != ".svg":
        raise UsageError(f"A figure cannot be written as '{figure.name}'.", "Only .svg files are drawn: --figure F.svg")
    for place in (out, figure):
        if place is not None:
            check_place(place)
    stored, differing = stored_options(runs)
    form = "json" if json_ else choose_format(format_, out)
    chosen: dict[str, Any] = {
        "at": at,
        "attacks": attack,
        "measure": measure,
        "accuracy": accuracy,
        "baseline": baseline,
        "pairs": [_pair(words) for words in pair or []],
        "mix_versions": mix_versions,
    }
    given = {key: value for key, value in chosen.items() if value}
    either = {"baseline", "pairs"} if given.keys() & {"baseline", "pairs"} else set()  # one takes the other's place
    view = View.of({**{key: value for key, value in stored.view.items() if key not in either}, **given})
    if unsettled := sorted(differing - given.keys() - either - ({"reference"} if reference else set())):
        told = "the files and sweeps have different options here, so that the defaults are taken"
        print(f"warning: {told}: {', '.join(unsettled)}", file=sys.stderr)
    source = None if reference is None else find_reference(reference)
    if source is None and stored.view.get("reference"):
        source = find_reference(str(stored.view["reference"]))
    published = None if source is None else read_reference(source)
    collection = collect(runs)
    comparison = compare_records(collection.records, view, collection.notes)
    methods = {method for one in comparison.groups for method in one.methods}
    unknown = [name for names in chosen["pairs"] for name in names if not variants(name, methods)]
    if unknown and not any(meant(first, second, methods) for first, second in chosen["pairs"]):
        name = unknown[0]
        raise UnknownNameError(f"There is no finished run of a method called '{name}' here.", nearest(name, methods))
    kept = view.plain()
    if source is not None:
        own = source.parent == PUBLISHED
        kept["reference"] = (
            source.stem if own else Path(os.path.relpath(source, out.parent if out else None)).as_posix()
        )
    earlier = [line for path in runs if path.is_file() for line in read_data_file(path).commands]
    made = [line for home, sweep in collection.sweeps.items() for line in sweep.commands(shown_path(home))]
    about = DataFile(
        comparison.records,
        title or stored.title,
        stored.commands
        if stored.commands and not (given or command or reference)
        else _commands(command or earlier + made, given=bool(command), own=_again(runs, chosen, source, out)),
        tuple(note or stored.notes),
        kept,
        tuple(collection.notes),
    )
    content = write_as(form, comparison, published, about, summary=out is None)
    if figure is not None:
        from splitveil.report.charts.paper import frontier_figure

        write_atomic(figure, frontier_figure(comparison))
        print(f"The figure is in {figure}", file=sys.stderr)
    if at:
        for sentence in unread(comparison):
            print(f"warning: {sentence}", file=sys.stderr)
    if out is None:
        print(content, end="")
    else:
        write_atomic(out, content)
        print(f"The comparison is in {out}", file=sys.stderr)


def _pair(words: str) -> tuple[str, str]:
    """The two methods of `--pair 'one vs other'`."""
    from splitveil.core.errors import UsageError

    names = VERSUS.split(words.strip())
    if len(names) != 2 or not all(names):
        hint = "For example: --pair 'gmm vs noise only'. Names with 'vs' in them can stand in a recipe's sweep.compare."
        raise UsageError(f"'{words}' names no pair of methods.", hint)
    return names[0], names[1]


def _commands(lines: list[str], *, given: bool, own: str) -> tuple[str, ...]:
    """How the file was made. This command comes last, unless the user's own list has a comparison already: theirs says
    where the runs lie, this one may know bare names alone."""
    told = given and any("splitveil compare" in line for line in lines)
    return tuple(dict.fromkeys(lines if told else [*lines, own]))


def _again(runs: list[Path], chosen: dict[str, Any], reference: Path | None, out: Path | None) -> str:
    """The command that makes the same again; no path of this machine in it."""
    words = ["splitveil", "compare", *(shown_path(path) for path in runs)]
    for key, value in chosen.items():
        option = "--" + key.removesuffix("s" if key in ("attacks", "pairs") else "").replace("_", "-")
        for item in value if isinstance(value, list) else [value]:
            if item:
                words += [option] if item is True else [option, " vs ".join(item) if key == "pairs" else f"{item}"]
    if reference is not None:
        words += ["--reference", reference.stem if reference.parent == PUBLISHED else shown_path(reference)]
    words += ["--out", shown_path(out)] if out else []
    return shlex.join(words)
