"""Counting repeated pictures on the device."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from splitveil.core.errors import UsageError
from splitveil.serving import repeats
from splitveil.serving.repeats import RepeatGuard, RepeatLimitError, thumbnails


def pictures(count: int, seed: int = 0, shape=(1, 28, 28)) -> np.ndarray:
    return np.random.default_rng(seed).random((count, *shape), dtype=np.float32)


def test_thumbnails_are_means_of_fields():
    image = pictures(2, shape=(3, 19, 8))
    for one, found in zip(image, thumbnails(image), strict=True):
        for row in range(8):
            for column in range(8):
                field = one[:, row * 19 // 8 : (row + 1) * 19 // 8, column : column + 1]
                assert found[8 * row + column] == pytest.approx(field.mean(), rel=1e-5)


@pytest.mark.parametrize("side", [1, 3, 4, 8])
def test_small_pictures_have_thumbnails_too(side):
    assert thumbnails(pictures(2, shape=(1, side, side))).shape == (2, 64)


def smooth(count: int, seed: int) -> np.ndarray:
    """Scenes: coarse fields, which keep their differences in a thumbnail."""
    coarse = np.random.default_rng(seed).random((count, 1, 7, 7), dtype=np.float32)
    return coarse.repeat(4, 2).repeat(4, 3)


def test_different_scenes_are_different():
    assert RepeatGuard().admit(smooth(40, 0)) == [1] * 40


def test_a_still_scene_is_one_picture():
    """Noise of a camera, sigma 0.02, averages out in the thumbnail."""
    scene = smooth(1, 1)
    noise = 0.02 * np.random.default_rng(2).normal(size=(10, 1, 28, 28)).astype(np.float32)
    assert RepeatGuard().admit((scene + noise).clip(0, 1)) == list(range(1, 11))


def test_the_limit_refuses_and_counts_nothing():
    guard = RepeatGuard(limit=2)
    one, other = smooth(1, 3), smooth(1, 4)
    assert guard.admit(np.concatenate([one, other, one])) == [1, 1, 2]
    with pytest.raises(RepeatLimitError, match=r"sent 2 times already \(nearly equal ones count\)") as caught:
        guard.admit(np.concatenate([other, one]))
    assert caught.value.places == [1]
    assert guard.admit(other) == [2], "the refused call was not counted"
    assert guard.most == 2


def test_a_limit_holds_within_one_call():
    with pytest.raises(RepeatLimitError) as caught:
        RepeatGuard(limit=1).admit(smooth(1, 5).repeat(3, 0))
    assert caught.value.places == [1, 2]


def test_a_slow_drift_becomes_another_picture():
    """Each step is small, but the first picture stays the measure."""
    scene = smooth(1, 8) / 2
    guard = RepeatGuard()
    counts = [guard.admit(scene + np.float32(0.008) * step)[0] for step in range(6)]
    assert counts == [1, 2, 3, 1, 2, 3], "0, 0.008 and 0.016 are within 0.02 of the first; 0.024 is not"


def test_old_pictures_are_forgotten_first(monkeypatch):
    monkeypatch.setattr(repeats, "MOST_KEPT", 2)
    guard = RepeatGuard()
    a, b, c = smooth(3, 6)[:, None]
    assert [guard.admit(one)[0] for one in (a, b, a, c, a, b)] == [1, 1, 2, 1, 3, 1]


def test_counts_outlive_the_process(tmp_path):
    path = tmp_path / "counts.npz"
    RepeatGuard(2, path).admit(smooth(2, 7))
    assert path.stat().st_mode & 0o077 == 0, "thumbnails of private pictures are for their owner alone"
    again = RepeatGuard(2, path)
    assert again.admit(smooth(2, 7)) == [2, 2]
    with pytest.raises(RepeatLimitError):
        RepeatGuard(2, path).admit(smooth(1, 7))
    assert RepeatGuard(None, path).admit(smooth(2, 7)) == [3, 3], "what was refused was not written"


def test_two_processes_count_together(tmp_path):
    path = tmp_path / "counts.npz"
    one, other = RepeatGuard(2, path), RepeatGuard(2, path)  # both have read the file when it was empty
    assert one.admit(smooth(1, 7)) == [1]
    assert other.admit(smooth(1, 7)) == [2]
    with pytest.raises(RepeatLimitError):
        one.admit(smooth(1, 7))


def test_counts_of_many_at_once_are_not_lost(tmp_path):
    path, scene = tmp_path / "counts.npz", smooth(1, 7)
    guards = [RepeatGuard(None, path) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = [count for counts in pool.map(lambda n: guards[n % 4].admit(scene), range(24)) for count in counts]
    assert sorted(found) == list(range(1, 25))


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04broken"])
def test_files_that_hold_no_counts(tmp_path, content):
    path = tmp_path / "counts.npz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="holds no counts"):
        RepeatGuard(path=path)


def test_a_limit_of_zero_makes_no_sense():
    with pytest.raises(UsageError, match="0 times"):
        RepeatGuard(limit=0)
