"""Speed and memory of the surrogates, as ratios within one run: seconds on a shared machine mean nothing.

`measure` is what `splitveil bench` prints. Legend: B batch, C classes, D feature dim.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from splitveil import models, surrogates
from splitveil.core.catalogue import SURROGATES
from splitveil.experiments.class_loops import LOOPS
from splitveil.surrogates.base import Surrogate

BATCH, SHAPE, WIDE_SHAPE = 128, (8, 8, 8), (128, 8, 8)


def prepare(name: str, num_classes: int, shape: tuple[int, ...] = SHAPE, **options: Any) -> Callable[[], None]:
    """One forward and backward of a fitted surrogate on a random batch, as a call without arguments."""
    surrogate, z, y = _fitted(name, num_classes, shape, **options)

    def call() -> None:
        out = surrogate(z, y, epoch=10)
        (out.loss + out.fit_loss).backward()
        z.grad = None

    return call


def prepare_loop(name: str, num_classes: int) -> Callable[[], None]:
    """The same work as a loop over classes: written out where we have it, else one call of the surrogate per class."""
    surrogate, z, y = _fitted(name, num_classes, SHAPE)

    def call() -> None:
        if name in LOOPS:
            loss = LOOPS[name](surrogate, z, y)
        else:
            present = y.unique().tolist()
            outputs = [surrogate(z[y == label], y[y == label], epoch=10) for label in present]
            loss = torch.stack([out.loss + out.fit_loss for out in outputs]).sum()
        loss.backward()
        z.grad = None

    return call


def training_step() -> Callable[[], None]:
    """One training step of vgg11 at 32x32."""
    model = models.create("vgg11", image_shape=(3, 32, 32), num_classes=10, cut=4)
    images, labels = torch.rand(BATCH, 3, 32, 32), torch.arange(BATCH) % 10
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def call() -> None:
        optimiser.zero_grad()
        nn.functional.cross_entropy(model.cloud(model.edge(images)), labels).backward()
        optimiser.step()

    return call


def measure(names: list[str] | None = None, rounds: int = 5, memory: bool = True) -> dict[str, Any]:
    """Ratios for each surrogate in its corrected mode (SPEC: B=128, D=512).

    `to_step`: forward and backward at C=10 over a vgg11 training step; `c100_to_c10`: C=100 over C=10;
    `loop_to_fast`: loop over 100 classes over the batched call; `peak_mib`: extra memory at D=8192, C=100. The rounds
    are interleaved and each ratio is the median of the ratios within a round, so that a busy machine hurts all alike.
    """
    step = training_step()
    results: dict[str, Any] = {"step_seconds": statistics.median(_seconds([step], 1)[0]), "surrogates": {}}
    for name in names or surrogates.names():
        calls = [prepare(name, 10), prepare(name, 100), prepare_loop(name, 100), step]
        ten, hundred, loop, whole = _seconds(calls, rounds)
        results["surrogates"][name] = {
            "seconds": statistics.median(ten),
            "to_step": _ratio(ten, whole),
            "c100_to_c10": _ratio(hundred, ten),
            "loop_to_fast": _ratio(loop, hundred),
            "peak_mib": peak_memory(name) if memory else float("nan"),
        }
    return results


def table(results: dict[str, Any]) -> str:
    """The measurements as a Markdown table."""
    lines = [
        f"vgg11 training step at 32x32, batch {BATCH}: {1e3 * results['step_seconds']:.0f} ms on one core here",
        "",
        "| surrogate | ms | / step | C=100 / C=10 | loop over classes / ours | extra MiB at D=8192, C=100 |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in results["surrogates"].items():
        mib = "-" if row["peak_mib"] != row["peak_mib"] else f"{row['peak_mib']:.0f}"
        lines.append(
            f"| {name} | {1e3 * row['seconds']:.1f} | {row['to_step']:.4f} | {row['c100_to_c10']:.2f} "
            f"| {row['loop_to_fast']:.1f} | {mib} |"
        )
    return "\n".join(lines)


def peak_memory(name: str, num_classes: int = 100, shape: tuple[int, ...] = WIDE_SHAPE) -> float:
    """Extra resident memory (MiB) of building, refreshing and training a surrogate three steps, in its own process."""
    code = f"from splitveil.experiments.bench import _report_peak; _report_peak({name!r}, {num_classes}, {shape!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["mib"])


def _report_peak(name: str, num_classes: int, shape: tuple[int, ...]) -> None:
    import resource

    torch.set_num_threads(1)
    SURROGATES.load(name)  # what importing costs is not the surrogate's memory
    torch.rand(BATCH, *shape, requires_grad=True).square().sum().backward()  # nor what the first backward sets up
    unit_bytes = 1 if sys.platform == "darwin" else 2**10  # of ru_maxrss
    ballast = _ballast(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit_bytes)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    call = prepare(name, num_classes, shape)
    for _ in range(3):
        call()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    del ballast
    sys.stdout.write(json.dumps({"mib": (after - before) * unit_bytes / 2**20}) + "\n")


def _ballast(peak_bytes: int) -> Tensor:
    """Memory held so that the process stands at its own high-water mark, which importing libraries has raised."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return torch.zeros(0)
    resident = int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return torch.ones(max(peak_bytes - resident, 0) // 4)


def _fitted(name: str, num_classes: int, shape: tuple[int, ...], **options: Any) -> tuple[Surrogate, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    surrogate = surrogates.create(name, feature_shape=shape, num_classes=num_classes, sigma=0.025, **options)
    features = torch.rand(10 * BATCH, *shape, generator=generator)
    labels = torch.randint(0, num_classes, (10 * BATCH,), generator=generator)
    surrogate.eval()
    surrogate.refresh([(features[i : i + BATCH], labels[i : i + BATCH]) for i in range(0, len(labels), BATCH)])
    surrogate.train()
    return surrogate, features[:BATCH].clone().requires_grad_(), labels[:BATCH]


def _seconds(calls: list[Callable[[], None]], rounds: int) -> list[list[float]]:
    """Seconds of each call in each round, after one call that warms up."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(rounds + 1):
        for call, seconds in zip(calls, times, strict=True):
            start = time.process_time()  # not the wall clock: other programs on the machine must not count
            call()
            if turn:
                seconds.append(time.process_time() - start)
    return times


def _ratio(numerator: list[float], denominator: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(numerator, denominator, strict=True))
