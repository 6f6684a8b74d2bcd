"""Small made-up pictures in every layout that the loaders read."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


class Made:
    """Writes made-up files below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rng = np.random.default_rng(11)

    def arrays(self, train=12, test=6, classes=3, shape=(4, 4, 3)) -> dict[str, np.ndarray]:
        """Our .npz layout."""

        def pick(count):
            return self.rng.integers(0, 256, (count, *shape), dtype=np.uint8)

        return {
            "train_x": pick(train),
            "train_y": np.arange(train) % classes,
            "test_x": pick(test),
            "test_y": np.arange(test) % classes,
        }

    def npz(self, name="made.npz", **changes) -> Path:
        """A file in our layout; a change of None leaves a key out."""
        arrays = self.arrays() | changes
        path = self.folder / name
        np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
        return path

    def tar(self, name: str, files: dict[str, bytes]) -> Path:
        path = self.folder / name
        with tarfile.open(path, "w:gz") as archive:
            for inside, content in files.items():
                entry = tarfile.TarInfo(inside)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        return path

    def zip(self, name: str, files: dict[str, bytes]) -> Path:
        path = self.folder / name
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for inside, content in files.items():
                archive.writestr(inside, content)
        return path

    def cifar(self, count=4, label_bytes=1, classes=10):
        """Pictures [6 count, 3, 32, 32] and labels of five training files and one test file."""
        images = self.rng.integers(0, 256, (6 * count, 3, 32, 32), dtype=np.uint8)
        labels = np.arange(6 * count) % classes
        return images, labels

    def cifar10_files(self, images, labels, flavour: str) -> dict[str, bytes]:
        names = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]
        files = {}
        for name, x, y in zip(names, np.split(images, 6), np.split(labels, 6), strict=True):
            if flavour == "binary":
                rows = np.concatenate([y[:, None].astype(np.uint8), x.reshape(len(x), -1)], axis=1)
                files[f"cifar-10-batches-bin/{name}.bin"] = rows.tobytes()
            else:
                batch = {b"labels": y.tolist(), b"data": x.reshape(len(x), -1), b"filenames": [b"a.png"] * len(x)}
                files[f"cifar-10-batches-py/{name}"] = pickle.dumps(batch, protocol=3)
        return files

    def idx_files(self, train=20, test=10) -> dict[str, np.ndarray]:
        """Fashion-MNIST's four files, as arrays."""
        return {
            "train-images-idx3-ubyte": self.rng.integers(0, 256, (train, 28, 28), dtype=np.uint8),
            "train-labels-idx1-ubyte": (np.arange(train) % 10).astype(np.uint8),
            "t10k-images-idx3-ubyte": self.rng.integers(0, 256, (test, 28, 28), dtype=np.uint8),
            "t10k-labels-idx1-ubyte": (np.arange(test) % 10).astype(np.uint8),
        }

    def idx_folder(self, arrays: dict[str, np.ndarray], packed=True) -> Path:
        folder = self.folder / "idx"
        folder.mkdir()
        for name, values in arrays.items():
            content = self.idx_bytes(values)
            if packed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(content))
            else:
                (folder / name).write_bytes(content)
        return folder

    @staticmethod
    def idx_bytes(values: np.ndarray) -> bytes:
        return bytes((0, 0, 8, values.ndim)) + np.array(values.shape, ">u4").tobytes() + values.tobytes()

    def picture(self, path: Path, mode="RGB", size=(6, 6), **save) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        values = self.rng.integers(0, 256, (size[1], size[0], 4), dtype=np.uint8)
        Image.fromarray(values).convert(mode).save(path, **save)
        return path

    def picture_bytes(self, kind="JPEG", mode="RGB", size=(64, 64)) -> bytes:
        buffer = io.BytesIO()
        values = self.rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        Image.fromarray(values).convert(mode).save(buffer, kind)
        return buffer.getvalue()


@pytest.fixture
def made(tmp_path) -> Made:
    folder = tmp_path / "made"
    folder.mkdir()
    return Made(folder)


@pytest.fixture
def root(tmp_path) -> Path:
    return tmp_path / "root"


def silent(label: str, done: int, total: int | None) -> None:
    """A progress that nobody watches."""


@pytest.fixture
def progress():
    return silent
