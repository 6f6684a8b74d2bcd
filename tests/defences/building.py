"""A small split model with defences, built as the trainer builds it, and one step of training by hand."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from splitveil import defences, models
from splitveil.defences.base import Step


def build(tables, *, image=(1, 8, 8), classes=3, model="tiny", seed=3, **options):
    """A model with the defences of `tables` ({name: options}), installed and attached in order."""
    torch.manual_seed(seed)
    net = models.create(model, image_shape=image, num_classes=classes, **options)
    for name, table in tables.items():
        net.defences[name] = defences.create(name, **table)
        net.defences[name].install(net)
    for defence in net.defences.values():
        defence.attach(net)
    for defence in net.defences.values():
        defence.start()
    return net


def pictures(count=8, image=(1, 8, 8), classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, *image, generator=generator), torch.arange(count) % classes


def step_of(net, x, y, *, seed=0, epoch=1):
    """Forward through the halves: what a defence sees in one step, with gradients."""
    z = net.edge(x)
    sent = net.transmit(z, torch.Generator().manual_seed(seed))
    return Step(x, y, z, sent, net.cloud(sent), epoch)


def gradients(net, loss):
    """Names of the parameters that a loss reaches with a non-zero gradient."""
    net.zero_grad(set_to_none=True)
    loss.backward()
    return {name for name, p in net.named_parameters() if p.grad is not None and bool((p.grad != 0).any())}


def task(step):
    return F.cross_entropy(step.logits, step.y)
