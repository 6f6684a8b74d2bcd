"""The command `splitveil`: one file per verb, each thin. Nothing heavy is imported before a verb runs.

Exit codes: 0 done, 1 failed, 2 usage or bad configuration, 3 a quality gate was not met.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from splitveil import __version__
from splitveil.cli.advise import advise
from splitveil.cli.audit import audit
from splitveil.cli.bench import bench
from splitveil.cli.compare import compare
from splitveil.cli.data import data
from splitveil.cli.demo import demo
from splitveil.cli.doctor import doctor
from splitveil.cli.explain import explain
from splitveil.cli.listing import list_, show
from splitveil.cli.report import report
from splitveil.cli.sweep import sweep
from splitveil.cli.train import train
from splitveil.cli.ui import ui
from splitveil.core.errors import SplitveilError

VERBS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "train": train,
    "audit": audit,
    "advise": advise,
    "sweep": sweep,
    "compare": compare,
    "report": report,
    "explain": explain,
    "ui": ui,
    "list": list_,
    "show": show,
    "data": data,
    "bench": bench,
    "doctor": doctor,
}

app = typer.Typer(
    name="splitveil",
    help="Train and attack split neural networks that resist model inversion.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _interruptible(function: Callable[..., None]) -> Callable[..., None]:
    """Ctrl-C says what to do next (typer itself would end without a word)."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> None:
        try:
            function(*args, **options)
        except KeyboardInterrupt:
            print(
                "interrupted: run the same command again to go on from what was saved last (train: with --resume)",
                file=sys.stderr,
            )
            raise typer.Exit(130) from None

    return call


for verb, function in VERBS.items():
    app.command(verb)(_interruptible(function))

_debug = False


def _version(value: bool) -> None:
    if value:
        print(f"splitveil {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and results only.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    global _debug
    _debug = debug
    logging.basicConfig(level=logging.WARNING if quiet else logging.INFO, format="%(message)s", stream=sys.stderr)


def main(args: list[str] | None = None) -> Any:
    """Entry point: errors become one sentence, what to do, and an exit code."""
    try:
        app(args)
    except SplitveilError as error:
        if _debug:
            raise
        print(f"error: {error.message}" + (f"\n  {error.hint}" if error.hint else ""), file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except BrokenPipeError:  # the reader of our output went away, for example `head`
        sys.stderr.close()
        raise SystemExit(0) from None
    except OSError as error:  # a folder that cannot be written, a full disk
        if _debug:
            raise
        print(f"error: {error.strerror or error}: {error.filename or ''}".rstrip(": "), file=sys.stderr)
        raise SystemExit(1) from None
