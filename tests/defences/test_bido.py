"""BiDO: both directions of dependence."""

from __future__ import annotations

import pytest
import torch
from tests.defences.building import build, gradients, pictures, step_of

from splitveil.functional.dependence import alignment, coco, gaussian_kernel


def step_with(net, x, y, z):
    step = step_of(net, *pictures())
    return type(step)(x, y, z, z, None, 1)


@pytest.mark.parametrize("measure", ["hsic", "coco"])
def test_feature_equal_to_the_picture_and_feature_equal_to_the_label(measure):
    """Z = X: the first term is at its largest. Z one-hot Y: the second is. The loss must prefer the label."""
    net = build({"bido": {"measure": measure}})
    x, y = pictures(12)
    onehot = torch.nn.functional.one_hot(y, 3).float()

    def value(z):
        return float(net.defences["bido"].loss(step_with(net, x, y, z)))

    assert value(onehot) < value(x)


@pytest.mark.parametrize(("measure", "d", "weights"), [("hsic", alignment, (0.05, 0.5)), ("coco", coco, (1.0, 50.0))])
def test_formula_and_published_weights(measure, d, weights):
    net = build({"bido": {"measure": measure}, "noise": {"sigma": 1.0}})  # the terms are on the clean feature
    step = step_of(net, *pictures(9))
    z = step.z.detach()
    k, kl = gaussian_kernel(step.x), gaussian_kernel(z)
    labels = torch.tensor([[float(a == b) for b in step.y] for a in step.y])
    expected = weights[0] * float(d(k, kl)) - weights[1] * float(d(kl, labels))
    assert float(net.defences["bido"].loss(step).detach()) == pytest.approx(expected, rel=1e-5)


def test_hand_worked_alignment_with_labels():
    """Four samples, two classes, features of two points: the kernels are 1 and e^(-1) in the pattern of the labels.

    Both kernels are affine in "same class", so their alignment is exactly 1, and with weights (0, 1) the loss is -1.
    """
    net = build({"bido": {"picture_weight": 0.0, "label_weight": 1.0}})
    y = torch.tensor([0, 0, 1, 1])
    z = y[:, None].float()
    assert float(net.defences["bido"].loss(step_with(net, torch.rand(4, 1), y, z))) == pytest.approx(-1.0, abs=1e-5)


def test_shrinking_the_feature_changes_nothing():
    net = build({"bido": {}})
    x, y = pictures(9)
    z = torch.rand(9, 5)
    values = [float(net.defences["bido"].loss(step_with(net, x, y, scale * z))) for scale in (1.0, 0.01)]
    assert values[0] == pytest.approx(values[1], rel=1e-4)


@pytest.mark.parametrize("measure", ["hsic", "coco"])
def test_gradient_reaches_the_edge_and_nothing_else(measure):
    net = build({"bido": {"measure": measure}})
    reached = gradients(net, net.defences["bido"].loss(step_of(net, *pictures())))
    assert reached
    assert all(name.startswith("edge.") for name in reached)
