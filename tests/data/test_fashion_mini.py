"""The embedded data set."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.worlds.scripts import load_script

from splitveil import data
from splitveil.core.errors import ConfigError, DataError, UnknownNameError
from splitveil.core.sections import Data
from splitveil.data import fashion_mini
from splitveil.data.dataset import ImageSet

DEBIAN = Path("/usr/share/datasets/fashion-mnist")


def test_what_it_holds():
    found = data.create("fashion-mini")
    assert found.train.images.shape == (10_000, 1, 28, 28)
    assert found.test.images.shape == (2_000, 1, 28, 28)
    assert torch.bincount(found.train.labels).tolist() == [1000] * 10
    assert torch.bincount(found.test.labels).tolist() == [200] * 10
    assert torch.bincount(found.train.labels[:50]).tolist() == [5] * 10  # the classes take turns
    assert found.info.image_shape == (1, 28, 28)
    assert found.info.class_names[9] == "Ankle boot"
    assert "Zalando" in found.info.licence
    values = found.train.images.double() / 255
    assert found.info.mean[0] == pytest.approx(float(values.mean()), abs=1e-6)
    assert found.info.std[0] == pytest.approx(float(values.std(correction=0)), abs=1e-6)


def test_it_is_small_and_carries_its_licence():
    folder = resources.files("splitveil.data").joinpath("embedded")
    assert len(folder.joinpath("fashion-mini.png").read_bytes()) < 6_000_000
    licence = folder.joinpath("LICENSE-fashion-mnist.txt").read_text(encoding="utf-8")
    assert "Zalando" in licence
    assert "MIT License" in licence


@pytest.mark.skipif(not DEBIAN.exists(), reason="needs Debian's package dataset-fashion-mnist")
def test_the_pictures_are_those_of_fashion_mnist():
    script = load_script("scripts/make_fashion_mini.py")
    found = data.create("fashion-mini")
    for part, pictures, count in (("train", found.train, 1000), ("t10k", found.test, 200)):
        images = script.read_idx(DEBIAN, f"{part}-images-idx3", 16).reshape(-1, 28, 28)
        labels = script.read_idx(DEBIAN, f"{part}-labels-idx1", 8)
        for label in range(10):
            mine = pictures.images[pictures.labels == label][:, 0].numpy()
            assert np.array_equal(mine, images[labels == label][:count])


def test_a_damaged_file_is_refused(monkeypatch):
    monkeypatch.setattr(fashion_mini, "SHA256", "0" * 64)
    with pytest.raises(DataError, match=r"fashion-mini.png is damaged"):
        data.create("fashion-mini")


def test_load_gives_the_parts_of_a_run():
    parts = data.load(Data(limit=400), seed=5)
    assert (len(parts.train), len(parts.val), len(parts.aux), len(parts.test)) == (280, 20, 100, 2000)
    assert parts.info.name == "fashion-mini"
    published = data.load(Data(protocol="published", limit=400), seed=5)
    assert len(published.train) == len(published.aux) == 400


def test_a_name_or_a_path_is_enough_to_load(small_data):
    assert data.load("fashion-mini", seed=5).checksum == data.load(Data(name="fashion-mini"), seed=5).checksum
    assert data.load(small_data, seed=5).checksum == data.load(Data(name=str(small_data)), seed=5).checksum


def test_only_folders_are_resized():
    assert data.create("fashion-mini", image_size=28).info.image_shape == (1, 28, 28)
    with pytest.raises(ConfigError, match=r"28 x 28"):
        data.create("fashion-mini", image_size=32)


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match=r"fashion-mini"):
        data.create("fashion-mimi")


def test_names_and_descriptions_need_no_torch():
    code = (
        "import sys, splitveil.data as d; [d.describe(n) for n in d.names()];"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_digest_identifies_content():
    images = torch.arange(24, dtype=torch.uint8).reshape(2, 3, 2, 2)
    first = ImageSet(images, torch.tensor([0, 1]))
    assert first.digest() == ImageSet(images.clone(), torch.tensor([0, 1])).digest()
    others = [
        ImageSet(images, torch.tensor([1, 0])),
        ImageSet(images.flip(-1), torch.tensor([0, 1])),
        ImageSet(images.reshape(2, 3, 4, 1), torch.tensor([0, 1])),
    ]
    assert len({first.digest(), *(other.digest() for other in others)}) == 4
    strided = images.permute(0, 1, 3, 2)
    labels = torch.tensor([0, 1])
    assert ImageSet(strided, labels).digest() == ImageSet(strided.contiguous(), labels).digest()


def test_pictures_that_move_take_their_known_checksum_along(monkeypatch):
    whole = ImageSet(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.arange(4))
    known = whole.digest()
    monkeypatch.setattr("splitveil.data.dataset.hashlib.sha256", None)  # nothing is hashed from here on
    assert whole.to("cpu").digest() == known
    assert whole.subset(torch.arange(4)) is whole  # nothing left out, nothing turned around: no copy either
    for other in (torch.arange(3), torch.tensor([0, 1, 3, 2])):
        assert whole.subset(other).labels.tolist() == other.tolist()
        with pytest.raises(TypeError):
            whole.subset(other).digest()
