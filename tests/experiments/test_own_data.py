"""What a cell reads from places that its settings only name."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from splitveil.core.config import load_config
from splitveil.experiments.sweep import own_data
from splitveil.experiments.sweep.own_data import look_again, pictures_of, start_of


def test_a_picture_that_became_one_of_another_class_makes_other_pictures(tmp_path: Path) -> None:
    for place in ("train/a/1", "train/a/2", "train/b/3", "test/a/1", "test/b/1"):
        picture = tmp_path / f"{place}.png"
        picture.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 9).save(picture)
    config = load_config(data={"name": str(tmp_path)})
    before = pictures_of(config)
    (tmp_path / "train/a/2.png").rename(tmp_path / "train/b/2.png")
    assert pictures_of(config) == before  # read once in a sweep
    look_again()
    assert pictures_of(config) != before


def test_of_pictures_that_are_elsewhere_nothing_is_said(small_data: Path) -> None:
    config = load_config(data={"name": str(small_data)})
    assert list(pictures_of(config)) == ["pictures"]
    small_data.unlink()
    look_again()
    assert pictures_of(config) == {}


def test_of_weights_that_cannot_be_read_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "config.toml").touch()
    config = load_config(train={"init_from": str(tmp_path)})
    assert list(start_of(config)) == ["start"]

    def refuse(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(own_data, "sha256", refuse)
    look_again()
    assert start_of(config) == {}
