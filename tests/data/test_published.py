"""Fetch, verify and store: whole and right, or nothing at all."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import os
import sys
import threading
import time
import types
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from splitveil import data
from splitveil.core.errors import DataError, MissingExtraError, UsageError
from splitveil.data import published, store
from splitveil.data.download import OfficialFile
from splitveil.data.published import content_digest, labels_digest
from splitveil.data.sources import CIFAR10, CIFAR100, FACES, FASHION_MNIST, TINYIMAGENET


def left_behind(root):
    return sorted(path.name for path in root.rglob("*")) if root.exists() else []


@pytest.fixture
def small(made, progress):
    """A small CIFAR-10: its archive, its source, and its pictures and labels."""
    images, labels = made.cifar()
    path = made.tar("cifar-10-binary.tar.gz", made.cifar10_files(images, labels, "binary"))
    md5 = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    source = replace(CIFAR10, counts=(20, 4), content_sha256=None, files=(OfficialFile(path.as_uri(), md5),))
    dataset = source.store(made.folder / "trial", str(path), progress).dataset
    source = replace(source, content_sha256=content_digest(dataset))
    return types.SimpleNamespace(path=path, source=source, images=images, labels=labels, md5=md5)


def as_npz(made, small, images=None, name="cifar.npz"):
    images = small.images if images is None else images
    hwc, y = np.moveaxis(images, 1, -1), small.labels
    return made.npz(name, train_x=hwc[:20], train_y=y[:20], test_x=hwc[20:], test_y=y[20:])


def test_a_local_archive_is_stored_and_read_back(small, root, progress):
    receipt = small.source.store(root, str(small.path), progress)
    assert (receipt.state, receipt.verified) == ("stored", "content sha256")
    assert left_behind(root) == ["cifar10.safetensors"]
    found = small.source.open(root)
    assert torch.equal(found.train.images, torch.from_numpy(small.images[:20]))
    assert found.test.labels.tolist() == small.labels[20:].tolist()
    assert found.info == receipt.dataset.info
    assert found.info.class_names[3] == "cat"


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_read(small, tmp_path, progress):
    (tmp_path / "file").touch()
    source = replace(small.source, read=lambda path: pytest.fail("the work began"))
    with pytest.raises(UsageError, match=r"file cannot be written \(.*--root"):
        source.store(tmp_path / "file", str(small.path), progress)


def test_the_second_call_does_nothing(small, root, progress):
    small.source.store(root, str(small.path), progress)
    before = (root / "cifar10.safetensors").stat()
    again = small.source.store(root, "/nowhere", progress)
    assert (again.state, again.verified) == ("already stored", "content sha256")
    after = (root / "cifar10.safetensors").stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)


def test_npz_python_and_binary_give_the_same_set(small, made, tmp_path, progress):
    python = made.tar("python.tar.gz", made.cifar10_files(small.images, small.labels, "python"))
    digests = {
        small.source.store(tmp_path / str(number), str(path), progress).dataset.train.digest()
        for number, path in enumerate((small.path, python, as_npz(made, small)))
    }
    assert len(digests) == 1


def test_changed_content_is_refused(small, made, root, progress):
    changed = small.images.copy()
    changed[3, 1, 4, 5] ^= 1
    path = as_npz(made, small, changed)
    with pytest.raises(DataError, match=rf"cifar.npz is not cifar10: .*expected {small.source.content_sha256}"):
        small.source.store(root, str(path), progress)
    assert left_behind(root) == []


def test_wrong_shape_and_count_are_refused(small, made, root, progress):
    with pytest.raises(DataError, match=r"\(20, 4\) pictures, expected \(50000, 10000\)"):
        CIFAR10.store(root, str(small.path), progress)
    grey = made.npz("grey.npz", **made.arrays(train=20, classes=10, test=4, shape=(32, 32)))
    with pytest.raises(DataError, match=r"\(1, 32, 32\), expected \(3, 32, 32\)"):
        small.source.store(root, str(grey), progress)
    assert left_behind(root) == []


def test_without_a_content_checksum_the_archive_must_be_official(small, made, root, progress):
    source = replace(small.source, content_sha256=None)
    assert source.store(root, str(small.path), progress).verified == "archive md5"
    other = made.tar("other.tar.gz", made.cifar10_files(small.images + 1, small.labels, "binary"))
    with pytest.raises(DataError, match=rf"other.tar.gz is not the official archive .*expected {small.md5}"):
        source.store(root / "second", str(other), progress)
    assert left_behind(root) == ["cifar10.safetensors"]


def test_labels_are_compared_where_nothing_better_is_known(small, made, root, progress):
    dataset = small.source.store(root, str(small.path), progress).dataset
    source = replace(small.source, content_sha256=None, labels_sha256=labels_digest(dataset))
    path = as_npz(made, small, small.images + 1)
    assert source.store(root / "second", str(path), progress).verified.startswith("labels sha256")
    small.labels[:2] = small.labels[1::-1]
    with pytest.raises(DataError, match="sha256 of its labels"):
        source.store(root / "third", str(as_npz(made, small)), progress)


def test_faces_come_from_a_file_with_people_of_their_own(made, root, progress):
    aux = {"aux_x": np.zeros((5, 4, 4), np.uint8), "aux_y": np.arange(5)}
    receipt = FACES.store(root, str(made.npz(**made.arrays(shape=(4, 4)), **aux)), progress)
    assert receipt.verified.startswith("shape only")
    found = data.create("faces", root=root)
    assert len(found.aux) == 5
    assert found.info.augmentation.flip
    with pytest.raises(DataError, match="no official address"):
        FACES.store(root / "second", None, progress)


@contextlib.contextmanager
def serving(folder):
    """A web server on this machine, and its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            """Tests print nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_the_official_file_is_fetched_with_progress(small, root):
    seen = []
    with serving(small.path.parent) as address:
        source = replace(small.source, files=(OfficialFile(f"{address}/{small.path.name}", small.md5),))
        receipt = source.store(root, None, lambda *step: seen.append(step))
    size = small.path.stat().st_size
    assert (f"Fetching {small.path.name}", size, size) in seen
    assert receipt.verified == "content sha256"
    assert left_behind(root) == ["cifar10.safetensors"]


def test_several_files_are_fetched_into_one_folder(made, root, progress):
    arrays = made.idx_files()
    folder = made.idx_folder(arrays)
    files = tuple(
        OfficialFile(path.as_uri(), hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest())
        for path in sorted(folder.iterdir())
    )
    source = replace(FASHION_MNIST, counts=(20, 10), content_sha256=None, files=files)
    assert source.store(root, None, progress).verified == "archive md5"
    assert np.array_equal(source.open(root).train.images[:, 0].numpy(), arrays["train-images-idx3-ubyte"])


def test_a_wrong_download_leaves_nothing(small, root, progress):
    source = replace(small.source, files=(OfficialFile(small.path.as_uri(), "0" * 32),))
    with pytest.raises(DataError, match=rf"cifar-10-binary.tar.gz is not what was expected: md5 {'0' * 32}"):
        source.store(root, None, progress)
    assert left_behind(root) == []


def test_a_missing_address_leaves_nothing(small, root, progress):
    with serving(small.path.parent) as address:
        source = replace(small.source, files=(OfficialFile(f"{address}/absent.tar.gz", small.md5),))
        with pytest.raises(DataError, match=r"absent.tar.gz could not be fetched: .*404.*--from"):
            source.store(root, None, progress)
    assert left_behind(root) == []


@pytest.mark.parametrize("moment", ["fetching", "reading", "checking", "writing"])
def test_an_interruption_leaves_nothing_and_a_second_try_works(small, root, progress, moment, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    def at_fetching(label, done, total):
        if label.startswith("Fetching"):
            raise KeyboardInterrupt

    def half_a_file(tensors, path, metadata):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    source = small.source
    with monkeypatch.context() as patch:
        if moment == "reading":
            source = replace(source, read=interrupt)
        elif moment == "checking":
            patch.setattr(published, "content_digest", interrupt)
        elif moment == "writing":
            patch.setattr(store, "save_file", half_a_file)
        with pytest.raises(KeyboardInterrupt):
            source.store(root, None, at_fetching if moment == "fetching" else progress)
    assert left_behind(root) == []
    assert small.source.store(root, None, progress).state == "stored"


def test_what_killed_processes_left_is_removed_after_a_day(small, root, progress):
    for name, age in ((".splitveil-old", 2 * store.DAY), (".splitveil-running", 60), (".other", 2 * store.DAY)):
        (root / name).mkdir(parents=True)
        (root / name / "half").write_bytes(b"half")
        os.utime(root / name, (time.time() - age,) * 2)
    small.source.store(root, str(small.path), progress)
    assert sorted(path.name for path in root.iterdir()) == [".other", ".splitveil-running", "cifar10.safetensors"]


def test_a_damaged_store_is_noticed_and_replaced(small, root, progress):
    first = small.source.store(root, str(small.path), progress)
    path, whole = first.path, first.path.read_bytes()
    flipped = bytearray(whole)
    flipped[-100] ^= 1
    for content in (whole[:-10], b"", bytes(flipped)):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"cifar10.safetensors is damaged"):
            small.source.open(root)
    assert small.source.store(root, str(small.path), progress).state == "stored"
    assert small.source.open(root).train.digest() == first.dataset.train.digest()


def test_a_foreign_file_is_refused(root):
    from safetensors.torch import save_file

    root.mkdir()
    save_file({"x": torch.zeros(1)}, root / "cifar10.safetensors")
    with pytest.raises(DataError, match="not written by this version"):
        data.create("cifar10", root=root)


def test_what_is_not_stored_is_asked_for(root, monkeypatch):
    with pytest.raises(DataError, match=r"cifar10 is not stored in .*splitveil data cifar10"):
        data.create("cifar10", root=root)
    with pytest.raises(DataError, match=r"apt install dataset-fashion-mnist"):
        data.create("fashion-mnist", root=root)
    monkeypatch.setenv("SPLITVEIL_DATA", str(root / "elsewhere"))
    with pytest.raises(DataError, match="elsewhere"):
        data.create("tinyimagenet")


def test_the_hub(small, root, progress, monkeypatch):
    """With a stand-in for the package, because tests have no network."""
    asked = []
    rows = [
        {"img": Image.fromarray(np.moveaxis(image, 0, -1)), "label": int(label)}
        for image, label in zip(small.images, small.labels, strict=True)
    ]

    def load_dataset(repository, split):
        asked.append((repository, split))
        if repository == "some/other":
            raise FileNotFoundError("no such repository")
        return rows[:20] if split == "train" else rows[20:]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    assert small.source.store(root, "hub", progress).verified == "content sha256"
    assert asked == [("uoft-cs/cifar10", "train"), ("uoft-cs/cifar10", "test")]
    with pytest.raises(DataError, match="some/other could not be read"):
        small.source.store(root / "second", "hub:some/other", progress)
    with pytest.raises(DataError, match="nothing could verify it"):
        TINYIMAGENET.store(root, "hub", progress)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"\.\[hub\]"):
        small.source.store(root / "third", "hub", progress)


def test_the_pinned_checksums_are_whole():
    for source in (FASHION_MNIST, CIFAR10, CIFAR100, TINYIMAGENET):
        for md5 in (*(file.md5 for file in source.files), *source.other_md5):
            assert len(md5) == 32
            int(md5, 16)
    for sha256 in (FASHION_MNIST.content_sha256, CIFAR10.content_sha256, CIFAR100.labels_sha256):
        assert len(sha256) == 64
        int(sha256, 16)
