"""`fit_every`: the surrogate's own parameters train in every n-th step only, and the penalty does not notice."""

from __future__ import annotations

import pytest
import torch

import splitveil as sv
from splitveil.core.config import load_config
from splitveil.data.augment import Augmentation
from splitveil.data.dataset import DatasetInfo
from splitveil.training.build import build_model, build_surrogate
from splitveil.training.compose import POLICIES
from splitveil.training.step import StepModule, TrainStep

INFO = DatasetInfo("x", 3, (1, 8, 8), ("a", "b", "c"), (0.5,), (0.5,), Augmentation(), "", "")
LEARNED = ["gated", "slot_cross", "slot_gated", "enhanced"]


def make_step(name: str, fit_every: int) -> TrainStep:
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
    step = TrainStep(parts, parts, torch.optim.SGD(parts.parameters(), 0.1), torch.device("cpu"))
    step.active = True
    step.kappa.fill_(1.0)
    step.weight.fill_(1.0)
    return step


@pytest.mark.parametrize("name", LEARNED)
def test_only_every_third_step_moves_the_parameters(name: str) -> None:
    step = make_step(name, 3)
    surrogate = step.parts.surrogate
    assert surrogate is not None
    images, y = torch.randint(0, 256, (24, 1, 8, 8), dtype=torch.uint8), torch.arange(24) % 3
    moved = []
    for _ in range(7):
        before = [p.detach().clone() for p in surrogate.parameters()]
        step(images, y)
        moved.append(any(not torch.equal(a, b) for a, b in zip(before, surrogate.parameters(), strict=True)))
    assert moved == [True, False, False, True, False, False, True]
    step.reset()  # a new epoch begins with a step that fits
    assert step.turn()


def test_the_adapt_stage_fits_in_every_step() -> None:
    step = make_step("slot_gated", 3)
    step.stage = "adapt"
    assert [step.turn() for _ in range(4)] == [True] * 4


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
