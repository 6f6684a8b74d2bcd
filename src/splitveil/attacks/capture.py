"""Replay one training step as a CUDA graph: small networks otherwise wait for the host to launch their kernels."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

Step = Callable[[Tensor], None]

WARM_UP = 3  # eager steps before the capture, so that the optimiser's state and cuDNN's choices exist

log = logging.getLogger(__name__)


def captured(step: Step, index: Tensor, generator: torch.Generator) -> Step:
    """`step` itself on CPUs; on CUDA the same step recorded once and replayed, or `step` where that fails.

    `step(index)` must have fixed shapes, no look at the host, and draw from `generator` alone. `index` [B] is a batch
    on which the warm-up steps really train.
    """
    if index.device.type != "cuda":
        return step
    static = index.clone()
    side = torch.cuda.Stream(index.device)
    side.wait_stream(torch.cuda.current_stream(index.device))
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            step(static)
    torch.cuda.current_stream(index.device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        graph.register_generator_state(generator)
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            step(static)
    except (RuntimeError, AttributeError) as error:  # e.g. a defence that looks at the host
        log.info("The attack's step cannot be captured and runs step by step: %s", error)
        return step

    def replay(batch: Tensor) -> None:
        static.copy_(batch)
        graph.replay()

    return replay
