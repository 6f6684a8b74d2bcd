"""Reconstructions that follow a run: whenever its newest checkpoint changes, least squares are solved against it.

The trainer is not involved: it only writes checkpoints, and this reads them. The pictures are the defender's validation
pictures, so that nobody tunes a run by looking at the test part.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splitveil.core.errors import sentence
from splitveil.core.seeding import generator
from splitveil.data.augment import to_float
from splitveil.web.leak.channel import Channel
from splitveil.web.leak.linear import fit_linear
from splitveil.web.leak.pictures import picture_uri
from splitveil.web.leak.victim import DataSets, load_victim, version
from splitveil.web.worker import Worker

PICTURES = 6
PAIRS = 1000  # pictures of the attacker, where it has so many: enough for a look, quick enough for every checkpoint
RUNS = 16
HISTORY = 500


@dataclass
class Follower:
    """What is known about one run."""

    version: str = ""
    busy: bool = False
    error: str = ""
    epoch: int | None = None
    seconds: float = 0.0
    mse: float | None = None
    floor: float | None = None
    sigma: float = 0.0
    own: int = 0  # pictures that the attacker had
    pairs: list[dict[str, Any]] = field(default_factory=list)
    history: list[tuple[int, float]] = field(default_factory=list)

    def answer(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


class Live:
    """Follows the runs whose pages are open: only what is asked for is computed."""

    def __init__(self, data_sets: DataSets, worker: Worker) -> None:
        self._data_sets, self._worker = data_sets, worker
        self._followers: OrderedDict[Path, Follower] = OrderedDict()
        self._lock = threading.Lock()

    def look(self, folder: Path) -> dict[str, Any]:
        """The newest reconstruction; starts a newer one in the background when there is a newer checkpoint."""
        mark = version(folder)
        with self._lock:
            follower = self._followers.pop(folder, None) or Follower()
            self._followers[folder] = follower
            while len(self._followers) > RUNS:
                self._followers.popitem(last=False)
            start = mark is not None and mark != follower.version and not follower.busy
            if start:
                follower.busy, follower.version = True, mark or ""
        if start:
            self._worker.submit(lambda: self._update(folder, follower))
        return follower.answer()

    def _update(self, folder: Path, follower: Follower) -> None:
        try:
            reconstruct(folder, follower, self._data_sets)
            follower.error = ""
        except Exception as error:  # a checkpoint may vanish or be foreign; the page says so and goes on
            follower.error = sentence(error)
        finally:
            follower.busy = False


def reconstruct(folder: Path, follower: Follower, data_sets: DataSets) -> None:
    """Attack the newest checkpoint at the run's own noise level."""
    began = time.perf_counter()
    victim = load_victim(folder, data_sets)
    channel, parts, seed = Channel(victim.model), victim.parts, victim.config.seed
    pictures, targets = parts.aux.images[_spread(len(parts.aux), PAIRS)], to_float(parts.val.images[:200])
    x = to_float(pictures)
    quiet = channel.send(channel.features(pictures), 0.0, generator(seed, "ui", "quiet"))
    attacker = fit_linear(quiet, x, [channel.sigma], channel.shape())
    sent = channel.send(channel.features(targets), channel.sigma, generator(seed, "ui", "live"))
    made = attacker.reconstruct(sent, channel.sigma)
    errors = (made - targets).square().mean(dim=(1, 2, 3))
    shown = _spread(len(targets), PICTURES)
    names = parts.info.class_names
    follower.pairs = [
        {"original": picture_uri(targets[i]), "picture": picture_uri(made[i]), "mse": float(errors[i]),
         "label": names[int(parts.val.labels[i])]}
        for i in shown
    ]  # fmt: skip
    follower.mse, follower.epoch, follower.sigma = float(errors.mean()), victim.epoch, channel.sigma
    follower.own = len(pictures)
    follower.floor = float((targets - x.mean(0)).square().mean())
    if victim.epoch is not None:
        earlier = [point for point in follower.history if point[0] < victim.epoch]
        follower.history = [*earlier, (victim.epoch, follower.mse)][-HISTORY:]
    follower.seconds = time.perf_counter() - began


def _spread(count: int, wanted: int) -> list[int]:
    """At most `wanted` places, evenly spread over `count`."""
    if count <= wanted:
        return list(range(count))
    return [place * count // wanted for place in range(wanted)]
