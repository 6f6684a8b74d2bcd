"""Crop, flip and rotation against obvious loops in float64, one sample and one pixel at a time."""

from __future__ import annotations

import math

import pytest
import torch

from splitveil.core.errors import InputError
from splitveil.data import augment as module
from splitveil.data.augment import Augmentation, augment, to_float


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(count: int, channels: int, height: int, width: int) -> torch.Tensor:
    return torch.randint(1, 256, (count, channels, height, width), generator=generator(7), dtype=torch.uint8)


def pixel(picture: torch.Tensor, channel: int, row: int, column: int) -> float:
    """Value at a place, zero outside."""
    height, width = picture.shape[1:]
    return float(picture[channel, row, column]) if 0 <= row < height and 0 <= column < width else 0.0


def shifted_and_flipped(picture: torch.Tensor, dv: int, du: int, flip: bool) -> torch.Tensor:
    channels, height, width = picture.shape
    out = torch.zeros(picture.shape, dtype=torch.float64)
    for channel in range(channels):
        for row in range(height):
            for column in range(width):
                from_column = width - 1 - column if flip else column
                out[channel, row, column] = pixel(picture, channel, row + dv, from_column + du)
    return out


def turned(picture: torch.Tensor, angle: float) -> torch.Tensor:
    """The picture alone turned about its centre, nearest pixel; whatever lies outside it is black."""
    channels, height, width = picture.shape
    out = torch.zeros(picture.shape, dtype=torch.float64)
    for channel in range(channels):
        for row in range(height):
            for column in range(width):
                u, v = column - (width - 1) / 2, row - (height - 1) / 2
                x = u * math.cos(angle) + v * math.sin(angle) + (width - 1) / 2
                y = -u * math.sin(angle) + v * math.cos(angle) + (height - 1) / 2
                out[channel, row, column] = pixel(picture, channel, round(y), round(x))
    return out


@pytest.mark.parametrize("shape", [(9, 1, 5, 5), (6, 3, 4, 7), (5, 3, 1, 1)])
def test_crop_and_flip_copy_one_window_of_the_padded_picture(shape):
    images = pictures(*shape)
    out = augment(images, Augmentation(crop=2, flip=True), generator(3))
    used = set()
    for before, after in zip(images, out, strict=True):
        candidates = {
            (dv, du, flip): shifted_and_flipped(before, dv, du, flip)
            for dv in range(-2, 3)
            for du in range(-2, 3)
            for flip in (False, True)
        }
        matching = [move for move, candidate in candidates.items() if torch.equal(candidate, after.double())]
        assert matching, "the result is no window of the padded picture"
        used.add(matching[0])
    assert len(used) > 1


def test_crop_and_flip_follow_the_drawn_numbers():
    images, augmentation = pictures(8, 3, 6, 5), Augmentation(crop=3, flip=True)
    crop, flip, _ = module._draw(8, augmentation, generator(5), images.device)
    out = augment(images, augmentation, generator(5))
    for i in range(8):
        expected = shifted_and_flipped(images[i], int(crop[i, 0]), int(crop[i, 1]), bool(flip[i]))
        assert torch.equal(out[i].double(), expected)


@pytest.mark.parametrize(
    "augmentation", [Augmentation(2, True, 40), Augmentation(0, False, 180), Augmentation(0, True, 15)]
)
@pytest.mark.parametrize("size", [(6, 6), (5, 8)])
def test_rotation_matches_the_loop(augmentation, size):
    images = pictures(6, 2, *size).double()
    crop, flip, angle = module._draw(6, augmentation, generator(5), images.device)
    out = augment(images, augmentation, generator(5))
    for i in range(6):
        dv, du = (0, 0) if crop is None else (int(crop[i, 0]), int(crop[i, 1]))
        cropped = shifted_and_flipped(images[i], dv, du, flip is not None and bool(flip[i]))
        expected = turned(cropped, float(angle[i]))  # one after the other, as the released code does
        assert torch.equal(out[i], expected)


def test_a_rotated_picture_has_no_new_values():
    images, augmentation = pictures(6, 3, 7, 7), Augmentation(1, True, 30)
    out = augment(images, augmentation, generator(2))
    assert torch.equal(out.double(), augment(images.double(), augmentation, generator(2)))
    for before, after in zip(images, out, strict=True):
        assert set(after.flatten().tolist()) <= {0, *before.flatten().tolist()}


def test_a_rotated_full_picture_stays_within_bytes():
    white = torch.full((64, 1, 9, 9), 255, dtype=torch.uint8)
    out = augment(white, Augmentation(rotate=180), generator())
    assert (out[:, :, 4, 4] == 255).all()  # the centre stays, and does not wrap round to 0


@pytest.mark.parametrize("augmentation", [Augmentation(2, True), Augmentation(2, True, 15), Augmentation(0, False, 15)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.float64])
def test_shape_dtype_and_input_are_kept(augmentation, dtype):
    images = pictures(4, 3, 8, 8).to(dtype)
    before = images.clone()
    out = augment(images, augmentation, generator())
    assert out.dtype == dtype
    assert out.shape == images.shape
    assert torch.equal(images, before)
    assert not torch.equal(out, images)


@pytest.mark.parametrize("augmentation", [Augmentation(2, True), Augmentation(2, True, 15)])
def test_the_generator_decides(augmentation):
    images = pictures(16, 1, 8, 8)
    first, again = augment(images, augmentation, generator(1)), augment(images, augmentation, generator(1))
    other = augment(images, augmentation, generator(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("augmentation", [Augmentation(2, True), Augmentation(2, True, 15)])
def test_the_size_of_the_pieces_does_not_matter(augmentation, monkeypatch):
    images = pictures(11, 1, 6, 6)
    whole = augment(images, augmentation, generator(1))
    monkeypatch.setattr(module, "PIECE", 4)
    assert torch.equal(augment(images, augmentation, generator(1)), whole)


def test_all_moves_are_equally_frequent():
    count, reach = 5000, 2
    images = torch.zeros(count, 1, 9, 9, dtype=torch.uint8)
    images[:, :, 4, 4] = 1  # one lit pixel shows where the picture went
    place = augment(images, Augmentation(crop=reach), generator()).flatten(1).argmax(1)
    hits = torch.bincount(place, minlength=81).reshape(9, 9)
    inside = hits[2:7, 2:7].double()
    assert int(inside.sum()) == count
    expected = count / 25
    assert (inside - expected).abs().max() < 5 * expected**0.5  # five deviations of a count
    marked = torch.arange(2, dtype=torch.uint8).expand(count, 1, 1, 2)
    flipped = augment(marked, Augmentation(flip=True), generator())[:, 0, 0, 0].sum()
    assert abs(int(flipped) - count / 2) < 5 * (count / 4) ** 0.5


def test_angles_fill_the_range_evenly():
    _, _, angle = module._draw(5000, Augmentation(rotate=15), generator(), torch.device("cpu"))
    degrees = angle.double() * 180 / math.pi
    assert degrees.abs().max() <= 15
    assert degrees.max() > 14.9
    assert degrees.min() < -14.9
    assert abs(float(degrees.mean())) < 5 * 15 / math.sqrt(3 * 5000)


def test_nothing_to_do_returns_the_pictures_themselves():
    images = pictures(3, 1, 4, 4)
    assert augment(images, Augmentation(), generator()) is images
    assert len(augment(images[:0], Augmentation(2, True, 15), generator())) == 0


def test_wrong_arguments_are_named():
    with pytest.raises(InputError, match=r"\[B, ch, h, w\]"):
        augment(torch.zeros(3, 4, 4), Augmentation(), generator())
    with pytest.raises(InputError, match="-1"):
        Augmentation(crop=-1)
    for degrees in (-5.0, 181.0, math.nan):
        with pytest.raises(InputError, match="degrees"):
            Augmentation(rotate=degrees)


def test_to_float_spans_zero_to_one():
    values = to_float(torch.arange(256, dtype=torch.uint8))
    assert values.dtype == torch.float32
    assert torch.equal(values, torch.arange(256, dtype=torch.float64).div(255).float())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("augmentation", [Augmentation(2, True), Augmentation(2, True, 15)])
def test_a_gpu_moves_pictures_without_looking_at_the_host(augmentation):
    images = pictures(64, 3, 16, 16).cuda()
    on_device = torch.Generator("cuda").manual_seed(0)
    augment(images, augmentation, on_device)
    torch.cuda.set_sync_debug_mode("error")
    try:
        out = augment(images, augmentation, on_device)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert out.device == images.device
    assert not torch.equal(out, images)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("augmentation", [Augmentation(2, True), Augmentation(2, True, 15)])
def test_a_cuda_graph_draws_fresh_moves_at_every_replay(augmentation):
    images = pictures(64, 3, 16, 16).cuda()
    on_device = torch.Generator("cuda").manual_seed(0)
    augment(images, augmentation, on_device)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(on_device)
    with torch.cuda.graph(graph):
        out = augment(images, augmentation, on_device)
    graph.replay()
    first = out.clone()
    graph.replay()
    assert not torch.equal(first, out)
    assert not torch.equal(first, images)
