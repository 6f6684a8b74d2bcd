"""Random draws of a model become inputs of its graph, so that defences need no second code path for export.

Inside `Drawing` every call that would ask torch for random numbers asks a supplier instead. The first time it is run,
the supplier draws, and writes down what was asked for (`drawn_by`): that list is `random` in the manifest. The second
time, while the graph is traced, the supplier hands out the graph's inputs in the same order.

    normal_ randn randn_like     mean + std·(normal input)
    uniform_ rand rand_like      from + (to - from)·(uniform input on [0, 1)), which is how torch computes it
    randint                      low + (integer input below high - low)

Whatever else is random is refused: `splitveil.serving.graphs` looks at the traced graph for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from splitveil.core.errors import ArtefactError
from splitveil.serving.manifest import RandomInput

Law = Literal["normal", "uniform", "integers"]


@dataclass(frozen=True)
class Draw:
    """What was asked for: values of one law, in one shape."""

    law: Law
    shape: tuple[Any, ...]  # whole numbers, or torch's symbols for them
    high: int | None = None


Supply = Callable[[Draw], Tensor]


class Drawing(TorchFunctionMode):
    """Inside the block, random numbers come from `supply`."""

    def __init__(self, supply: Supply) -> None:
        super().__init__()
        self.supply = supply

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = _GIVEN.get(func)
        return func(*args, **(kwargs or {})) if given is None else given(self.supply, *args, **(kwargs or {}))


def _normal_(supply: Supply, into: Tensor, mean: float = 0.0, std: float = 1.0, **_: Any) -> Tensor:
    return into.copy_(mean + std * supply(Draw("normal", tuple(into.shape))))


def _uniform_(supply: Supply, into: Tensor, *bounds: float, **named: Any) -> Tensor:
    low = bounds[0] if bounds else named.get("from", 0.0)
    high = bounds[1] if len(bounds) > 1 else named.get("to", 1.0)
    return into.copy_(low + (high - low) * supply(Draw("uniform", tuple(into.shape))))


def _made(law: Law) -> Callable[..., Tensor]:
    def make(supply: Supply, *size: Any, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int | torch.SymInt) else size
        return supply(Draw(law, shape)).to(dtype or torch.get_default_dtype())

    return make


def _like(law: Law) -> Callable[..., Tensor]:
    def make(supply: Supply, like: Tensor, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        return supply(Draw(law, tuple(like.shape))).to(dtype or like.dtype)

    return make


def _randint(supply: Supply, *args: Any, **named: Any) -> Tensor:
    size = named["size"] if "size" in named else args[-1]
    bounds = [named[name] for name in ("low", "high") if name in named]
    bounds = [*(args if "size" in named else args[:-1]), *bounds]
    low, high = (0, bounds[0]) if len(bounds) == 1 else bounds
    return (low + supply(Draw("integers", tuple(size), high - low))).to(named.get("dtype") or torch.int64)


_GIVEN: dict[Callable[..., Any], Callable[..., Tensor]] = {
    torch.Tensor.normal_: _normal_,
    torch.Tensor.uniform_: _uniform_,
    torch.randn: _made("normal"),
    torch.rand: _made("uniform"),
    torch.randn_like: _like("normal"),
    torch.rand_like: _like("uniform"),
    torch.randint: _randint,
}


def drawn_by(run: Callable[[int], object]) -> tuple[RandomInput, ...]:
    """The random inputs of `run(batch)`: what it draws for one picture, and nothing that it draws for a whole batch."""
    small, large = _asked(run, 2), _asked(run, 3)
    if [(one.law, one.shape[1:], one.high) for one in small] != [(one.law, one.shape[1:], one.high) for one in large]:
        raise ArtefactError(
            "What this model draws depends on how many pictures are sent at once.", "Draw the same for every picture."
        )
    for one in large:
        if one.shape[:1] != (3,):
            raise ArtefactError(
                f"This model draws random numbers of shape {list(one.shape)} for a batch of 3 pictures.",
                "Draw afresh for every picture, with the batch as the first axis.",
            )
    return tuple(
        RandomInput(name=f"{one.law}_{place}", law=one.law, shape=one.shape[1:], high=one.high)
        for place, one in enumerate(large)
    )


def _asked(run: Callable[[int], object], batch: int) -> list[Draw]:
    asked: list[Draw] = []

    def supply(one: Draw) -> Tensor:
        asked.append(one)
        return sample(one.law, one.shape, one.high)

    with torch.no_grad(), Drawing(supply):
        run(batch)
    return asked


def sample(law: Law, shape: Sequence[int], high: int | None) -> Tensor:
    """One draw, by torch: for looking at a model, never for what is sent."""
    if law == "integers":
        assert high is not None
        return torch.randint(high, tuple(shape))
    return torch.randn(tuple(shape)) if law == "normal" else torch.rand(tuple(shape))


@contextmanager
def replaying(inputs: Sequence[RandomInput], values: Sequence[Tensor]) -> Iterator[None]:
    """Inside the block, the draws are `values`, in the order of `inputs`; other draws than those are an error."""
    left = list(zip(inputs, values, strict=True))

    def supply(one: Draw) -> Tensor:
        if not left or (left[0][0].law, left[0][0].high) != (one.law, one.high):
            raise ArtefactError("This model draws other random numbers each time it is run.")
        return left.pop(0)[1]

    with Drawing(supply):
        yield
    if left:
        raise ArtefactError("This model draws other random numbers each time it is run.")
