"""`splitveil data`."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from splitveil.cli.data import data as verb
from splitveil.core.errors import DataError, UnknownNameError, UsageError
from splitveil.core.sections import Data
from splitveil.data import load

app = typer.Typer()
app.command()(verb)


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result


@pytest.fixture
def faces(tmp_path):
    path = tmp_path / "faces.npz"
    images, labels = np.zeros((6, 4, 4), np.uint8), np.arange(6) % 3
    np.savez(path, train_x=images, train_y=labels, test_x=images, test_y=labels, aux_x=images, aux_y=labels)
    return path


def test_the_embedded_set_is_described():
    output = run("fashion-mini").stdout
    assert "fashion-mini: embedded" in output
    assert "10,000 training + 2,000 test pictures, 28 x 28 x 1, 10 classes" in output


def test_the_embedded_set_takes_nothing_from_elsewhere(faces):
    with pytest.raises(UsageError, match=r"nothing is taken from .*faces\.npz\. Leave out --from"):
        run("fashion-mini", "--from", faces)


def test_balance_and_augmentation_are_told(tmp_path):
    assert (
        "training pictures of each class: 1,000\n  in training they are shifted by up to 2"
        in run("fashion-mini").stdout
    )
    images, labels = np.arange(160, dtype=np.uint8).reshape(10, 4, 4), np.array([0] * 7 + [1, 1, 2])
    arrays = {"train_x": images, "train_y": labels, "test_x": images + 90, "test_y": labels}
    np.savez(tmp_path / "own.npz", **arrays, class_names=np.array(["a", "b", "c"]), augmentation=np.array([0, 1, 15]))
    output = run(tmp_path / "own.npz").stdout
    assert "training pictures by class: 1 (c) to 7 (a); always naming a is right for 70.0%" in output
    assert "mirrored half of the time, turned by up to 15 degrees (not with data.augment = false)" in output
    assert json.loads(run(tmp_path / "own.npz", "--json").stdout)["class_sizes"] == {"a": 7, "b": 2, "c": 1}
    np.savez(tmp_path / "still.npz", **arrays, augmentation=np.array([0, 0, 0]))
    assert "in training they are taken as they are" in run(tmp_path / "still.npz").stdout


def test_a_set_is_stored_once(faces, tmp_path):
    first = run("faces", "--from", faces, "--root", tmp_path / "root")
    assert "faces: stored in" in first.stdout
    assert "6 auxiliary" in first.stdout
    assert "Reading" in first.stderr  # plain lines, because this is no terminal
    second = run("faces", "--from", faces, "--root", tmp_path / "root")
    assert "faces: already stored in" in second.stdout


def test_json(faces, tmp_path):
    result = run("faces", "--from", faces, "--root", tmp_path / "root", "--json")
    found = json.loads(result.stdout)
    assert (found["state"], found["train"], found["aux"], found["image_shape"]) == ("stored", 6, 6, [1, 4, 4])
    assert len(found["sha256"]["train"]) == 64
    assert result.stderr == ""


def test_a_path_is_checked_and_described(faces, tmp_path):
    assert "usable by its path" in run(faces, "--root", tmp_path).stdout
    with pytest.raises(UsageError, match="path already"):
        run(faces, "--from", faces)


def test_errors_reach_the_caller(tmp_path):
    with pytest.raises(UnknownNameError, match="cifar10"):
        run("cifar-10")
    with pytest.raises(UsageError, match="There is no file"):
        run("cifar10", "--from", tmp_path / "absent.npz", "--root", tmp_path)
    (tmp_path / "broken.npz").write_bytes(b"no archive")
    with pytest.raises(DataError):
        run("cifar10", "--from", tmp_path / "broken.npz", "--root", tmp_path)


def test_importing_the_verb_needs_no_torch():
    code = "import sys, splitveil.cli.data; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_pictures_of_many_sizes_are_checked_at_one(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "p" / name).mkdir(parents=True)
        for number in range(5):
            Image.new("L", (6 + number, 7)).save(tmp_path / "p" / name / f"{number}.png")
    with pytest.raises(DataError, match="--image-size"):
        run(tmp_path / "p", "--root", tmp_path / "root")
    assert "8 x 8 x 1" in run(tmp_path / "p", "--root", tmp_path / "root", "--image-size", 8).stdout
    with pytest.raises(UsageError, match="image folders"):
        run("fashion-mini", "--image-size", 8)


def test_pictures_of_ones_own_in_both_parts_are_counted(tmp_path, caplog):
    """Else the audit refuses them after hours of training."""
    images = np.random.default_rng(0).integers(0, 256, (60, 4, 4), dtype=np.uint8)
    labels = np.arange(60) % 3
    path = tmp_path / "mine.npz"
    np.savez(path, train_x=images[:50], train_y=labels[:50], test_x=images[47:], test_y=labels[47:])
    assert "note: 3 of the 13 test pictures are training pictures too" in run(path).stdout
    assert json.loads(run(path, "--json").stdout)["twins"] == 3
    load(Data(name=str(path)), seed=0)
    assert "3 of the 13 test pictures are training pictures too" in caplog.text
    np.savez(path, train_x=images[:47], train_y=labels[:47], test_x=images[47:], test_y=labels[47:])
    caplog.clear()
    assert "note:" not in run(path).stdout
    load(Data(name=str(path)), seed=0)
    assert caplog.text == ""


@pytest.mark.parametrize(("count", "told"), [(9, True), (10, False)])
def test_too_few_pictures_to_train_on_are_told(tmp_path, count, told):
    pictures, labels = np.zeros((count, 4, 4), np.uint8), np.arange(count) % 2
    np.savez(tmp_path / "few.npz", train_x=pictures, train_y=labels, test_x=pictures + 1, test_y=labels)
    assert ("at least 10 training pictures" in run(tmp_path / "few.npz").stdout) == told
    assert (len(load(Data(name=str(tmp_path / "few.npz")), seed=0).val) == 0) == told
