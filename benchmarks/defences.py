"""What each defence costs per training step, relative to the same network without it, in one run.

    python benchmarks/defences.py [--device cuda] [--model vgg11] [--batch 128] [--rounds 25] [--write docs/defences.md]

Every defence stands behind the same 8-channel bottleneck; `none` is that network alone. Each is timed in turn, round
after round and every second round backwards, through the real trainer: a busy machine slows all of them alike. On a
GPU the trainer records its step as a CUDA graph, and a turn is 20 steps, so that waiting for the GPU at its end weighs
little. (Long runs compile the step as well, which takes half a minute each: `--capture compile`.) Printed as Markdown:
the ratio of the fastest turns, which is what the work itself costs, and the median of the ratios inside a round, which
shows how far the machine let one measure it. `--write` puts the table into the page.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from splitveil import data, defences
from splitveil.core.config import load_config
from splitveil.core.run_folder import RunFolder
from splitveil.models.cost import cost, parameters
from splitveil.training.capture import CapturedStep
from splitveil.training.engine import Engine

PHASES = {"shredder": {"start": 0.0}, "patrol": {"prune_at": 0.0}}  # from the start on, so that the whole is timed
BEGIN, END = "<!-- cost table: written by benchmarks/defences.py -->", "<!-- end of the cost table -->"


def engine_for(name: str, args: argparse.Namespace, source: Path, folder: Path) -> Engine:
    """A trainer at the beginning of its first epoch, with one defence behind the bottleneck."""
    tables: dict[str, dict[str, float]] = {"bottleneck": {"channels": 8}}
    if name not in ("none", "bottleneck"):
        tables[name] = PHASES.get(name, {})
    config = load_config(
        data={"name": str(source), "protocol": "published", "augment": False},
        model={"name": args.model},
        defence={} if name == "no bottleneck" else tables,
        train={"epochs": 2, "batch_size": args.batch, "capture": args.capture},
    )
    engine = Engine(config, data.load(config.data, config.seed), RunFolder(folder / name), torch.device(args.device))
    engine.epoch = 1
    engine._set_rates(0.01, 0.0, 1.0)
    engine._tell_defences()
    engine.model.train()
    return engine


def seconds(engine: Engine, steps: int) -> float:
    """Wall time of so many steps on one batch."""
    part, device = engine.parts.train, engine.device
    size = engine.config.train.batch_size
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        engine.run_step(part.images[:size], part.labels[:size])
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def measure(engines: dict[str, Engine], rounds: int, steps: int) -> dict[str, list[float]]:
    """Seconds per turn of each, round by round."""
    times: dict[str, list[float]] = {name: [] for name in engines}
    for turn in range(rounds):
        for name in list(engines)[:: 1 if turn % 2 == 0 else -1]:  # a drift inside rounds cancels over two of them
            times[name].append(seconds(engines[name], steps))
    return times


def table(engines: dict[str, Engine], times: dict[str, list[float]]) -> list[str]:
    """The rows of the page."""
    plain = cost(engines["none"].model).edge_params
    lines = [
        "| defence | fastest | median of the rounds | parameters on the device | in its adversary |",
        "|---|---|---|---|---|",
    ]
    for name, engine in engines.items():
        fastest = min(times[name]) / min(times["none"])
        median = statistics.median(own / base for own, base in zip(times[name], times["none"], strict=True))
        adversary = sum(parameters(network) for network in engine.model.adversaries().values())
        device = cost(engine.model).edge_params - plain
        lines.append(f"| {name} | {fastest:.2f} | {median:.2f} | {device:+,} | {adversary:,} |")
    return lines


def circumstances(args: argparse.Namespace, engines: dict[str, Engine]) -> str:
    """One sentence on how the numbers came about."""
    cuda = args.device.startswith("cuda")
    recorded = [isinstance(e.run_step, CapturedStep) and bool(e.run_step.graphs) for e in engines.values()]
    eager = [name for name, done in zip(engines, recorded, strict=True) if not done]
    where = torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} thread(s)"
    how = "eager" if not cuda else f"recorded steps ({args.capture})" + (f" but {', '.join(eager)}" if eager else "")
    number, version = str(engines["none"].precision).removeprefix("torch."), torch.__version__.split("+")[0]
    return (
        f"Measured in one run on {where}: `{args.model}`, batches of {args.batch}, "
        f"{args.rounds} rounds of {args.steps} step(s), {how}, {number}, torch {version}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", default="vgg11")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--steps", type=int, help="steps of one defence per round (20 on a GPU, 1 elsewhere)")
    parser.add_argument("--capture", default="graph", help="how the trainer accelerates a step on a GPU")
    parser.add_argument("--only", nargs="*", default=defences.names())
    parser.add_argument("--write", type=Path, help="the page whose table is replaced")
    args = parser.parse_args()
    cuda = args.device.startswith("cuda")
    args.steps = args.steps or (20 if cuda else 1)
    began = time.perf_counter()
    random = np.random.default_rng(0)
    names = ["none", "no bottleneck", *[name for name in args.only if name != "bottleneck"]]
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "pictures.npz"
        pictures = random.integers(0, 256, (args.batch, 32, 32, 3), dtype=np.uint8)
        labels = np.arange(args.batch) % 10
        np.savez(source, train_x=pictures, train_y=labels, test_x=pictures[:10], test_y=labels[:10])
        engines = {name: engine_for(name, args, source, Path(place)) for name in names}
        for engine in engines.values():
            seconds(engine, 6 if cuda else 1)  # a GPU records its step after four
        times = measure(engines, args.rounds, args.steps)
    lines = [*table(engines, times), "", circumstances(args, engines)]
    print("\n".join(lines))
    print(f"\n{time.perf_counter() - began:.0f} s in all", file=sys.stderr)
    if args.write is not None:
        before, _, rest = args.write.read_text(encoding="utf-8").partition(BEGIN)
        page = before + "\n".join([BEGIN, "", *lines, "", END]) + rest.partition(END)[2]
        args.write.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
