"""Speed and memory of every registered surrogate, as ratios within one run.

python benchmarks/surrogates.py [NAME ...]
"""

from __future__ import annotations

import sys

import torch

from splitveil.experiments.bench import measure


def main() -> None:
    torch.set_num_threads(1)
    results = measure(sys.argv[1:] or None)
    print(f"vgg11 training step: {1e3 * results['step_seconds']:.0f} ms (nan: the model is not installed)")
    print(f"{'surrogate':<14}{'ms':>8}{'/ step':>9}{'C100/C10':>10}{'loop/fast':>11}{'extra MiB':>11}")
    for name, row in results["surrogates"].items():
        print(
            f"{name:<14}{1e3 * row['seconds']:>8.2f}{row['to_step']:>9.4f}{row['c100_to_c10']:>10.2f}"
            f"{row['loop_to_fast']:>11.1f}{row['peak_mib']:>11.0f}"
        )


if __name__ == "__main__":
    main()
