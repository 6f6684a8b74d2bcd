"""torch.compile where it works; where it does not, the function as it is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

log = logging.getLogger("splitveil.functional")


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, compiled at its first call. Where that fails (no C++ compiler, for one) it runs as it is.

    The reason is logged once. Compiling comes before computing, so that nothing is done twice.
    """
    from torch._dynamo.exc import TorchDynamoException  # takes seconds to import, and few runs compile

    best = torch.compile(function)

    def call(*args: Any) -> Any:
        nonlocal best
        try:
            return best(*args)
        except TorchDynamoException as error:
            if best is function:
                raise
            reason, name = " ".join(str(error).split())[:160], function.__name__.strip("_")
            log.warning("'%s' could not be compiled (%s); it runs as it is", name, reason)
            best = function
        return best(*args)

    return call
