"""Fixtures of the serving tests. Tracing a graph takes a second or more, so what is exported is shared by all tests."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.serving.exporting import ATTENTION, DISCO, NOISE, THREE, take_graphs, train_small
from tests.worlds.small_artefact import write_small_artefact

from splitveil.serving.artefact import Artefact, read
from splitveil.serving.export import export_run


@pytest.fixture(autouse=True, scope="session")
def _one_registry() -> Iterator[None]:
    """torch reads its table of ONNX operators anew for each graph, half of an export, and never writes to it."""
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry
    except ImportError:  # another version of torch has it elsewhere: exports take longer
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(cache(ONNXRegistry.from_torchlib)))
        yield


@pytest.fixture
def small_artefact(tmp_path: Path) -> Artefact:
    """An artefact whose answers one computes by hand (see `tests/worlds/small_artefact.py`)."""
    write_small_artefact(tmp_path / "artefact")
    return read(tmp_path / "artefact")


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with noise; small.npz beside it has its pictures. Copy it before you change it."""
    attacks = {"linear": {}, "optimize": {"steps": 3}}
    return train_small(tmp_path_factory.mktemp("noise") / "run", NOISE, audit={"attacks": attacks}).path


@pytest.fixture(scope="session")
def artefact(run: Path) -> Artefact:
    return export_run(run, run.parent / "artefact")


@pytest.fixture
def traced(artefact: Artefact, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports of `run`, or of a copy, take its graphs as they were traced before; all else happens anew."""
    take_graphs(artefact, monkeypatch)


@pytest.fixture(scope="session")
def three_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with three defences, two of which draw."""
    return train_small(tmp_path_factory.mktemp("three") / "run", THREE).path


@pytest.fixture(scope="session")
def three_artefact(three_run: Path) -> Artefact:
    return export_run(three_run)  # into RUN/artefact


@pytest.fixture(scope="session")
def attention_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose surrogate answers in place of the cloud half, and remembers features."""
    train = {"warmup_epochs": 1, "privacy_weight": 0.1}
    return train_small(tmp_path_factory.mktemp("attention") / "run", NOISE, surrogate=ATTENTION, train=train).path


@pytest.fixture(scope="session")
def attention_artefact(attention_run: Path) -> Artefact:
    return export_run(attention_run, attention_run.parent / "artefact")


@pytest.fixture(scope="session")
def disco_artefact(tmp_path_factory: pytest.TempPathFactory) -> Artefact:
    """An artefact that draws nothing, of a run whose defence trained an adversary."""
    return export_run(train_small(tmp_path_factory.mktemp("disco") / "run", DISCO))
