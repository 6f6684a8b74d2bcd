"""Progress of long work, on standard error: a bar with an estimate on a terminal, plain lines otherwise."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LINE_SECONDS = 10.0  # without a terminal: at most one line per so many seconds


_quiet = False  # `splitveil --quiet`


def keep_quiet(quiet: bool) -> None:
    """Show no progress at all from now on, or do again."""
    global _quiet
    _quiet = quiet


def is_quiet(quiet: bool = False) -> bool:
    """Whether nothing is to be shown: because of `--quiet`, or because a verb says so (`--json`)."""
    return quiet or _quiet


Advance = Callable[[str, int, int], None]
"""Tells what is being done, how much of it is done and how much there is: what long work calls with its progress."""


@contextmanager
def progress(title: str, *, quiet: bool = False) -> Iterator[Advance]:
    """Show the progress of one piece of work."""
    if is_quiet(quiet):
        yield lambda words, done, total: None
    elif sys.stderr.isatty():
        yield from _bar(title)
    else:
        yield _Lines(title)


def _bar(title: str) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),
        MofNCompleteColumn(),  # a question mark where nobody knows how many yet
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        # all the room that is left; a narrow terminal shortens the words, not the numbers before them
        TextColumn("{task.fields[words]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
    )
    with Progress(*columns, console=Console(stderr=True), expand=True) as bar:
        task = bar.add_task(title, total=None, words="")

        def advance(words: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, words=words)

        yield advance


class _Lines:
    def __init__(self, title: str) -> None:
        self.title = title
        self.last = -math.inf

    def __call__(self, words: str, done: int, total: int) -> None:
        if done == total or time.monotonic() - self.last > LINE_SECONDS:
            self.last = time.monotonic()
            print(f"{self.title} {done}/{total} {words}".rstrip(), file=sys.stderr, flush=True)


def epoch_words(row: dict[str, Any]) -> str:
    """What a person wants to know after an epoch, what matters most first: a narrow terminal cuts the end off.

    docs/training.md explains the words. A surrogate that is silent (surrogate 0) must be seen to be silent.

    >>> epoch_words({"epoch": 2, "task_loss": 0.61, "rob_loss": 0.0, "intra_mse": 0.012, "accuracy": 0.873})
    'accuracy 87.3%  loss 0.610  surrogate 0  spread 0.012'
    """
    words = [] if row.get("accuracy") is None else [f"accuracy {row['accuracy']:.1%}"]
    words.append(f"loss {row['task_loss']:.3f}")
    labels = {"rob_loss": "surrogate", "intra_mse": "spread", "gate_soft_mean": "gate", "gate_hard_mean": "SNR gate"}
    words += [f"{label} {row[key]:.3g}" for key, label in labels.items() if row.get(key) is not None]
    if row.get("shut"):
        words.append(f"shut {row['shut']:.0%}")
    return "  ".join(words)
