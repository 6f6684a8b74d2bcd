"""Captured training steps: a whole step as one CUDA graph, replayed without Python.

The first steps of each phase run eagerly (they are real steps, and they warm the allocator); then the step is recorded
once and replayed. A phase is whatever changes what the step does: surrogate on or off, progressive stage, φ trained or
not. If recording fails, the reason is logged and training goes on eagerly.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

from splitveil.training.step import TrainStep

log = logging.getLogger("splitveil.training")

EAGER_STEPS = 4  # real steps before recording: optimiser state, cuDNN plans and allocator must be in place


class CapturedStep:
    """Calls a TrainStep, through a CUDA graph where that works."""

    def __init__(self, step: TrainStep) -> None:
        self.step = step
        self.graphs: dict[Any, torch.cuda.CUDAGraph] = {}
        self.inputs: dict[Any, tuple[Tensor, Tensor]] = {}
        self.calls: dict[Any, int] = {}
        self.failed = False
        self.side = torch.cuda.Stream()

    def __call__(self, images: Tensor, y: Tensor) -> None:
        key = (self.step.active, self.step.stage, self.step.turn(), tuple(images.shape))
        if key in self.graphs:
            static_images, static_y = self.inputs[key]
            static_images.copy_(images)
            static_y.copy_(y)
            self.graphs[key].replay()
            return
        self.calls[key] = self.calls.get(key, 0) + 1
        if self.failed or self.calls[key] <= EAGER_STEPS:
            self._eager(images, y)
            return
        self._record(key, images, y)

    def _generators(self) -> list[torch.Generator]:
        """Private generators that the step draws from; asked when recording, for a surrogate moves its own late."""
        own = getattr(self.step.parts.surrogate, "noise_generator", None)
        found = [self.step.noise, *([own] if isinstance(own, torch.Generator) else [])]
        return [generator for generator in found if generator.device.type == "cuda"]

    def forget(self) -> None:
        """Record anew at the next call: the step has changed in a way that a recording does not see."""
        self.graphs.clear()
        self.inputs.clear()

    def _eager(self, images: Tensor, y: Tensor) -> None:
        """On a side stream, as graph capture wants its warm-up."""
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            self.step.run(images, y)
        torch.cuda.current_stream().wait_stream(self.side)

    def _record(self, key: Any, images: Tensor, y: Tensor) -> None:
        static = images.clone(), y.clone()
        graph = torch.cuda.CUDAGraph()
        try:
            for generator in self._generators():
                graph.register_generator_state(generator)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self.step.run(*static)
        except Exception as error:  # any failure to record must leave training running
            self.failed = True
            log.warning("the step could not be captured (%s: %s); training runs eagerly", type(error).__name__, error)
            torch.cuda.synchronize()
            self._eager(images, y)
            return
        self.graphs[key], self.inputs[key] = graph, static
        surrogate = ("on" if key[2] else "on, not fitted") if key[0] else "off"
        log.info("captured the training step (surrogate %s, stage %s)", surrogate, key[1])
        graph.replay()  # recording computes nothing; this is the step for the batch at hand
