"""How often (nearly) the same picture was sent, because repetition undoes noise.

Whoever averages n transmissions of one picture has noise of variance sigma²/n: what an audit found for one transmission
does not hold for a hundred. A camera that looks at a scene in which nothing moves sends it again and again. The guard
counts that on the device, which alone knows the pictures.

Two pictures count as the same where their thumbnails of 8 x 8 grey values differ by at most 0.02 (root mean square,
values in [0, 1]). That finds the same file, a still scene with the noise of a camera, another compression; it does not
find a picture that was moved by a tenth of its width. What was too long ago is forgotten (`MOST_KEPT` pictures).
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from splitveil.core.errors import ServingError, UsageError
from splitveil.core.files import save_atomic
from splitveil.core.locks import held

SIDE = 8
SAME = 0.02
MOST_KEPT = 10_000


class RepeatLimitError(ServingError):
    """Pictures that were sent too often already; `places` are theirs in the call. None of them was sent now."""

    def __init__(self, places: list[int], limit: int) -> None:
        what = "A picture was" if len(places) == 1 else f"{len(places)} pictures were"
        times = "once" if limit == 1 else f"{limit} times"
        super().__init__(
            f"{what} sent {times} already (nearly equal ones count), which is the limit: averaging what is sent undoes "
            "the noise."
        )
        self.places = places


class RepeatGuard:
    """Counts transmissions of pictures; with `limit`, more than that many of one picture are refused.

    With `path` the counts are read from that file and written to it before anything is sent, so that they outlive the
    process. The file holds the thumbnails: it must stay on the device. Processes may share it.

    >>> guard = RepeatGuard(limit=2)
    >>> picture = np.full((1, 1, 28, 28), 0.5, np.float32)
    >>> guard.admit(picture), guard.admit(picture)
    ([1], [2])
    """

    def __init__(self, limit: int | None = None, path: Path | None = None) -> None:
        if limit is not None and limit < 1:
            raise UsageError(f"A picture cannot be sent {limit} times.", "Use a limit of 1 or more.")
        self.limit = limit
        self._kept: NDArray[np.float32] = np.zeros((0, SIDE * SIDE), np.float32)  # the least recently sent first
        self._counts: list[int] = []
        self._path = path
        self._read()  # what is no such file is told before anything is sent

    @property
    def most(self) -> int:
        """How often the picture was sent that was sent most often."""
        return max(self._counts, default=0)

    def admit(self, pictures: NDArray[Any]) -> list[int]:
        """Count pictures [B, ch, h, w] that are about to be sent: how often each was sent then, this time included.

        Raises `RepeatLimitError`, and counts nothing, where one of them would be sent too often.
        """
        if self._path is None or len(pictures) == 0:
            return self._admit(pictures)
        with held(self._path):  # another process may have sent the same picture since
            self._read()
            counts = self._admit(pictures)
            self._save(self._path)
        return counts

    def check(self, pictures: NDArray[Any]) -> None:
        """Raise `RepeatLimitError` where `admit` would now; nothing is counted."""
        if self.limit is None:
            return
        self._read()
        before = self._kept, list(self._counts)
        self._admit(pictures)
        self._kept, self._counts = before

    def _admit(self, pictures: NDArray[Any]) -> list[int]:
        before = self._kept, list(self._counts)
        counts = [self._add(thumbnail) for thumbnail in thumbnails(pictures)]
        over = [place for place, count in enumerate(counts) if self.limit is not None and count > self.limit]
        if over:
            self._kept, self._counts = before
            assert self.limit is not None  # nothing is over no limit
            raise RepeatLimitError(over, self.limit)
        return counts

    def _add(self, thumbnail: NDArray[np.float32]) -> int:
        """Counts one picture; what is sent again moves to the end, so that it is forgotten last."""
        count, kept = 1, self._kept
        if len(kept):
            distance = np.sqrt(np.square(kept - thumbnail).mean(1))  # [K]
            nearest = int(distance.argmin())
            if distance[nearest] <= SAME:
                thumbnail = kept[nearest]  # the first one stays the measure: a slow drift becomes another picture
                count += self._counts.pop(nearest)
                kept = np.delete(kept, nearest, axis=0)
        self._kept = np.concatenate([kept, thumbnail[None]])[-MOST_KEPT:]
        self._counts = [*self._counts, count][-MOST_KEPT:]
        return count

    def _save(self, path: Path) -> None:
        def write(temporary: Path) -> None:
            with temporary.open("wb") as file:
                np.savez(file, kept=self._kept, counts=np.array(self._counts, np.int64))

        save_atomic(path, write, mode=0o600)

    def _read(self) -> None:
        if self._path is not None and self._path.exists():
            self._kept, self._counts = _read(self._path)


def _read(path: Path) -> tuple[NDArray[np.float32], list[int]]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            kept, counts = found["kept"], found["counts"]
        if kept.shape != (len(counts), SIDE * SIDE) or not np.isfinite(kept).all() or counts.min(initial=1) < 1:
            raise ValueError
    except (OSError, ValueError, TypeError, KeyError, BadZipFile, EOFError):
        raise UsageError(f"{path} holds no counts of pictures.", "Name another file, or remove it.") from None
    return kept.astype(np.float32), [int(count) for count in counts]


def thumbnails(pictures: NDArray[Any]) -> NDArray[np.float32]:
    """Mean grey values of 8 x 8 fields [B, 64] of pictures [B, ch, h, w] with values in [0, 1]."""
    grey = np.asarray(pictures, np.float64).mean(1)  # [B, h, w]
    for axis in (1, 2):
        size = grey.shape[axis]
        borders = (np.arange(SIDE + 1) * size) // SIDE  # a side below 8 has empty fields, which take one pixel
        fields = [grey.take(range(a, max(b, a + 1)), axis).mean(axis) for a, b in pairwise(borders)]
        grey = np.stack(fields, axis)
    return grey.reshape(len(grey), SIDE * SIDE).astype(np.float32)
