"""Gradient composition: S6.1, S6.4, S6.5, S6.6 and the projection policy."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import splitveil as sv
from splitveil.core.config import load_config
from splitveil.data.augment import Augmentation
from splitveil.data.dataset import DatasetInfo
from splitveil.training.build import build_model, build_surrogate
from splitveil.training.compose import POLICIES
from splitveil.training.losses import StepModule
from splitveil.training.step import TrainStep

INFO = DatasetInfo("x", 3, (1, 8, 8), ("a", "b", "c"), (0.5,), (0.5,), Augmentation(), "", "")
FAITHFUL = {"name": "gated", "mode": "faithful"}


def gradients(compose: str, *, weight: float, factor: float, dtype: torch.dtype, surrogate: dict[str, Any]) -> Any:
    """θ, φ and cloud gradients of one step with noise, dropout and batch norm active, from fixed random streams."""
    torch.manual_seed(0)
    tree = {"data": {"name": "fashion-mini"}, "defence": {"bottleneck": {"channels": 2}, "noise": {"sigma": 0.1}}}
    config = load_config(surrogate=surrogate, **tree)
    model = build_model(config, INFO)
    model.cloud.classifier.insert(1, nn.Dropout(0.3))
    module = build_surrogate(config, model)
    assert module is not None
    if module.refresh_needed:
        module.refresh([(torch.rand(60, *model.feature_shape), torch.arange(60) % 3)])
    parts = StepModule(model, module, POLICIES[compose], torch.float32).to(dtype).train()
    step = TrainStep(parts, parts, torch.optim.SGD(model.parameters(), 0.1), torch.device("cpu"))
    step.kappa.fill_(weight * factor)
    step.weight.fill_(weight)
    step.active = True
    step.noise.manual_seed(1)
    torch.manual_seed(2)
    images = torch.randint(0, 256, (24, 1, 8, 8), dtype=torch.uint8)
    out = _forward_as(parts, images, torch.arange(24) % 3, step, dtype)
    step._backward(out, step.kappa)
    assert out["rob"].abs() > 0  # a shut-off or missing bank would compare 0 with 0
    return {n: None if p.grad is None else p.grad.clone() for n, p in parts.named_parameters()}


def _forward_as(parts: StepModule, images: Tensor, y: Tensor, step: TrainStep, dtype: torch.dtype) -> dict[str, Tensor]:
    from splitveil.training import precision as module

    original = module.to_float
    module.to_float = lambda x: original(x).to(dtype)  # pictures enter as float32; the float64 check needs float64
    try:
        return parts(images, y, kappa=step.kappa, stage="joint", active=True, epoch=2, noise=step.noise)
    finally:
        module.to_float = original


def split(named: dict[str, Tensor | None], prefix: str) -> Tensor:
    return torch.cat([g.flatten() for n, g in named.items() if n.startswith(prefix) and g is not None])


@pytest.mark.parametrize(
    "surrogate", [FAITHFUL, {"name": "gmm"}, {"name": "slot_gated", "mode": "faithful", "early_shut": "off"}]
)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_s6_1_single_equals_two_pass(surrogate: dict[str, Any], dtype: torch.dtype, tolerance: float) -> None:
    one = gradients("single", weight=16.0, factor=0.02, dtype=dtype, surrogate=surrogate)
    two = gradients("two_pass", weight=16.0, factor=0.02, dtype=dtype, surrogate=surrogate)
    for part in ("model.edge", "model.cloud", *(["surrogate"] if surrogate["name"] != "gmm" else [])):
        a, b = split(one, part), split(two, part)
        assert b.abs().max() > 0
        assert (a - b).abs().max() <= tolerance * b.abs().max(), part


def test_two_pass_trains_the_classifier_that_a_surrogate_brings() -> None:
    """slot_cross's own head is reached by the task alone; two_pass must not lose that gradient."""
    own = {"name": "slot_cross", "mode": "faithful", "num_heads": 2, "dropout": 0.0, "slot_noise": "fixed"}
    one = gradients("single", weight=16.0, factor=0.02, dtype=torch.float64, surrogate=own)
    two = gradients("two_pass", weight=16.0, factor=0.02, dtype=torch.float64, surrogate=own)
    head = [name for name in one if "classifier" in name and name.startswith("surrogate")]
    assert head
    for name in head:
        assert one[name] is not None
        assert one[name].abs().max() > 0
        assert torch.allclose(one[name], two[name], rtol=1e-9)


def test_s6_4_direct_is_two_pass_without_wlr_and_lambda_times_larger_on_phi() -> None:
    direct = gradients("direct", weight=16.0, factor=0.02, dtype=torch.float64, surrogate=FAITHFUL)
    two = gradients("two_pass", weight=16.0, factor=1.0, dtype=torch.float64, surrogate=FAITHFUL)
    assert torch.allclose(split(direct, "model.edge"), split(two, "model.edge"), rtol=1e-9)
    assert torch.allclose(split(direct, "surrogate"), 16.0 * split(two, "surrogate"), rtol=1e-9)


def test_projection_removes_only_what_conflicts() -> None:
    """Hand-worked: g_task = (1, 0). Against (-2, 3) the component -2 goes; (2, 3) is left alone."""
    for private, expected in (((-2.0, 3.0), (1.0, 3.0)), ((2.0, 3.0), (3.0, 3.0))):
        theta = nn.Parameter(torch.zeros(2))
        task = theta @ torch.tensor([1.0, 0.0])
        rob = theta @ torch.tensor(private)
        one = torch.ones(())
        POLICIES["project"].backward(task, rob, torch.zeros(()), weight=one, kappa=one, encoder=[theta], own=[])
        assert theta.grad is not None
        assert theta.grad.tolist() == pytest.approx(list(expected))


def _train_phi(options: dict[str, Any], steps: int, seed: int = 0) -> list[float]:
    """Features fixed; only φ learns, with s = 0.1, lr 0.05, momentum 0.9 (SPEC 9 c). Returns rob at every step."""
    torch.manual_seed(seed)
    surrogate = sv.surrogates.create("gated", feature_shape=(8, 4, 4), num_classes=10, sigma=0.025, **options).train()
    z, y = torch.rand(128, 8, 4, 4), torch.arange(128) % 10
    own = list(surrogate.parameters())
    optimiser = torch.optim.SGD(own, lr=0.05, momentum=0.9)
    values = []
    for _ in range(steps):
        optimiser.zero_grad()
        out = surrogate(z, y)
        values.append(float(out.loss.detach()))
        total = 0.1 * out.loss + out.fit_loss
        if total.requires_grad:
            total.backward()
            optimiser.step()
    return values


def test_s6_5_frozen_never_changes() -> None:
    torch.manual_seed(0)
    surrogate = sv.surrogates.create(
        "gated", feature_shape=(8, 4, 4), num_classes=3, sigma=0.025, mode="faithful", surrogate_update="frozen"
    )
    z = torch.rand(30, 8, 4, 4, requires_grad=True)
    out = surrogate(z, torch.arange(30) % 3)
    assert out.loss > 0
    before = [p.clone() for p in surrogate.parameters()]
    (out.loss + out.fit_loss).backward()
    torch.optim.SGD(surrogate.parameters(), lr=0.1, weight_decay=0.1).step()  # a zero gradient would still decay φ
    assert z.grad is not None
    assert z.grad.abs().sum() > 0
    assert all(torch.equal(p, old) for p, old in zip(surrogate.parameters(), before, strict=True))


def test_s6_5_ascend_raises_rob() -> None:
    values = _train_phi({"mode": "faithful", "surrogate_update": "ascend"}, 100)
    assert values[-1] >= values[0] > 0


def test_s6_6_parameters_that_minimise_close_their_own_gates() -> None:
    values = _train_phi({"mode": "faithful", "learnable_scalars": True, "surrogate_update": "minimise"}, 50)
    assert values[0] > 0
    assert min(values) < 0.01 * values[0]


def test_s6_6_likelihood_keeps_the_pressure() -> None:
    options = {"mode": "faithful", "surrogate_update": "likelihood", "gates": "none", "ln_affine": False}
    values = _train_phi(options, 50)
    assert values[-1] > 0.5 * values[0] > 0
