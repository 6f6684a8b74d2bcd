"""Label smoothing: the sum of both terms is the cross-entropy with smoothed targets."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from tests.defences.building import build, gradients, pictures, step_of, task


@pytest.mark.parametrize("alpha", [0.1, 0.6])
def test_equals_torch_for_positive_smoothing(alpha):
    net = build({"label_smoothing": {"alpha": alpha}})
    step = step_of(net, *pictures())
    total = task(step) + net.defences["label_smoothing"].loss(step)
    expected = F.cross_entropy(step.logits, step.y, label_smoothing=alpha)
    assert float(total.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)


@pytest.mark.parametrize("alpha", [-0.05, -0.5, 0.3])
def test_equals_the_definition(alpha):
    net = build({"label_smoothing": {"alpha": alpha}})
    step = step_of(net, *pictures())
    total = 0.0
    for row, label in zip(step.logits.tolist(), step.y.tolist(), strict=True):
        norm = math.log(sum(math.exp(v) for v in row))
        for c, value in enumerate(row):
            target = (1 - alpha) * (c == label) + alpha / len(row)
            total -= target * (value - norm)
    value = task(step) + net.defences["label_smoothing"].loss(step)
    assert float(value.detach()) == pytest.approx(total / len(step.y), rel=1e-5)


def test_negative_smoothing_pushes_confidence_up_and_positive_down():
    logits = torch.tensor([[2.0, 0.0, 0.0]])
    for alpha, sign in ((-0.3, -1), (0.3, 1)):
        net = build({"label_smoothing": {"alpha": alpha}})
        step = step_of(net, *pictures())
        leaf = logits.clone().requires_grad_()
        changed = type(step)(step.x, torch.tensor([0]), step.z, step.sent, leaf, 1)
        net.defences["label_smoothing"].loss(changed).backward()
        assert float(leaf.grad[0, 0]) * sign > 0


def test_trains_edge_and_cloud():
    net = build({"label_smoothing": {}})
    reached = gradients(net, net.defences["label_smoothing"].loss(step_of(net, *pictures())))
    assert {name.split(".")[0] for name in reached} == {"edge", "cloud"}


def test_zero_adds_nothing():
    net = build({"label_smoothing": {"alpha": 0.0}})
    assert net.defences["label_smoothing"].loss(step_of(net, *pictures())) is None
