"""Which number format a run computes in, and a processor that cannot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from splitveil.core.errors import TrainingError
from splitveil.core.sections import Train
from splitveil.training import precision

KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    precision.multiplies_bfloat16.cache_clear()
    yield
    precision.multiplies_bfloat16.cache_clear()


def test_a_processor_that_kills_bfloat16_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "PROBE", KILLED)
    with pytest.raises(TrainingError, match=r"multiply matrices in bfloat16.*train.precision=float32"):
        precision.number_format(Train(precision="bfloat16"), CPU)


@pytest.mark.parametrize("code", ["", "raise SystemExit(3)"])
def test_a_child_that_is_not_killed_lets_training_try(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(precision, "PROBE", code)
    assert precision.number_format(Train(precision="bfloat16"), CPU) is torch.bfloat16


@pytest.mark.parametrize(
    ("asked", "device", "given"),
    [
        ("auto", CPU, torch.float32),
        ("float32", CPU, torch.float32),
        ("auto", CUDA, torch.bfloat16),
        ("bfloat16", CUDA, torch.bfloat16),
    ],
)
def test_nothing_is_tried_where_no_cpu_is_asked_for_bfloat16(
    monkeypatch: pytest.MonkeyPatch, asked: str, device: torch.device, given: torch.dtype
) -> None:
    monkeypatch.setattr(precision, "PROBE", KILLED)
    assert precision.number_format(Train.model_validate({"precision": asked}), device) is given


def test_the_child_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "PROBE", "")
    assert precision.multiplies_bfloat16()
    monkeypatch.setattr(precision, "PROBE", KILLED)
    assert precision.multiplies_bfloat16()
