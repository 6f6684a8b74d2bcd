"""Our .npz layout, right and wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from splitveil import data
from splitveil.core.errors import DataError
from splitveil.data.augment import Augmentation


def test_colour_and_grey_files_are_read(made):
    colour = data.create(made.npz())
    with np.load(made.folder / "made.npz") as file:
        assert torch.equal(colour.train.images.permute(0, 2, 3, 1), torch.from_numpy(file["train_x"]))
        assert colour.test.labels.tolist() == file["test_y"].tolist()
    assert colour.info.name == "made"
    assert colour.info.image_shape == (3, 4, 4)
    assert colour.info.class_names == ("0", "1", "2")
    assert colour.aux is None
    grey = data.create(str(made.npz("grey.npz", **made.arrays(shape=(5, 7)))))
    assert grey.info.image_shape == (1, 5, 7)


def test_optional_entries(made):
    aux = np.zeros((2, 4, 4, 3), np.uint8)
    names = np.array(["cat", "dog", "owl"])
    path = made.npz(aux_x=aux, aux_y=np.array([700, 0]), class_names=names, augmentation=np.array([1, 0, 12.5]))
    found = data.create(path)
    assert found.aux.labels.tolist() == [700, 0]  # the attacker's classes are its own
    assert found.info.class_names == ("cat", "dog", "owl")
    assert found.info.augmentation == Augmentation(crop=1, flip=False, rotate=12.5)


def test_one_pixel_pictures_work(made):
    found = data.create(made.npz(**made.arrays(shape=(1, 1))))
    assert found.info.image_shape == (1, 1, 1)
    assert found.info.augmentation.crop == 0


def test_a_constant_channel_keeps_a_usable_deviation(made):
    flat = made.arrays() | {"train_x": np.full((12, 4, 4, 3), 51, np.uint8)}
    info = data.create(made.npz(**flat)).info
    assert info.mean == (0.2, 0.2, 0.2)
    assert min(info.std) > 0


def test_statistics_match_a_direct_computation(made):
    found = data.create(made.npz(**made.arrays(train=60)))
    values = found.train.images.double() / 255
    for channel in range(3):
        assert found.info.mean[channel] == pytest.approx(float(values[:, channel].mean()), abs=1e-6)
        assert found.info.std[channel] == pytest.approx(float(values[:, channel].std(correction=0)), abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_x": None}, "has no train_x"),
        ({"test_y": None}, "has no test_y"),
        ({"aux_x": np.zeros((2, 4, 4, 3), np.uint8)}, "has no aux_y"),
        ({"train_x": np.zeros((12, 4, 4, 3), np.float32)}, "float32, not uint8"),
        ({"train_x": np.zeros((12, 4), np.uint8)}, r"shape \[12, 4\]"),
        ({"train_x": np.zeros((12, 0, 4, 3), np.uint8)}, r"shape \[12, 3, 0, 4\]"),
        ({"train_x": np.zeros((12, 4, 4, 4), np.uint8)}, "4 channels"),
        ({"train_x": np.zeros((12, 3, 4, 8), np.uint8)}, "channels last"),
        ({"test_x": np.zeros((6, 5, 5, 3), np.uint8)}, "5 x 5 x 3"),
        ({"aux_x": np.zeros((6, 4, 4, 1), np.uint8), "aux_y": np.arange(6)}, "4 x 4 x 1"),
        ({"train_y": np.arange(11) % 3}, "12 pictures but 11 labels"),
        ({"train_y": np.arange(12) / 3}, "float64"),
        ({"train_y": np.zeros((12, 1), int)}, r"\[12, 1\]"),
        ({"train_y": np.arange(12) % 3 - 1}, "label -1"),
        ({"test_y": np.arange(6)}, "label 5, but there are 3 classes"),
        ({"train_y": np.zeros(12, int), "test_y": np.zeros(6, int)}, "only one class"),
        ({"train_y": np.arange(12) % 2 * 2}, r"Class 1 .* no training picture"),
        ({"test_x": np.zeros((0, 4, 4, 3), np.uint8), "test_y": np.zeros(0, int)}, "no pictures"),
        ({"class_names": np.array(["a", "b"])}, "label 2, but there are 2 classes"),
        ({"class_names": np.array(["a", "b", "c", "d"])}, r"Class 3 \('d'\)"),
        ({"class_names": np.arange(3)}, "class_names"),
        ({"augmentation": np.array([1, 2])}, "augmentation"),
        ({"augmentation": np.array([1, 0, 400])}, "400"),
        ({"train_y": np.array([{}] * 12, dtype=object)}, "cannot be read"),
    ],
)
def test_wrong_content_is_named(made, changes, message):
    path = made.npz(**changes)
    with pytest.raises(DataError, match=message) as caught:
        data.create(path)
    assert "made.npz" in str(caught.value)
    assert caught.value.exit_code == 1


def test_damaged_files_are_named(made):
    path = made.npz()
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"made.npz is not an .npz file, or is truncated"):
        data.create(path)
    flipped = bytearray(content)
    place = content.index(b"NUMPY") + 300  # inside the pictures, so that only the CRC can tell
    flipped[place] ^= 255
    path.write_bytes(flipped)
    with pytest.raises(DataError, match=r"made.npz cannot be read"):
        data.create(path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"made.npz"):
        data.create(path)
