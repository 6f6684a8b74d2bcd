"""PATROL: a deeper edge, pruned, with a Lipschitz penalty and adversarial training.

Paper: Ding et al. 2024, "PATROL: privacy-oriented pruning for collaborative inference against model inversion attacks"
    (WACV, arXiv 2307.10981). The size of the extra layer and the pruning are those of the CEM experiments.
Formula: the terms of `adversarial`, plus lipschitz_weight·mean_i ‖z_i - z_j‖²/‖x_i - x_j‖² over pairs of neighbours in
    the batch (a map that contracts is unstable to invert; our reading of the paper's regulariser). An extra block conv
    3x3 to extra_channels + BN + ReLU goes in front. From epoch prune_at·epochs on, the share prune_ratio of each edge
    convolution's channels, those with the smallest |γ_c|·‖W_c‖, is masked to zero after the ReLU. Masks, not smaller
    tensors: the optimiser keeps its parameters and goes on training the rest.
Defaults: as `adversarial`; lipschitz_weight 0.01, prune_ratio 0.05, prune_at 0.75, extra_channels 16.
Cost: that of `adversarial`, one difference per pair, and the extra layer (+7,968 parameters for vgg11 on colour).
Bytes: unchanged; the pruned channels can be cut out of the exported edge.
Counter-attack: a fresh and larger decoder; refinement through the known, pruned edge.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from splitveil.core.errors import InputError
from splitveil.defences.adversarial import Adversarial, AdversarialOptions
from splitveil.defences.base import Step
from splitveil.functional.classes import safe_divide
from splitveil.models.layers import LayeredEdge, xavier
from splitveil.models.split import SplitModel


class PatrolOptions(AdversarialOptions):
    """Adversarial training, and what PATROL adds."""

    lipschitz_weight: float = Field(0.01, ge=0, description="weight of the mean squared stretch of feature differences")
    prune_ratio: float = Field(0.05, ge=0, lt=1, description="share of the channels of each edge convolution to prune")
    prune_at: float = Field(0.75, ge=0, le=1, description="when to prune, as a share of all epochs")
    extra_channels: int = Field(16, ge=0, description="channels of the extra first layer; 0 for none")


class MaskedReLU(nn.Module):
    """ReLU, then a 0/1 mask per channel."""

    mask: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        return x.relu() * self.mask[:, None, None].to(x.dtype)


class Patrol(Adversarial):
    """See the module docstring."""

    Options = PatrolOptions
    counter_attacks = ("decoder", "decoder_strong", "refine")
    options: PatrolOptions

    def install(self, model: SplitModel) -> None:
        edge = model.edge
        if not isinstance(edge, LayeredEdge) or model.image_shape is None:
            raise InputError(
                "The patrol defence needs one of Splitveil's own networks.",
                "For your own module, use the adversarial defence and prune the edge half yourself.",
            )
        if self.options.extra_channels:
            deepen(edge, model.image_shape[0], self.options.extra_channels)
        # a plain list: the layers belong to the edge, their masks are in its state
        self._prunable = mask_channels(edge.layers)

    def on_epoch(self, epoch: int, epochs: int) -> bool:
        # the masks are made once and stay: a resumed run finds them in its state
        if epoch >= max(1, round(self.options.prune_at * epochs)):
            for convolution, norm, relu in self._prunable:
                if bool(relu.mask.all()):
                    relu.mask.copy_(smallest_masked(importance(convolution, norm), self.options.prune_ratio))
        return super().on_epoch(epoch, epochs)

    def loss(self, step: Step) -> Tensor | None:
        adversarial = super().loss(step)
        if self.options.lipschitz_weight == 0:
            return adversarial
        penalty = self.options.lipschitz_weight * stretch(step.x, step.z)
        return penalty if adversarial is None else adversarial + penalty


def deepen(edge: LayeredEdge, image_channels: int, extra: int) -> None:
    """Put conv 3x3 + BN + ReLU in front; the convolution that followed the picture now reads `extra` channels."""
    for parent in edge.layers.modules():
        for name, child in parent.named_children():
            if isinstance(child, nn.Conv2d) and child.in_channels == image_channels:
                wider = nn.Conv2d(
                    extra,
                    child.out_channels,
                    child.kernel_size,  # type: ignore[arg-type]
                    child.stride,  # type: ignore[arg-type]
                    child.padding,  # type: ignore[arg-type]
                    bias=child.bias is not None,
                )
                xavier(wider)
                setattr(parent, name, wider)
                front = nn.Sequential(nn.Conv2d(image_channels, extra, 3, padding=1), nn.BatchNorm2d(extra), nn.ReLU())
                xavier(front)
                edge.layers.insert(0, front)
                return
    raise InputError("The edge half has no convolution that reads the picture.", "Set defence.patrol.extra_channels=0.")


def mask_channels(layers: nn.Module) -> list[tuple[nn.Conv2d, nn.BatchNorm2d, MaskedReLU]]:
    """Exchange the ReLU of every convolution + batch norm + ReLU for a masked one; returns the triples."""
    found = []
    for parent in list(layers.modules()):
        if isinstance(parent, nn.Sequential):
            for index in range(len(parent) - 2):
                convolution, norm, relu = parent[index], parent[index + 1], parent[index + 2]
                if isinstance(convolution, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d) and type(relu) is nn.ReLU:
                    masked = MaskedReLU(convolution.out_channels)
                    parent[index + 2] = masked
                    found.append((convolution, norm, masked))
    return found


@torch.no_grad()
def importance(convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> Tensor:
    """|γ_c|·‖W_c‖ per channel [C]: from the weights alone, so that it does not depend on which batch came last."""
    return norm.weight.abs() * convolution.weight.flatten(1).norm(dim=1)


def smallest_masked(score: Tensor, ratio: float) -> Tensor:
    """A mask that is 0 at the `ratio` smallest scores (at least one when ratio > 0, never all)."""
    count = min(len(score) - 1, max(1, round(ratio * len(score)))) if ratio > 0 else 0
    mask = torch.ones_like(score)
    mask[score.topk(count, largest=False).indices] = 0.0
    return mask


def stretch(x: Tensor, z: Tensor) -> Tensor:
    """mean_i ‖z_i - z_j‖²/‖x_i - x_j‖², j the next in the batch: an estimate of the squared Lipschitz constant."""
    x, z = x.float().flatten(1), z.float().flatten(1)
    moved = (z - z.roll(1, 0)).square().sum(dim=1)
    apart = (x - x.roll(1, 0)).square().sum(dim=1)
    return safe_divide(moved, apart).mean()  # equal pictures say nothing
