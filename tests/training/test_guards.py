"""Each guard with the fault it is there for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

from splitveil.core.config import Train
from splitveil.core.errors import ConfigError, TrainingError
from splitveil.training.engine import Engine
from splitveil.training.guards import Guards

MakeEngine = Callable[..., Engine]


def test_a_nonfinite_gradient_skips_the_step_and_is_counted(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.epoch = 1
    engine._set_rates(0.05, 0.0, 1.0)
    engine.model.train()
    poisoned = engine.model.cloud.classifier[1]
    hook = poisoned.register_full_backward_hook(
        lambda m, gi, go: tuple(None if g is None else g * torch.nan for g in gi)
    )
    before = {name: p.clone() for name, p in engine.model.named_parameters()}
    images, labels = engine.parts.train.images[:32], engine.parts.train.labels[:32]
    engine.step(images, labels)
    assert all(torch.equal(p, before[name]) for name, p in engine.model.named_parameters())
    hook.remove()
    engine.step(images, labels)
    assert engine.step.read()["skipped"] == 1
    assert not all(torch.equal(p, before[name]) for name, p in engine.model.named_parameters())


def test_too_many_nonfinite_steps_stop_the_run(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine("train.max_nonfinite=3")
    monkeypatch.setattr(torch.nn.functional, "cross_entropy", lambda logits, y: logits.sum() * torch.nan)
    with pytest.raises(TrainingError, match="non-finite loss or gradient"):
        engine.run()


def test_collapse_is_detected_and_says_what_to_lower(make_engine: MakeEngine) -> None:
    """The failure behind the notes' 10 %: the encoder becomes a constant."""
    engine = make_engine("train.epochs=9", "train.collapse_patience=2", surrogate={"name": "gmm"})

    def dead(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        return output * 0.0 + 0.5

    engine.model.edge.output.register_forward_hook(dead)
    with pytest.raises(TrainingError, match="features have collapsed") as caught:
        engine.run()
    assert "train.privacy_weight" in caught.value.hint
    assert engine.epoch < 9


def test_a_healthy_run_is_not_called_collapsed(make_engine: MakeEngine) -> None:
    engine = make_engine("train.epochs=6", surrogate={"name": "gmm"})
    engine.run()
    assert engine.guards.collapsed == 0


def _guards(**options: Any) -> Guards:
    return Guards(Train(**options), num_classes=10, sigma=0.025)


def test_a_surrogate_that_is_mostly_shut_is_called_off(caplog: pytest.LogCaptureFixture) -> None:
    guards = _guards()
    with caplog.at_level(logging.WARNING):
        guards.check({"epoch": 4, "shut": 0.4})
        assert "shut off" not in caplog.text
        guards.check({"epoch": 5, "shut": 0.76})
    assert "the regulariser was shut off in 76 %" in caplog.text
    assert "early_shut" in caplog.text


def test_a_shut_surrogate_is_noticed_in_a_real_run(make_engine: MakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    """The notes' slot run: shut in every logged line. Faithful slot_gated stays shut for its first 100 calls."""
    engine = make_engine(
        "train.warmup_epochs=1", surrogate={"name": "slot_gated", "mode": "faithful", "num_slots": 2, "num_heads": 2}
    )
    with caplog.at_level(logging.INFO):
        engine.run()
    assert "[CEM-GATE][SHUTOFF]" in caplog.text
    assert "mostly undefended" in caplog.text
    assert engine.guards.counts["epochs in which the surrogate was mostly shut off"] == 2


def test_gate_lines_come_for_the_first_five_calls_and_every_200th(
    make_engine: MakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine = make_engine("train.warmup_epochs=0", surrogate={"name": "gated", "mode": "faithful"})
    engine.gates.calls = 195  # as if resumed: call 200 falls into the second epoch
    with caplog.at_level(logging.INFO):
        engine.run()
    lines = [line for line in caplog.messages if line.startswith("[CEM-GATE][OK]")]
    assert any("step=200 " in line and "rob_loss=" in line and "hard_gate=" in line for line in lines)
    assert len(lines) == 1


def test_events_are_logged_once_then_every_thousand(caplog: pytest.LogCaptureFixture) -> None:
    guards = _guards()
    with caplog.at_level(logging.WARNING):
        for _ in range(30):
            guards.count("event", 70)
    assert guards.counts["event"] == 2100
    assert len(caplog.messages) == 3  # at the first, past 1000, past 2000


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.epochs=1", "never acts in the first"),
        ("train.progressive=true", "first 10 belong to earlier stages"),
    ],
)
def test_a_recipe_whose_surrogate_never_acts_is_refused(make_engine: MakeEngine, override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_engine(override, surrogate={"name": "gmm"})


def test_an_exception_inside_a_surrogate_is_an_error(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prototype swallowed it and trained without defence (SPEC 6.5)."""
    engine = make_engine(surrogate={"name": "gmm"})
    assert engine.surrogate is not None

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("broken surrogate")

    monkeypatch.setattr(engine.surrogate, "_terms", fail)
    with pytest.raises(RuntimeError, match="broken surrogate"):
        engine.run()
