"""Two gloo processes take the step that one process takes on the same global batch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

RECIPE = """
seed = 3
[data]
name = "{data}"
[model]
name = "tiny"
[defence.bottleneck]
channels = 2
[defence.noise]
sigma = 0.0
[surrogate]
name = "{surrogate}"
[train]
epochs = 2
batch_size = 84
warmup_epochs = 1
lr = 0.01
"""


def run(recipe: Path, out: Path, processes: int) -> dict[str, torch.Tensor]:
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    if processes == 1:
        command = [sys.executable, "-m", "splitveil"]
    else:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
        command = [sys.executable, *launcher, "-m", "splitveil"]
    command += ["train", str(recipe), "--out", str(out), "--device", "cpu"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return load_file(out / "checkpoints" / "model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("surrogate", ["gmm", "gated"])
def test_two_processes_equal_one(surrogate: str, small_data: Path, tmp_path: Path) -> None:
    """168 pictures, batch 84: two steps per epoch, the second epoch with the surrogate; banks must agree too."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(data=small_data, surrogate=surrogate))
    one, two = run(recipe, tmp_path / "one", 1), run(recipe, tmp_path / "two", 2)
    assert one.keys() == two.keys()
    for key, value in one.items():
        if value.is_floating_point():
            assert torch.allclose(value, two[key], rtol=1e-3, atol=2e-5), key
    rows = [(tmp_path / name / "metrics.jsonl").read_text().count("\n") for name in ("one", "two")]
    assert rows == [2, 2]  # rank 0 alone writes
