"""Cloak: scale, reward, suppression."""

from __future__ import annotations

import math

import pytest
import torch
from tests.defences.building import build, gradients, pictures, step_of, task

from splitveil.core.errors import ConfigError


def test_start_reward_and_power_by_hand():
    """s = .1 everywhere: the term is -w·log(.01) = 4.60517·w, the power .01."""
    net = build({"cloak": {"weight": 0.5}})
    defence = net.defences["cloak"]
    assert torch.allclose(defence.scale(), torch.full(net.feature_shape, 0.1))
    value = float(defence.loss(step_of(net, *pictures())).detach())
    assert value == pytest.approx(0.5 * 4.60517, rel=1e-5)
    assert defence.noise_power() == pytest.approx(0.01, rel=1e-5)


def test_gradient_of_the_reward():
    """∂/∂ρ of -w·(1/D)·2·log(m·sigm(ρ)) = -2w(1 - sigm(ρ))/D: always towards more noise, less so near the limit."""
    net = build({"cloak": {"weight": 1.0}})
    defence = net.defences["cloak"]
    defence.loss(step_of(net, *pictures())).backward()
    dim = defence.rho.numel()
    assert torch.allclose(defence.rho.grad, torch.full_like(defence.rho, -2 * 0.9 / dim), rtol=1e-4)


def test_noise_has_the_learned_scale():
    net = build({"cloak": {}})
    defence = net.defences["cloak"]
    with torch.no_grad():
        defence.rho[0] = math.log(0.5 / 0.5)
    z = torch.zeros(2000, *net.feature_shape)
    noise = net.transmit(z, torch.Generator().manual_seed(1)).detach()
    for index, sigma in ((0, 0.5), (1, 0.1)):
        assert float(noise[:, index].std()) == pytest.approx(sigma, rel=5 / math.sqrt(2 * noise[:, index].numel()))


def test_the_reward_reaches_the_scale_alone_and_the_task_reaches_it_too():
    net = build({"cloak": {}})
    assert gradients(net, net.defences["cloak"].loss(step_of(net, *pictures()))) == {"defences.cloak.rho"}
    assert "defences.cloak.rho" in gradients(net, task(step_of(net, *pictures())))


def test_training_makes_noise_grow_where_the_task_does_not_care():
    net = build({"cloak": {"weight": 1.0}})
    defence = net.defences["cloak"]
    optimiser = torch.optim.SGD([defence.rho], lr=20.0)
    power = defence.noise_power()
    for _ in range(10):
        optimiser.zero_grad()
        defence.loss(step_of(net, *pictures())).backward()
        optimiser.step()
    assert defence.noise_power() > 2 * power


def test_suppressed_elements_are_constants_and_constants_are_learned():
    net = build({"cloak": {"suppress": 0.4}})
    defence = net.defences["cloak"]
    with torch.no_grad():
        defence.rho[0] = 0.0  # s = .5 > .4
        defence.constant.fill_(0.7)
    z = torch.rand(3, *net.feature_shape)
    sent = net.transmit(z).detach()
    assert torch.equal(sent[:, 0], torch.full_like(sent[:, 0], 0.7))
    assert not bool((sent[:, 1:] == 0.7).any())
    assert "defences.cloak.constant" in gradients(net, task(step_of(net, *pictures())))


def test_training_and_evaluation_send_the_same():
    net = build({"cloak": {}})
    z = torch.rand(2, *net.feature_shape)
    train = net.train().transmit(z, torch.Generator().manual_seed(5))
    assert torch.equal(train, net.eval().transmit(z, torch.Generator().manual_seed(5)))


def test_start_must_lie_below_the_limit():
    with pytest.raises(ConfigError, match="below max_sigma"):
        build({"cloak": {"sigma": 1.0}})


@pytest.mark.parametrize("suppress", [0.1, 0.05, 1.0])
def test_suppression_lies_between_the_start_and_the_limit(suppress):
    """At or below the start nothing would ever be sent, and at the limit everything always."""
    with pytest.raises(ConfigError, match="between sigma"):
        build({"cloak": {"suppress": suppress}})
