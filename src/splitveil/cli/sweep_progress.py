"""Progress of a sweep, on standard error: all cells and each running one on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from splitveil.cli.progress import is_quiet, progress

if TYPE_CHECKING:
    from splitveil.experiments.sweep.live import Progress, Watcher

ROWS = 12  # running cells that are shown one by one


@contextmanager
def sweep_progress(*, quiet: bool = False) -> Iterator[Watcher]:
    """A function that shows where a sweep stands."""
    if not is_quiet(quiet) and sys.stderr.isatty():
        yield from _board()
        return
    with progress("sweep", quiet=quiet) as advance:
        yield lambda now: advance(words(now), now.done + now.failed, now.total)


def words(now: Progress) -> str:
    """What a person wants to know while it runs."""
    ended = now.done + now.failed == now.total
    parts = [] if now.left is None or ended else [f"about {duration(now.left)} left"]
    parts += [f"{now.failed} failed"] if now.failed else []
    parts += [f"{len(now.running)} running"] if now.running else []
    parts += [now.last] if now.last else []
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """A length of time in the unit a person would use.

    >>> duration(40), duration(600), duration(9000)
    ('40 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _board() -> Iterator[Watcher]:
    from rich.console import Console
    from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[words]}"),
    )
    with Bars(*columns, console=Console(stderr=True)) as bars:
        whole = bars.add_task("sweep", total=1.0, words="")
        rows: dict[str, TaskID] = {}

        def watch(now: Progress) -> None:
            bars.update(whole, completed=now.fraction, words=f"{now.done + now.failed}/{now.total} {words(now)}")
            shown = dict(now.running[:ROWS])
            for label in [label for label in rows if label not in shown]:
                bars.remove_task(rows.pop(label))
            for label, fraction in shown.items():
                if label not in rows:
                    rows[label] = bars.add_task(f"  {label}", total=1.0, words="")
                bars.update(rows[label], completed=fraction)

        yield watch
