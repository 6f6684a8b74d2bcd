"""Repair of normalisation statistics after a skipped step.

A step with a non-finite loss or gradient is skipped: no weight moves. But its forward pass has already written the
batch's mean and variance into the running statistics of batch normalisation, and a NaN never leaves a moving average:
training would go on well (it uses the batch's own statistics) while every evaluation fails. So such layers forget what
they hold and measure it again on a few batches of training pictures. Weights stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from splitveil.models.split import SplitModel, evaluating
from splitveil.training.precision import autocast, network_input

BATCHES = 20  # their plain average; a running average with momentum 0.1 remembers about 10


@torch.no_grad()
def repair_statistics(
    model: SplitModel, batches: Iterable[tuple[Tensor, Tensor]], precision: torch.dtype, noise: torch.Generator
) -> int:
    """Measure non-finite running statistics anew; returns the number of layers that had them.

    Every other layer is in eval mode meanwhile, as it will be when the new statistics are used.
    """
    broken = [layer for layer in model.modules() if isinstance(layer, _BatchNorm) and _is_broken(layer)]
    if not broken:
        return 0
    momenta = [layer.momentum for layer in broken]
    with evaluating(model):
        for layer in broken:
            layer.reset_running_stats()
            layer.momentum = None  # a plain average over the batches to come
            layer.train()
        for images, _ in islice(batches, BATCHES):
            x = network_input(images)
            with autocast(x.device, precision):
                model(x, noise)
    for layer, momentum in zip(broken, momenta, strict=True):
        layer.momentum = momentum
    return len(broken)


def _is_broken(layer: _BatchNorm) -> bool:
    statistics = [value for value in (layer.running_mean, layer.running_var) if value is not None]
    return not all(bool(torch.isfinite(value).all()) for value in statistics)
