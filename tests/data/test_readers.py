"""Readers of the official archives, on made-up pictures in the official layouts."""

from __future__ import annotations

import gzip
import os
import pickle

import numpy as np
import pytest
import torch

from splitveil.core.errors import DataError
from splitveil.data.cifar import read_cifar10, read_cifar100
from splitveil.data.class_names import CIFAR10, CIFAR100, FASHION
from splitveil.data.idx import read_fashion_mnist
from splitveil.data.pickles import read_pickle
from splitveil.data.tinyimagenet import read_tinyimagenet


@pytest.mark.parametrize("flavour", ["binary", "python"])
@pytest.mark.parametrize("packed", [True, False])
def test_cifar10_archives_and_folders(made, flavour, packed):
    images, labels = made.cifar()
    files = made.cifar10_files(images, labels, flavour)
    path = made.tar("cifar.tar.gz", files)
    if not packed:
        path = made.folder / "unpacked"
        for name, content in files.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)
    parts = read_cifar10(path).parts
    assert np.array_equal(parts["train"][0], images[:20])
    assert np.array_equal(parts["train"][1], labels[:20])
    assert np.array_equal(parts["test"][0], images[20:])
    assert np.array_equal(parts["test"][1], labels[20:])


@pytest.mark.parametrize("flavour", ["binary", "python"])
def test_cifar100_uses_the_fine_labels(made, flavour):
    images, fine = made.cifar(classes=100)
    files = {}
    for name, piece in (("train", slice(0, 20)), ("test", slice(20, 24))):
        flat, labels = images[piece].reshape(-1, 3072), fine[piece]
        coarse = np.full(len(flat), 19)
        if flavour == "binary":
            columns = [coarse[:, None].astype(np.uint8), labels[:, None].astype(np.uint8), flat]
            files[f"cifar-100-binary/{name}.bin"] = np.concatenate(columns, axis=1).tobytes()
        else:
            batch = {b"fine_labels": labels.tolist(), b"coarse_labels": coarse.tolist(), b"data": flat}
            files[f"cifar-100-python/{name}"] = pickle.dumps(batch, protocol=3)
    parts = read_cifar100(made.tar("cifar-100.tar.gz", files)).parts
    assert np.array_equal(parts["train"][1], fine[:20])
    assert np.array_equal(parts["test"][0], images[20:])


def test_a_missing_batch_is_named(made):
    files = made.cifar10_files(*made.cifar(), "binary")
    del files["cifar-10-batches-bin/data_batch_3.bin"]
    with pytest.raises(DataError, match=r"cifar.tar.gz has no data_batch_3.bin"):
        read_cifar10(made.tar("cifar.tar.gz", files))


def test_a_cut_batch_is_named(made):
    files = made.cifar10_files(*made.cifar(), "binary")
    files["cifar-10-batches-bin/data_batch_3.bin"] = files["cifar-10-batches-bin/data_batch_3.bin"][:-1]
    with pytest.raises(DataError, match=r"data_batch_3.bin has 12,291 bytes"):
        read_cifar10(made.tar("cifar.tar.gz", files))


@pytest.mark.parametrize("keep", [0.02, 0.5, 0.95])
def test_a_truncated_archive_is_named(made, keep):
    path = made.tar("cifar.tar.gz", made.cifar10_files(*made.cifar(), "binary"))
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(DataError, match=r"cifar.tar.gz is damaged or truncated"):
        read_cifar10(path)


def test_other_files_are_refused(made):
    path = made.folder / "notes.txt"
    path.write_text("no archive")
    with pytest.raises(DataError, match=r"notes.txt is neither a folder nor a tar or zip"):
        read_cifar10(path)
    with pytest.raises(DataError, match=r"There is no file or folder .*absent"):
        read_cifar10(made.folder / "absent")


class Forged:
    """Unpickling this would run a command."""

    def __init__(self, marker) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def test_a_forged_pickle_runs_nothing(made):
    marker = made.folder / "marker"
    content = pickle.dumps({b"data": Forged(marker), b"labels": []}, protocol=3)
    with pytest.raises(DataError, match=r"batch is not a plain data file: it asks for"):
        read_pickle(content, made.folder / "batch")
    assert not marker.exists()
    pickle.loads(content)  # the forgery itself works; only our reader stops it
    assert marker.exists()


@pytest.mark.parametrize(
    "value",
    [
        [1, 2],
        {b"data": np.zeros(3, np.float32)},
        {b"data": np.array([{}], dtype=object)},
        {b"data": np.asfortranarray(np.zeros((2, 3), np.uint8))},
        {b"data": torch.zeros(2)},
        {b"data": np.dtype("u1").type},
    ],
)
def test_pickles_hold_bytes_or_are_refused(made, value):
    with pytest.raises(DataError, match=r"batch is not a plain data file"):
        read_pickle(pickle.dumps(value, protocol=3), made.folder / "batch")


def test_a_damaged_pickle_is_an_error(made):
    content = pickle.dumps({b"data": np.zeros((2, 3), np.uint8)}, protocol=3)
    assert read_pickle(content, made.folder)["data"].shape == (2, 3)
    for cut in range(0, len(content), 7):
        with pytest.raises(DataError, match="plain data"):
            read_pickle(content[:cut], made.folder)


@pytest.mark.parametrize(
    "batch",
    [
        {b"labels": [1]},
        {b"data": np.zeros((1, 3072), np.uint8), b"labels": ["a"]},
        {b"data": np.zeros((1, 5), np.uint8)},
    ],
)
def test_incomplete_python_batches_are_named(made, batch):
    files = made.cifar10_files(*made.cifar(), "python")
    files["cifar-10-batches-py/data_batch_2"] = pickle.dumps(batch, protocol=3)
    with pytest.raises(DataError, match=r"data_batch_2 has no"):
        read_cifar10(made.tar("cifar.tar.gz", files))


@pytest.mark.parametrize("packed", [True, False])
def test_fashion_mnist_folders(made, packed):
    arrays = made.idx_files()
    parts = read_fashion_mnist(made.idx_folder(arrays, packed)).parts
    assert np.array_equal(parts["train"][0][:, 0], arrays["train-images-idx3-ubyte"])
    assert np.array_equal(parts["test"][1], arrays["t10k-labels-idx1-ubyte"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "idx file"),
        (b"\0\0\x0d\3" + bytes(12), "idx file"),
        (b"\0\0\x08\3" + bytes(3), "idx file"),
        (b"\0\0\x08\1\0\0\0\5abc", "declares 5 values and holds 3"),
    ],
)
def test_wrong_idx_files_are_named(made, content, message):
    folder = made.idx_folder(made.idx_files())
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(content))
    with pytest.raises(DataError, match=message) as caught:
        read_fashion_mnist(folder)
    assert "train-images-idx3-ubyte.gz" in str(caught.value)


def test_damaged_or_missing_idx_files_are_named(made):
    folder = made.idx_folder(made.idx_files())
    labels = folder / "t10k-labels-idx1-ubyte.gz"
    content = labels.read_bytes()
    labels.write_bytes(content[:-6])
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte.gz is damaged or truncated"):
        read_fashion_mnist(folder)
    labels.unlink()
    with pytest.raises(DataError, match=r"has no t10k-labels-idx1-ubyte.gz"):
        read_fashion_mnist(folder)


def tiny_files(made) -> dict[str, bytes]:
    """Two classes; ids out of order, file numbers that sort differently as text, one grey picture."""
    base = "tiny-imagenet-200"
    files = {
        f"{base}/wnids.txt": b"n02\nn01\n",
        f"{base}/words.txt": b"n01\tgoldfish, Carassius auratus\nn02\tfire salamander\nn09\tother\n",
        f"{base}/val/val_annotations.txt": b"val_0.JPEG\tn02\t0\t0\t9\t9\nval_1.JPEG\tn01\t0\t0\t9\t9\n",
        f"{base}/test/images/test_0.JPEG": made.picture_bytes(),
    }
    for wnid in ("n02", "n01"):
        for number in (10, 9):
            mode = "L" if number == 9 else "RGB"
            files[f"{base}/train/{wnid}/images/{wnid}_{number}.JPEG"] = made.picture_bytes(mode=mode)
    for number in (1, 0):
        files[f"{base}/val/images/val_{number}.JPEG"] = made.picture_bytes()
    return files


def test_tinyimagenet_zip(made):
    content = read_tinyimagenet(made.zip("tiny.zip", tiny_files(made)))
    assert content.class_names == ("goldfish", "fire salamander")
    images, labels = content.parts["train"]
    assert images.shape == (4, 3, 64, 64)
    assert labels.tolist() == [0, 0, 1, 1]
    for number, is_grey in enumerate((True, False, True, False)):  # 9 before 10
        assert np.array_equal(images[number, 0], images[number, 1]) == is_grey
    assert content.parts["test"][1].tolist() == [1, 0]


def test_wrong_tinyimagenet_files_are_named(made):
    files = tiny_files(made)
    files["tiny-imagenet-200/val/images/val_1.JPEG"] = made.picture_bytes(size=(32, 32))
    with pytest.raises(DataError, match=r"val_1.JPEG is not 64 x 64"):
        read_tinyimagenet(made.zip("tiny.zip", files))
    files["tiny-imagenet-200/val/images/val_1.JPEG"] = b"nothing"
    with pytest.raises(DataError, match=r"val_1.JPEG is not a readable picture"):
        read_tinyimagenet(made.zip("tiny.zip", files))
    del files["tiny-imagenet-200/words.txt"]
    with pytest.raises(DataError, match=r"has no words.txt"):
        read_tinyimagenet(made.zip("tiny.zip", files))


def test_a_damaged_zip_is_named(made):
    path = made.zip("tiny.zip", tiny_files(made))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"tiny.zip"):
        read_tinyimagenet(path)


def test_class_names_are_complete():
    assert [len(set(names)) for names in (FASHION, CIFAR10, CIFAR100)] == [10, 10, 100]
    assert list(CIFAR100) == sorted(CIFAR100)
    assert list(CIFAR10) == sorted(CIFAR10)
