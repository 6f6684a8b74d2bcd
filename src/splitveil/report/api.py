"""`build_report`: run folders in, one HTML file out."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from splitveil.core.errors import InputError, UsageError, nearest
from splitveil.core.files import write_atomic
from splitveil.core.listed import listed
from splitveil.experiments.compare.sweep_index import read_sweep
from splitveil.experiments.discover import find_runs, is_sweep
from splitveil.report.caveats import NAMED
from splitveil.report.methods import group_runs
from splitveil.report.page import page
from splitveil.report.run import Lack, Run
from splitveil.report.run_files import read_run, with_details
from splitveil.report.sections.provenance import report_command
from splitveil.report.texts import LANGUAGES

log = logging.getLogger("splitveil.report")

LACKING: dict[Lack, str] = {
    "failed": "warning: failed (%d of %d; see error.json, splitveil sweep ... --retry-failed runs them again): %s",
    "unfinished": "warning: unfinished (%d of %d): %s",
    "unattacked": "warning: not attacked (%d of %d): %s",
}
SUFFIXES = ("", ".html", ".htm")


def build_report(
    runs: str | PathLike[str] | Iterable[str | PathLike[str]],
    out: str | Path = "report.html",
    *,
    title: str | None = None,
    lang: str = "en",
) -> Path:
    """Write a self-contained page about `runs` (one or more run folders, or folders that contain some); returns `out`.

    Whatever is missing or damaged in a run is noted on the page, what cannot be read also in the log; the page is
    written all the same. Raises UsageError when no run folder is found, or when
    `out` has the suffix of another format.
    Example: ``sv.report(["runs/undefended", "runs/defended"], "report.html", title="Noise against gmm")``.
    """
    out = Path(out)
    paths = [Path(path) for path in _each(runs)]
    if lang not in LANGUAGES:
        raise UsageError(f"There is no report language '{lang}'.", nearest(lang, LANGUAGES))
    if out.is_dir():
        raise UsageError(f"{out} is a folder, not a file.", f"Try: --out {out / 'report.html'}")
    if out.suffix.lower() not in SUFFIXES:
        raise UsageError(
            f"A report is an HTML page, which '{out.name}' does not look like.",
            f"Call it {out.with_suffix('.html').name}; a browser prints it as PDF, splitveil compare writes tables.",
        )
    found = [with_details(read_run(folder)) for folder in find_runs(paths)]
    for run in found:
        for problem in run.damage:
            log.warning("warning: %s: %s", run.path, problem.en)
    methods = group_runs(found)
    _tell_lacking([run for method in methods for run in method.runs if not run.weaker])
    sweeps = [read_sweep(path) for path in paths if is_sweep(path)]
    for sweep in sweeps:
        if sweep.problem:
            log.warning("warning: %s: sweep.json cannot be read (%s)", sweep.path, sweep.problem)
    command = report_command(paths, out, title=title, lang=lang)
    text = page(methods, sweeps, command, title=title, lang=lang)
    write_atomic(out, text)
    return out


def _tell_lacking(runs: list[Run]) -> None:
    """Warn of runs that did not come to an attack; of those that nobody attacked, only beside others that were."""
    attacked = any(run.lacks is None for run in runs)
    for lack, warning in LACKING.items():
        lacking = [run for run in runs if run.lacks == lack]
        if lack == "unattacked":
            lacking = [run for run in lacking if attacked and not _audit_unread(run)]
        if lacking:
            log.warning(warning, len(lacking), len(runs), listed([_told(run) for run in lacking], NAMED, ", "))


def _each(runs: str | PathLike[str] | Iterable[str | PathLike[str]]) -> list[str | PathLike[str]]:
    """The folders, of which there may be one alone."""
    each = [runs] if isinstance(runs, str | PathLike) or not isinstance(runs, Iterable) else list(runs)
    for one in each:
        if not isinstance(one, str | PathLike):
            raise InputError(
                f"A report needs the paths of run folders, not a {type(one).__name__}.",
                "sv.train(...) gives one; sv.audit(..., out='runs/mine/audit') makes another, 'runs/mine'.",
            )
    return each


def _audit_unread(run: Run) -> bool:
    """Whether there is an audit that cannot be read: then that has been said, and the run may have been attacked."""
    return any(problem.en.startswith(("audit/audit.json ", "the folder audit ")) for problem in run.damage)


def _told(run: Run) -> str:
    known = run.unfinished and run.progress
    return "{} (epoch {} of {})".format(run.path, *known) if known else str(run.path)
