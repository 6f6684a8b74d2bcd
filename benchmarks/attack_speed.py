"""How long the decoder attack of SPEC 8.1 trains: N8C64 on 50,000 colour pictures, vgg11 at cut 4 with 8 channels.

    python benchmarks/attack_speed.py [--epochs 50] [--pictures 50000] [--device cuda]

The pictures are random, which changes nothing about the time. The first epoch (warm-up, capture) is counted: a user
waits for it too. The bar is 20 s for 50 epochs on an H200.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise

import torch

from splitveil import attacks, defences, models
from splitveil.attacks.view import Scene, View
from splitveil.data.dataset import ImageSet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--pictures", type=int, default=50_000)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--width", type=int, default=64)
    arguments = parser.parse_args()
    model = models.create("vgg11", image_shape=(3, 32, 32), num_classes=10)
    defences.create("bottleneck", channels=8).install(model)
    model.defences["noise"] = defences.create("noise", sigma=0.01)
    model.to(arguments.device).eval().requires_grad_(False)
    stream = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (arguments.pictures + 1000, 3, 32, 32), dtype=torch.uint8, generator=stream)
    everything = ImageSet(images, torch.zeros(len(images), dtype=torch.int64)).to(arguments.device)
    scene = Scene(
        model,
        everything.subset(torch.arange(arguments.pictures)),
        everything.subset(torch.arange(arguments.pictures, len(everything))),
    )
    attack = attacks.create(
        "decoder", epochs=arguments.epochs, blocks=arguments.blocks, width=arguments.width, holdout=0.0
    )
    times = [time.monotonic()]
    attack.run(View(scene, attack.threat_model), lambda what, done, total: times.append(time.monotonic()))
    steps = arguments.pictures // 256
    per_epoch = [after - before for before, after in pairwise(times)]
    later = sorted(per_epoch[1:] or per_epoch)[len(per_epoch[1:]) // 2]
    print(f"{arguments.epochs} epochs of N{arguments.blocks}C{arguments.width} on {arguments.pictures} pictures:")
    print(f"{times[-1] - times[0]:.1f} s in all, first epoch {per_epoch[0]:.2f} s, then {later:.3f} s each", end=" ")
    print(f"({1000 * later / max(1, steps):.2f} ms a step) on {arguments.device}")


if __name__ == "__main__":
    main()
