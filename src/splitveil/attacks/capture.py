"""Make an adversary's training step fast on CUDA: fewer kernels, replayed as one CUDA graph.

graph    the step as it is, recorded once: small networks otherwise wait for the host to launch their kernels
fused    the same with our own kernels around the convolutions, which are ready within a few seconds, and with the
         gradients of weights computed beside the rest
compile  the same with whole blocks compiled (equal blocks share the code): fastest per step, but compiling takes longer
         than it saves in a single attack of SPEC 8.1

What does not work on a machine is logged, and the next slower way is taken.
"""

from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

from splitveil.core.errors import reason
from splitveil.functional.adam import forget
from splitveil.functional.recording import recording
from splitveil.models.decoders import Fusable, ResidualDecoder, in_turn
from splitveil.models.split import device_of

Step = Callable[[Tensor], None]
Way = Literal["compile", "fused", "graph", "eager"]

WARM_UP = 3  # eager steps before the capture, so that the optimiser's state and cuDNN's choices exist
COMPILE_STEPS = 40_000  # compiling takes many seconds and saves a fraction of a millisecond per step
RECOMPILE_LIMIT = 64  # shapes of blocks in one process; torch's own limit of 8 is less than an audit may need

log = logging.getLogger(__name__)


def ways(device: torch.device, steps: int) -> list[Way]:
    """What to try, fastest first."""
    if device.type != "cuda":
        return ["eager"]
    recorded: list[Way] = ["fused", "graph", "eager"]
    return ["compile", *recorded] if steps >= COMPILE_STEPS else recorded


def accelerated(
    decoder: nn.Module | None,
    step: Step,
    index: Tensor,
    generator: torch.Generator,
    rewind: Callable[[], None],
    *,
    steps: int,
) -> Step:
    """`step` in the fastest form that works here; CPUs get `step` itself.

    `step(index)` must have fixed shapes, no look at the host, and draw from `generator` alone. `index` [B] is any batch
    for the warm-up, whose effect `rewind` undoes. `steps` is how many will follow. Without a `decoder` there is nothing
    to fuse or compile, and the step is recorded as it is.
    """
    for way in ways(index.device, steps):
        if way == "eager":
            break
        if decoder is None and way != "graph":
            continue
        try:
            with nullcontext() if decoder is None else _FORMS[way](decoder):
                return recorded(step, index, generator)
        except Exception as error:  # a compiler that is missing, a defence that looks at the host: any of many classes
            log.warning(
                "an attack's step cannot run as '%s' and takes a slower way: %s: %s",
                way,
                type(error).__name__,
                reason(error),
            )
        finally:
            rewind()
        # the failed recording lives on in cycles with its traceback, and torch would warn of its streams in later steps
        gc.collect()
    return step


def rewinding(networks: Sequence[nn.Module], *optimisers: torch.optim.Optimizer) -> Callable[[], None]:
    """What undoes steps that only warmed up; in place, for a recorded step keeps the addresses."""
    beginnings = [{name: value.clone() for name, value in network.state_dict().items()} for network in networks]

    def rewind() -> None:
        for network, beginning in zip(networks, beginnings, strict=True):
            network.load_state_dict(beginning)
        for optimiser in optimisers:
            forget(optimiser)

    return rewind


@contextmanager
def compiled(decoder: nn.Module) -> Iterator[None]:
    """Within the block, the regions of all residual decoders inside `decoder` run compiled, forwards and backwards."""
    parts = [part for part in decoder.modules() if isinstance(part, ResidualDecoder)]
    run = torch.compile(in_turn, dynamic=False)  # imports torch._dynamo, which takes a while and is not needed on CPUs
    for part in parts:
        part.run_region = run
    try:
        with torch._dynamo.config.patch(recompile_limit=RECOMPILE_LIMIT), warnings.catch_warnings():
            # torch 2.11's compiler looks at gradients of its own inputs, and warns of that
            warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
            yield
    finally:
        for part in parts:
            del part.run_region  # the class's own again


@contextmanager
def fused(decoder: nn.Module) -> Iterator[None]:
    """Within the block, the decoder's residual parts train with kernels of our own, and compute the gradients of
    convolutions' weights on another stream.
    """
    parts = [part for part in decoder.modules() if isinstance(part, Fusable)]
    device = device_of(decoder)
    side = torch.cuda.Stream(device) if device.type == "cuda" else None
    for part in parts:
        part.fused, part.beside = True, side
    try:
        yield
    finally:
        for part in parts:
            del part.fused, part.beside  # the class's own again


_FORMS: dict[Way, Callable[[nn.Module], AbstractContextManager[None]]] = {
    "compile": compiled,
    "fused": fused,
    "graph": lambda decoder: nullcontext(),
}


def recorded(step: Step, index: Tensor, generator: torch.Generator) -> Step:
    """The step recorded once as a CUDA graph, to be replayed on other batches of the same size."""
    static = index.clone()
    side = torch.cuda.Stream(index.device)
    side.wait_stream(torch.cuda.current_stream(index.device))
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            step(static)
    torch.cuda.current_stream(index.device).wait_stream(side)
    with recording([generator]) as graph:
        step(static)

    def replay(batch: Tensor) -> None:
        static.copy_(batch)
        graph.replay()

    return replay


def fast_convolutions(device: torch.device) -> AbstractContextManager[None]:
    """On CUDA let cuDNN measure which algorithm suits the fixed shapes."""
    if device.type != "cuda":
        return nullcontext()
    return torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False, allow_tf32=True)
