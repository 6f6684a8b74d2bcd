"""Dropout of the feature: share, no rescaling, never off."""

from __future__ import annotations

import math

import torch
from tests.defences.building import build


def test_share_of_zeros_and_no_rescaling():
    net = build({"dropout": {"p": 0.3}})
    z = torch.rand(200, 500) + 1
    sent = net.transmit(z, torch.Generator().manual_seed(1))
    gone = sent == 0
    assert abs(gone.double().mean() - 0.3) < 5 * math.sqrt(0.21 / z.numel())
    assert torch.equal(sent[~gone], z[~gone])


def test_active_in_evaluation_with_the_same_draws():
    net = build({"dropout": {}})
    z = torch.rand(4, 32, 2, 2) + 1
    train = net.train().transmit(z, torch.Generator().manual_seed(2))
    evaluated = net.eval().transmit(z, torch.Generator().manual_seed(2))
    assert torch.equal(train, evaluated)
    assert 0 < int((evaluated == 0).sum()) < z.numel()


def test_every_transmission_draws_anew():
    net = build({"dropout": {}})
    z, generator = torch.ones(1, 64), torch.Generator().manual_seed(2)
    assert not torch.equal(net.transmit(z, generator), net.transmit(z, generator))


def test_gradient_passes_only_where_something_was_sent():
    net = build({"dropout": {}})
    z = torch.ones(3, 40, requires_grad=True)
    sent = net.transmit(z, torch.Generator().manual_seed(0))
    sent.sum().backward()
    assert torch.equal(z.grad, (sent != 0).float())


def test_p_zero_sends_everything_and_there_is_no_noise_power():
    net = build({"dropout": {"p": 0.0}})
    z = torch.rand(2, 5)
    assert torch.equal(net.transmit(z), z)
    assert net.defences["dropout"].noise_power() == 0.0
