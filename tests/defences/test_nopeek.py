"""NoPeek: the penalty is the distance correlation, and it trains the encoder alone."""

from __future__ import annotations

import pytest
import torch
from tests.defences.building import build, gradients, pictures, step_of

from splitveil.functional.dependence import distance_correlation


def test_loss_is_the_weighted_correlation_of_pictures_and_clean_features():
    net = build({"nopeek": {"weight": 0.7}, "noise": {"sigma": 5.0}})
    step = step_of(net, *pictures())
    loss = net.defences["nopeek"].loss(step)
    assert float(loss.detach()) == pytest.approx(0.7 * float(distance_correlation(step.x, step.z.detach())), rel=1e-6)


def test_unbiased_option():
    net = build({"nopeek": {"estimator": "unbiased"}})
    step = step_of(net, *pictures())
    expected = 0.3 * float(distance_correlation(step.x, step.z.detach(), unbiased=True))
    assert float(net.defences["nopeek"].loss(step).detach()) == pytest.approx(expected, rel=1e-5)


def test_gradient_reaches_the_edge_and_nothing_else():
    net = build({"nopeek": {}})
    reached = gradients(net, net.defences["nopeek"].loss(step_of(net, *pictures())))
    assert reached
    assert all(name.startswith("edge.") for name in reached)


def test_descending_the_penalty_lowers_the_correlation():
    net = build({"nopeek": {"weight": 1.0}})
    x, y = pictures(16)
    optimiser = torch.optim.SGD(net.edge.parameters(), lr=0.5)
    first = None
    for _ in range(30):
        optimiser.zero_grad()
        loss = net.defences["nopeek"].loss(step_of(net, x, y))
        first = float(loss.detach()) if first is None else first
        loss.backward()
        optimiser.step()
    assert float(loss.detach()) < 0.9 * first


def test_weight_zero_adds_no_term_and_the_feature_is_sent_as_it_is():
    net = build({"nopeek": {"weight": 0.0}})
    step = step_of(net, *pictures())
    assert net.defences["nopeek"].loss(step) is None
    assert step.sent is step.z
