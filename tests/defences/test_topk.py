"""Top-k pruning: per picture, by magnitude, exactly k."""

from __future__ import annotations

import torch
from tests.defences.building import build


def test_worked_case():
    net = build({"topk": {"p": 0.5}})
    z = torch.tensor([[[[0.1, -0.9], [0.5, 0.2]]], [[[4.0, 3.0], [2.0, 1.0]]]])
    expected = torch.tensor([[[[0.0, -0.9], [0.5, 0.0]]], [[[4.0, 3.0], [0.0, 0.0]]]])
    assert torch.equal(net.transmit(z), expected)


def test_one_picture_does_not_depend_on_the_others():
    """Ranked over the whole batch, the small picture would vanish beside the large one."""
    net = build({"topk": {"p": 0.75}})
    small, large = torch.rand(1, 16), 100 + torch.rand(1, 16)
    together = net.transmit(torch.cat([small, large]))
    assert torch.equal(together, torch.cat([net.transmit(small), net.transmit(large)]))
    assert torch.equal((together != 0).sum(dim=1), torch.tensor([4, 4]))


def test_equal_values_still_keep_exactly_k():
    assert int((build({"topk": {"p": 0.25}}).transmit(torch.ones(1, 8)) != 0).sum()) == 6


def test_gradient_reaches_the_kept_values_alone():
    net = build({"topk": {"p": 0.5}})
    z = torch.tensor([[1.0, 5.0, 2.0, 4.0]], requires_grad=True)
    net.transmit(z).square().sum().backward()
    assert torch.equal(z.grad, torch.tensor([[0.0, 10.0, 0.0, 8.0]]))


def test_same_in_training_and_evaluation_and_no_noise_power():
    net = build({"topk": {}})
    z = torch.rand(3, 32, 2, 2)
    assert torch.equal(net.train().transmit(z), net.eval().transmit(z))
    assert net.defences["topk"].noise_power() == 0.0


def test_something_is_always_sent():
    assert int((build({"topk": {"p": 0.99}}).transmit(torch.rand(1, 5)) != 0).sum()) == 1
