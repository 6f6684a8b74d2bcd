"""Dotted keys: flattening a table and putting a value into one."""

from __future__ import annotations

import pytest

from splitveil.core.dotted import flatten, put
from splitveil.core.errors import ConfigError


def test_an_empty_table_is_a_value_at_every_depth() -> None:
    assert flatten({}) == {}
    assert flatten({"defence": {"sca": {}}, "seed": 1}) == {"defence.sca": {}, "seed": 1}


def test_what_was_put_is_found_under_its_key() -> None:
    tree: dict[str, object] = {"train": {"lr": 0.1}}
    put(tree, ["train", "epochs"], 3, where="a test")
    put(tree, ["defence", "noise", "sigma"], 0.5, where="a test")
    assert flatten(tree) == {"train.lr": 0.1, "train.epochs": 3, "defence.noise.sigma": 0.5}


def test_a_value_on_the_way_is_refused_and_named() -> None:
    tree: dict[str, object] = {"train": {"lr": 0.1}}
    with pytest.raises(ConfigError, match=r"'lr' in the grid's 'train\.lr\.x' is a value, not a table\."):
        put(tree, ["train", "lr", "x"], 1, where="the grid's 'train.lr.x'")
    assert tree == {"train": {"lr": 0.1}}
