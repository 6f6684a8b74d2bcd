"""Variational information bottleneck: divergence, noise law, what trains."""

from __future__ import annotations

import math

import pytest
import torch
from tests.defences.building import build, gradients, pictures, step_of, task
from torch.distributions import Independent, Normal, kl_divergence


def with_feature(net, z, y):
    step = step_of(net, *pictures(len(z)))
    return type(step)(step.x, y, z, z, None, 1)


def test_hand_worked_divergence():
    """z = 0, s = 1: nothing to pay. z = 2, s = 1: ½·4 per value. z = 0, s² = e: ½·(e - 2) per value."""
    net = build({"vib": {"weight": 1.0, "sigma": 1.0}})
    dim = math.prod(net.feature_shape)
    y = torch.zeros(2, dtype=torch.long)
    zeros = torch.zeros(2, *net.feature_shape)
    defence = net.defences["vib"]
    assert float(defence.loss(with_feature(net, zeros, y)).detach()) == pytest.approx(0.0, abs=1e-6)
    assert float(defence.loss(with_feature(net, zeros + 2, y)).detach()) == pytest.approx(2 * dim, rel=1e-6)
    torch.nn.init.ones_(defence.head.bias)
    assert float(defence.loss(with_feature(net, zeros, y)).detach()) == pytest.approx(
        0.5 * (math.e - 2) * dim, rel=1e-6
    )


def test_divergence_against_torch_distributions():
    net = build({"vib": {"weight": 0.5}})
    defence = net.defences["vib"]
    torch.nn.init.normal_(defence.head.weight, std=0.5)
    z = torch.randn(4, *net.feature_shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        scale = (0.5 * defence.log_variance(z)).exp()
        expected = kl_divergence(
            Independent(Normal(z, scale), 3), Independent(Normal(torch.zeros_like(z), torch.ones_like(z)), 3)
        )
        value = defence.loss(with_feature(net, z, torch.zeros(4, dtype=torch.long)))
    assert float(value) == pytest.approx(0.5 * float(expected.mean()), rel=1e-5)


def test_head_mixes_channels_at_each_position():
    net = build({"vib": {}})
    defence, z = net.defences["vib"], torch.rand(2, 32, 2, 2)
    torch.nn.init.normal_(defence.head.weight)
    weight, bias = defence.head.weight.detach(), defence.head.bias.detach()
    by_hand = weight @ z[1, :, 0, 1] + bias
    assert torch.allclose(defence.log_variance(z)[1, :, 0, 1].detach(), by_hand.clamp(-20, 20), atol=1e-5)


def test_noise_has_the_declared_scale():
    net = build({"vib": {"sigma": 0.3}})
    z = torch.zeros(500, *net.feature_shape)
    noise = net.transmit(z, torch.Generator().manual_seed(1)).detach()
    assert float(noise.std()) == pytest.approx(0.3, rel=5 / math.sqrt(2 * noise.numel()))
    assert abs(float(noise.mean())) < 5 * 0.3 / math.sqrt(noise.numel())


def test_power_follows_the_noise_in_training_only():
    net = build({"vib": {"sigma": 0.1}})
    defence = net.defences["vib"]
    assert defence.noise_power() == pytest.approx(0.01)
    torch.nn.init.constant_(defence.head.bias, math.log(0.25))
    z = torch.zeros(1, *net.feature_shape)
    net.eval().transmit(z)
    assert defence.noise_power() == pytest.approx(0.01)
    net.train().transmit(z)
    assert defence.noise_power() == pytest.approx(0.95 * 0.01 + 0.05 * 0.25, rel=1e-5)


def test_gradients_reach_edge_and_head_from_both_terms():
    net = build({"vib": {"weight": 1.0}})
    own = {"defences.vib.head.weight", "defences.vib.head.bias"}
    penalty = gradients(net, net.defences["vib"].loss(step_of(net, *pictures())))
    assert own <= penalty
    assert not any(name.startswith("cloud.") for name in penalty)
    assert own <= gradients(net, task(step_of(net, *pictures())))


def test_the_divergence_steers_the_encoder_through_the_scale_too():
    """s² depends on z: ∂KL/∂z = w·(z + ½·Vᵀ·(s² - 1)) per picture, not w·z alone."""
    net = build({"vib": {"weight": 0.7, "sigma": 0.5}})
    defence = net.defences["vib"]
    torch.nn.init.normal_(defence.head.weight, std=0.5)
    z = torch.rand(2, *net.feature_shape, generator=torch.Generator().manual_seed(1)).requires_grad_()
    defence.loss(with_feature(net, z, torch.zeros(2, dtype=torch.long))).backward()
    weight, bias = defence.head.weight.detach(), defence.head.bias.detach()
    value = z.detach()[1, :, 0, 1]
    by_hand = 0.7 / 2 * (value + 0.5 * weight.T @ ((weight @ value + bias).exp() - 1))
    assert torch.allclose(z.grad[1, :, 0, 1], by_hand, atol=1e-5)


def test_training_and_evaluation_send_the_same():
    net = build({"vib": {}})
    z = torch.rand(2, *net.feature_shape)
    train = net.train().transmit(z, torch.Generator().manual_seed(5))
    assert torch.equal(train, net.eval().transmit(z, torch.Generator().manual_seed(5)))
