"""The command `splitveil`: one file per verb, each thin. Nothing heavy is imported before a verb runs.

Exit codes: 0 done, 1 failed, 2 usage or bad configuration, 3 a quality gate was not met; 130 after Ctrl-C.
"""

from __future__ import annotations

import errno
import inspect
import logging
import sys
import traceback
import warnings
from collections.abc import Callable
from functools import cache, wraps
from typing import Annotated, Any, NoReturn

import typer

from splitveil import __version__
from splitveil.cli.advise import advise
from splitveil.cli.audit import audit
from splitveil.cli.bench import bench
from splitveil.cli.cloud import cloud
from splitveil.cli.compare import compare
from splitveil.cli.data import data
from splitveil.cli.demo import demo
from splitveil.cli.doctor import doctor
from splitveil.cli.edge import edge
from splitveil.cli.explain import explain
from splitveil.cli.export import export
from splitveil.cli.listing import list_, show
from splitveil.cli.progress import keep_quiet
from splitveil.cli.report import report
from splitveil.cli.streams import open_streams
from splitveil.cli.sweep import sweep
from splitveil.cli.threads import give_way
from splitveil.cli.train import train
from splitveil.cli.ui import ui
from splitveil.core.errors import SplitveilError
from splitveil.core.plug_ins import plug_in_failure

VERBS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "train": train,
    "audit": audit,
    "advise": advise,
    "sweep": sweep,
    "compare": compare,
    "report": report,
    "explain": explain,
    "export": export,
    "cloud": cloud,
    "edge": edge,
    "ui": ui,
    "list": list_,
    "show": show,
    "data": data,
    "bench": bench,
    "doctor": doctor,
}

OTHER_NAMES = {  # what people try first
    "attack": "audit",
    "client": "edge",
    "evaluate": "audit",
    "plot": "report",
    "serve": "cloud",
    "server": "cloud",
}

GO_ON = "interrupted: run the same command again{} to go on from what was saved, if anything was"
INTERRUPTED = {  # verbs that save on their way, or that a person may think do
    **dict.fromkeys(["demo", "audit", "advise", "sweep", "data"], GO_ON.format("")),
    "train": GO_ON.format(", with --resume,"),
    "export": "interrupted: nothing was written",
}

OS_HINTS = {
    errno.EACCES: "Change its permissions, or choose a place of your own.",
    errno.EPERM: "It cannot be written there: choose another place.",
    errno.EROFS: "It cannot be written there: choose another place.",
    errno.ENOSPC: "Make room, or choose a place on another disk.",
}

app = typer.Typer(
    name="splitveil",
    help="Train, attack and serve split neural networks that resist model inversion.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _interruptible(verb: str, function: Callable[..., None]) -> Callable[..., None]:
    """Ctrl-C says what to do next (typer itself would end without a word)."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> None:
        try:
            function(*args, **options)
        except KeyboardInterrupt:
            print(INTERRUPTED.get(verb, "interrupted"), file=sys.stderr)
            raise typer.Exit(130) from None

    return call


def _help(function: Callable[..., None]) -> str:
    """The docstring with one line per paragraph: the terminal breaks it where it is wide, not where our file is."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in (inspect.getdoc(function) or "").split("\n\n"))


for verb, function in VERBS.items():
    app.command(verb, help=_help(function))(_interruptible(verb, function))

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
    keep_quiet(quiet)
    logging.basicConfig(level=logging.WARNING if quiet else logging.INFO, format="%(message)s", stream=sys.stderr)


@cache
def _commands() -> Any:
    """All verbs, ready to be called; typer itself would read the options of all of them again in every call."""
    return typer.main.get_command(app)


def main(args: list[str] | None = None) -> Any:
    """Entry point: errors become one sentence, what to do, and an exit code; `--debug` adds the traceback."""
    open_streams()
    give_way()
    given = list(sys.argv[1:] if args is None else args)
    options = given[: given.index("--")] if "--" in given else given
    if "--debug" in options:  # whoever wants a traceback appends the option to the line that failed
        given.remove("--debug")
        given.insert(0, "--debug")
    verb = next((word for word in given if not word.startswith("-")), "")
    if verb in OTHER_NAMES:
        _fail(f"There is no command '{verb}'.", f"Did you mean: splitveil {OTHER_NAMES[verb]}", 2)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            _commands()(given)
    except SplitveilError as error:
        _fail(error.message, error.hint, error.exit_code)
    except OSError as error:  # a folder that cannot be written, a full disk
        hint = OS_HINTS.get(error.errno or 0, "")
        _fail(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), hint)
    except Exception as error:  # a fault of ours or of a plug-in: still one sentence
        if (plug_in := plug_in_failure(error)) is not None:
            _fail(plug_in.message, plug_in.hint, plug_in.exit_code)
        name = error.name if isinstance(error, ModuleNotFoundError) else None
        if name and name.partition(".")[0] != "splitveil":
            hint = "In the clone: pip install -e . (a device without torch runs `splitveil edge`; see splitveil doctor)"
            _fail(f"This needs the package {name}, which is not installed.", hint)
        said = (str(error).strip().splitlines() or [""])[0]
        _fail(
            f"Something unexpected went wrong ({type(error).__name__}{f': {said}' if said else ''}).",
            "Run the same command with --debug to see where, and please report it.",
        )
    finally:
        keep_quiet(False)  # of this command alone


def _fail(message: str, hint: str = "", code: int = 1) -> NoReturn:
    """Say what is wrong and what to do, and end with `code`; before it the traceback where it was asked for."""
    if _debug:
        traceback.print_exc()
    print(f"error: {message}" + (f"\n  {hint}" if hint else ""), file=sys.stderr)
    raise SystemExit(code) from None


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning is one line too, without the line of code that raised it."""
    print(f"warning: {message}", file=sys.stderr)
