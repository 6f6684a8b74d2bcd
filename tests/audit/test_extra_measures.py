"""Measures that users bring, and LPIPS where its package is installed (a stand-in here)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.error import URLError

import pytest
import torch
from tests import worlds
from torch import Tensor, nn

import splitveil as sv
from splitveil.attacks.base import Reconstruction
from splitveil.attacks.linear import LinearAttack
from splitveil.attacks.retrieval import RetrievalAttack
from splitveil.audit.extra import Measure, lpips, named
from splitveil.audit.subjects import AuditData
from splitveil.audit.table import table as printed
from splitveil.cli.audit import audit as audit_command
from splitveil.core.catalogue import MEASURES
from splitveil.core.config import load_config
from splitveil.core.errors import InputError, UnknownNameError
from splitveil.core.registry import Entry
from splitveil.data.dataset import ImageSet
from splitveil.experiments.compare.collect import collect
from splitveil.experiments.compare.comparison import compare
from splitveil.experiments.compare.view import View
from splitveil.training.api import train

DATA = AuditData(aux=worlds.pictures(40, seed=1), test=worlds.pictures(12, seed=2))


def audit(**measures: Any) -> dict[str, Any]:
    return sv.audit(worlds.identity(), DATA, attacks={"linear": {}}, measures=measures, check_sanity=False).tree


def test_a_measure_is_taken_of_floor_and_attacks() -> None:
    found = audit(largest=lambda answer, picture: (answer - picture).abs().flatten(1).max(1).values)
    entry = found["extra"]["largest"]
    truth = DATA.test.images.double() / 255
    floor = (DATA.aux.images.double().mean(0) / 255 - truth).abs().flatten(1).max(1).values.mean()
    assert entry["floor"]["mean_image"]["mean"] == pytest.approx(float(floor), rel=1e-5)
    assert entry["attacks"]["linear"]["mean"] < 0.01 < float(floor)
    low, high = entry["floor"]["mean_image"]["ci95"]
    assert low < float(floor) < high


def test_no_measure_no_numbers() -> None:
    assert audit()["extra"] == {}


@pytest.mark.parametrize("answer", [torch.zeros(3), 0.5, torch.full((12,), torch.nan)])
def test_a_measure_must_give_one_finite_number_for_each_picture(answer: Any) -> None:
    with pytest.raises(InputError, match="'odd' must give one finite number"):
        audit(odd=lambda made, picture: answer)


def deepest(answer: Tensor, picture: Tensor) -> Tensor:
    return (answer - picture).flatten(1).min(1).values


def never(*_: object, **__: object) -> None:
    raise AssertionError("an attack ran")


def asked(measures: Any) -> dict[str, Any]:
    return sv.audit(worlds.identity(), DATA, attacks={"linear": {}}, measures=measures, check_sanity=False).tree


@pytest.mark.parametrize("measures", [deepest, [deepest], {"deepest": deepest}])
def test_one_function_a_list_or_a_mapping(measures: Any) -> None:
    assert set(asked(measures)["extra"]) == {"deepest"}


def make_deepest() -> Measure:
    """A measure under a name, as a plug-in offers one."""
    return deepest


@pytest.mark.parametrize("measures", ["lpips", ["lpips", deepest]])
def test_names_are_taken_from_python_too(measures: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MEASURES._entries, "lpips", Entry(f"{__name__}:make_deepest", "Somebody's.", __name__))
    assert list(asked(measures)["extra"]) == ["lpips", "deepest"][: 1 if measures == "lpips" else 2]


@pytest.mark.parametrize(
    ("measures", "words"),
    [
        (3, "measures= takes"),
        ([3], "measures= takes"),
        ({"odd": 3}, "measures= takes"),
        ({3: deepest}, "measures= takes"),
        ([deepest, deepest], "Two measures are called 'deepest'"),
        (["lpip"], "no measure called 'lpip'"),
        ({"odd": lambda answer: answer}, r"'odd' failed on two pictures \(TypeError"),
        ({"odd": lambda answer, picture: answer}, "'odd' must give one finite number"),
    ],
)
def test_wrong_measures_are_refused_before_any_attack(
    measures: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splitveil.attacks.linear.LinearAttack.run", never)
    with pytest.raises((InputError, UnknownNameError), match=words):
        asked(measures)


def test_a_measure_that_fails_at_the_end_costs_only_itself() -> None:
    def fragile(answer: Tensor, picture: Tensor) -> Tensor:
        return deepest(answer, picture) + (torch.nan if len(answer) > 2 else 0)

    found = asked({"fragile": fragile, "deepest": deepest})
    assert set(found["extra"]) == {"deepest"}
    assert found["attacks"]["linear"]["mse"] >= 0
    assert any("'fragile'" in text for text in found["warnings"])


def test_without_the_package_lpips_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lpips", None)
    with pytest.raises(InputError, match="not installed"):
        lpips()


def test_lpips_without_its_weights_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(net: str, verbose: bool) -> None:
        raise URLError("Name or service not known")

    package = ModuleType("lpips")
    package.LPIPS = offline  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lpips", package)
    with pytest.raises(InputError, match=r"could not load the weights of its network 'alex' .*not known.*connection"):
        lpips()


def test_measures_by_name() -> None:
    assert named([]) == {}
    with pytest.raises(UnknownNameError, match="lpips"):
        named(["lpip"])
    with pytest.raises(UnknownNameError, match=r"no measure called 'lpip'. Did you mean 'lpips'"):
        load_config(audit={"measures": ["lpip"]})
    assert load_config(audit={"measures": ["lpips"]}).audit.measures == ("lpips",)


@pytest.mark.parametrize("where", ["recipe", "command"])
def test_a_run_is_measured_with_lpips_by_recipe_or_command(
    where: str, small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = load_config(
        data={"name": str(small_data)},
        train={"epochs": 1, "batch_size": 32},
        surrogate={"name": "none"},
        audit={"attacks": ["linear"], "sanity": False, "measures": ["lpips"] if where == "recipe" else []},
    )
    path = train(config, out=tmp_path / "run", device="cpu").path
    chosen = ["lpips"] if where == "command" else None
    monkeypatch.setitem(sys.modules, "lpips", None)
    with pytest.raises(InputError, match="not installed"):  # before any attack has run
        audit_command(path, device="cpu", measure=chosen)
    assert not (path / "audit").exists()

    class Judge(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return (x - y).abs().mean(dim=(1, 2, 3), keepdim=True)

    package = ModuleType("lpips")
    package.LPIPS = lambda net, verbose: Judge()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lpips", package)
    audit_command(path, device="cpu", measure=chosen)
    tree = json.loads((path / "audit" / "audit.json").read_text())
    mean = tree["extra"]["lpips"]["attacks"]["linear"]["mean"]
    assert mean > 0
    assert f"linear {mean:.4f}" in capsys.readouterr().out
    ((one,),) = [found.summaries for found in compare(collect([path]).records, View(measure="lpips")).tables]
    assert one.leaks["linear"]["lpips"].mean == pytest.approx(mean, rel=1e-5)
    assert one.leaks["worst_case"]["lpips"].mean == pytest.approx(mean, rel=1e-5)  # of a single attack


def test_lpips_gets_what_its_network_expects(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    class Judge(nn.Module):
        def __init__(self, net: str, verbose: bool) -> None:
            super().__init__()
            assert net == "vgg"
            assert not verbose

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            seen.append(x)
            return (x - y).abs().mean(dim=(1, 2, 3), keepdim=True)

    package = ModuleType("lpips")
    package.LPIPS = Judge  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lpips", package)
    measure = lpips("vgg")
    grey = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1).expand(2, 1, 8, 8)
    assert measure(grey, grey).tolist() == [0, 0]
    assert measure(grey, 1 - grey).tolist() == [2, 2]  # from -1 to 1
    assert seen[0].shape == (2, 3, 64, 64)
    assert (float(seen[0].min()), float(seen[0].max())) == (-1, 1)
    large = torch.rand(2, 3, 80, 80)
    measure(large, large)
    assert seen[-1].shape == (2, 3, 80, 80)


def closeness(answer: Tensor, picture: Tensor) -> Tensor:
    return 1 - (answer - picture).abs().mean(dim=(1, 2, 3))


def decibel(answer: Tensor, picture: Tensor) -> Tensor:
    return -10 * (answer - picture).square().mean(dim=(1, 2, 3)).log10()  # infinite of a perfect copy


def distance(answer: Tensor, picture: Tensor) -> Tensor:
    return (answer - picture).abs().mean(dim=(1, 2, 3))


def brightness(answer: Tensor, picture: Tensor) -> Tensor:
    return picture.mean(dim=(1, 2, 3))


def no_copies(answer: Tensor, picture: Tensor) -> Tensor:
    if torch.equal(answer, picture):
        raise ValueError("a copy")
    return distance(answer, picture)


def undefined(answer: Tensor, picture: Tensor) -> Tensor:
    off = distance(answer, picture)
    return off / off  # not a number of a perfect copy


@pytest.mark.parametrize(
    ("measure", "larger"),
    [(distance, True), (closeness, False), (decibel, False), (brightness, None), (no_copies, None), (undefined, None)],
)
def test_guessing_and_a_perfect_copy_tell_which_way_is_private(
    measure: Measure, larger: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attack is better at other pictures; the worst case has the better answer to each that both saw."""
    in_turn = ImageSet(DATA.test.images, torch.arange(12) % 3)  # so that the order under attack is their own
    truth = in_turn.images.float() / 255

    def answer(off: Tensor) -> Reconstruction:
        return Reconstruction((truth[: len(off)] + off.view(-1, 1, 1, 1)).clamp(0, 1))

    one, other = torch.full((12,), 0.02), torch.full((8,), 0.1)
    one[:4], other[:4] = 0.1, 0.02
    monkeypatch.setattr(LinearAttack, "run", lambda self, view, progress=None: answer(one))
    monkeypatch.setattr(RetrievalAttack, "run", lambda self, view, progress=None: answer(other))
    attacks: dict[str, Any] = {"linear": {}, "retrieval": {}}
    data = AuditData(aux=DATA.aux, test=in_turn)
    found = sv.audit(worlds.identity(), data, attacks=attacks, measures=[measure], check_sanity=False).tree
    entry = found["extra"][measure.__name__]
    assert entry["larger_is_private"] is larger
    if larger is None:
        assert "worst_case" not in entry
        return
    made = measure(answer(torch.full((8,), 0.02)).images, truth[:8])
    assert entry["worst_case"]["mean"] == pytest.approx(float(made.double().mean()), rel=1e-5)
    assert entry["worst_case"]["ci95"][0] <= entry["worst_case"]["mean"] <= entry["worst_case"]["ci95"][1]
    assert "worst case per picture" in printed(found).split(f"{measure.__name__}: ")[1].splitlines()[0]


def test_without_answers_a_measure_has_its_floor_and_no_worst_case() -> None:
    data = AuditData(aux=DATA.aux, test=DATA.test, train=worlds.pictures(40, seed=3))
    found = sv.audit(worlds.identity(), data, attacks=["membership"], measures=[distance], check_sanity=False).tree
    entry = found["extra"]["distance"]
    assert (entry["attacks"], "worst_case" in entry) == ({}, False)
    assert entry["floor"]["mean_image"]["mean"] > 0
