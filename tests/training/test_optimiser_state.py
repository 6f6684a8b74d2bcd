"""Momentum: there from the first step, in the memory order of its parameter, and never built by a skipped step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from splitveil.training.engine import Engine

MakeEngine = Callable[..., Engine]


def momenta(engine: Engine) -> list[tuple[torch.Tensor, torch.Tensor]]:
    parameters = [p for group in engine.optimiser.param_groups for p in group["params"]]
    return [(p, engine.optimiser.state[p]["momentum_buffer"]) for p in parameters]


def fuse(engine: Engine) -> None:
    """The kernel that GPUs use, which has stricter demands."""
    for group in engine.optimiser.param_groups:
        group["fused"], group["foreach"] = True, False


def test_momentum_comes_back_in_the_order_of_its_parameter(make_engine: MakeEngine) -> None:
    make_engine("train.epochs=1").run()
    again = make_engine("train.epochs=2")
    again.keeper.resume()
    assert any(p.dim() == 4 and not p.is_contiguous() for p, _ in momenta(again))  # channels last
    assert all(p.stride() == momentum.stride() for p, momentum in momenta(again))
    assert any(momentum.abs().max() > 0 for _, momentum in momenta(again))
    fuse(again)
    again.epoch = 1
    again.run()


def test_parameters_may_get_their_first_gradient_late(make_engine: MakeEngine) -> None:
    """N1's classifier trains from the first step, its centroids' projection only once the surrogate acts."""
    surrogate = {"name": "slot_cross", "mode": "faithful", "num_heads": 2, "num_slots": 2}
    engine = make_engine("train.epochs=2", surrogate=surrogate)
    fuse(engine)
    engine.run()
    assert all(torch.isfinite(momentum).all() for _, momentum in momenta(engine))


def test_a_skipped_first_step_leaves_momentum_zero(make_engine: MakeEngine) -> None:
    engine = make_engine()
    fuse(engine)
    for parameter, _ in momenta(engine):
        parameter.grad = torch.full_like(parameter, torch.nan)
    engine.optimiser.found_inf, engine.optimiser.grad_scale = torch.ones(()), None  # type: ignore[attr-defined]
    engine.optimiser.step()
    assert all(momentum.abs().max() == 0 for _, momentum in momenta(engine))


def test_adapting_without_an_active_surrogate_trains_nothing(make_engine: MakeEngine) -> None:
    options = ["train.progressive=true", "train.base_epochs=1", "train.adapt_epochs=2", "train.warmup_epochs=4"]
    engine = make_engine("train.epochs=6", *options, surrogate={"name": "gated"})
    engine.epoch = 1
    engine._train_epoch()
    before = {name: value.clone() for name, value in engine.model.state_dict().items()}
    for engine.epoch in (2, 3):
        engine._train_epoch()
    assert all(torch.equal(value, before[name]) for name, value in engine.model.state_dict().items())


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_lazy_steps_keep_their_rhythm_from_epoch_to_epoch(make_engine: MakeEngine, steps: int) -> None:
    engine = make_engine("train.privacy_every=4", surrogate={"name": "gated"})
    engine.steps, engine.step.active = steps, True
    acted = []
    for epoch in range(1, 9):
        engine.step.reset((epoch - 1) * engine.steps)
        acted += [engine.step.turn()[0] for _ in range(steps)]
    assert acted == [index % 4 == 0 for index in range(8 * steps)]
