"""`splitveil bench`: speed and memory of the surrogates beside a training step."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

import typer


def bench(
    surrogates: Annotated[
        list[str] | None, typer.Argument(help="Surrogates to measure (default: all).", show_default=False)
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", help="Rounds; medians of ratios are printed.", min=1)] = 15,
    memory: Annotated[bool, typer.Option("--memory/--no-memory", help="Also measure peak memory at D = 8192.")] = True,
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure surrogates on this CPU, as ratios within one run: to a vgg11 step, C=100 to C=10, loop to ours.

    Example: splitveil bench gmm gated --rounds 5 --no-memory
    """
    import torch

    from splitveil.core.catalogue import SURROGATES
    from splitveil.experiments.bench import measure, table

    for name in surrogates or []:
        SURROGATES.entry(name)
    torch.set_num_threads(1)  # one core: two would measure how busy the other is
    results = measure(surrogates or None, rounds=rounds, memory=memory)
    print(json.dumps(_known(results), indent=2, allow_nan=False) if json_ else table(results))


def _known(value: Any) -> Any:
    """JSON has no NaN: what was not measured is null."""
    if isinstance(value, dict):
        return {key: _known(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value
