"""Bottleneck: a convolution to few channels at the end of the edge half, and one back at the start of the cloud half.

Paper: Li et al. 2022, "ResSFL: a resistance transfer framework for defending model inversion attack in split federated
    learning" (CVPR); `noRELU_C{channels}S{stride}` of the CEM experiments (SPEC 7.1).
Formula: z = conv(features), bias, no batch norm, no ReLU, then the edge's output; the cloud starts with conv(z). With
    stride >= 2 the edge convolution is strided and the cloud one transposed, padded to the size of the map before
    (output padding 1 for a map of even size and stride 2).
Defaults: channels 8, stride 1, kernel 3.
Cost: two small convolutions; the cloud's first layers see as many channels as before.
Bytes: divided by (channels before / channels)·stride².
Counter-attack: decoder on the narrow feature.
"""

from __future__ import annotations

from pydantic import Field, field_validator
from torch import nn

from splitveil.core.errors import InputError
from splitveil.core.options import Options as AnyOptions
from splitveil.defences.base import Defence
from splitveil.models.layers import LayeredCloud, LayeredEdge, xavier
from splitveil.models.split import SplitModel


class BottleneckOptions(AnyOptions):
    """Channels that are sent, stride and kernel of the convolutions."""

    channels: int = Field(8, ge=1, description="channels that are sent")
    stride: int = Field(1, ge=1, le=4, description="stride of the convolution on the device")
    kernel: int = Field(3, ge=1, description="side of both kernels, odd")

    @field_validator("kernel")
    @classmethod
    def _odd(cls, kernel: int) -> int:
        if kernel % 2 == 0:
            raise ValueError("the kernel must be odd, or the feature map changes size")
        return kernel


class Bottleneck(Defence):
    """See the module docstring."""

    Options = BottleneckOptions
    counter_attacks = ("decoder",)
    options: BottleneckOptions

    def install(self, model: SplitModel) -> None:
        edge, cloud = model.edge, model.cloud
        if not isinstance(edge, LayeredEdge) or not isinstance(cloud, LayeredCloud) or model.image_shape is None:
            raise InputError(
                "The bottleneck defence needs one of Splitveil's own networks.",
                "For your own module, put the convolutions into the two halves yourself.",
            )
        shape = model.feature_shape
        if len(shape) != 3:
            raise InputError(f"The bottleneck defence narrows maps [ch, h, w], not features of {list(shape)}.")
        before, after = edge.channels, self.options.channels
        kernel, stride = self.options.kernel, self.options.stride
        narrow = nn.Conv2d(before, after, kernel, stride=stride, padding=kernel // 2)
        xavier(narrow)  # part of the encoder, so initialised like it; the cloud side keeps PyTorch's default
        if stride == 1:
            widen: nn.Module = nn.Conv2d(after, before, kernel, padding=kernel // 2)
        else:
            # a side n becomes ⌈n/s⌉, as do its neighbours up to s - 1 away: the padding says which of them it was
            height, width = ((side - 1) % stride for side in shape[1:])
            widen = nn.ConvTranspose2d(
                after, before, kernel, stride=stride, padding=kernel // 2, output_padding=(height, width)
            )
        edge.narrow.append(narrow)
        cloud.widen.insert(0, widen)  # the last narrowing is undone first
        edge.channels = after
        if edge.output_kind == "batchnorm":
            edge.output = nn.BatchNorm2d(after)
