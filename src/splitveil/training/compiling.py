"""Compiled parts of a step that run as written where compiling fails (no C++ compiler, for one); the log says why."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

log = logging.getLogger("splitveil.training")


class Compiling:
    """The compiled parts of one step."""

    def __init__(self) -> None:
        self.running: set[int] = set()  # the parts that run compiled, as numbers: names need not differ
        self.count = 0

    def compiled(self, part: Callable[..., Any]) -> Callable[..., Any]:
        """`part`, compiled at its first call. Where that fails the reason is logged and it runs as it is: compiling,
        of the backward pass too, comes before computing, so nothing has happened yet."""
        from torch._dynamo.exc import TorchDynamoException  # takes seconds to import, and few runs compile

        best, mine = torch.compile(part), self.count
        self.running.add(mine)
        self.count += 1

        def call(*args: Any) -> Any:
            if mine not in self.running:
                return part(*args)
            try:
                with _backward_at_once():
                    return best(*args)
            except TorchDynamoException as error:
                self.running.discard(mine)
                name, why = part.__name__.strip("_"), " ".join(str(error).split())[:160]
                log.warning("part '%s' of the step could not be compiled (%s); it runs as it is", name, why)
            return part(*args)

        return call

    def stop(self) -> bool:
        """Run everything as written from now on; returns whether anything was compiled."""
        had = bool(self.running)
        self.running.clear()
        return had


def _backward_at_once() -> AbstractContextManager[None]:
    """Within it torch compiles a backward pass together with its forward pass, and raises what goes wrong.

    Else it keeps the error to itself until the backward pass is called, when the forward pass has been computed.
    """
    from torch._functorch import config

    flag = "force_non_lazy_backward_lowering"  # torch 2.8 may lack it: then such a failure is met in the step (`stop`)
    return config.patch({flag: True}) if hasattr(config, flag) else nullcontext()
