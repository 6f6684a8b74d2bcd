"""InfoScissors: the CLUB bound against its definition, and who is trained by what."""

from __future__ import annotations

import math

import pytest
import torch
from tests.defences.building import build, gradients, pictures, step_of

from splitveil.defences.infoscissors import club_gaussian, club_labels

SMALL = {"adversary_blocks": 0, "adversary_width": 8}


def test_club_of_pictures_against_its_definition():
    generator = torch.Generator().manual_seed(0)
    guess, x = (torch.rand(5, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    variance = 0.3

    def log_q(i, j):  # log density of picture j under the answer for feature i, per pixel, up to a constant
        return -sum((float(x[j, d]) - float(guess[i, d])) ** 2 for d in range(4)) / (2 * variance) / 4

    joint = sum(log_q(i, i) for i in range(5)) / 5
    apart = sum(log_q(i, j) for i in range(5) for j in range(5)) / 25
    assert float(club_gaussian(guess, x, variance)) == pytest.approx(joint - apart, rel=1e-9)


def test_club_by_hand():
    """Perfect answers: CLUB is the variance of the pictures over v. One answer for all: 0."""
    x = torch.tensor([[0.0], [1.0]])
    assert float(club_gaussian(x, x, 0.5)) == pytest.approx(0.25 / 0.5)
    assert float(club_gaussian(torch.full((2, 1), 0.7), x, 0.5)) == pytest.approx(0.0, abs=1e-7)


def test_club_of_labels_by_hand():
    """Certain and right about two classes, q = p or 1-p: log p - ½(log p + log(1-p)); knowing nothing: 0."""
    p = 0.9
    logits = torch.tensor([[math.log(p), math.log(1 - p)], [math.log(1 - p), math.log(p)]])
    y = torch.tensor([0, 1])
    assert float(club_labels(logits, y)) == pytest.approx(math.log(p) - 0.5 * (math.log(p) + math.log(1 - p)), rel=1e-5)
    assert float(club_labels(torch.zeros(2, 2), y)) == pytest.approx(0.0, abs=1e-7)


def test_club_of_labels_against_its_definition():
    """Unequal classes, one of them absent: the second mean is over the labels that there are."""
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = [0, 2, 2, 2, 0]

    def log_q(i, label):
        return float(logits[i, label]) - math.log(sum(math.exp(float(v)) for v in logits[i]))

    joint = sum(log_q(i, y[i]) for i in range(5)) / 5
    apart = sum(log_q(i, y[j]) for i in range(5) for j in range(5)) / 25
    assert float(club_labels(logits, torch.tensor(y))) == pytest.approx(joint - apart, rel=1e-9)


def test_both_terms_are_weighted_and_on_the_clean_feature():
    options = {"weight": 0.4, "label_weight": 0.6, "variance": 0.2}
    net = build({"infoscissors": SMALL | options, "noise": {"sigma": 1.0}})
    defence, step = net.defences["infoscissors"], step_of(net, *pictures())
    with torch.no_grad():
        guess, logits = defence.adversary["picture"](step.z), defence.adversary["label"](step.z)
        expected = 0.4 * club_gaussian(guess, step.x, 0.2) + 0.6 * club_labels(logits, step.y)
    assert float(defence.loss(step).detach()) == pytest.approx(float(expected), rel=1e-5)


def test_the_posteriors_minimise_the_negative_log_likelihood():
    """Per pixel (x - g)²/2v of the picture, plus the cross-entropy of the label."""
    net = build({"infoscissors": SMALL | {"label_weight": 0.5, "variance": 0.2}})
    defence, step = net.defences["infoscissors"], step_of(net, *pictures())
    with torch.no_grad():
        guess, logits = defence.adversary["picture"](step.z), defence.adversary["label"](step.z)
        error = (guess - step.x).double().square().mean() / 0.4
        entropy = -logits.double().log_softmax(dim=1)[range(8), step.y].mean()
        value = defence.adversary_loss(step.z, step.x, step.y)
    assert float(value) == pytest.approx(float(error + entropy), rel=1e-5)


@pytest.mark.parametrize("label_weight", [0.0, 0.5])
def test_the_penalty_trains_the_edge_alone(label_weight):
    net = build({"infoscissors": SMALL | {"label_weight": label_weight}})
    reached = gradients(net, net.defences["infoscissors"].loss(step_of(net, *pictures())))
    assert reached
    assert all(name.startswith("edge.") for name in reached)


def test_posteriors_learn_on_detached_features():
    net = build({"infoscissors": SMALL | {"label_weight": 0.5}})
    defence = net.defences["infoscissors"]
    step = step_of(net, *pictures())
    step = type(step)(step.x, step.y, step.z.detach(), step.sent.detach(), None, 1)
    before = float(defence.adversary_loss(defence.watch(step), step.x, step.y).detach())
    for _ in range(20):
        defence.train_adversary(step)
    assert float(defence.adversary_loss(defence.watch(step), step.x, step.y).detach()) < before
    assert all(p.grad is None for p in net.parameters())


def test_the_bound_falls_when_the_encoder_descends_it():
    net = build({"infoscissors": SMALL | {"weight": 1.0}})
    defence = net.defences["infoscissors"]
    x, y = pictures()
    for _ in range(20):
        step = step_of(net, x, y)
        defence.train_adversary(type(step)(x, y, step.z.detach(), step.sent.detach(), None, 1))
    before = float(defence.loss(step_of(net, x, y)).detach())
    optimiser = torch.optim.SGD(net.edge.parameters(), lr=0.2)
    for _ in range(10):
        optimiser.zero_grad()
        loss = defence.loss(step_of(net, x, y))
        loss.backward()
        optimiser.step()
    assert float(loss.detach()) < before
