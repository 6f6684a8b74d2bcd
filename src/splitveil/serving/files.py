"""Classify picture files: read, bring to the model's size and colours, send, and keep a row for each."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from splitveil.core.errors import DataError, UsageError
from splitveil.core.pictures import decode, header
from splitveil.serving.artefact import Artefact
from splitveil.serving.client import Answer, EdgeClient
from splitveil.serving.manifest import Manifest
from splitveil.serving.repeats import RepeatLimitError
from splitveil.serving.wire import Values

LARGEST = 80_000_000  # pixels: decoding more would take a device's memory
SUFFIXES = (".png", ".jpg", ".jpeg")
FORMATS = ("PNG", "JPEG")  # as Pillow names them: a device need not have decoders for more


@dataclass
class Classified:
    """What came out for each file, and what it cost."""

    manifest: Manifest
    server: str
    bits: int
    rows: list[dict[str, Any]] = field(default_factory=list)
    resized: int = 0
    recoloured: int = 0
    flattened: int = 0
    ignored: int = 0  # files in folders that are not named as pictures
    file_bytes: int = 0
    bytes_sent: int = 0
    messages: int = 0
    unanswered: int = 0  # as `EdgeClient.unanswered`
    seconds: float = 0.0

    @property
    def answered(self) -> int:
        return sum("label" in row for row in self.rows)

    @property
    def failed(self) -> bool:
        return self.answered < len(self.rows)

    @property
    def picture_bytes(self) -> int:
        """What the answered pictures themselves have, 8 bits for each value, at the model's size."""
        return self.answered * math.prod(self.manifest.input.shape)

    def keep(self, path: Path, answer: Answer, place: int) -> None:
        """The row of a picture that was answered."""
        label = int(answer.labels[place])
        self.file_bytes += path.stat().st_size
        self.rows.append(
            {
                "file": str(path),
                "label": label,
                "class": self.manifest.class_name(label),
                "probability": float(answer.probabilities[place, label]),
            }
        )

    def refuse(self, path: Path, why: str) -> None:
        """The row of a picture that could not be read, or may not be sent."""
        self.rows.append({"file": str(path), "error": why})

    def tree(self, artefact: Artefact) -> dict[str, Any]:
        """For machines."""
        names = (
            "server",
            "bits",
            "bytes_sent",
            "picture_bytes",
            "file_bytes",
            "messages",
            "unanswered",
            "resized",
            "recoloured",
            "flattened",
            "ignored",
        )
        return {
            "artefact": artefact.digest.hex(),
            "signature": self.manifest.signature,
            **{name: getattr(self, name) for name in names},
            "seconds": self.seconds,
            "pictures": self.rows,
        }

    def table(self) -> str:
        """One line for each file, and a note where pictures were changed."""
        width = min(60, max(len(row["file"]) for row in self.rows))
        names = max([len(row["class"]) for row in self.rows if "label" in row], default=0)
        lines = [
            f"{row['file']:<{width}}  {row['class']:<{names}}  {row['probability']:>6.1%}"
            if "label" in row
            else f"{row['file']:<{width}}  {row['error']}"
            for row in self.rows
        ]
        channels, height, square = self.manifest.input.shape
        if self.resized:
            lines.append(f"note: {_some(self.resized)} brought to {square} x {height}, edges cut to that form")
        if self.recoloured:
            lines.append(f"note: {_some(self.recoloured)} converted to {'grey' if channels == 1 else 'colour'}")
        if self.flattened:
            lines.append(f"note: {_some(self.flattened)} transparent in part: the colours below count")
        if self.ignored:
            files = "1 file was" if self.ignored == 1 else f"{self.ignored} files were"
            lines.append(f"note: {files} left out: not named .png, .jpg or .jpeg")
        return "\n".join(lines)

    def cost(self, *, sent: bool) -> str:
        """What was sent, or would be where the answer came from this very process, against what the pictures have."""
        if self.answered == 0:
            return "nothing was sent" if sent else "nothing would be sent"
        what, they, theirs = f"{self.answered} pictures", "pictures themselves have", "their files"
        if self.answered == 1:
            what, they, theirs = "1 picture", "picture itself has", "its file"
        did = "sent" if sent else "to a server this would send"
        return (
            f"{did} {self.bytes_sent:,} bytes for {what} ({self.bits} bits a value); the {they} "
            f"{self.picture_bytes:,} at the model's size, {theirs} {self.file_bytes:,}"
        )


def list_files(places: list[Path]) -> tuple[list[Path], int]:
    """The files among `places` and the pictures in the folders among them, in order; and how many others are there.

    Hidden files (.DS_Store and the like) are not counted: nobody took them for pictures.
    """
    files: list[Path] = []
    ignored = 0
    for place in places:
        if place.is_dir():
            found = sorted(path for path in place.rglob("*") if path.is_file())
            inside = [path for path in found if path.suffix.lower() in SUFFIXES]
            ignored += sum(path.suffix.lower() not in SUFFIXES and not path.name.startswith(".") for path in found)
            if not inside:
                raise UsageError(f"The folder {place} has no PNG or JPEG files.", "Name a folder with pictures.")
            files += inside
        elif place.is_file():
            files.append(place)
        else:
            raise UsageError(f"There is no file or folder {place}.", "Name PNG or JPEG files, or folders of them.")
    return files, ignored


def classify(client: EdgeClient, files: list[Path], done: Classified) -> None:
    """Fill `done` with a row for each file; what cannot be read or may not be sent does not stop the others.

    One message at a time: where the server goes away, every answer that came is in `done`, and the guard has counted no
    picture that is still here.
    """
    for start in range(0, len(files), client.per_message):
        some = files[start : start + client.per_message]
        pictures: dict[int, Values] = {}  # by place: a file may be named twice
        refused: dict[int, str] = {}
        for place, path in enumerate(some):
            try:
                pictures[place] = _picture(path, done)
            except DataError as error:
                refused[place] = error.message
        try:
            answer = _answer(client, pictures, done)
        except RepeatLimitError as error:  # nothing was sent: once more without them
            for place in [list(pictures)[number] for number in error.places]:
                refused[place] = f"not sent: the limit of {client.guard.limit} was reached"
                del pictures[place]
            answer = _answer(client, pictures, done)
        done.bytes_sent += answer.bytes_sent
        done.messages += answer.messages
        done.seconds += answer.seconds
        numbers = {place: number for number, place in enumerate(pictures)}
        for place, path in enumerate(some):
            if place in refused:
                done.refuse(path, refused[place])
            else:
                done.keep(path, answer, numbers[place])


def _answer(client: EdgeClient, pictures: dict[int, Values], done: Classified) -> Answer:
    none = np.zeros((0, *client.manifest.input.shape), np.float32)
    try:
        return client.classify(np.stack(list(pictures.values())) if pictures else none)
    finally:
        done.unanswered = client.unanswered


def _picture(path: Path, done: Classified) -> Values:
    """A file as the model takes it [ch, h, w], float32 in [0, 1]."""
    channels, height, width = done.manifest.input.shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit below is stricter
        found = header(str(path), "the file", FORMATS)  # its name stands beside the reason
    if math.prod(found.size) > LARGEST:
        raise DataError(f"the file has {math.prod(found.size) // 10**6} million pixels, too many to decode.")
    values = decode(str(path), "the file", grey=channels == 1, size=(width, height))
    done.resized += found.size != (width, height)
    done.recoloured += found.grey != (channels == 1)
    done.flattened += found.transparent
    return values.astype(np.float32) / np.float32(255)


def _some(count: int) -> str:
    return "1 picture was" if count == 1 else f"{count} pictures were"
