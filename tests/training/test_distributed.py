"""Two gloo processes take the steps that one process takes on the same global batches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests.loaded_process import run_script
from torch import nn

import splitveil as sv
from splitveil.core.errors import UsageError
from splitveil.training import distributed

HERE = Path(__file__).parent
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


@pytest.mark.parametrize(("device", "backend"), [("cpu", "gloo"), ("cuda", "nccl")])
def test_the_device_decides_how_processes_talk(device: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a machine with GPUs: nccl cannot send what lies on a CPU."""
    calls: list[object] = []
    for name, value in {"WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", calls.append)
    monkeypatch.setattr(torch.distributed, "init_process_group", calls.append)
    distributed.start(torch.device(device))
    assert calls == ([1, backend] if device == "cuda" else [backend])
    if device == "cuda":
        with pytest.raises(UsageError, match="cannot share cuda:1"):
            distributed.start(torch.device("cuda:1"))
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        with pytest.raises(UsageError, match="Process 1 has no GPU of its own"):
            distributed.start(torch.device("cuda"))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be forked")
def test_two_processes_take_the_steps_of_one(small_data: Path, tmp_path: Path) -> None:
    """Every surrogate in both modes, memories and banks included, and the stages of `progressive`."""
    two, script = (HERE / name for name in ("two_processes.py", "step_processes.py"))
    done = run_script(two, "splitveil.training.engine", script, small_data, tmp_path)
    assert done.returncode == 0, done.stderr[:4000]


@pytest.mark.slow
def test_the_command_trains_on_two_processes_and_one_of_them_writes(small_data: Path, tmp_path: Path) -> None:
    recipe, out = tmp_path / "recipe.toml", tmp_path / "run"
    recipe.write_text(RECIPE.format(data=small_data, surrogate="gmm"))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    command = [*torchrun, "-m", "splitveil", "train", str(recipe), "--out", str(out), "--device", "cpu"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    said = [line for line in done.stderr.splitlines() if "elastic" not in line]
    assert done.returncode == 0, "\n".join(said)[:4000]
    assert (out / "metrics.jsonl").read_text().count("\n") == 2
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["status"], manifest["processes"]) == ("finished", 2)
    assert (out / "checkpoints" / "model.safetensors").exists()


@pytest.mark.parametrize("momentum", [0.1, None])
def test_normalisation_over_two_processes_is_that_of_the_joined_batch(
    momentum: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes with the same four values: output and running statistics of all eight, as torch has them."""
    monkeypatch.setattr(distributed, "world", lambda: (0, 2))
    monkeypatch.setattr(distributed, "_SumOverProcesses", SimpleNamespace(apply=lambda value: 2 * value))
    x = torch.randn(2, 3, 1, 2, generator=torch.Generator().manual_seed(0))
    plain, shared = nn.BatchNorm2d(3, momentum=momentum), distributed.GlobalBatchNorm(3, momentum=momentum)
    for _ in range(2):
        expected, found = plain(torch.cat([x, x]))[:2], shared(x)
        torch.testing.assert_close(found, expected)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(shared.state_dict()[name], value)


@pytest.mark.parametrize("seed", [7, 2**63 - 1])
def test_every_process_draws_what_the_main_one_draws(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots that start elsewhere in each process would make of one loss as many as there are processes."""
    monkeypatch.setattr(distributed, "world", lambda: (1, 2))
    monkeypatch.setattr(torch.distributed, "broadcast", lambda value, source: value.fill_(seed))
    surrogate = sv.surrogates.create("slot_cross", feature_shape=(8, 2, 2), num_classes=3, sigma=0.1, mode="faithful")
    distributed.copy_from_main(surrogate)
    expected = torch.rand(5, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(torch.rand(5, generator=surrogate.noise_generator), expected)
