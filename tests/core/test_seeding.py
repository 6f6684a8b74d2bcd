"""Streams of random numbers, named by their purpose."""

from __future__ import annotations

from splitveil.core.seeding import derive_seed, generator


def test_streams_of_different_purposes_differ_and_repeat() -> None:
    assert derive_seed(1, "noise", 2) == derive_seed(1, "noise", 2)
    assert len({derive_seed(1, "noise", 2), derive_seed(1, "noise", 3), derive_seed(2, "noise", 2)}) == 3
    assert generator(5, "a").initial_seed() == derive_seed(5, "a")
