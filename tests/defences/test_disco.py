"""DISCO: the mask, and who is trained by what."""

from __future__ import annotations

import pytest
import torch
from tests.defences.building import build, gradients, pictures, step_of, task
from torch import nn

SMALL = {"adversary_blocks": 0, "adversary_width": 8, "hidden": 8}


def defended(**options):
    return build({"disco": SMALL | options})


def scores(net, values):
    """A filter that gives every picture these scores, plus nothing of z."""
    last = net.defences["disco"].filter[2]
    nn.init.zeros_(last.weight)
    last.bias.data = torch.tensor(values)


def test_mask_by_hand():
    net = build({"bottleneck": {"channels": 4}, "disco": SMALL | {"ratio": 0.5, "temperature": 0.5}})
    scores(net, [1.0, 3.0, 2.0, 0.0])
    defence = net.defences["disco"]
    z = torch.rand(2, 4, 2, 2) + 1
    mask = defence.mask(z)
    assert mask.tolist() == [[0.0, 1.0, 1.0, 0.0]] * 2
    # backwards: sigm((s - 2)/.5), slope s'·1/.5 with s' = p(1 - p)
    mask[0].sum().backward()
    p = torch.sigmoid((torch.tensor([1.0, 3.0, 2.0, 0.0]) - 2) / 0.5)
    assert torch.allclose(defence.filter[2].bias.grad, p * (1 - p) / 0.5, atol=1e-6)
    sent = net.transmit(z).detach()
    assert torch.equal(sent[:, [1, 2]], z[:, [1, 2]])
    assert torch.equal(sent[:, [0, 3]], torch.zeros(2, 2, 2, 2))


def test_mask_depends_on_the_picture():
    masks = (
        defended().defences["disco"].mask(10 * torch.randn(16, 32, 2, 2, generator=torch.Generator().manual_seed(1)))
    )
    assert len({tuple(row) for row in masks.tolist()}) > 1
    assert masks.sum(dim=1).tolist() == [16.0] * 16


def test_reconstruction_trains_the_filter_alone():
    net = defended()
    reached = gradients(net, net.defences["disco"].loss(step_of(net, *pictures())))
    assert reached
    assert all(name.startswith("defences.disco.filter.") for name in reached)


def test_task_trains_edge_and_filter_but_not_the_adversary():
    net = defended()
    reached = gradients(net, task(step_of(net, *pictures())))
    assert any(name.startswith("defences.disco.filter.") for name in reached)
    assert any(name.startswith("edge.") for name in reached)
    assert not any("adversary" in name for name in reached)


def test_the_filter_reads_the_feature_but_does_not_steer_the_encoder():
    """∂sent/∂z is the mask itself: nothing comes back through the scores."""
    net = defended()
    z = torch.rand(3, *net.feature_shape, generator=torch.Generator().manual_seed(2)).requires_grad_()
    sent = net.transmit(z)
    sent.sum().backward()
    assert torch.equal(z.grad, (sent.detach() != 0).float())


def test_encoder_gradient_of_the_whole_loss_is_that_of_the_task():
    net = defended(weight=5.0)
    x, y = pictures()
    first = step_of(net, x, y)
    task(first).backward()
    trained = [p for p in net.edge.parameters() if p.requires_grad]
    alone = [p.grad.clone() for p in trained]
    net.zero_grad()
    second = step_of(net, x, y)
    (task(second) + net.defences["disco"].loss(second)).backward()
    assert all(torch.equal(p.grad, g) for p, g in zip(trained, alone, strict=True))


def test_adversary_trains_on_filtered_features_and_leaves_the_filter_alone():
    net = defended()
    defence, seen = net.defences["disco"], []
    step = step_of(net, *pictures())
    step = type(step)(step.x, step.y, step.z.detach(), step.sent.detach(), None, 1)
    defence.adversary.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    before = [p.detach().clone() for p in defence.filter.parameters()]
    loss = float(defence.adversary_loss(defence.watch(step), step.x, step.y).detach())
    for _ in range(40):  # running statistics, too, must come to know the features
        defence.train_adversary(step)
    assert torch.equal(seen[0], net.transmit(step.z).detach())
    assert all(p.grad is None for p in defence.filter.parameters())
    assert all(torch.equal(p, b) for p, b in zip(defence.filter.parameters(), before, strict=True))
    assert float(defence.adversary_loss(defence.watch(step), step.x, step.y).detach()) < loss


def test_loss_is_minus_the_error():
    net = defended(weight=2.0)
    defence = net.defences["disco"]
    x, y = pictures()
    defence.adversary = Offset(x + 0.1)
    assert float(defence.loss(step_of(net, x, y)).detach()) == pytest.approx(-2 * 0.01, rel=1e-4)


class Offset(nn.Module):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, z):
        return self.answer + 0 * z.sum()


def test_training_and_evaluation_send_the_same():
    net = defended()
    z = torch.rand(3, 32, 2, 2)
    assert torch.equal(net.train().transmit(z), net.eval().transmit(z))
