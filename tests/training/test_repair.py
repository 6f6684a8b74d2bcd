"""One bad batch leaves no trace in what evaluation uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from splitveil.training.engine import Engine
from splitveil.training.repair import repair_statistics

MakeEngine = Callable[..., Engine]


def _layers(engine: Engine) -> list[nn.BatchNorm2d]:
    return [layer for layer in engine.model.modules() if isinstance(layer, nn.BatchNorm2d)]


def test_one_bad_step_does_not_spoil_every_later_evaluation(make_engine: MakeEngine) -> None:
    engine = make_engine("train.epochs=2", surrogate={"name": "gmm"})

    def poison(module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor | None:
        return output * torch.nan if module.training and engine.epoch == 1 and engine.step.count == 3 else None

    next(m for m in engine.model.edge.modules() if isinstance(m, nn.Conv2d)).register_forward_hook(poison)
    rows: list[dict[str, Any]] = []
    engine.run(rows.append)
    assert [row["skipped"] for row in rows] == [1, 0]
    assert all(torch.isfinite(value.float()).all() for value in engine.model.state_dict().values())
    assert all(row["feature_spread"] > 0 for row in rows)
    event = next(name for name in engine.guards.counts if "measured again" in name)
    assert engine.guards.counts[event] == len(_layers(engine))


@pytest.mark.parametrize("spoiled", ["running_mean", "running_var"])
def test_statistics_are_the_mean_over_batches_and_nothing_else_changes(make_engine: MakeEngine, spoiled: str) -> None:
    """Large values may spoil the variance alone: their squares are infinite where they themselves are not."""
    engine = make_engine()
    first, *others = _layers(engine)
    before = {name: value.clone() for name, value in engine.model.state_dict().items()}
    assert first.running_mean is not None
    getattr(first, spoiled).fill_(torch.inf)
    momentum, batches = first.momentum, list(engine._batches(1))[:3]
    seen: list[torch.Tensor] = []
    hook = first.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    engine.model.train()
    assert repair_statistics(engine.model, batches, torch.float32, torch.Generator()) == 1
    hook.remove()
    expected = torch.stack([x.double().mean(dim=(0, 2, 3)) for x in seen]).mean(dim=0)
    torch.testing.assert_close(first.running_mean.double(), expected, rtol=1e-4, atol=1e-6)
    variances = torch.stack([x.double().transpose(0, 1).flatten(1).var(1) for x in seen]).mean(dim=0)
    torch.testing.assert_close(first.running_var.double(), variances, rtol=1e-4, atol=1e-6)
    assert first.momentum == momentum
    assert all(module.training for module in engine.model.modules())
    own = {id(first.running_mean), id(first.running_var), id(first.num_batches_tracked)}
    for name, value in engine.model.state_dict(keep_vars=True).items():
        assert id(value) in own or torch.equal(value, before[name]), name
    assert others


@pytest.mark.parametrize("skipped", [0, 1])
def test_healthy_statistics_are_left_alone(make_engine: MakeEngine, skipped: int) -> None:
    engine = make_engine()
    engine.epoch = 1
    before = {name: value.clone() for name, value in engine.model.state_dict().items()}
    engine._repair({"skipped": skipped})
    assert all(torch.equal(value, before[name]) for name, value in engine.model.state_dict().items())
