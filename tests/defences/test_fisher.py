"""Noise for a target dFIL: closed form on a linear edge, agreement with full Jacobians, no side effects."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from tests.defences.building import build, pictures, step_of
from torch import nn

from splitveil import defences
from splitveil.defences.base import Step
from splitveil.defences.fisher import squared_jacobian
from splitveil.models.split import SplitModel


def linear_defence(weight, **options):
    edge = nn.Sequential(nn.Flatten(), nn.Linear(weight.shape[1], weight.shape[0], bias=False))
    edge[1].weight.data = weight
    model = SplitModel(edge, nn.Identity(), image_shape=(1, 1, weight.shape[1]))
    defence = defences.create("fisher", **options)
    defence.attach(model)
    return defence, edge


def step_for(x, z):
    return Step(x, torch.zeros(len(x), dtype=torch.long), z, z, None, 1)


def test_linear_edge_in_closed_form():
    """Orthogonal rows of length 2 and 3, four pixels, target 5: tr(JᵀJ) = 4 + 9, σ² = 13/(4·5), exactly."""
    weight = torch.tensor([[2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 3.0, 0.0]])
    defence, edge = linear_defence(weight, target=5.0, sigma=7.0)
    x = torch.rand(3, 1, 1, 4)
    for _ in range(3):
        assert defence.loss(step_for(x, edge(x).detach())) is None
    assert defence.noise_power() == pytest.approx(13 / 20, rel=1e-6)
    # and so dFIL = tr(JᵀJ)/(d·σ²) is the target
    assert 13 / (4 * defence.noise_power()) == pytest.approx(5.0, rel=1e-6)


def test_the_unbiased_attacker_meets_the_bound():
    """For z̃ = A·x + σ·ε with A = a·I the best unbiased estimate is z̃/a, with MSE σ²/a² = 1/dFIL: the bound is tight."""
    defence, edge = linear_defence(2.0 * torch.eye(6), target=50.0)
    x = torch.rand(4000, 1, 1, 6)
    defence.loss(step_for(x[:8], edge(x[:8]).detach()))
    with torch.no_grad():
        sent = defence.transmit(edge(x), torch.Generator().manual_seed(1))
    mse = float((sent / 2 - x.flatten(1)).square().mean())
    assert mse == pytest.approx(1 / 50, rel=5 * math.sqrt(2 / (4000 * 6)))


def test_trace_against_full_jacobians():
    net = build({"bottleneck": {"channels": 2}})
    x, _ = pictures(2)
    edge = net.edge.eval()
    exact = torch.stack([torch.autograd.functional.jacobian(edge, p[None]).square().sum() for p in x])
    torch.manual_seed(0)
    estimate = squared_jacobian(edge, x, probes=400)
    assert torch.allclose(estimate, exact, rtol=0.25)


def test_the_edge_is_left_as_it_was():
    net = build({"fisher": {}})
    net.train()
    before = copy.deepcopy(net.edge.state_dict())
    squared_jacobian(net.edge, pictures()[0], probes=2)
    assert all(torch.equal(value, before[name]) for name, value in net.edge.state_dict().items())
    assert all(module.training for module in net.edge.modules())
    assert all(p.grad is None for p in net.parameters())


def test_training_updates_the_noise_and_evaluation_does_not():
    net = build({"fisher": {"sigma": 3.0}})
    defence = net.defences["fisher"]
    x, y = pictures()
    net.eval()(x)
    assert defence.noise_power() == pytest.approx(9.0)
    defence.loss(step_of(net.train(), x, y))
    assert defence.noise_power() != pytest.approx(9.0)


def test_the_first_pictures_of_a_batch_are_measured_and_a_broken_one_is_passed_over():
    """z = x²: J = diag(2x). Of three pictures the first two count: σ² = mean_i Σ_d 4·x_d² / (pixels·target)."""

    class Square(nn.Module):
        def forward(self, x):
            return x.flatten(1).square()

    model = SplitModel(Square(), nn.Identity(), image_shape=(1, 1, 2))
    defence = defences.create("fisher", target=10.0, samples=2)
    defence.attach(model)
    x = torch.tensor([[0.5, 1.0], [0.0, 2.0], [9.0, 9.0]]).view(3, 1, 1, 2)
    defence.loss(step_for(x, model.edge(x)))
    traces = [4 * 0.25 + 4 * 1.0, 4 * 4.0]
    assert defence.noise_power() == pytest.approx(sum(traces) / 2 / (2 * 10), rel=1e-6)
    before = defence.noise_power()
    defence.loss(step_for(x * float("nan"), model.edge(x)))
    assert defence.noise_power() == pytest.approx(before, rel=1e-6)


def test_smaller_target_means_more_noise():
    powers = []
    for target in (10.0, 1000.0):
        net = build({"fisher": {"target": target}})
        torch.manual_seed(0)
        net.defences["fisher"].loss(step_of(net, *pictures()))
        powers.append(net.defences["fisher"].noise_power())
    assert powers[0] == pytest.approx(100 * powers[1], rel=1e-4)


def test_same_noise_in_training_and_evaluation():
    net = build({"fisher": {}})
    z = torch.rand(2, *net.feature_shape)
    train = net.train().transmit(z, torch.Generator().manual_seed(5))
    assert torch.equal(train, net.eval().transmit(z, torch.Generator().manual_seed(5)))
