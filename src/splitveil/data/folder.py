"""Any folder of pictures: train/CLASS/FILE and test/CLASS/FILE (optionally aux/CLASS/FILE), or CLASS/FILE alone.

With CLASS/FILE alone a fifth of each class becomes the test part. Which fifth depends on the names of the files and not
on the seed of a run, so that all runs are scored on the same pictures.
The decoded pictures are stored once below the data root, and read from there until a file of the folder changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from splitveil.core.errors import DataError
from splitveil.core.listed import listed
from splitveil.core.pictures import decode, header
from splitveil.data import store
from splitveil.data.assembly import assemble
from splitveil.data.dataset import Dataset

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".pgm", ".ppm", ".tif", ".tiff")
LAYOUT = "Expected train/CLASS/FILE and test/CLASS/FILE, or CLASS/FILE."
MOST_NAMED = 20  # files that one message names
Files = dict[str, list[Path]]  # class name -> its picture files
Faults = dict[Path, DataError]  # what is wrong with which picture
Found = TypeVar("Found")


def open_folder(folder: Path, root: Path, image_size: int | None = None) -> Dataset:
    """The data set in `folder`, every picture brought to `image_size` x `image_size` if that is given."""
    parts = _list_parts(folder)
    listing = _listing(folder, parts, image_size)
    stored = _stored_path(folder, root)
    if stored.exists():
        with suppress(DataError):  # a damaged copy is made again
            dataset, notes = store.read(stored)
            if notes.get("listing") == listing:
                return dataset
    dataset = _decode_parts(folder, parts, image_size)
    with suppress(OSError):  # the copy only saves time; a full or read-only disk must not stop the run
        store.write(stored, dataset, listing=listing)
    return dataset


def picture_files(folder: Path) -> list[Path]:
    """Every picture of the data set in `folder`, and nothing else that lies there."""
    return sorted(file for classes in _list_parts(folder).values() for files in classes.values() for file in files)


def _list_parts(folder: Path) -> dict[str, Files]:
    """The files of each part."""
    if (folder / "train").is_dir():
        test = "test" if (folder / "test").is_dir() else "val"
        if not (folder / test).is_dir():
            raise DataError(f"{folder} has a folder 'train' but none called 'test'.", LAYOUT)
        parts = {"train": _classes(folder / "train"), "test": _classes(folder / test)}
        if (folder / "aux").is_dir():
            parts["aux"] = _classes(folder / "aux")
        unknown = sorted(set(parts["test"]) - set(parts["train"]))
        if unknown:
            raise DataError(f"{folder / test / unknown[0]} names a class that 'train' does not have.", LAYOUT)
        return parts
    train: Files = {}
    test_files: Files = {}
    for name, files in _classes(folder).items():
        if len(files) < 2:
            raise DataError(f"{folder / name} has one picture; training and test need one each.", "Add pictures.")
        by_hash = sorted(files, key=lambda file: hashlib.sha256(file.name.encode()).digest())
        count = max(1, len(files) // 5)
        test_files[name], train[name] = sorted(by_hash[:count]), sorted(by_hash[count:])
    return {"train": train, "test": test_files}


def _classes(folder: Path) -> Files:
    """Every folder below is a class; its pictures may lie deeper."""
    classes = {}
    for below in sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")):
        named = [file for file in below.rglob("*") if file.suffix.lower() in SUFFIXES and not file.is_dir()]
        for file in named:
            if not file.is_file():
                raise DataError(f"{file} is a link to a file that is not there.", "Remove it, or bring the file back.")
        classes[below.name] = sorted(named)
        if not classes[below.name]:
            hint = (
                "Every folder there is a class: move this one elsewhere, or add pictures."  # it may hold other things
            )
            raise DataError(f"{below} has no pictures.", hint)
    if not classes and any(file.suffix.lower() in SUFFIXES for file in folder.iterdir()):
        raise DataError(f"{folder} holds pictures, but no folder for each class.", LAYOUT)
    if not classes:
        raise DataError(f"{folder} has no folders of pictures.", LAYOUT)
    return classes


def _listing(folder: Path, parts: dict[str, Files], image_size: int | None) -> str:
    """Changes when a file is added, removed or written, and with the size asked for."""
    digest = hashlib.sha256(f"{image_size}".encode())
    for part, classes in parts.items():
        for file in (file for files in classes.values() for file in files):
            state = file.stat()
            digest.update(f"{part}:{file.relative_to(folder)}:{state.st_size}:{state.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _stored_path(folder: Path, root: Path) -> Path:
    place = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
    return root / "folders" / f"{folder.resolve().name}-{place}.safetensors"


def _decode_parts(folder: Path, parts: dict[str, Files], image_size: int | None) -> Dataset:
    everything = [file for classes in parts.values() for files in classes.values() for file in files]
    faults: Faults = {}
    headers = dict(_each(everything, lambda file: header(str(file), str(file)), faults))
    if faults:  # the others are looked into all the same: who has to mend pictures wants to know of all
        for _ in _each(headers, partial(_decode, grey=False, size=image_size), faults):
            pass
        raise _unusable(faults)
    grey = all(found.grey for found in headers.values())
    sizes = {found.size: file for file, found in headers.items()}
    if image_size is None and len(sizes) > 1:
        (first, one), (second, other) = list(sizes.items())[:2]
        raise DataError(
            f"Pictures differ in size: {one} is {first[0]} x {first[1]}, {other} is {second[0]} x {second[1]}.",
            "Set data.image_size (splitveil data: --image-size) to the side they should get.",
        )
    width, height = (image_size, image_size) if image_size is not None else next(iter(sizes))
    class_names = list(parts["train"])
    arrays = {}
    for part, classes in parts.items():
        names = sorted(classes) if part == "aux" else class_names
        labelled = [(file, label) for label, name in enumerate(names) for file in classes.get(name, [])]
        images = np.zeros((len(labelled), 1 if grey else 3, height, width), np.uint8)
        read = partial(_decode, grey=grey, size=image_size)
        for number, (_, picture) in enumerate(_each((file for file, _ in labelled), read, faults)):
            images[number] = picture
        arrays[part] = (images, np.array([label for _, label in labelled], np.int64))
    if faults:
        raise _unusable(faults)
    return assemble(folder.resolve().name, arrays, where=str(folder), class_names=class_names)


def _decode(file: Path, *, grey: bool, size: int | None) -> np.ndarray:
    return decode(str(file), str(file), grey=grey, size=size)


def _each(files: Iterable[Path], read: Callable[[Path], Found], faults: Faults) -> Iterator[tuple[Path, Found]]:
    """What `read` finds in each file; those that cannot be read go to `faults`."""
    for file in files:
        try:
            found = read(file)
        except DataError as error:
            faults[file] = error
            continue
        yield file, found


def _unusable(faults: Faults) -> DataError:
    """All of them in one sentence."""
    names = sorted(faults)
    if len(names) == 1:
        return faults[names[0]]
    return DataError(
        f"{len(names):,} pictures cannot be used; the first: {faults[names[0]].message}",
        f"Remove or replace {listed([str(name) for name in names], MOST_NAMED, ', ')}.",
    )
