"""A plug-in of another package that is wrong or fails is named in one sentence."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest
import torch

from splitveil.audit.extra import named
from splitveil.cli import main
from splitveil.core.catalogue import FAMILIES
from splitveil.core.config import Config, load_config
from splitveil.core.errors import PlugInError, UsageError
from splitveil.core.manifest import signature
from splitveil.core.plug_ins import _code, packages_of, pinned, plug_in_failure, plug_ins_of
from splitveil.core.registry import Entry, Registry

SOURCE = r"""
'''Plug-ins of somebody else.'''
from splitveil.attacks.base import Attack, ThreatModel
from splitveil.data.source import Source
from splitveil.surrogates.base import Surrogate, SurrogateOptions


class Unready(Attack):
    name = "unready"
    threat_model = ThreatModel()


class NoThreatModel(Attack):
    name = "careless"

    def run(self, view, progress):
        raise ZeroDivisionError


class Mute(Attack):
    name = "mute"
    threat_model = ThreatModel()

    def run(self, view, progress):
        return None


class Copied(Mute):
    name = "linear"


class Surrogated(Surrogate):
    class Options(SurrogateOptions):
        name: str = "other"


class Nameless(Surrogate):
    pass


class Blobs(Source):
    '''Discs and squares,
    grey.

    And more.
    '''

    name = "blobs"

    def open(self, root):
        return self._pictures()

    def store(self, root, origin, progress):
        raise NotImplementedError

    def _pictures(self):
        raise KeyError("no such picture")


BLOBS = Blobs()


def edges():
    '''How far the edges of two pictures differ.'''
    return lambda made, pictures: (made.diff().abs() - pictures.diff().abs()).abs().mean(dim=(1, 2, 3))
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with plug-ins of three kinds, as an installed one would offer them."""
    (tmp_path / "someones_veils.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "someones_veils", raising=False)  # that of the test before
    importlib.invalidate_caches()
    _code.cache_clear()
    for family, name, attribute in (
        ("attacks", "unready", "Unready"),
        ("attacks", "careless", "NoThreatModel"),
        ("attacks", "mute", "Mute"),
        ("attacks", "copied", "Copied"),
        ("surrogates", "surrogated", "Surrogated"),
        ("surrogates", "nameless", "Nameless"),
        ("datasets", "blobs", "BLOBS"),
        ("datasets", "blob_class", "Blobs"),
        ("models", "no_class", "BLOBS"),
        ("measures", "edges", "edges"),
    ):
        target = f"someones_veils:{attribute}"
        monkeypatch.setitem(FAMILIES[family]._entries, name, Entry(target, "from someones_veils", target))
    return "someones_veils"


@pytest.mark.parametrize(
    ("family", "name", "why"),
    [
        ("attacks", "unready", r"attack 'unready' comes from someones_veils:Unready, which has no run\."),
        ("attacks", "careless", r"which has no threat_model\."),
        ("datasets", "blob_class", r"which is a class: name an object of it\."),
        ("models", "no_class", r"which is no class\."),
        # results are kept under that name: a copied class would be handed the answers of the one it was copied from
        ("attacks", "copied", r"which calls itself 'linear', not 'copied'\."),
        ("surrogates", "surrogated", r"which calls itself 'other', not 'surrogated'\."),
        ("surrogates", "nameless", r"which calls itself None, not 'nameless'\."),
    ],
)
def test_what_a_family_needs_is_looked_for_when_a_plug_in_is_loaded(
    package: str, family: str, name: str, why: str
) -> None:
    with pytest.raises(PlugInError, match=why):
        FAMILIES[family].load(name)


def test_the_doctor_names_plug_ins_and_what_is_wrong_with_them(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Doubled(Registry):
        def names(self) -> list[str]:
            raise UsageError("Two packages offer the models entry 'twice'.")

    monkeypatch.setitem(FAMILIES, "models", Doubled("models", {}))
    with pytest.raises(SystemExit) as stop:
        main(["doctor", "--json"])
    assert stop.value.code == 1
    told = {row["check"]: (row["state"], row["detail"]) for row in json.loads(capsys.readouterr().out)}
    assert told["edges"] == ("ok", "measures, from someones_veils")
    assert told["models"] == ("broken", "Two packages offer the models entry 'twice'.")
    state, why = told["copied"]
    assert state == "broken"
    assert "calls itself 'linear'" in why
    assert "uninstall the package" in why
    assert "gmm" not in told  # only those of others


def test_an_error_inside_a_plug_in_names_its_package_class_and_line(
    package: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", "demo-fashion-mini", "--set", "data.name=blobs", "--out", str(tmp_path / "run")])
    assert stop.value.code == 1
    line = 1 + SOURCE[: SOURCE.index('raise KeyError("no')].count("\n")
    message, hint = capsys.readouterr().err.splitlines()[-2:]
    where = f"Blobs._pictures (someones_veils, line {line})"
    assert message == f"error: The plug-in package 'someones_veils' failed in {where}: KeyError: 'no such picture'."
    assert "--debug" in hint
    assert "report it" not in hint


def test_an_error_elsewhere_is_nobody_elses(package: str) -> None:
    with pytest.raises(ValueError, match="ours") as caught:
        raise ValueError("ours")
    assert plug_in_failure(caught.value) is None


def test_a_plug_in_is_described_by_its_own_docstring(package: str) -> None:
    assert FAMILIES["datasets"].describe("blobs") == "Discs and squares, grey (from someones_veils)."
    assert FAMILIES["attacks"].describe("unready") == "from someones_veils, which is of no use here."
    assert FAMILIES["attacks"].describe("mute") == "A plug-in (from someones_veils)."
    assert FAMILIES["measures"].describe("edges") == "How far the edges of two pictures differ (from someones_veils)."


def test_a_measure_may_come_from_another_package(package: str) -> None:
    (measure,) = named(load_config(None, audit={"measures": ["edges"]}).audit.measures).values()
    ramp = torch.linspace(0, 1, 8).expand(2, 1, 8, 8)
    assert torch.allclose(measure(ramp, 0 * ramp), torch.full((2,), 1 / 7))


@pytest.fixture
def config(package: str) -> Config:
    return load_config(None, data={"name": "blobs"}, audit={"attacks": ["mute"]})


def edit(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "someones_veils.py"
    path.write_text(path.read_text().replace(before, after))
    _code.cache_clear()


def test_a_plug_in_is_pinned_by_what_its_code_means(config: Config, tmp_path: Path) -> None:
    (name, code), *others = plug_ins_of(config).items()
    assert (name, others) == ("someones_veils", [])
    pin = pinned({name: code})["plug_ins"]
    assert f"|plug_ins:{pin}|" in signature(config, data="0")
    edit(tmp_path, "Discs and squares", "Squares and discs")  # a docstring
    assert plug_ins_of(config) == {name: code}
    edit(tmp_path, "no such picture", "no picture")
    assert plug_ins_of(config) != {name: code}
    assert f"|plug_ins:{pin}|" not in signature(config, data="0")


def test_what_trains_is_told_from_what_attacks_and_our_own_are_no_plug_ins(package: str) -> None:
    attacked = load_config(None, data={"name": "fashion-mini"}, audit={"attacks": ["mute", "linear"]})
    assert plug_ins_of(attacked) == {}
    assert "plug_ins" not in signature(attacked)
    assert set(plug_ins_of(attacked, audit=True)) == {"someones_veils"}
    measured = load_config(None, data={"name": "fashion-mini"}, audit={"measures": ["edges"]})
    assert set(plug_ins_of(measured, audit=True)) == {"someones_veils"}
    assert packages_of("attacks", ["linear"]) == {}
    assert packages_of("datasets", ["./folder/of/pictures"]) == {}
