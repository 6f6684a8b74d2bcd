"""Recipes that cannot train, devices without memory, disks without space: refused or ended with a reason."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import splitveil as sv
from splitveil.cli import main
from splitveil.core import run_folder
from splitveil.core.config import Config
from splitveil.core.errors import InputError, TrainingError, UsageError
from splitveil.core.run_folder import RunFolder
from splitveil.defences.noise import Noise
from splitveil.models.tiny import Tiny
from splitveil.training import checkpoint
from splitveil.training.engine import Engine
from splitveil.training.failures import explained

MakeConfig = Callable[..., Config]
FULL = OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("train.batch_size=500", "train.batch_size = 500 is larger than the 168 training pictures. Lower"),
        ("data.limit=9", "There are so few training pictures that none is left for validation. Give at least 10"),
        ("model.cut=9", "model.cut = 9 is outside tiny, which has 6 layers. Choose a cut from 1 to 5"),
        ("train.privacy_weight=-1", "'train.privacy_weight' = -1: input should be greater than or equal to 0"),
        ("train.privacy_weight=nan", "'train.privacy_weight' = nan: input should be a finite number"),
        ("surrogate.loss_scale=-0.5", "'surrogate.loss_scale' = -0.5: input should be greater than or equal to 0"),
        ("train.balanced_batches=[9, 9]", "train.balanced_batches = 9 x 9 asks for more than the data hold"),
        ("train.balanced_batches=[0, 5]", "'train.balanced_batches' = [0, 5]: a batch needs at least 1 class with 1"),
        ("train={schedule='cosine', lr=0.1, lr_min=1.0}", "train.lr_min = 1.0 is above train.lr = 0.1: the cosine"),
        ("data.protocol=published", "train.select = 'val_best' needs validation pictures that are neither"),
        ("train.init_from=nowhere", "There is no run folder nowhere."),
    ],
)
def test_the_command_refuses_what_cannot_train(
    override: str, reason: str, make_config: MakeConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, out = tmp_path / "recipe.toml", tmp_path / "run"
    recipe.write_text(make_config("train.select=val_best", surrogate={"name": "gmm"}).to_toml())
    with pytest.raises(SystemExit) as ended:
        main(["train", str(recipe), "--out", str(out), "--device", "cpu", "--set", override])
    assert ended.value.code == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith(f"error: {reason}")
    assert not (out / "config.toml").exists()  # the folder can be used at once with a better recipe


def test_a_defence_that_cannot_send_one_picture_is_told_before_training(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of one picture is counted when training has ended."""

    def mixed(self: Noise, z: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        if len(z) < 2:
            raise InputError("Pictures are mixed in pairs.")
        return z

    monkeypatch.setattr(Noise, "transmit", mixed)
    with pytest.raises(InputError, match="mixed in pairs"):
        sv.train(make_config("defence.noise.sigma=0.1"), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def _no_memory_on_the_cpu() -> None:
    torch.empty(2**50, dtype=torch.uint8)  # a pebibyte: torch's own error, in its own words


def _no_memory_on_a_gpu() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 4 GiB.")


def _no_memory_in_python() -> None:
    raise MemoryError


@pytest.mark.parametrize(
    ("fault", "size"),
    [
        (_no_memory_on_the_cpu, "needs 1073741824 MiB more"),
        (_no_memory_on_a_gpu, "needs 2.50 GiB more"),
        (_no_memory_in_python, "needs more than there is"),
    ],
)
def test_out_of_memory_says_what_to_lower(
    fault: Callable[[], None], size: str, make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "_train_epoch", lambda self: fault())
    with pytest.raises(TrainingError, match=f"Out of memory: training {size}") as caught:
        sv.train(make_config(), out=tmp_path / "run")
    assert "train.batch_size, surrogate.memory" in caught.value.hint
    manifest = RunFolder(tmp_path / "run").read_json("manifest.json")
    assert manifest is not None
    assert manifest["status"] == "failed"
    assert "Out of memory" in manifest["error"]


def test_another_runtime_error_keeps_its_name(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Engine) -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(Engine, "_train_epoch", fail)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        sv.train(make_config(), out=tmp_path / "run")


@pytest.mark.parametrize(
    "words",
    ["[enforce fail] DefaultCPUAllocator: not enough memory", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"],
)
def test_memory_is_known_to_lack_by_the_words_of_torch(words: str, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="Out of memory"), explained(tmp_path):
        raise RuntimeError(words)


def test_a_quota_is_a_full_disk_and_another_error_of_the_disk_is_not(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="is full"), explained(tmp_path):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")
    with pytest.raises(PermissionError), explained(tmp_path):
        raise PermissionError(errno.EACCES, "Permission denied")


def _weights(folder: RunFolder) -> dict[str, torch.Tensor]:
    return load_file(folder.checkpoints / "model.safetensors")


def _assert_resumes(config: Config, run: RunFolder, whole: RunFolder) -> None:
    found, expected = _weights(sv.train(config, out=run.path, resume=True)), _weights(whole)
    assert all(torch.equal(found[key], value) for key, value in expected.items())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_disk_that_fills_between_checkpoints(make_config: MakeConfig, tmp_path: Path) -> None:
    """Metrics are written first; a full disk shows there when it was a checkpoint that took the last space."""
    config, run = make_config("train.epochs=4"), RunFolder(tmp_path / "run")
    whole, metrics = sv.train(config, out=tmp_path / "whole"), run.path / "metrics.jsonl"

    def fill(row: dict[str, Any]) -> None:
        if row["epoch"] == 2:
            metrics.rename(tmp_path / "kept")
            metrics.symlink_to("/dev/full")

    with pytest.raises(TrainingError, match=r"The disk of .* is full") as caught:
        sv.train(config, out=run.path, on_epoch=fill)
    assert "--resume" in caught.value.hint
    metrics.unlink()
    os.rename(tmp_path / "kept", metrics)
    assert sorted(p.name for p in run.checkpoints.glob("state-*.json")) == ["state-000001.json", "state-000002.json"]
    _assert_resumes(config, run, whole)
    assert [row["epoch"] for row in run.metrics()] == [1, 2, 3, 4]


def test_a_manifest_that_cannot_be_written_does_not_hide_the_reason(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config("train.epochs=4")
    whole = sv.train(config, out=tmp_path / "whole")

    def full(*args: Any, **facts: Any) -> None:
        raise FULL

    def fill(row: dict[str, Any]) -> None:
        if row["epoch"] == 2:
            patch.setattr(checkpoint, "save_file", full)
            patch.setattr(run_folder, "write_json", full)

    with monkeypatch.context() as patch, pytest.raises(TrainingError, match=r"state-000003\.safetensors could not"):
        sv.train(config, out=tmp_path / "run", on_epoch=fill)
    _assert_resumes(config, RunFolder(tmp_path / "run"), whole)


def test_a_result_that_cannot_be_written_leaves_a_run_to_resume(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, real = make_config(), run_folder.write_json
    whole = sv.train(config, out=tmp_path / "whole")

    def full(path: Path, value: Any) -> None:
        if path.name == "result.json":
            raise FULL
        real(path, value)

    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "write_json", full)
        with pytest.raises(TrainingError, match="is full"):
            sv.train(config, out=tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    assert (run.read_json("manifest.json") or {})["status"] == "failed"
    _assert_resumes(config, run, whole)
    assert (run.read_json("result.json") or {})["accuracy_last"] == (whole.read_json("result.json") or {})[
        "accuracy_last"
    ]


@pytest.mark.skipif(os.name == "nt", reason="all names are text there")
def test_a_folder_whose_name_is_no_text_is_refused_before_the_work(
    make_config: MakeConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing could read the weights there."""
    run = sv.train(make_config("train.epochs=1"), out=tmp_path / "run")
    odd = Path(os.fsdecode(os.fsencode(run.path) + b"-\xff"))
    with pytest.raises(UsageError, match="is not valid UTF-8"):
        sv.train(make_config("train.epochs=1"), out=odd)
    assert not odd.exists()
    run.path.rename(odd)
    with pytest.raises(SystemExit) as stop:
        main(["audit", str(odd)])
    assert stop.value.code == 2
    told = capsys.readouterr().err
    assert f"error: The path {tmp_path / 'run-?'}/checkpoints/model.safetensors is not valid UTF-8" in told
    assert "Rename the folder" in told


class NothingInEvaluation(nn.Module):
    """Every other picture has no number there."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spoiled = torch.where(torch.arange(len(x)) % 2 == 1, torch.nan, 0.0)
        return x if self.training else x + spoiled.reshape(-1, 1, 1, 1)


def test_a_model_that_fails_in_evaluation_mode_alone_does_not_train_to_its_end(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = Tiny.layers
    monkeypatch.setattr(Tiny, "layers", lambda self, channels: [NothingInEvaluation(), *layers(self, channels)])
    words = r"^In evaluation mode the model sends values that are not finite, for 30 of 60 pictures\."
    with pytest.raises(TrainingError, match=words) as caught:
        sv.train(make_config("train.epochs=1"), out=tmp_path / "run")
    assert "lower train.lr" in caught.value.hint  # weights that diverged in the last steps end here, too
    assert "otherwise there than in training" in caught.value.hint
    run = RunFolder(tmp_path / "run")
    assert run.read_json("result.json") is None
    assert (run.read_json("manifest.json") or {})["status"] == "failed"
