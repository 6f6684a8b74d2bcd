"""A machine without a working compiler trains all the same."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

from splitveil.training.engine import Engine

MakeEngine = Callable[..., Engine]


def broken_compiler(part: Callable[..., object]) -> Callable[..., object]:
    def fail(*args: object) -> object:
        raise BackendCompilerFailed("inductor", RuntimeError("No working C++ compiler found"), None)

    return fail


def test_a_step_that_cannot_be_compiled_runs_as_it_is_and_says_so(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    options = ("train.epochs=2",)
    plain = make_engine(*options, "train.capture=off", surrogate={"name": "gated"}, name="plain")
    plain.run()
    monkeypatch.setattr(torch, "compile", broken_compiler)
    engine = make_engine(*options, "train.capture=compile", surrogate={"name": "gated"})
    with caplog.at_level(logging.WARNING):
        engine.run()
    said = [record.getMessage() for record in caplog.records if "could not be compiled" in record.getMessage()]
    assert len(said) == 3  # edge, cloud, surrogate: once each
    assert all("No working C++ compiler" in line for line in said)
    after = engine.model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in plain.model.state_dict().items())


def test_an_error_of_the_step_itself_is_not_taken_for_a_failure_to_compile(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda part: part)
    engine = make_engine("train.capture=compile", surrogate={"name": "gated"})

    def fail(*args: object, **kwargs: object) -> None:
        raise ValueError("mine")

    assert engine.surrogate is not None
    monkeypatch.setattr(engine.surrogate, "forward", fail)
    with pytest.raises(ValueError, match="mine"):
        engine.run()
