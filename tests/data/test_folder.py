"""Image folders."""

from __future__ import annotations

import os

import numpy as np
import pytest
from PIL import Image

from splitveil import data
from splitveil.core.errors import DataError
from splitveil.data import folder as module


def test_train_and_test_folders(made, root):
    pictures = made.folder / "pets"
    for part, count in (("train", 3), ("test", 2), ("aux", 1)):
        for name in ("cat", "dog"):
            for number in range(count):
                made.picture(pictures / part / name / f"{number}.png")
    found = data.create(pictures, root=root)
    assert found.info.class_names == ("cat", "dog")
    assert found.info.name == "pets"
    assert (len(found.train), len(found.test), len(found.aux)) == (6, 4, 2)
    assert found.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    expected = np.asarray(Image.open(pictures / "train" / "dog" / "1.png"))
    assert np.array_equal(found.train.images[4].permute(1, 2, 0).numpy(), expected)


def test_class_folders_are_split_by_file_name(made, root):
    pictures = made.folder / "pets"
    for name in ("cat", "dog"):
        for number in range(10):
            made.picture(pictures / name / f"{number}.png")
    first = data.create(pictures, root=root)
    assert (len(first.train), len(first.test)) == (16, 4)
    assert np.bincount(first.test.labels).tolist() == [2, 2]
    seen = {picture.tobytes() for picture in first.train.images.numpy()}
    assert not seen & {picture.tobytes() for picture in first.test.images.numpy()}


def test_a_dangling_link_is_named_and_a_folder_called_like_a_picture_is_none(made, root):
    pictures = made.folder / "pets"
    for name in ("cat", "dog"):
        for number in range(4):
            made.picture(pictures / name / "all.png" / f"{number}.png")
    assert len(data.create(pictures, root=root).train) == 6
    (pictures / "dog" / "gone.png").symlink_to(made.folder / "nowhere.png")
    with pytest.raises(DataError, match=r"gone\.png is a link to a file that is not there") as found:
        data.create(pictures, root=root)
    assert "Remove it" in str(found.value.hint)


def test_the_decoded_pictures_are_stored_once(made, root, monkeypatch):
    pictures = made.folder / "pets"
    for name in ("cat", "dog"):
        for number in range(4):
            made.picture(pictures / name / f"{number}.png")
    first = data.create(pictures, root=root)
    with monkeypatch.context() as patch:
        patch.setattr(module, "decode", None)  # a second decoding would fail
        assert data.create(pictures, root=root).train.digest() == first.train.digest()
    changed = made.picture(pictures / "cat" / "0.png")
    os.utime(changed, ns=(1, 1))
    again = data.create(pictures, root=root)
    assert {again.train.digest(), again.test.digest()} != {first.train.digest(), first.test.digest()}
    [stored] = (root / "folders").iterdir()
    stored.write_bytes(b"damaged")
    assert data.create(pictures, root=root).train.digest() == again.train.digest()


def test_a_root_that_cannot_be_written_does_not_stop_a_run(made, tmp_path):
    for name in ("a", "b"):
        for number in range(2):
            made.picture(made.folder / "p" / name / f"{number}.png")
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert len(data.create(made.folder / "p", root=blocked).train) == 2


def test_grey_only_when_all_are_grey_and_transparency_is_dropped(made, root):
    for name in ("a", "b"):
        for number in range(2):
            made.picture(made.folder / "grey" / name / f"{number}.png", mode="L")
            made.picture(made.folder / "mixed" / name / f"{number}.png", mode="L" if number else "RGBA")
    assert data.create(made.folder / "grey", root=root).info.image_shape == (1, 6, 6)
    assert data.create(made.folder / "mixed", root=root).info.image_shape == (3, 6, 6)


def test_sizes_must_agree_or_be_asked_for(made, root):
    for name, size in (("a", (6, 6)), ("b", (9, 5))):
        for number in range(2):
            made.picture(made.folder / "p" / name / f"{number}.png", size=size)
    with pytest.raises(DataError, match=r"differ in size.*data.image_size"):
        data.create(made.folder / "p", root=root)
    assert data.create(made.folder / "p", root=root, image_size=4).info.image_shape == (3, 4, 4)
    assert data.create(made.folder / "p", root=root, image_size=7).info.image_shape == (3, 7, 7)


def test_pictures_are_turned_upright(made, root):
    exif = Image.Exif()
    exif[274] = 6  # turn by a quarter
    for name in ("a", "b"):
        for number in range(2):
            made.picture(made.folder / "p" / name / f"{number}.jpg", size=(8, 5), exif=exif)
    assert data.create(made.folder / "p", root=root).info.image_shape == (3, 8, 5)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "no folders of pictures"),
        (["0.png", "1.png"], "holds pictures, but no folder for each class"),
        (["train/a/0.png"], "none called 'test'"),
        (["train/a/0.png", "train/b/", "test/a/0.png"], r"train.b has no pictures"),
        (["train/a/0.png", "train/b/0.png", "test/c/0.png"], r"test.c names a class"),
        (["a/0.png", "a/1.png", "b/0.png"], r"b has one picture"),
        (["a/0.png", "a/1.png"], "only one class"),
    ],
)
def test_wrong_layouts_are_named(made, root, files, message):
    folder = made.folder / "p"
    folder.mkdir()
    for file in files:
        if file.endswith("/"):
            (folder / file).mkdir(parents=True)
        else:
            made.picture(folder / file)
    with pytest.raises(DataError, match=message):
        data.create(folder, root=root)
    assert not root.exists()


def test_nobody_is_told_to_remove_a_folder_that_holds_something_else(made, root):
    made.picture(made.folder / "p/a/0.png")
    (made.folder / "p/checkpoints").mkdir()
    (made.folder / "p/checkpoints/model.safetensors").touch()
    with pytest.raises(DataError, match=r"checkpoints has no pictures") as error:
        data.create(made.folder / "p", root=root)
    assert "move this one elsewhere" in error.value.hint


def test_unreadable_pictures_are_named(made, root):
    folder = made.folder / "p"
    for name in ("a", "b"):
        for number in range(2):
            made.picture(folder / name / f"{number}.png", size=(30, 30))
    broken = folder / "b" / "1.png"
    whole = broken.read_bytes()
    broken.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"1.png is not a readable picture"):
        data.create(folder, root=root)
    broken.write_bytes(b"no picture at all")
    with pytest.raises(DataError, match=r"1.png is not a readable picture"):
        data.create(folder, root=root)
    Image.fromarray(np.zeros((30, 30), np.uint16)).save(broken)
    with pytest.raises(DataError, match=r"1.png has more than 8 bits"):
        data.create(folder, root=root)
    assert not root.exists()


@pytest.mark.parametrize("headless", [True, False])
def test_pictures_that_are_cut_short_are_named_at_once_over_all_parts(made, root, headless):
    """Whatever is wrong with them: no header, or less than it promises, in training and in test."""
    folder = made.folder / "p"
    files = [folder / part / name / f"{number}.jpg" for part in ("train", "test") for name in "ab" for number in (0, 1)]
    for file in files:
        made.picture(file, size=(30, 30))
    cut = [files[0], files[7]]
    noise = np.random.default_rng(0).integers(0, 256, (30, 30), dtype=np.uint8)
    for file in cut:
        Image.fromarray(noise).save(file)
        file.write_bytes(file.read_bytes()[:-200])  # its header is whole, unlike what follows
    if headless:
        files[3].write_bytes(b"no picture")
    broken = sorted([*cut, files[3]] if headless else cut)
    with pytest.raises(DataError, match=rf"^{len(broken)} pictures cannot be used") as caught:
        data.create(folder, root=root)
    assert caught.value.hint == f"Remove or replace {', '.join(map(str, broken))}."


def test_all_unreadable_pictures_are_named_at_once(made, root):
    """A folder of a hundred thousand pictures is read for minutes: nobody wants to do that for each broken one."""
    folder = made.folder / "p"
    for name in ("a", "b"):
        for number in range(15):
            made.picture(folder / name / f"{number:02}.png", size=(30, 30))
    broken = [folder / "a" / "03.png", folder / "b" / "07.png"]
    for file in broken:
        file.write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"2 pictures cannot be used; the first: .*03\.png is not") as caught:
        data.create(folder, root=root)
    assert caught.value.hint == f"Remove or replace {broken[0]}, {broken[1]}."
    for file in sorted(folder.glob("*/*.png"))[:25]:
        file.write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"25 pictures cannot be used") as caught:
        data.create(folder, root=root)
    assert caught.value.hint.endswith("b/04.png, and 5 more.")
