"""`splitveil compare`: methods side by side over seeds, at equal accuracy."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

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
        str | None,
        typer.Option(help="mse, ssim, psnr, psnr_batch, recon_acc, or one that the audits were given (default: mse)."),
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
    from splitveil.core.errors import UsageError
    from splitveil.core.files import write_atomic
    from splitveil.core.places import check_place
    from splitveil.experiments.compare.at_accuracy import unread
    from splitveil.experiments.compare.collect import collect
    from splitveil.experiments.compare.comparison import check_named
    from splitveil.experiments.compare.comparison import compare as compare_records
    from splitveil.experiments.compare.data_file import DataFile
    from splitveil.experiments.compare.formats import choose_format, write_as
    from splitveil.experiments.compare.provenance import with_provenance
    from splitveil.experiments.compare.reference import find_reference, read_reference
    from splitveil.experiments.compare.stored import settle

    if figure is not None and figure.suffix != ".svg":
        raise UsageError(f"A figure cannot be written as '{figure.name}'.", "Only .svg files are drawn: --figure F.svg")
    for place in (out, figure):
        if place is not None:
            check_place(place)
    form = "json" if json_ else choose_format(format_, out)
    pairs = [_pair(words) for words in pair or []]
    chosen = {
        "at": at,
        "attacks": attack,
        "measure": measure,
        "accuracy": accuracy,
        "baseline": baseline,
        "pairs": pairs,
        "mix_versions": mix_versions,
    }
    options = settle(runs, chosen, reference)
    if options.unsettled:
        told = "the files and sweeps have different options here, so that the defaults are taken"
        _warn(f"{told}: {', '.join(options.unsettled)}")
    source = None if options.reference is None else find_reference(options.reference)
    published = None if source is None else read_reference(source)
    collection = collect(runs)
    comparison = compare_records(collection.records, options.view, collection.notes)
    check_named(pairs, comparison)
    said = DataFile([], title or "", tuple(command or ()), tuple(note or ()))
    about = with_provenance(comparison, options, collection, said, reference=source, out=out)
    content = write_as(form, comparison, published, about, summary=out is None)
    if figure is not None:
        from splitveil.report.charts.paper import frontier_figure

        write_atomic(figure, frontier_figure(comparison))
        print(f"The figure is in {figure}", file=sys.stderr)
    for sentence in unread(comparison) if at else []:
        _warn(sentence)
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


def _warn(sentence: str) -> None:
    print(f"warning: {sentence}", file=sys.stderr)
