"""Where pictures come from: the contract of a registered data set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from splitveil.data.dataset import Dataset


class Source(ABC):
    """A registered data set: `DATASETS.load(name)` gives one of these."""

    name: str

    @abstractmethod
    def open(self, root: Path) -> Dataset:
        """The data set, from what is stored below `root`; a `DataError` says how to get it when it is not there."""
