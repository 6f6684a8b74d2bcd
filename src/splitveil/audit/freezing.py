"""Hold a model still while it is attacked: eval mode, no gradients to its weights, and proof that nothing changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from splitveil.core.errors import SplitveilError
from splitveil.models.digest import weights_digest
from splitveil.models.split import evaluating


@contextmanager
def frozen(module: nn.Module) -> Iterator[str]:
    """Eval mode without parameter gradients; gives the digest, restores modes, and raises if a weight changed."""
    needs = {parameter: parameter.requires_grad for parameter in module.parameters()}
    before = weights_digest(module)
    module.requires_grad_(False)
    try:
        with evaluating(module):
            yield before
        if weights_digest(module) != before:  # SPEC S8.4
            raise SplitveilError("An attack changed the weights or statistics of the model it attacked.")
    finally:
        for parameter, need in needs.items():
            parameter.requires_grad_(need)
