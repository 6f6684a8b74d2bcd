"""Where pictures come from: the contract of a registered data set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from splitveil.data.assembly import Part
from splitveil.data.dataset import Dataset

Progress = Callable[[str, int, int | None], None]
"""Called with what is being done, how much of it is done, and how much there is (None: unknown)."""


@dataclass(frozen=True)
class Content:
    """What a reader finds in somebody's files: the parts, and names of the classes where the files say them."""

    parts: dict[str, Part]
    class_names: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Receipt:
    """What `Source.store` did: `state` is 'embedded', 'already stored' or 'stored'."""

    dataset: Dataset
    state: str
    verified: str
    path: Path | None = None


class Source(ABC):
    """A registered data set: `DATASETS.load(name)` gives one of these."""

    name: str

    @abstractmethod
    def open(self, root: Path) -> Dataset:
        """The data set, from what is stored below `root`; a `DataError` says how to get it when it is not there."""

    def check(self, root: Path) -> None:  # noqa: B027 - a source that needs no file has nothing to check
        """Raise the `DataError` of `open` where the data set is plainly not there; reads no pictures."""

    @abstractmethod
    def store(self, root: Path, origin: str | None, progress: Progress) -> Receipt:
        """Fetch, verify and store it below `root`, unless that is done.

        `origin` is a local file or folder, `hub` or `hub:OWNER/NAME` for the Hugging Face hub, or None for the official
        address.
        """
