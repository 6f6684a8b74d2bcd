"""Steps that leave something out: `fit_every` (φ does not train) and `privacy_every` (the surrogate does not act)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import splitveil as sv
from splitveil.core.config import load_config
from splitveil.data.augment import Augmentation
from splitveil.data.dataset import DatasetInfo
from splitveil.surrogates.base import Terms
from splitveil.surrogates.learned import LearnedSurrogate
from splitveil.training.build import build_model, build_surrogate
from splitveil.training.compose import POLICIES
from splitveil.training.losses import StepModule
from splitveil.training.step import TrainStep

IMAGES = torch.randint(0, 256, (24, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(24) % 3
INFO = DatasetInfo("x", 3, (1, 8, 8), ("a", "b", "c"), (0.5,), (0.5,), Augmentation(), "", "")
LEARNED = ["gated", "slot_cross", "slot_gated", "enhanced"]


def make_step(name: str, fit_every: int, privacy_every: int = 1, weight: float = 1.0) -> TrainStep:
    torch.manual_seed(0)
    surrogate = {"name": name, "fit_every": fit_every} | ({"num_heads": 4} if name != "gated" else {})
    config = load_config(
        data={"name": "fashion-mini"}, defence={"bottleneck": {"channels": 4}}, surrogate=surrogate, model={"cut": 2}
    )
    model = build_model(config, INFO)
    module = build_surrogate(config, model)
    assert module is not None
    if module.refresh_needed:
        module.refresh([(torch.rand(60, *model.feature_shape), torch.arange(60) % 3)])
    parts = StepModule(model, module, POLICIES["single"], torch.float32).train()
    step = TrainStep(
        parts, parts, torch.optim.SGD(parts.parameters(), 0.1), torch.device("cpu"), privacy_every=privacy_every
    )
    step.active = True
    step.kappa.fill_(weight)
    step.weight.fill_(weight)
    return step


@pytest.mark.parametrize("name", LEARNED)
def test_only_every_third_step_moves_the_parameters(name: str) -> None:
    step = make_step(name, 3)
    surrogate = step.parts.surrogate
    assert surrogate is not None
    moved = []
    for _ in range(7):
        before = [p.detach().clone() for p in surrogate.parameters()]
        step(IMAGES, LABELS)
        moved.append(any(not torch.equal(a, b) for a, b in zip(before, surrogate.parameters(), strict=True)))
    assert moved == [True, False, False, True, False, False, True]
    step.reset()  # a new epoch begins with a step that fits
    assert step.turn() == (True, True)


def test_the_adapt_stage_fits_in_every_step() -> None:
    step = make_step("slot_gated", 3, privacy_every=2)
    step.stage = "adapt"
    assert [step.turn() for _ in range(4)] == [(True, True)] * 4


@pytest.mark.parametrize("name", LEARNED)
def test_the_penalty_is_the_same_whether_a_step_fits_or_not(name: str) -> None:
    torch.manual_seed(1)
    heads = {"num_heads": 4} if name != "gated" else {}
    surrogate = sv.surrogates.create(name, feature_shape=(4, 4, 4), num_classes=3, sigma=0.05, **heads).eval()
    z, y = torch.rand(24, 4, 4, 4, requires_grad=True), torch.arange(24) % 3
    if surrogate.refresh_needed:
        surrogate.refresh([(z.detach(), y)])
    results = {}
    for fitting in (True, False):
        surrogate.fitting = fitting
        out = surrogate(z, y)
        (gradient,) = torch.autograd.grad(out.loss, z)
        results[fitting] = (out.loss.detach(), gradient, out.fit_loss)
    assert results[True][0] > 0
    torch.testing.assert_close(results[False][0], results[True][0])
    torch.testing.assert_close(results[False][1], results[True][1])
    assert results[True][2].requires_grad
    assert results[False][2].item() == 0
    assert not results[False][2].requires_grad


def encoder_gradient(step: TrainStep) -> torch.Tensor:
    step(IMAGES, LABELS)
    return torch.cat([p.grad.flatten() for p in step.parts.model.edge.parameters() if p.grad is not None])


def test_a_lazy_step_has_the_weight_of_those_it_stands_for() -> None:
    # float32 sums in another order: 1e-6 of the largest entry
    acting = encoder_gradient(make_step("gated", 1, privacy_every=3, weight=2.0))
    heavy = encoder_gradient(make_step("gated", 1, weight=6.0))
    task = encoder_gradient(make_step("gated", 1, weight=0.0))
    assert (acting - task).abs().max() > 1e-3  # the penalty is felt
    torch.testing.assert_close(acting, heavy, rtol=0, atol=1e-6 * float(heavy.abs().max()))


def test_between_two_lazy_steps_only_the_task_trains() -> None:
    step = make_step("gated", 1, privacy_every=3, weight=2.0)
    surrogate = step.parts.surrogate
    assert surrogate is not None
    calls: list[int] = []
    surrogate.register_forward_hook(lambda *_: calls.append(step.count))
    for _ in range(7):
        step(IMAGES, LABELS)
    assert calls == [1, 4, 7]


def test_means_are_over_the_steps_that_gave_a_number() -> None:
    step = make_step("slot_gated", 2, privacy_every=2)
    robs, tasks, fits = [], [], []
    for _ in range(6):
        step(IMAGES, LABELS)
        numbers = dict(zip(step.names, step.newest.tolist(), strict=True))
        tasks.append(numbers["task_loss"])
        robs += [numbers["rob_loss"]] if "rob_loss" in numbers else []
        fits += [numbers["fit_loss"]] if "fit_loss" in numbers else []
    assert (len(tasks), len(robs), len(fits)) == (6, 3, 2)
    means = step.read()
    assert (means["steps"], means["surrogate_steps"], means["fit_steps"]) == (6, 3, 2)
    assert means["task_loss"] == pytest.approx(sum(tasks) / 6)
    assert means["rob_loss"] == pytest.approx(sum(robs) / 3)
    assert means["fit_loss"] == pytest.approx(sum(fits) / 2)


def test_a_class_whose_loss_is_not_finite_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    step = make_step("gated", 1)
    surrogate = step.parts.surrogate
    assert isinstance(surrogate, LearnedSurrogate)
    whole = surrogate._evaluate

    def broken(*arguments: Any, live: bool) -> Terms:
        terms = whole(*arguments, live=live)
        return dataclasses.replace(terms, per_class_loss=terms.per_class_loss + torch.tensor([torch.nan, 0, 0]))

    step(IMAGES, LABELS)
    monkeypatch.setattr(surrogate, "_evaluate", broken)
    step(IMAGES, LABELS)
    means = step.read()
    assert means["nonfinite_rob"] == 1  # a count of steps, not a mean
    assert means["rob_loss"] > 0  # the other classes still act,
    assert means["nonfinite_lost"] == 0  # so the term is not lost
