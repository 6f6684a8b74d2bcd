"""Registries: explicit, lazy, complete."""

from __future__ import annotations

import ast
import importlib
import inspect
from importlib import metadata
from pathlib import Path

import pytest

import splitveil
from splitveil import serving
from splitveil.core.catalogue import FAMILIES, SURROGATES
from splitveil.core.errors import ConfigError, PlugInError, UnknownNameError, UsageError
from splitveil.core.registry import Registry

ENTRIES = [(family, name) for family, registry in FAMILIES.items() for name in registry.names()]


@pytest.mark.parametrize(("family", "name"), ENTRIES)
def test_every_entry_loads_and_has_a_sentence(family: str, name: str) -> None:
    registry = FAMILIES[family]
    assert registry.load(name) is not None
    assert registry.describe(name).endswith(".")


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"no surrogate called 'gatted'. Did you mean 'gated'"):
        FAMILIES["surrogates"].load("gatted")


def test_what_is_no_name_is_an_unknown_one() -> None:
    with pytest.raises(UnknownNameError, match=r"no surrogate called '\[1\]'"):
        SURROGATES.entry([1])  # type: ignore[arg-type]


def test_a_preset_in_the_place_of_a_name_is_told_apart() -> None:
    with pytest.raises(UnknownNameError, match=r"write name = 'gmm' and preset = 'gmm.released'"):
        SURROGATES.entry("gmm.released")


def test_other_packages_add_through_entry_points_but_cannot_replace(monkeypatch: pytest.MonkeyPatch) -> None:
    point = metadata.EntryPoint("ours", "json:loads", "splitveil.things")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point] if group == "splitveil.things" else [])
    registry = Registry("things", {})
    assert registry.names() == ["ours"]
    assert registry.load("ours")("[1]") == [1]
    with pytest.raises(UsageError, match=r"json:loads offers .* 'ours', .* Splitveil's own. Give it another"):
        Registry("things", {"ours": ("json:dumps", "x")}).names()
    twice = [point, metadata.EntryPoint("ours", "json:dumps", "splitveil.things")]
    monkeypatch.setattr(metadata, "entry_points", lambda group: twice)
    with pytest.raises(UsageError, match=r"Two packages offer the things entry 'ours'. .* the second is json:dumps"):
        Registry("things", {}).names()


def test_the_public_names_are_these() -> None:
    assert splitveil.__all__ == [
        "__version__", "Config", "SplitModel", "attacks", "audit", "data", "defences", "export", "load_config",
        "load_run", "models", "report", "serving", "split", "surrogates", "train",
    ]  # fmt: skip
    for name in splitveil.__all__:
        assert getattr(splitveil, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        splitveil.trian  # noqa: B018


def test_type_checkers_are_told_of_every_public_name() -> None:
    """The stub beside __init__.py has the very names, each from where it is loaded."""
    stub = ast.parse(Path(splitveil.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    told = {
        node.target.id for node in stub.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    # `export = export_run`
    plain = [node for node in stub.body if isinstance(node, ast.Assign)]
    renamed = {ast.unparse(node.value): ast.unparse(node.targets[0]) for node in plain}
    for node in stub.body:
        if isinstance(node, ast.ImportFrom):
            (alias,) = node.names
            name = alias.asname or renamed[alias.name]
            told.add(name)
            loaded = getattr(importlib.import_module(str(node.module)), alias.name)
            if name in ("audit", "report"):  # the package itself is callable
                assert inspect.signature(getattr(splitveil, name)) == inspect.signature(loaded)
            else:
                assert getattr(splitveil, name) is loaded
    assert told == set(splitveil.__all__)


def test_type_checkers_are_told_of_every_name_of_serving() -> None:
    """Which is loaded on first use as well."""
    stub = ast.parse(Path(serving.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    told = {}
    for node in stub.body:
        if isinstance(node, ast.ImportFrom):
            (alias,) = node.names
            told[alias.asname] = getattr(importlib.import_module(str(node.module)), alias.name)
    assert told == {name: getattr(serving, name) for name in serving.__all__}


def test_every_plug_in_file_is_in_the_catalogue() -> None:
    root = Path(splitveil.__file__).parent
    for family in ("defences",):
        files = {p.stem for p in (root / family).glob("*.py")} - {"__init__", "base"}
        modules = {FAMILIES[family].entry(n).target.split(":")[0].rsplit(".", 1)[1] for n in FAMILIES[family].names()}
        assert files <= modules | {"adversary", "distance_correlation", "dependence"}, files - modules


def test_a_plug_in_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        metadata.EntryPoint("gone", "no_such_package.file:Thing", "splitveil.things"),
        metadata.EntryPoint("slip", "json:lods", "splitveil.things"),
    ]
    monkeypatch.setattr(metadata, "entry_points", lambda group: points)
    registry = Registry("things", {"ours": ("json:lods", "x")})
    with pytest.raises(PlugInError, match=r"'gone' comes from no_such_package.file:Thing, which cannot be imported"):
        registry.load("gone")
    with pytest.raises(PlugInError, match="'slip' comes from json:lods"):
        registry.load("slip")
    with pytest.raises(AttributeError):  # our own table: a fault to be seen as it is
        registry.load("ours")


@pytest.mark.parametrize(
    ("slip", "right"), [("sigm", "sigma"), ("num_clases", "num_classes"), ("los_scale", "loss_scale")]
)
def test_create_names_the_nearest_of_all_keywords(slip: str, right: str) -> None:
    with pytest.raises(ConfigError, match=f"'surrogate gmm.{slip}'. Did you mean '{right}'"):
        splitveil.surrogates.create("gmm", feature_shape=(2, 2, 2), num_classes=2, sigma=0.1, **{slip: 1})


def test_a_model_names_the_nearest_of_all_keywords_and_its_shape() -> None:
    with pytest.raises(ConfigError, match=r"'model tiny.ct'. Did you mean 'cut'"):
        splitveil.models.create("tiny", image_shape=(1, 8, 8), num_classes=2, ct=3)
    with pytest.raises(ConfigError, match=r"image_shape \(8, 8\) must be \(channels, height, width\)"):
        splitveil.models.create("tiny", image_shape=(8, 8), num_classes=2)
