"""One run on the table of "what would leak?": its model, its channel and the attackers that have been fitted to it."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from splitveil.core.seeding import generator
from splitveil.data.augment import to_float
from splitveil.data.dataset import ImageSet
from splitveil.experiments.compare.labels import STRUCTURAL
from splitveil.functional.ssim import ssim
from splitveil.web.leak.channel import Channel
from splitveil.web.leak.decoder import (
    PICTURES,
    DecoderAttacker,
    load_decoder,
    save_decoder,
    suits,
    train_decoder,
)
from splitveil.web.leak.linear import LinearAttacker, fit_linear, levels, most_pairs
from splitveil.web.leak.pictures import feature_uri, picture_uri
from splitveil.web.leak.victim import DataSets, Victim, load_victim

SCORED = 256  # pictures on which the accuracy at each noise level is measured
SHOWN_CLASSES = 5
CHOICES = 24


@dataclass
class Subject:
    """Filled step by step in the background; the pages read what is there."""

    folder: Path
    version: str
    state: str = "loading"  # loading, ready or failed
    error: str = ""
    decoder_state: str = "waiting"  # waiting, training, ready, absent or failed
    progress: float = 0.0
    victim: Victim | None = None
    channel: Channel | None = None
    linear: LinearAttacker | None = None
    decoder: DecoderAttacker | None = None
    highest: float = 1.0
    span: tuple[float, float] = (0.0, 1.0)
    floor: float | None = None
    accuracy: list[tuple[float, float]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    last: tuple[str, Tensor, Tensor] | None = None  # the picture on the table: its key, itself, its clean feature

    def prepare(self, data_sets: DataSets) -> None:
        """Load the model and solve the linear attacker: a second or two."""
        victim = load_victim(self.folder, data_sets)
        channel = Channel(victim.model)
        auxiliary = _some(victim.parts.aux.images, most_pairs(math.prod(channel.feature_shape)))
        z, x = channel.features(auxiliary), to_float(auxiliary)
        quiet = channel.send(z, 0.0, generator(victim.config.seed, "ui", "quiet"))
        spread = float(quiet.float().std())
        self.highest = _rounded(max(4 * spread, 2 * channel.sigma, 1e-3))
        ends = torch.quantile(quiet.flatten()[:1_000_000].float(), torch.tensor([0.01, 0.99]))
        self.span = (float(ends[0]), float(ends[1]))
        self.floor = float((x - x.mean(0)).square().mean())
        self.linear = fit_linear(quiet, x, levels(self.highest), channel.shape())
        self.victim, self.channel = victim, channel
        self.decoder = load_decoder(self.folder, self.version, channel.feature_shape, tuple(x.shape[1:]))
        if self.decoder is not None:
            self.decoder_state = "ready"
        elif not suits(channel.feature_shape, tuple(x.shape[1:])):
            self.decoder_state = "absent"
        self.state = "ready"

    def measure(self, check: Callable[[], None]) -> None:
        """Accuracy at each noise level."""
        victim, channel = self.victim, self.channel
        if victim is None or channel is None:
            return
        scored = victim.parts.test if victim.parts.protocol == "published" else victim.parts.val
        self.accuracy = []
        z = channel.features(scored.images[:SCORED])
        for sigma in levels(self.highest):
            check()
            sent = channel.send(z, sigma, generator(victim.config.seed, "ui", "accuracy"))
            right = channel.answer(sent).argmax(1) == scored.labels[:SCORED]
            self.accuracy = [*self.accuracy, (sigma, float(right.float().mean()))]

    def improve(self, check: Callable[[], None]) -> None:
        """Train the decoder, which takes a CPU up to a minute."""
        victim, channel = self.victim, self.channel
        if victim is None or channel is None or self.decoder_state != "waiting":
            return
        self.decoder_state = "training"

        def progress(done: int, total: int) -> None:
            self.progress = done / total
            check()

        pictures = _some(victim.parts.aux.images, PICTURES)
        self.decoder = train_decoder(channel, pictures, victim.config.seed, self.highest, progress)
        self.decoder_state = "ready"
        with contextlib.suppress(OSError):  # a folder that cannot be written: it is trained again next time
            save_decoder(self.decoder, self.folder, self.version)

    def facts(self) -> dict[str, Any]:
        """What the page needs to know before a picture is chosen."""
        if self.state != "ready" or self.victim is None or self.channel is None or self.linear is None:
            return {"state": self.state, "error": self.error}
        info, names = self.victim.parts.info, self.victim.model.defences
        return {
            "state": "ready",
            "epoch": self.victim.epoch,
            "image_shape": list(info.image_shape),
            "feature_shape": list(self.channel.feature_shape),
            "sigma": self.channel.sigma,
            "highest": self.highest,
            "own_noise": self.channel.own_noise is not None,
            "others": [name for name in names if name not in STRUCTURAL],
            "floor": self.floor,
            "errors": self.linear.errors,
            "accuracy": self.accuracy,
            "decoder": {"state": self.decoder_state, "progress": self.progress},
            "pictures": min(len(self.victim.parts.aux), PICTURES),
        }

    def choices(self) -> list[dict[str, Any]]:
        """Some test pictures, of every class in turn."""
        if self.victim is None:
            return []
        test, names = self.victim.parts.test, self.victim.parts.info.class_names
        return [
            {
                "index": index,
                "label": names[int(test.labels[index])],
                "picture": picture_uri(to_float(test.images[index])),
            }
            for index in _by_class(test, CHOICES)
        ]

    def look(self, key: str, picture: Tensor, sigma: float, draw: int) -> dict[str, Any]:
        """One slider move: picture [1, ch, h, w] in, everything that the page shows out."""
        began = time.perf_counter()
        victim, channel = self.victim, self.channel
        assert victim is not None
        assert channel is not None
        with self.lock:  # one model, one picture on the table
            if self.last is None or self.last[0] != key:
                self.last = (key, picture, channel.features(picture))
            z = self.last[2]
            # the same draw at every level: only the slider changes the picture
            sent = channel.send(z, sigma, generator(victim.config.seed, "ui", "look", draw))
            shares = channel.answer(sent)[0]
            answers = []
            for name, attacker in (("linear", self.linear), ("decoder", self.decoder)):
                if attacker is not None:
                    made = attacker.reconstruct(sent, sigma)
                    answers.append({"attacker": name, "picture": picture_uri(made[0]),
                                    "mse": float((made - picture).square().mean()),
                                    "ssim": float(ssim(made, picture)[0])})  # fmt: skip
        top = shares.topk(min(SHOWN_CLASSES, len(shares)))
        names = victim.parts.info.class_names
        return {
            "original": picture_uri(picture[0]),
            "feature": feature_uri(sent[0], *self.span),
            "answers": answers,
            "classes": [[names[int(place)], float(share)] for share, place in zip(*top, strict=True)],
            "milliseconds": 1000 * (time.perf_counter() - began),
        }


def _some(pictures: Tensor, count: int) -> Tensor:
    """At most `count` pictures, evenly spread: the part may be ordered by class."""
    if len(pictures) <= count:
        return pictures
    return pictures[torch.linspace(0, len(pictures) - 1, count).long()]


def _by_class(part: ImageSet, count: int) -> list[int]:
    places: dict[int, list[int]] = {}
    for index, label in enumerate(part.labels[:2000].tolist()):
        places.setdefault(label, []).append(index)
    rounds = max((len(found) for found in places.values()), default=0)
    ordered = [places[label][turn] for turn in range(rounds) for label in sorted(places) if turn < len(places[label])]
    return ordered[:count]


def _rounded(value: float) -> float:
    """Two significant digits."""
    return float(f"{value:.1e}")
