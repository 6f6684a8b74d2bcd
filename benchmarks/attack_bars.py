"""The attacks' bars on one GPU, most important first, every number written as soon as it is known.

    python benchmarks/attack_bars.py --run runs/bottleneck --run runs/sca --data cifar10 --budget 360 --out bars.json

speed      50 epochs of the N8C64 decoder on 50,000 pictures (bar: 20 s on an H200), a few epochs of every other way of
           running a step, and the kernels that cost most
published  `decoder` on every run: final and best epoch, training time and inference time
           (bar for vgg11, cut 4, noise 0.01: MSE 0.0042, SSIM 0.86)
strong     `decoder_strong` against `decoder` on every run, with the standard tier's options (bar: better on each)
white_box  `optimize` and `refine` on vgg11 at cut 2 without noise, trained for a few epochs here (bar: 25 dB)
standard   the whole standard tier on the first run (bar: 10 minutes)
precision  `decoder` on the first run in float32, beside the usual bfloat16

A part starts only while the budget (seconds in all) lasts and is stopped when it ends or when the part's own cap is
reached; what was stopped is reported as such. The pictures of `speed` are random, which changes nothing about time.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

import splitveil as sv
from splitveil import attacks, defences, models
from splitveil.attacks import capture
from splitveil.attacks.networks import build
from splitveil.attacks.view import Scene, View
from splitveil.core.config import load_config
from splitveil.data.dataset import ImageSet
from splitveil.training.loaded_run import load_run

EPOCHS: int | None = None  # of every attack on a run, where the options ask for fewer than the tier
PARTS = ("speed", "published", "strong", "white_box", "standard", "precision")


class OutOfTime(BaseException):
    """Raised from the progress callback of a part whose cap is reached."""


class Bench:
    """The clock and the file of results."""

    def __init__(self, budget: float, out: Path) -> None:
        self.began, self.budget, self.out = time.monotonic(), budget, out
        self.results: dict[str, Any] = {"torch": torch.__version__}
        if torch.cuda.is_available():
            self.results["device"] = torch.cuda.get_device_name()

    def left(self) -> float:
        return self.budget - (time.monotonic() - self.began)

    def cell(self, name: str, work: Callable[[Callable[[str, int, int], None]], dict[str, Any]], cap: float) -> None:
        """Do one cell and write what it found; never let a failure stop the others."""
        if self.left() < 5:
            self.keep(name, {"skipped": "the budget is spent"})
            return
        started = time.monotonic()
        limit = min(cap, self.left())
        seen: list[tuple[str, int, int]] = []

        def progress(what: str, done: int, total: int) -> None:
            seen.append((what, done, total))
            if time.monotonic() - started > limit:
                raise OutOfTime

        try:
            found = work(progress)
        except OutOfTime:
            found = {"stopped_at": seen[-1]}
        except Exception as error:
            logging.exception("cell %s", name)
            found = {"error": f"{type(error).__name__}: {error}"[:600]}
        self.keep(name, {**found, "wall_s": round(time.monotonic() - started, 2)})

    def keep(self, name: str, found: dict[str, Any]) -> None:
        self.results[name] = found
        print(f"[{time.monotonic() - self.began:6.1f} s] {name}: {json.dumps(found, default=str)}", flush=True)
        temporary = self.out.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.results, indent=2, default=str))
        os.replace(temporary, self.out)


def random_scene(pictures: int, device: str) -> Scene:
    """vgg11 at cut 4 with 8 channels and noise 0.01, untrained, and random pictures."""
    model = models.create("vgg11", image_shape=(3, 32, 32), num_classes=10)
    defences.create("bottleneck", channels=8).install(model)
    model.defences["noise"] = defences.create("noise", sigma=0.01)
    model.to(device).eval().requires_grad_(False)
    stream = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (pictures + 1000, 3, 32, 32), dtype=torch.uint8, generator=stream)
    everything = ImageSet(images, torch.zeros(len(images), dtype=torch.int64)).to(device)
    own, rest = torch.arange(pictures), torch.arange(pictures, len(everything))
    return Scene(model, everything.subset(own), everything.subset(rest))


def train_decoder(scene: Scene, epochs: int, progress: Callable[[str, int, int], None], **options: Any) -> dict:
    """Seconds of the whole attack, of its first epoch (compiling and recording included) and of a later step."""
    attack = attacks.create("decoder", epochs=epochs, best_epoch="off", **options)
    synchronise(scene)
    times = [time.monotonic()]

    def watch(what: str, done: int, total: int) -> None:
        times.append(time.monotonic())
        progress(what, done, total)

    attack.run(View(scene, attack.threat_model), watch)
    synchronise(scene)
    total = time.monotonic() - times[0]
    per_epoch = sorted(after - before for before, after in pairwise(times[1:])) or [times[1] - times[0]]
    later = per_epoch[len(per_epoch) // 2]
    steps = max(1, len(scene.auxiliary) // attack.options.batch_size)
    return {
        "epochs": epochs,
        "total_s": round(total, 2),
        "first_epoch_s": round(times[1] - times[0], 2),
        "step_ms": round(1000 * later / steps, 3),
        "fifty_epochs_s": round(times[1] - times[0] + 49 * later, 1),
    }


def synchronise(scene: Scene) -> None:
    if scene.targets.images.device.type == "cuda":
        torch.cuda.synchronize()


def forced(way: str) -> Any:
    """Run steps in one way only; a way that fails falls back to eager, which the time shows."""
    return patch("splitveil.attacks.capture.ways", lambda device, steps: [way, "eager"])


def speed(bench: Bench, options: argparse.Namespace) -> None:
    scene = random_scene(options.pictures, options.device)
    size = {"blocks": options.blocks, "width": options.width}

    def whole(progress: Any) -> dict:
        return train_decoder(scene, options.epochs, progress, **size)

    def short(way: str, epochs: int, **more: Any) -> Callable[[Any], dict]:
        def work(progress: Any) -> dict:
            with forced(way):
                return train_decoder(scene, epochs, progress, **size, **more)

        return work

    if scene.targets.images.device.type != "cuda":
        bench.cell("speed/whole", whole, cap=75)  # there is only one way to run a step
        return
    bench.cell("speed/agreement", lambda p: agreement(options), cap=20)
    bench.cell("speed/fused", short("fused", 3), cap=20)
    bench.cell("speed/kernels fused", lambda p: kernels(scene, "fused", size), cap=20)
    bench.cell("speed/graph", short("graph", 3), cap=20)
    bench.cell("speed/whole", whole, cap=60)
    bench.cell("speed/kernels graph", lambda p: kernels(scene, "graph", size), cap=20)
    bench.cell("speed/compile", short("compile", 3), cap=60)
    bench.cell("speed/eager", short("eager", 2), cap=20)


def agreement(options: argparse.Namespace) -> dict[str, Any]:
    """How far a fused step is from a plain one, on one batch: answers, gradients, running statistics."""
    stream = torch.Generator(options.device).manual_seed(0)
    shape = {"blocks": options.blocks, "width": options.width, "generator": stream}
    decoder = build("residual", (8, 8, 8), (3, 32, 32), **shape).train()
    z = torch.rand(256, 8, 8, 8, device=options.device, generator=stream)
    z = z.contiguous(memory_format=torch.channels_last)
    target = torch.rand(256, 3, 32, 32, device=options.device, generator=stream)
    start = {name: value.clone() for name, value in decoder.state_dict().items()}
    found = []
    for form in (nullcontext, capture.fused):
        decoder.load_state_dict(start)
        decoder.zero_grad(set_to_none=True)
        with form() if form is nullcontext else form(decoder), torch.autocast(z.device.type, torch.bfloat16):
            answer = decoder(z)
            (answer - target).square().mean().backward()
        # a bias before a normalisation has a gradient of zero, which the fused step does not compute
        given = (parameter.grad for name, parameter in decoder.named_parameters() if not name.endswith("first.bias"))
        slopes = torch.cat([slope.flatten() for slope in given if slope is not None and slope.ndim > 1])
        buffers = torch.cat([value.flatten() for name, value in decoder.named_buffers() if "tracked" not in name])
        found.append((answer.detach().flatten(), slopes, buffers))
    (plain, fast) = found
    apart = [float((a - b).norm() / a.norm()) for a, b in zip(plain, fast, strict=True)]
    return dict(zip(("answers", "gradients", "running_statistics"), apart, strict=True))


def kernels(scene: Scene, way: str, size: dict[str, Any]) -> dict[str, Any]:
    """Microseconds per step of the kernels that cost most, over two short epochs (and a warm-up)."""
    steps = 20
    short = Scene(scene.model, scene.auxiliary.subset(torch.arange(256 * steps)), scene.targets)
    with forced(way):
        train_decoder(short, 1, lambda *_: None, **size)  # compile, and let cuDNN choose, outside the measurement
    with forced(way), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        train_decoder(short, 2, lambda *_: None, **size)
    rows = [row for row in profile.key_averages() if row.self_device_time_total > 0]
    rows.sort(key=lambda row: -row.self_device_time_total)
    everything = 2 * steps
    return {
        "sum_us": round(sum(row.self_device_time_total for row in rows) / everything),
        "launches": round(sum(row.count for row in rows) / everything),
        "top": {row.key[:90]: [round(row.self_device_time_total / everything, 1), row.count] for row in rows[:30]},
    }


def scores(entry: dict[str, Any]) -> dict[str, Any]:
    """What the bars speak of."""
    kept = {key: entry[key] for key in ("mse", "ssim", "psnr", "mse_ci95", "seconds", "num_images") if key in entry}
    if "best_epoch" in entry:
        kept["best_epoch"] = {key: entry["best_epoch"].get(key) for key in ("mse", "ssim", "psnr", "epoch")}
    for key in ("decoder", "tried"):
        if key in entry:
            kept[key] = entry[key]
    return kept


def attack_run(path: str, device: str, progress: Any, out: Path | None = None, **arguments: Any) -> dict[str, Any]:
    """Audit one run folder with some attacks; scores by name of the attack."""
    run = load_run(path, device)
    seed = run.config.seed
    report = sv.audit(run.model, run.parts, out=out, progress=progress, seed=seed, epochs=EPOCHS, **arguments)
    found: dict[str, Any] = {name: scores(entry) for name, entry in report.attacks.items()}
    found["worst_case_mse"] = report.worst_case["mse"]
    found["failures"] = report.tree["failures"]
    return found


def published(bench: Bench, options: argparse.Namespace) -> None:
    for mode in ("training_time", "inference_time"):
        for path in options.run:
            bench.cell(
                f"published/{mode} {Path(path).name}",
                lambda p, path=path, mode=mode: attack_run(
                    path, options.device, p, attacks={"decoder": {}}, tier="standard", mode=mode, check_sanity=False
                ),
                cap=90,
            )


def strong(bench: Bench, options: argparse.Namespace) -> None:
    for path in options.run:

        def work(progress: Any, path: str = path) -> dict[str, Any]:
            plan = {"decoder": {"best_epoch": "off"}, "decoder_strong": {}}
            found = attack_run(path, options.device, progress, attacks=plan, tier="standard", check_sanity=False)
            found["ratio"] = found["decoder_strong"]["mse"] / found["decoder"]["mse"]
            return found

        bench.cell(f"strong/{Path(path).name}", work, cap=options.strong_cap)


def white_box(bench: Bench, options: argparse.Namespace) -> None:
    """A shallow cut that sends 64 channels of 16 x 16 without noise; the decoder of `refine` is a short one."""
    config = load_config(
        seed=1,
        data={"name": options.data, "protocol": "published"},
        model={"name": "vgg11", "cut": 2},
        train={"epochs": options.white_box_epochs, "capture": "graph"},
    )

    def work(progress: Any) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            sv.train(config, out=Path(folder) / "run", device=options.device)
            plan = {"decoder": {"epochs": 5, "best_epoch": "shared"}, "optimize": {}, "refine": {}}
            return attack_run(
                str(Path(folder) / "run"),
                options.device,
                progress,
                attacks=plan,
                tier="standard",
                num_images=1000,
                check_sanity=False,
            )

    bench.cell("white_box", work, cap=120)


def standard(bench: Bench, options: argparse.Namespace) -> None:
    for path in options.run[:1]:
        bench.cell(
            f"standard/{Path(path).name}",
            lambda p, path=path: attack_run(
                path, options.device, p, out=options.out.parent / "standard", tier="standard"
            ),
            cap=600,
        )


def precision(bench: Bench, options: argparse.Namespace) -> None:
    for path in options.run[:1]:
        plan = {"decoder": {"precision": "float32", "best_epoch": "off"}}
        bench.cell(
            f"precision/float32 {Path(path).name}",
            lambda p, path=path, plan=plan: attack_run(
                path, options.device, p, attacks=plan, tier="standard", check_sanity=False
            ),
            cap=90,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="append", default=[], help="a finished run; the first one is the undefended")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--data", default="cifar10", help="data set of `white_box`")
    parser.add_argument("--budget", type=float, default=360.0, help="seconds in all")
    parser.add_argument("--strong-cap", type=float, default=240.0, help="seconds for decoder_strong on one run")
    parser.add_argument("--white-box-epochs", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--attack-epochs", type=int, help="epochs of the attacks on runs, to try the script itself")
    parser.add_argument("--pictures", type=int, default=50_000)
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("attack_bars.json"))
    options = parser.parse_args()
    global EPOCHS
    EPOCHS = options.attack_epochs
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    bench = Bench(options.budget, options.out)
    todo = {
        "speed": speed,
        "published": published,
        "strong": strong,
        "white_box": white_box,
        "standard": standard,
        "precision": precision,
    }
    for part in options.parts:
        todo[part](bench, options)


if __name__ == "__main__":
    main()
