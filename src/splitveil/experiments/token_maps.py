"""Where slots look: attention of each slot over the places of the feature map (`slot_cross`, SPEC 2.2).

Legend: B batch, H heads, S slots, N places of a feature map.
"""

from __future__ import annotations

import base64
import io
from typing import Any

import torch
from torch import Tensor

from splitveil.audit.gallery import as_image
from splitveil.models.split import evaluating
from splitveil.surrogates.base import Surrogate
from splitveil.surrogates.token_slots import TokenSlotAttention

PICTURES = 6


@torch.no_grad()
def token_maps(surrogate: Surrogate, z: Tensor, y: Tensor, images: Tensor) -> dict[str, Any]:
    """Attention maps of the first pictures, each of another class as far as there are enough; {} without tokens.

    z [B, ...] clean features, y [B] labels, images [B, ch, h, w] uint8. Each map has the mean 1.
    """
    module = next((module for module in surrogate.modules() if isinstance(module, TokenSlotAttention)), None)
    if module is None or len(surrogate.feature_shape) != 3:
        return {}
    attention: list[Tensor] = []
    hook = module.register_forward_hook(lambda _module, _args, output: attention.append(output[1]))
    try:
        with evaluating(surrogate):
            surrogate(z, y)
    finally:
        hook.remove()
    maps = attention[0].mean(dim=1)  # [B, H, S, N] -> [B, S, N]
    maps = maps / maps.mean(dim=-1, keepdim=True).clamp(min=1e-12)  # a slot that was pruned looks nowhere: all 0
    first = [int((y == label).nonzero()[0]) for label in y.unique()]
    chosen = [*first, *(place for place in range(len(y)) if place not in set(first))][:PICTURES]
    return {
        "places": list(surrogate.feature_shape[1:]),
        "pictures": [
            {
                "label": int(y[place]),
                "png": _png(images[place]),
                "slots": [[round(value, 3) for value in slot] for slot in maps[place].double().tolist()],
            }
            for place in chosen
        ],
    }


def _png(image: Tensor) -> str:
    """A picture [ch, h, w] as base64 of a PNG."""
    buffer = io.BytesIO()
    as_image(image).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()
