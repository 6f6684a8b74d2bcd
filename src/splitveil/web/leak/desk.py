"""The table of "what would leak?": which models and which uploaded pictures lie on it."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from splitveil.core.errors import InputError, sentence
from splitveil.data.augment import to_float
from splitveil.web.leak.pictures import decode_upload, for_model, picture_uri
from splitveil.web.leak.subject import Subject
from splitveil.web.leak.victim import DataSets, version
from splitveil.web.worker import ClosedError, Worker

MODELS = 3
UPLOADS = 32


class Desk:
    """Opens runs in the background and answers slider moves."""

    def __init__(self, data_sets: DataSets, quick: Worker, slow: Worker) -> None:
        self._data_sets, self._quick, self._slow = data_sets, quick, slow
        self._subjects: OrderedDict[Path, Subject] = OrderedDict()
        self._uploads: OrderedDict[str, Image.Image] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, folder: Path) -> Subject:
        """The subject of a run; it is prepared in the background, and anew when its checkpoint changes."""
        mark = version(folder)
        if mark is None:
            raise InputError("This run has no model yet.", "Wait for its first checkpoint, or choose another run.")
        with self._lock:
            subject = self._subjects.pop(folder, None)
            fresh = subject is None or (subject.version != mark and subject.state != "loading")
            if subject is None or fresh:
                subject = Subject(folder, mark)
            self._subjects[folder] = subject
            while len(self._subjects) > MODELS:
                self._subjects.popitem(last=False)
        if fresh:
            self._quick.submit(lambda: self._prepare(subject))
        return subject

    def _prepare(self, subject: Subject) -> None:
        try:
            subject.prepare(self._data_sets)
        except Exception as error:  # a foreign checkpoint or data set fails in its own way; the page says how
            subject.state, subject.error = "failed", sentence(error)
            return
        self._slow.submit(lambda: self._improve(subject))
        self._quick.submit(lambda: subject.measure(self._quick.check))

    def _improve(self, subject: Subject) -> None:
        if subject not in self._subjects.values():  # pushed off the table meanwhile
            return
        try:
            subject.improve(self._slow.check)
        except ClosedError:
            raise
        except Exception as error:
            subject.decoder_state, subject.error = "failed", sentence(error)

    def upload(self, content: bytes) -> dict[str, str]:
        """Take a visitor's picture; returns the key under which it lies, and how it looks."""
        picture = decode_upload(content)
        key = secrets.token_hex(8)
        with self._lock:
            self._uploads[key] = picture
            while len(self._uploads) > UPLOADS:
                self._uploads.popitem(last=False)
        shown = picture.copy()
        shown.thumbnail((160, 160))
        return {"picture": key, "shown": picture_uri(for_model(shown, (3, shown.height, shown.width))[0])}

    def look(self, folder: Path, *, upload: str | None, test: int | None, sigma: float, draw: int) -> dict[str, Any]:
        """What would leak of one picture at one noise level."""
        subject = self.open(folder)
        if subject.state != "ready" or subject.victim is None:
            raise InputError(subject.error or "The model is still being opened.", "Try again in a moment.")
        if not 0 <= sigma <= 1e6:
            raise InputError("The noise level must be a number from 0 to 1,000,000.")
        key, picture = self._picture(subject, upload, test)
        return subject.look(key, picture, sigma, draw)

    def _picture(self, subject: Subject, upload: str | None, test: int | None) -> tuple[str, Tensor]:
        assert subject.victim is not None
        parts = subject.victim.parts
        if upload is not None:
            picture = self._uploads.get(upload)
            if picture is None:
                raise InputError("This picture is no longer here.", "Drop it again.")
            return f"upload {upload}", for_model(picture, parts.info.image_shape)
        if test is None or not 0 <= test < len(parts.test):
            raise InputError(f"There is no test picture {test}.", f"There are {len(parts.test)}.")
        return f"test {test}", to_float(parts.test.images[test : test + 1])
