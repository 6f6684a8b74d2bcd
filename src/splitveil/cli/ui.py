"""`splitveil ui`: the local web app over a folder of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def ui(
    runs: Annotated[Path, typer.Argument(help="The folder with the runs.")] = Path("runs"),
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; others than this machine's need --token.")
    ] = ("127.0.0.1"),
    port: Annotated[
        int, typer.Option("--port", help="Port to listen on; 0 takes a free one.", min=0, max=65535)
    ] = 8747,
    token: Annotated[
        str | None, typer.Option("--token", help="A secret that visitors must know.", envvar="SPLITVEIL_TOKEN")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Look at runs in the browser: list, follow, compare, start, and see what would leak.

    Example: splitveil ui runs --port 8747
    """
    from splitveil.core.extras import require

    require("ui", "fastapi", "uvicorn")
    from splitveil.web.server import serve

    if runs == Path("runs"):
        runs.mkdir(exist_ok=True)  # the default folder: a newcomer starts the first run from the page
    serve(runs, host=host, port=port, token=token, browser=browser)
