"""PATROL: depth, pruning by masks that training cannot undo, Lipschitz penalty."""

from __future__ import annotations

import pytest
import torch
from tests.defences.building import build, gradients, pictures, step_of, task
from torch import nn

from splitveil import defences
from splitveil.core.errors import InputError
from splitveil.defences.patrol import MaskedReLU, importance, smallest_masked, stretch
from splitveil.models.cost import parameters
from splitveil.models.split import SplitModel

SMALL = {"adversary_blocks": 0, "adversary_width": 8}


def defended(**options):
    return build({"patrol": SMALL | {"prune_ratio": 0.25} | options})


def masked(net):
    return [module for module in net.edge.modules() if isinstance(module, MaskedReLU)]


def test_size_of_the_deeper_edge():
    net = build({"patrol": SMALL, "bottleneck": {"channels": 8}}, image=(3, 32, 32), classes=10, model="vgg11")
    assert parameters(net.edge) == 93_224
    assert net.feature_shape == (8, 8, 8)


def test_without_extra_layer_the_edge_keeps_its_size():
    assert parameters(defended(extra_channels=0).edge) == parameters(build({}).edge)


def test_stretch_by_hand():
    """Pairs (0, 1) and (1, 0): ‖z_0 - z_1‖² = 4 + 9 = 13, ‖x_0 - x_1‖² = 2."""
    x = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    z = torch.tensor([[1.0, 1.0], [3.0, 4.0]])
    assert float(stretch(x, z)) == pytest.approx(13 / 2)
    assert float(stretch(x, 3 * z)) == pytest.approx(9 * 13 / 2)
    assert float(stretch(torch.zeros(2, 2), z)) == 0.0


def test_lipschitz_term_adds_to_the_adversarial_term_and_trains_the_edge_alone():
    net = build({"patrol": SMALL | {"lipschitz_weight": 2.0, "weight": 0.0}, "noise": {"sigma": 1.0}})
    step = step_of(net, *pictures())  # the term is on the clean feature, whatever is sent
    loss = net.defences["patrol"].loss(step)
    assert float(loss.detach()) == pytest.approx(2 * float(stretch(step.x, step.z.detach())), rel=1e-5)
    assert all(name.startswith("edge.") for name in gradients(net, loss))
    both = defended(lipschitz_weight=2.0, weight=0.3, threshold=-1.0)
    only = defended(lipschitz_weight=0.0, weight=0.3, threshold=-1.0)
    values = [float(n.defences["patrol"].loss(step_of(n, *pictures())).detach()) for n in (both, only)]
    penalty = 2 * float(stretch(step.x, step_of(both, *pictures()).z.detach()))
    assert values[0] - values[1] == pytest.approx(penalty, rel=1e-4)


def test_smallest_channels_by_hand():
    convolution, norm = nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4)
    convolution.weight.data = torch.tensor([3.0, -1.0, 2.0, 5.0]).view(4, 1, 1, 1)
    norm.weight.data = torch.tensor([1.0, 1.0, -0.1, 1.0])
    score = importance(convolution, norm)
    assert score.tolist() == pytest.approx([3.0, 1.0, 0.2, 5.0])
    assert smallest_masked(score, 0.5).tolist() == [1.0, 0.0, 0.0, 1.0]
    assert smallest_masked(score, 0.05).tolist() == [1.0, 1.0, 0.0, 1.0]
    assert smallest_masked(score, 0.0).tolist() == [1.0] * 4
    assert smallest_masked(score, 0.99).tolist() == [0.0, 0.0, 0.0, 1.0]


def test_pruning_happens_at_its_epoch_and_stays():
    net = defended(prune_at=0.5)
    net.defences["patrol"].on_epoch(4, 10)
    assert all(bool(layer.mask.all()) for layer in masked(net))
    net.defences["patrol"].on_epoch(5, 10)
    first = [layer.mask.clone() for layer in masked(net)]
    assert [int((mask == 0).sum()) for mask in first] == [4, 4, 8]  # a quarter of 16 (extra), 16 and 32 channels
    with torch.no_grad():
        for p in net.edge.parameters():
            p.uniform_(0.5, 1.0)
    net.defences["patrol"].on_epoch(6, 10)
    assert all(torch.equal(layer.mask, mask) for layer, mask in zip(masked(net), first, strict=True))


def test_pruned_channels_send_zero_and_the_optimiser_keeps_training_the_rest():
    net = defended(prune_at=0.0)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    before = dict(net.named_parameters())
    net.defences["patrol"].on_epoch(1, 2)
    assert all(p is before[name] for name, p in net.named_parameters())  # the very tensors the optimiser holds
    layer = net.edge.layers[0]
    gone = layer[2].mask == 0
    weights = layer[0].weight.detach().clone()
    task(step_of(net, *pictures())).backward()
    optimiser.step()
    x, _ = pictures()
    out = layer(net.edge.normalise(x))
    assert torch.equal(out[:, gone], torch.zeros_like(out[:, gone]))
    moved = (layer[0].weight != weights).flatten(1).any(dim=1)
    assert torch.equal(moved, ~gone)


def test_masks_survive_the_state_dict():
    net = defended(prune_at=0.0)
    net.defences["patrol"].on_epoch(1, 2)
    other = defended(prune_at=0.0)
    other.load_state_dict(net.state_dict())
    assert all(torch.equal(a.mask, b.mask) for a, b in zip(masked(net), masked(other), strict=True))
    assert not bool(masked(other)[0].mask.all())


def test_resnet_blocks_are_masked_inside():
    net = build({"patrol": SMALL}, image=(3, 16, 16), model="resnet20")
    assert len(masked(net)) == 1 + 1 + 4  # extra layer, stem, one inner ReLU in each of the four blocks before cut 5


def test_other_networks_are_refused_with_advice():
    with pytest.raises(InputError, match="adversarial"):
        defences.create("patrol").install(SplitModel(nn.Flatten(), nn.Linear(4, 2), image_shape=(1, 2, 2)))
