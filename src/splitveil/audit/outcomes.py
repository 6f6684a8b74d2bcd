"""Whether an attack gave what attacks give. One that did not has failed; it must not end the audit of all others."""

from __future__ import annotations

from torch import Tensor

from splitveil.attacks.base import Inference, Outcome, Reconstruction, View
from splitveil.core.errors import InputError

ROUNDING = 1e-3  # pictures may leave [0, 1] by this


def check_outcome(outcome: Outcome, view: View) -> None:
    """Raise InputError where an outcome cannot be scored against the pictures under attack."""
    if isinstance(outcome, Inference):
        return
    if not isinstance(outcome, Reconstruction):
        raise InputError(f"It gave a {type(outcome).__name__}, not a Reconstruction or an Inference.")
    for name, images in {"images": outcome.images, **outcome.variants}.items():
        if not isinstance(images, Tensor) or not images.is_floating_point():
            gave = str(images.dtype) if isinstance(images, Tensor) else type(images).__name__
            raise InputError(f"Its '{name}' are {gave}, not floats in [0, 1].")
        if tuple(images.shape[1:]) != view.image_shape or not 1 <= len(images) <= view.num_targets:
            expected = f"[1 to {view.num_targets}, {', '.join(map(str, view.image_shape))}]"
            raise InputError(f"Its '{name}' have the shape {list(images.shape)}, not {expected}.")
        low, high = (float(value) for value in images.aminmax())
        if not (low >= -ROUNDING and high <= 1 + ROUNDING):  # NaN, too
            raise InputError(f"Its '{name}' run from {low:.3g} to {high:.3g}, not from 0 to 1.")
