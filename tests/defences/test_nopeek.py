"""NoPeek: the penalty is the distance correlation, and it trains the encoder alone."""

from __future__ import annotations

import pytest
import torch
from tests.defences.building import build, gradients, pictures, step_of
from torch import nn

from splitveil import defences
from splitveil.functional.dependence import distance_correlation
from splitveil.models.split import SplitModel


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


def test_pictures_count_as_the_network_reads_them():
    """As released: channels in units of their own deviation, so that a flat channel weighs as much as a lively one."""
    net = build({"nopeek": {"weight": 1.0}}, image=(2, 8, 8), mean=[0.2, 0.6], std=[0.05, 0.5])
    step = step_of(net, *pictures(image=(2, 8, 8)))
    x = (step.x - torch.tensor([0.2, 0.6])[:, None, None]) / torch.tensor([0.05, 0.5])[:, None, None]
    expected = float(distance_correlation(x, step.z.detach()))
    assert float(net.defences["nopeek"].loss(step).detach()) == pytest.approx(expected, rel=1e-6)
    assert float(distance_correlation(step.x, step.z.detach())) != pytest.approx(expected, rel=1e-3)


def test_halves_of_the_users_own_take_pictures_as_they_are():
    model = SplitModel(nn.Flatten(), nn.Linear(64, 3), image_shape=(1, 8, 8), num_classes=3)
    defence = defences.create("nopeek", weight=1.0)
    defence.install(model)
    defence.attach(model)
    step = step_of(model, *pictures())
    assert float(defence.loss(step)) == pytest.approx(1.0, rel=1e-5)  # z is x
