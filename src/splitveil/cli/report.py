"""`splitveil report`: one HTML page about one or more runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders that contain some.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="The HTML file to write (.html).")] = Path("report.html"),
    title: Annotated[str | None, typer.Option("--title", help="Heading of the page.", show_default=False)] = None,
    lang: Annotated[str, typer.Option("--lang", help="Language shown first: en or zh.")] = "en",
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Write one self-contained HTML page about a run, several runs, or a sweep.

    Example: splitveil report runs/demo --out report.html
    """
    from splitveil.core.places import check_place
    from splitveil.report import build_report

    check_place(out)
    path = build_report(runs, out, title=title, lang=lang)
    if json_:
        print(json.dumps({"report": str(path), "bytes": path.stat().st_size}))
    else:
        print(f"The report is in {path}")
