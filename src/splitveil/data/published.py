"""A published data set: fetched from its makers, from a local copy or from the hub; verified; stored once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from splitveil.core.errors import DataError
from splitveil.core.places import check_will_write
from splitveil.data import store
from splitveil.data.assembly import assemble
from splitveil.data.augment import Augmentation
from splitveil.data.dataset import Dataset
from splitveil.data.download import OfficialFile, download, md5
from splitveil.data.hub import HubRepository, read_hub
from splitveil.data.npz import read_npz
from splitveil.data.source import Content, Progress, Receipt, Source


@dataclass(frozen=True)
class PublishedSource(Source):
    """What is known about a published data set, and how its files are read.

    Verification, the strongest there is: `content_sha256` of all pictures and labels (`content_digest`), whatever file
    they came in; else the MD5 of the official archive; else `labels_sha256` (`labels_digest`): the labels in their
    official order. What was compared is written into the stored file.
    """

    name: str
    augmentation: Augmentation
    homepage: str
    licence: str = "none stated"
    class_names: tuple[str, ...] | None = None
    image_shape: tuple[int, int, int] | None = None
    counts: tuple[int, int] | None = None  # training and test pictures
    read: Callable[[Path], Content] | None = None
    files: tuple[OfficialFile, ...] = ()
    other_md5: tuple[str, ...] = ()  # of official archives that are read but not fetched
    content_sha256: str | None = None
    labels_sha256: str | None = None
    hub: HubRepository | None = None
    local_hint: str = ""

    def open(self, root: Path) -> Dataset:
        """The stored data set."""
        self.check(root)
        return store.read(store.stored_path(root, self.name))[0]

    def check(self, root: Path) -> None:
        """Whether it is stored."""
        if not store.stored_path(root, self.name).exists():
            raise DataError(
                f"The data set {self.name} is not stored in {root}.", f"{self._how()} {self.local_hint}".rstrip()
            )

    def store(self, root: Path, origin: str | None, progress: Progress) -> Receipt:
        """Fetch, verify, store; a damaged stored file is replaced."""
        path = store.stored_path(root, self.name)
        if path.exists():
            try:
                dataset, notes = store.read(path)
                return Receipt(dataset, "already stored", notes.get("verified", "unknown"), path)
            except DataError:
                progress(f"{path.name} is damaged and will be replaced", 0, None)
        check_will_write(root, "Choose another place with --root, or with the variable SPLITVEIL_DATA.")
        content, archive_checked = self._fetch(root, origin, progress)
        progress(f"Checking {self.name}", 0, None)
        dataset = assemble(
            self.name,
            content.parts,
            where=origin or self.homepage,
            class_names=content.class_names or self.class_names,
            augmentation=self.augmentation,
            licence=self.licence,
            source=self.homepage,
        )
        verified = self._verify(dataset, origin or self.homepage, archive_checked)
        store.write(path, dataset, verified=verified)
        return Receipt(dataset, "stored", verified, path)

    def _fetch(self, root: Path, origin: str | None, progress: Progress) -> tuple[Content, bool]:
        """What the origin holds, and whether an official archive's MD5 was compared."""
        if origin is None:
            if not self.files or self.read is None:
                raise DataError(f"{self.name} has no official address.", self._how())
            with store.private_folder(root) as folder:
                paths = [download(file, folder, progress) for file in self.files]
                progress(f"Reading {self.name}", 0, None)
                return self.read(paths[0] if len(paths) == 1 else folder), True
        if origin == "hub" or origin.startswith("hub:"):
            return self._from_hub(origin.removeprefix("hub").removeprefix(":"), progress), False
        path = Path(origin).expanduser()
        progress(f"Reading {path}", 0, None)
        if path.suffix == ".npz" or self.read is None:
            return read_npz(path), False
        archive_checked = self.content_sha256 is None and path.is_file()
        if archive_checked:
            self._check_archive(path)
        return self.read(path), archive_checked

    def _from_hub(self, repository: str, progress: Progress) -> Content:
        if self.hub is None:
            raise DataError(f"{self.name} is not read from the hub: nothing could verify it.", self._how())
        return read_hub(replace(self.hub, repository=repository or self.hub.repository), progress)

    def _check_archive(self, path: Path) -> None:
        expected = (*(file.md5 for file in self.files), *self.other_md5)
        found = md5(path)
        if found not in expected:
            raise DataError(
                f"{path} is not the official archive of {self.name}: "
                f"its md5 is {found}, expected {' or '.join(expected)}.",
                f"Fetch it again from {self.homepage}.",
            )

    def _verify(self, dataset: Dataset, where: str, archive_checked: bool) -> str:
        """Compare shape, counts and checksums; the answer says what was compared."""
        hint = "A changed copy can be used by its path: data.name = PATH of an .npz."
        shape = dataset.info.image_shape
        if self.image_shape not in (None, shape):
            raise DataError(f"{where} is not {self.name}: its pictures are {shape}, expected {self.image_shape}.", hint)
        counts = (len(dataset.train), len(dataset.test))
        if self.counts not in (None, counts):
            raise DataError(f"{where} is not {self.name}: it has {counts} pictures, expected {self.counts}.", hint)
        if self.content_sha256 is not None:
            self._compare(where, "content", content_digest(dataset), self.content_sha256, hint)
            return "content sha256"
        if archive_checked:
            return "archive md5"
        if self.labels_sha256 is not None:
            self._compare(where, "labels", labels_digest(dataset), self.labels_sha256, hint)
            return "labels sha256 (the pictures have no published checksum)"
        return "shape only (there is no published checksum)"

    def _compare(self, where: str, what: str, found: str, expected: str, hint: str) -> None:
        if found != expected:
            raise DataError(f"{where} is not {self.name}: sha256 of its {what} is {found}, expected {expected}.", hint)

    def _how(self) -> str:
        if self.files:
            return f"Fetch it with: splitveil data {self.name} (or, from a local copy, add --from PATH)."
        return f"Bring it as an .npz: splitveil data {self.name} --from FILE.npz"


def content_digest(dataset: Dataset) -> str:
    """One checksum for all pictures and labels of the training and the test part."""
    return hashlib.sha256(f"{dataset.train.digest()}/{dataset.test.digest()}".encode()).hexdigest()


def labels_digest(dataset: Dataset) -> str:
    """One checksum for the labels of both parts, in their order."""
    digest = hashlib.sha256()
    for pictures in (dataset.train, dataset.test):
        digest.update(pictures.labels.numpy().astype("<i8").data)
    return digest.hexdigest()
