"""Every option of every plug-in, and every key of a recipe, says what it does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest
from pydantic import BaseModel

from splitveil.core.catalogue import FAMILIES, SURROGATES
from splitveil.core.config import Config

KEYS = {"name"}  # of a table in a recipe: it names the plug-in
PLUG_INS = [(family, name) for family, registry in FAMILIES.items() for name in registry.names()]


def silent(options: type[BaseModel]) -> list[str]:
    """Fields without a word on what they do."""
    return [
        key for key, field in options.model_fields.items() if key not in KEYS and not (field.description or "").strip()
    ]


@pytest.mark.parametrize(("family", "name"), PLUG_INS)
def test_every_option_is_described(family: str, name: str) -> None:
    plug_in = FAMILIES[family].load(name)
    assert FAMILIES[family].describe(name).strip().endswith(".")
    if hasattr(plug_in, "Options"):
        assert silent(plug_in.Options) == []


@pytest.mark.parametrize("name", SURROGATES.names())
def test_an_option_that_is_always_the_same_takes_nothing_else(name: str) -> None:
    """SPEC's table has it for every method; where it would do nothing, another value is refused."""
    fields = SURROGATES.load(name).Options.model_fields.items()
    fixed = {key: field for key, field in fields if str(field.description).startswith("always ")}
    assert [key for key, field in fixed.items() if get_args(field.annotation) != (field.default,)] == []


def test_the_families_with_options_have_them() -> None:
    for family in ("surrogates", "defences", "attacks"):
        assert all(hasattr(FAMILIES[family].load(name), "Options") for name in FAMILIES[family].names())


def sections(table: type[BaseModel], path: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    yield path, table
    for key, field in table.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from sections(field.annotation, f"{path}{key}.")


def test_every_key_of_a_recipe_is_described() -> None:
    found = [f"{path}{key}" for path, table in sections(Config) if path for key in silent(table)]
    assert found == []
