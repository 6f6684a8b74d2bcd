"""Record work as a CUDA graph; a failure leaves streams and random numbers as they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch


@contextmanager
def recording(generators: Sequence[torch.Generator]) -> Iterator[torch.cuda.CUDAGraph]:
    """What the block launches becomes the graph it is given, and is not computed now.

    The block may draw from `generators` and from torch's own. After a failure torch still believes that these are being
    recorded and refuses every later draw, and leaves its own stream in place: both are put back here.
    """
    graph = torch.cuda.CUDAGraph()
    device = torch.cuda.current_device()
    streams = [*generators, torch.cuda.default_generators[device]]
    before = [stream.get_state() for stream in streams]
    with torch.cuda.stream(torch.cuda.current_stream()):  # torch.cuda.graph does not go back to it when it fails
        try:
            for generator in generators:
                graph.register_generator_state(generator)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                yield graph
        except Exception:
            torch.cuda.synchronize()
            for stream, state in zip(streams, before, strict=True):
                fresh = torch.Generator(stream.device)
                fresh.set_state(state)
                stream.graphsafe_set_state(fresh)
            raise
