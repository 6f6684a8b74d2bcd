"""The TOML writer against Python's reader."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitveil.core.errors import ConfigError
from splitveil.core.toml import dump_toml, read_toml

keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
values = st.recursive(
    st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner | st.lists(st.dictionaries(keys, inner, max_size=2), max_size=2), max_size=3),
    max_leaves=4,
)
trees = st.dictionaries(keys, values | st.dictionaries(keys, values, max_size=3), max_size=4)


@given(trees)
def test_what_is_written_reads_back(tree: dict) -> None:
    assert tomllib.loads(dump_toml(tree)) == tree


def test_none_is_left_out_and_nested_tables_have_headers() -> None:
    assert dump_toml({"a": None, "b": 1, "c": {"d": {"e": 2.0}}}) == "b = 1\n\n[c.d]\ne = 2.0\n"


def test_a_value_toml_does_not_know_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        dump_toml({"a": object()})


def test_the_byte_order_mark_of_an_editor_is_no_part_of_a_recipe(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("seed = 3\n", encoding="utf-8-sig")
    assert read_toml(tmp_path / "a.toml") == {"seed": 3}
