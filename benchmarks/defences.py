"""What each defence costs per training step, relative to the same network without it, in one run.

    python benchmarks/defences.py [--device cuda] [--model vgg11] [--batch 128] [--rounds 50]

Every defence stands behind the same 8-channel bottleneck; `none` is that network alone. One step of each is timed in
turn, round after round, through the real trainer (on a GPU: through its recorded step): a busy machine slows all
of them alike. Printed as Markdown: the ratio of the fastest steps, which is what the work itself costs, and the median
of the ratios inside a round, which shows how far the machine let one measure it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from splitveil import data, defences
from splitveil.core.config import load_config
from splitveil.core.run_folder import RunFolder
from splitveil.models.cost import parameters
from splitveil.training.engine import Engine

PHASES = {"shredder": {"start": 0.0}, "patrol": {"prune_at": 0.0}}  # from the start on, so that the whole is timed


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", default="vgg11")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--steps", type=int, default=1, help="steps of one defence per round")
    parser.add_argument("--capture", default="graph", help="how the trainer accelerates a step on a GPU")
    parser.add_argument("--only", nargs="*", default=defences.names())
    args = parser.parse_args()
    random = np.random.default_rng(0)
    names = ["none", "no bottleneck", *[name for name in args.only if name != "bottleneck"]]
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "pictures.npz"
        pictures = random.integers(0, 256, (args.batch, 32, 32, 3), dtype=np.uint8)
        labels = np.arange(args.batch) % 10
        np.savez(source, train_x=pictures, train_y=labels, test_x=pictures[:10], test_y=labels[:10])
        engines = {name: engine_for(name, args, source, Path(place)) for name in names}
        warm_up = 6 if args.device.startswith("cuda") else 1  # a GPU records its step after four
        for engine in engines.values():
            seconds(engine, warm_up)
        times: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(args.rounds):
            for name, engine in engines.items():
                times[name].append(seconds(engine, args.steps))
    plain = parameters(engines["none"].model.edge) + parameters(engines["none"].model.defences)
    print("| defence | fastest step | median of the rounds | parameters on the device | in its adversary |")
    print("|---|---|---|---|---|")
    for name in names:
        fastest = min(times[name]) / min(times["none"])
        median = statistics.median(own / base for own, base in zip(times[name], times["none"], strict=True))
        model = engines[name].model
        adversary = sum(parameters(d.adversary) for d in model.defences.values() if d.adversary is not None)  # type: ignore[arg-type]
        device = parameters(model.edge) + parameters(model.defences) - adversary - plain
        print(f"| {name} | {fastest:.2f} | {median:.2f} | {device:+,} | {adversary:,} |")


if __name__ == "__main__":
    main()
