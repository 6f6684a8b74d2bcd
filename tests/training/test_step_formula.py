"""One training step against SPEC 6.1-6.3 and 6.6, written out by hand: what every parameter's gradient is made of."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from splitveil.core.config import load_config
from splitveil.core.options import Options
from splitveil.data.augment import Augmentation
from splitveil.data.dataset import DatasetInfo
from splitveil.defences.base import Defence, Step
from splitveil.models.split import SplitModel
from splitveil.training.build import build_model, build_surrogate
from splitveil.training.compose import POLICIES
from splitveil.training.losses import StepModule
from splitveil.training.setup import make_optimiser
from splitveil.training.step import TrainStep

INFO = DatasetInfo("x", 3, (1, 8, 8), ("a", "b", "c"), (0.5,), (0.5,), Augmentation(), "", "")
SIGMA, WEIGHT, FACTOR = 0.1, 16.0, 0.02
CPU = torch.device("cpu")
GATED = {"name": "gated", "mode": "faithful"}  # s = 0.1, φ minimises
FITTED = {"name": "gated", "mode": "corrected", "memory": 0, "loss_scale": 0.3}  # φ follows fit_loss
OWN = {"name": "slot_cross", "mode": "faithful", "num_heads": 2, "dropout": 0.0, "slot_noise": "fixed"}


TREE: dict[str, Any] = {
    "data": {"name": "fashion-mini"},
    "defence": {"bottleneck": {"channels": 2}, "noise": {"sigma": SIGMA}},
}


def noisy_model() -> SplitModel:
    torch.manual_seed(0)
    return build_model(load_config(**TREE), INFO)


def world(surrogate: dict[str, Any], compose: str) -> tuple[Any, TrainStep, Tensor, Tensor]:
    torch.manual_seed(0)
    config = load_config(surrogate=surrogate, **TREE)
    model = build_model(config, INFO)
    module = build_surrogate(config, model)
    assert module is not None
    parts = StepModule(model, module, POLICIES[compose], torch.float32).train()
    step = TrainStep(parts, parts, make_optimiser(model, module, config.train, CPU), CPU)
    step.kappa.fill_(WEIGHT * FACTOR)
    step.weight.fill_(WEIGHT)
    step.active, step.epoch = True, 2
    step.noise.manual_seed(1)
    return parts, step, torch.randint(0, 256, (24, 1, 8, 8), dtype=torch.uint8), torch.arange(24) % 3


def by_hand(parts: StepModule, images: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """L_task, R = s·rob and fit_loss of (z, y), and z, from copies of everything: clean z in, z̃ = z + σε out."""
    model, surrogate = parts.model, parts.surrogate
    assert surrogate is not None
    z = model.edge(images.float() / 255)
    out = surrogate(z, y, epoch=2)
    sent = z + SIGMA * torch.empty_like(z).normal_(generator=torch.Generator().manual_seed(1))
    logits = surrogate.classify(sent).logits if parts.own_classifier else model.cloud(sent)  # type: ignore[operator]
    return F.cross_entropy(logits, y), surrogate.options.loss_scale * out.loss, out.fit_loss, z


def gradient(value: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    found = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]


# what multiplies ∇R on the encoder and on φ (SPEC 6.3)
FACTORS = {
    "single": (WEIGHT * FACTOR, 1.0),
    "two_pass": (WEIGHT * FACTOR, 1.0),
    "direct": (WEIGHT, WEIGHT),
}


@pytest.mark.parametrize("compose", FACTORS)
@pytest.mark.parametrize("surrogate", [GATED, FITTED, OWN], ids=["minimise", "likelihood", "own classifier"])
def test_the_gradients_of_a_step_are_those_of_the_formula(surrogate: dict[str, Any], compose: str) -> None:
    parts, step, images, y = world(surrogate, compose)
    twin = copy.deepcopy(parts)
    task, private, fit, _ = by_hand(twin, images, y)
    assert private.abs() > 0
    encoder, own = FACTORS[compose]
    assert twin.surrogate is not None
    expected = {}
    for part, factor in (("model.edge", encoder), ("model.cloud", 0.0), ("surrogate", own)):
        named = {n: p for n, p in twin.named_parameters() if n.startswith(part) and p.requires_grad}
        values = list(named.values())
        of_fit = gradient(fit, values) if fit.requires_grad else [torch.zeros_like(p) for p in values]
        sums = zip(gradient(task, values), gradient(private, values), of_fit, strict=True)
        # fit_loss has gradient to φ only, always with factor 1
        expected |= {n: a + factor * b + c for n, (a, b, c) in zip(named, sums, strict=True)}
        if part == "model.edge":
            assert all((c == 0).all() for c in of_fit)
    step.turn()
    step._gradients(images, y)
    scale = max(float(g.abs().max()) for g in expected.values())
    for name, parameter in parts.named_parameters():
        if name in expected:
            found = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            assert (found - expected[name]).abs().max() <= 2e-5 * scale, name


def test_two_steps_move_every_parameter_as_sgd_with_momentum_and_decay() -> None:
    """p ← p − lr·v, v ← 0.9·v + g + 5e-4·p, for encoder, cloud and φ alike (SPEC 6.1, 6.6)."""
    parts, step, images, y = world(GATED, "single")
    before = {n: p.detach().clone() for n, p in parts.named_parameters() if p.requires_grad}
    velocity = {n: torch.zeros_like(p) for n, p in before.items()}
    for _ in range(2):
        step(images, y)
        for name, parameter in parts.named_parameters():
            if name in before and parameter.grad is not None:
                velocity[name] = 0.9 * velocity[name] + parameter.grad + 5e-4 * before[name]
                before[name] = before[name] - 0.05 * velocity[name]
                torch.testing.assert_close(parameter.detach(), before[name], rtol=1e-5, atol=1e-7)


def test_the_surrogate_sees_clean_train_mode_features() -> None:
    """SPEC 0.1: not z̃, and not the encoder in eval mode."""
    parts, step, images, y = world(GATED, "single")
    twin = copy.deepcopy(parts)
    seen: list[Tensor] = []
    assert parts.surrogate is not None
    parts.surrogate.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach().clone()))
    step.turn()
    step._gradients(images, y)
    with torch.no_grad():
        torch.testing.assert_close(seen[0], twin.model.edge(images.float() / 255))
    assert parts.surrogate.training


class Spy(Defence):
    """Keeps what it is shown, and adds half the mean square of the clean feature to the task's loss."""

    def __init__(self) -> None:
        super().__init__(Options())
        self.adversary = nn.Identity()
        self.seen: list[Step] = []

    def train_adversary(self, step: Step) -> None:
        self.seen.append(step)

    def loss(self, step: Step) -> Tensor:
        self.seen.append(step)
        return 0.5 * step.z.square().mean()


def test_defences_are_shown_the_clean_feature_and_what_was_sent_and_their_terms_join_the_task() -> None:
    """SPEC 6.1 (6): L_task = CE(F_d(z̃), y) + other terms; an adversary sees the same, without gradient."""
    model, images, y = noisy_model(), torch.randint(0, 256, (24, 1, 8, 8), dtype=torch.uint8), torch.arange(24) % 3
    model.defences["spy"] = spy = Spy()
    parts = StepModule(model, None, POLICIES["single"], torch.float32).train()
    twin = copy.deepcopy(model)
    step = TrainStep(parts, parts, make_optimiser(model, None, load_config().train, CPU), CPU)
    step.noise.manual_seed(1)
    step.turn()
    step._gradients(images, y)
    x = images.float() / 255
    z = twin.edge(x)
    sent = z + SIGMA * torch.empty_like(z).normal_(generator=torch.Generator().manual_seed(1))
    logits = twin.cloud(sent)
    adversary, own = spy.seen
    for shown in (adversary, own):
        for found, wanted in ((shown.x, x), (shown.y, y), (shown.z, z), (shown.sent, sent)):
            torch.testing.assert_close(found, wanted)
    assert adversary.logits is None
    assert not adversary.z.requires_grad
    assert not adversary.sent.requires_grad
    assert own.logits is not None
    torch.testing.assert_close(own.logits, logits)
    (F.cross_entropy(logits, y) + 0.5 * z.square().mean()).backward()
    for (name, found), wanted in zip(model.edge.named_parameters(), twin.edge.parameters(), strict=True):
        if found.requires_grad:
            assert (found.grad - wanted.grad).abs().max() <= 2e-5 * wanted.grad.abs().max() + 1e-8, name
