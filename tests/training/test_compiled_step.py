"""A machine without a working compiler trains all the same."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch._functorch._aot_autograd.utils import make_boxed_func

from splitveil.training.engine import Engine

MakeEngine = Callable[..., Engine]


def broken_compiler(part: Callable[..., object]) -> Callable[..., object]:
    def fail(*args: object) -> object:
        raise BackendCompilerFailed("inductor", RuntimeError("No working C++ compiler found"), None)

    return fail


def test_a_step_that_cannot_be_compiled_runs_as_it_is_and_says_so(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    options = ("train.epochs=2", "defence.adversarial={adversary_blocks=0, adversary_width=4}")
    plain = make_engine(*options, "train.capture=off", surrogate={"name": "gated"}, name="plain")
    plain.run()
    monkeypatch.setattr(torch, "compile", broken_compiler)
    engine = make_engine(*options, "train.capture=compile", surrogate={"name": "gated"})
    with caplog.at_level(logging.WARNING):
        engine.run()
    said = [record.getMessage() for record in caplog.records if "could not be compiled" in record.getMessage()]
    assert len(said) == 4  # edge, cloud, surrogate, adversary: once each
    assert all("No working C++ compiler" in line for line in said)
    after = engine.model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in plain.model.state_dict().items())


def breaks_backwards(when: str) -> Callable[..., Any]:
    """torch.compile with a backend that traces both passes, and breaks down compiling or running the second."""
    from torch._dynamo.backends.common import aot_autograd

    def forwards(graph: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        return make_boxed_func(graph.forward)

    def backwards(graph: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        if when == "compiling":
            raise RuntimeError("no backward pass")

        def fail(*args: object) -> None:
            raise RuntimeError("no backward pass")

        return make_boxed_func(fail)

    backend = aot_autograd(fw_compiler=forwards, bw_compiler=backwards)
    compile_with = torch.compile
    return lambda part: compile_with(part, backend=backend)


# both warnings are torch's own, as it traces
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.filterwarnings("ignore:.*should not be instantiated. Methods on autograd functions:DeprecationWarning")
@pytest.mark.parametrize(("when", "warnings"), [("compiling", 3), ("running", 1)])
def test_a_backward_pass_that_cannot_be_compiled_or_run_leaves_training_running(
    make_engine: MakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    when: str,
    warnings: int,
) -> None:
    options = ("train.epochs=2",)
    plain = make_engine(*options, "train.capture=off", surrogate={"name": "gated"}, name="plain")
    plain.run()
    monkeypatch.setattr(torch, "compile", breaks_backwards(when))
    engine = make_engine(*options, "train.capture=compile", surrogate={"name": "gated"})
    with caplog.at_level(logging.WARNING, logger="splitveil.training"):
        engine.run()
    said = [message for message in caplog.messages if "it runs as it is" in message]
    assert len(said) == warnings  # compiling: edge, cloud and surrogate; running: the whole step
    assert all("no backward pass" in message for message in said), said
    before, after = plain.model.state_dict(), engine.model.state_dict()
    if when == "compiling":  # nothing had been computed
        assert all(torch.equal(value, after[name]) for name, value in before.items())
    else:
        assert any(not torch.equal(value, after[name]) for name, value in before.items())


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
