"""Additive noise: the laws, the learned scale's budget, and that it never switches off."""

from __future__ import annotations

import math

import pytest
import torch
from tests.defences.building import build, gradients, pictures, step_of, task

from splitveil.audit.remarks import missing_counter_attacks

LARGE = torch.zeros(400, 500)


def sent(law, sigma=0.3):
    net = build({"noise": {"sigma": sigma, "law": law}})
    return net.transmit(LARGE, torch.Generator().manual_seed(1)).flatten().double()


@pytest.mark.parametrize(("sigma", "warned"), [(0.0, False), (0.1, True)])
def test_noise_of_sigma_zero_needs_no_counter_attack(sigma, warned):
    told = missing_counter_attacks(build({"noise": {"sigma": sigma}}), {"decoder"})
    assert any("average" in sentence for sentence in told) == warned


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_mean_and_standard_deviation(law):
    noise = sent(law)
    # 200,000 draws: the mean is within 5 standard errors of 0; var of a Laplace square is 5, of a normal 2
    assert abs(noise.mean()) < 5 * 0.3 / math.sqrt(LARGE.numel())
    assert abs(noise.var() - 0.09) < 5 * 0.09 * math.sqrt(5 / LARGE.numel())


@pytest.mark.parametrize(("law", "beyond"), [("gaussian", 0.0455003), ("laplace", math.exp(-2 * math.sqrt(2)))])
def test_the_tails_tell_the_laws_apart(law, beyond):
    """P(|ε| > 2σ): erfc(√2) for a normal, e^(-2√2) = .0591 for a Laplace of the same variance."""
    share = (sent(law).abs() > 0.6).double().mean()
    assert abs(share - beyond) < 5 * math.sqrt(beyond / LARGE.numel())


def test_no_noise_returns_the_feature_itself():
    z = torch.rand(2, 3)
    assert build({"noise": {"sigma": 0.0}}).transmit(z) is z


def test_learned_scale_keeps_its_power_and_follows_rho():
    net = build({"noise": {"sigma": 0.2, "scale": "learned"}})
    noise = net.defences["noise"]
    assert noise.rho.shape == net.feature_shape
    assert torch.allclose(noise.scale(), torch.full(net.feature_shape, 0.2))
    with torch.no_grad():
        noise.rho.flatten()[0] = math.log(3.0)
    scale = noise.scale().detach().flatten()
    # one element 3, the others 1: rms² = (9 + D - 1)/D
    rms = math.sqrt((9 + scale.numel() - 1) / scale.numel())
    assert float(scale[0]) == pytest.approx(0.2 * 3 / rms, rel=1e-6)
    assert float(scale[1]) == pytest.approx(0.2 / rms, rel=1e-6)
    assert float(scale.square().mean()) == pytest.approx(noise.noise_power(), rel=1e-6)


def test_learned_scale_survives_large_rho():
    net = build({"noise": {"scale": "learned"}})
    with torch.no_grad():
        net.defences["noise"].rho.fill_(1000.0)
    assert torch.allclose(net.defences["noise"].scale(), torch.tensor(0.025))


def test_the_task_trains_the_learned_scale():
    net = build({"noise": {"sigma": 0.2, "scale": "learned"}})
    reached = gradients(net, task(step_of(net, *pictures())))
    assert "defences.noise.rho" in reached


def test_learned_scale_is_made_after_a_bottleneck_that_is_named_later():
    net = build({"noise": {"scale": "learned"}, "bottleneck": {"channels": 5}})
    assert net.defences["noise"].rho.shape == net.feature_shape == (5, 2, 2)


def test_training_and_evaluation_send_the_same():
    net = build({"noise": {"sigma": 0.1}})
    z = torch.rand(2, 32, 2, 2)
    train = net.train().transmit(z, torch.Generator().manual_seed(5))
    assert torch.equal(train, net.eval().transmit(z, torch.Generator().manual_seed(5)))
    assert not torch.equal(train, z)


def test_power_of_both_laws_is_sigma_squared():
    assert build({"noise": {"sigma": 0.3, "law": "laplace"}}).defences["noise"].noise_power() == pytest.approx(0.09)


def test_lower_precision_stays_lower_precision():
    for law in ("gaussian", "laplace"):
        net = build({"noise": {"sigma": 0.1, "law": law, "scale": "learned"}})
        assert net.transmit(torch.rand(2, *net.feature_shape).bfloat16()).dtype is torch.bfloat16
