"""Captured training steps: a whole step as one CUDA graph, replayed without Python.

The first steps of each phase run eagerly (they are real steps, and they warm the allocator); then the step is recorded
once and replayed. A phase is whatever changes what the step does: surrogate on or off, progressive stage, φ trained or
not. If recording or the first replay fails, the reason is logged and training goes on eagerly.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from splitveil.core.errors import reason
from splitveil.functional.recording import recording
from splitveil.training.step import TrainStep

log = logging.getLogger("splitveil.training")

EAGER_STEPS = 4  # real steps before recording: optimiser state, cuDNN plans and allocator must be in place


@dataclass(frozen=True)
class Recording:
    """A recorded step, and the tensors it reads from and writes to."""

    graph: torch.cuda.CUDAGraph
    images: Tensor
    labels: Tensor
    names: tuple[str, ...]
    numbers: Tensor  # the step's numbers, in the order of `names`


class CapturedStep:
    """Calls a TrainStep, through a CUDA graph where that works."""

    def __init__(self, step: TrainStep) -> None:
        self.step = step
        self.graphs: dict[Any, Recording] = {}
        self.calls: dict[Any, int] = {}
        self.failed = False
        self.side = torch.cuda.Stream(step.noise.device)

    def __call__(self, images: Tensor, y: Tensor) -> None:
        key = (*self.step.turn(), self.step.stage, tuple(images.shape))
        self.calls[key] = self.calls.get(key, 0) + 1
        if key in self.graphs:
            self._replay(self.graphs[key], images, y)
        elif self.failed or self.calls[key] <= EAGER_STEPS or not self._begin(key, images, y):
            self._eager(images, y)
        self.step.done()

    def _begin(self, key: Any, images: Tensor, y: Tensor) -> bool:
        """Record the step and replay it once. False where either fails: nothing was computed then."""
        try:
            self._record(key, images, y)
            self._replay(self.graphs[key], images, y)
        except Exception as error:  # any failure to record must leave training running
            self.failed = True
            self.graphs.clear()  # they would go on with random numbers that eager steps draw too (see `recording`)
            what = f"{type(error).__name__}: {reason(error)}"
            log.warning("the step could not be captured (%s); training runs eagerly", what)
            return False
        acting, fitting, stage, _ = key
        what = "off" if not acting else "on" if fitting else "on, its parameters fixed"
        log.info("captured the training step (surrogate %s, stage %s)", what, stage)
        return True

    def _replay(self, recording: Recording, images: Tensor, y: Tensor) -> None:
        recording.images.copy_(images)
        recording.labels.copy_(y)
        recording.graph.replay()
        self.step.names, self.step.newest = recording.names, recording.numbers

    def _generators(self) -> list[torch.Generator]:
        """Private generators that the step draws from; asked when recording, for a surrogate moves its own late."""
        own = getattr(self.step.parts.surrogate, "noise_generator", None)
        found = [self.step.noise, *([own] if isinstance(own, torch.Generator) else [])]
        return [generator for generator in found if generator.device.type == "cuda"]

    def forget(self) -> None:
        """Record anew at the next call: the step has changed in a way that a recording does not see."""
        self.graphs.clear()

    def _eager(self, images: Tensor, y: Tensor) -> None:
        """On a side stream, as graph capture wants its warm-up."""
        here = torch.cuda.current_stream(self.side.device)
        self.side.wait_stream(here)
        with torch.cuda.stream(self.side):
            self.step.run(images, y)
        here.wait_stream(self.side)

    def _record(self, key: Any, images: Tensor, y: Tensor) -> None:
        """Record the step without computing it."""
        static = images.clone(), y.clone()
        with recording(self._generators()) as graph:
            self.step.run(*static)
        self.graphs[key] = Recording(graph, *static, self.step.names, self.step.newest)
