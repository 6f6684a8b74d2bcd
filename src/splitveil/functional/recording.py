"""Record work as a CUDA graph; a failure leaves streams, memory and random numbers as they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import torch


@contextmanager
def recording(generators: Sequence[torch.Generator]) -> Iterator[torch.cuda.CUDAGraph]:
    """What the block launches becomes the graph it is given, and is not computed now.

    The block works on the device of `generators` (at least one), and may draw from these and from torch's own. After a
    failure torch still believes that these are being recorded and refuses every later draw, keeps the memory of the
    recording for ever, and leaves its own stream in place: all are put back here. A generator then has a new state,
    which graphs recorded before do not share: they would fail or draw the same numbers again, so let go of them.
    """
    index = generators[0].device.index
    if index is None:  # of a generator made for "cuda"
        index = torch.cuda.current_device()
    device = torch.device("cuda", index)
    # torch would record on the device that is current now, or was when it recorded first: nothing, if it is another one
    with torch.cuda.device(device), torch.cuda.stream(torch.cuda.current_stream(device)):
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        streams = [*generators, torch.cuda.default_generators[index]]
        before = [stream.get_state() for stream in streams]
        try:
            for generator in generators:
                graph.register_generator_state(generator)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, pool=pool, stream=_stream(device), capture_error_mode="thread_local"):
                yield graph
        except Exception:
            torch.cuda.synchronize()
            _let_go(index, pool)
            for stream, state in zip(streams, before, strict=True):
                fresh = torch.Generator(stream.device)
                fresh.set_state(state)
                stream.graphsafe_set_state(fresh)
            raise


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """The one to record on, always the same: with every stream torch keeps tens of MiB for matrix products."""
    return torch.cuda.Stream(device)


def _let_go(device: int, pool: tuple[int, int]) -> None:
    """End what torch began and does not end itself when a recording fails: allocating from the recording's memory.

    While it believes to be recording, memory that several streams used is never given back, and a full cache is not
    emptied.
    """
    try:
        torch._C._cuda_endAllocateToPool(device, pool)
    except (RuntimeError, AttributeError):  # torch did end it, after an error of Python's; or has no such function
        return
    torch._C._cuda_releasePool(device, pool)
