"""What augmentation costs, as a share of a training step of `tiny` on the CPU (bar: under 10 %).

    python benchmarks/augmentation.py [THREADS]

Both are timed in turn, round after round, in one process; the medians are compared. Exit code 1 when the bar is missed.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from splitveil import data, models
from splitveil.data.augment import Augmentation, augment, to_float

BATCH, ROUNDS, WARM_UP, BAR = 128, 60, 5, 0.10


def training_step() -> Callable[[], None]:
    """One step of plain training of `tiny` on a batch of embedded pictures."""
    batch = data.create("fashion-mini").train.subset(torch.arange(BATCH))
    model = models.create("tiny", image_shape=(1, 28, 28), num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = to_float(batch.images)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model.cloud(model.edge(images)), batch.labels).backward()
        optimizer.step()

    return step


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> int:
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    found = data.create("fashion-mini")
    images = found.train.images[:BATCH]
    generator = torch.Generator().manual_seed(0)
    calls: dict[str, Callable[[], object]] = {
        "training step": training_step(),
        "crop + flip (what fashion-mini declares)": lambda: augment(images, found.info.augmentation, generator),
        "crop + flip + rotation": lambda: augment(images, Augmentation(2, True, 15), generator),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for round_number in range(WARM_UP + ROUNDS):
        for name, call in calls.items():
            elapsed = seconds(call)
            if round_number >= WARM_UP:
                times[name].append(elapsed)
    medians = {name: statistics.median(values) for name, values in times.items()}
    step, declared, _ = medians.values()
    for name, median in medians.items():
        print(f"{name:42s} {1000 * median:7.2f} ms   {median / step:6.1%} of a step")
    print(f"ratio {declared / step:.4f} (bar {BAR:.2f}), batch {BATCH}, {torch.get_num_threads()} thread(s)")
    return 0 if declared / step < BAR else 1


if __name__ == "__main__":
    sys.exit(main())
