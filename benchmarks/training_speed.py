"""Seconds per epoch of the real engine, each surrogate beside training without one, in one run.

    python benchmarks/training_speed.py --data ~/c10.npz --surrogates none gmm gated --capture graph --out speed.json

Every cell trains a few epochs through the same Engine as `splitveil train` and reports the mean of the last four:
training steps, evaluation and refresh, as seconds and as a ratio to `none`.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from pathlib import Path

import torch

from splitveil import data
from splitveil.core.config import Config, load_config
from splitveil.core.run_folder import RunFolder
from splitveil.training.engine import Engine


def cell(config: Config, device: torch.device) -> dict[str, float | str]:
    """Train a few epochs and time their parts."""
    parts = data.load(config.data, config.seed)
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(config, parts, RunFolder(Path(folder)), device)
        rows = []
        for _ in range(config.train.epochs):
            engine.epoch += 1
            began = time.monotonic()
            row = engine._train_epoch()
            steps = time.monotonic()
            row |= engine._evaluate()
            evaluated = time.monotonic()
            engine._refresh()
            if device.type == "cuda":
                torch.cuda.synchronize()
            ended = time.monotonic()
            rows.append((ended - began, steps - began, evaluated - steps, ended - evaluated))
        # the mean of four epochs: `enhanced` refreshes its bank in one of four
        best = [sum(column) / 4 for column in zip(*rows[-4:], strict=True)]
        captured = getattr(engine.run_step, "graphs", {})
        return {
            "epoch_s": best[0],
            "steps_s": best[1],
            "evaluate_s": best[2],
            "refresh_s": best[3],
            "captured": len(captured),
            "first_epoch_s": rows[0][0],
            "accuracy": row.get("accuracy") or 0.0,
            "rob_loss": row.get("rob_loss", 0.0),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--model", default="vgg11")
    parser.add_argument("--surrogates", nargs="+", default=["none", "gmm"])
    parser.add_argument("--mode", default="corrected")
    parser.add_argument("--capture", nargs="+", default=["graph"])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    results = {}
    for capture in args.capture:
        for name in args.surrogates:
            tree = {
                "data": {"name": args.data, "protocol": "published"},
                "model": {"name": args.model},
                "defence": {"bottleneck": {"channels": 8}, "noise": {"sigma": 0.025}},
                "train": {"epochs": args.epochs, "capture": capture, "schedule": "constant"},
            }
            if name != "none":
                tree["surrogate"] = {"name": name, "mode": args.mode}
            try:
                results[f"{capture}/{name}"] = cell(load_config(overrides=args.set, **tree), torch.device(args.device))
            except Exception as error:
                results[f"{capture}/{name}"] = {"error": f"{type(error).__name__}: {error}"[:500]}
            base = results.get(f"{capture}/none", {}).get("epoch_s")
            if base and "epoch_s" in results[f"{capture}/{name}"]:
                results[f"{capture}/{name}"]["ratio"] = results[f"{capture}/{name}"]["epoch_s"] / base
            print(f"{capture}/{name}", json.dumps(results[f"{capture}/{name}"]), flush=True)
            if args.out:
                args.out.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
