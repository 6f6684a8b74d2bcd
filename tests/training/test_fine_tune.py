"""`train.init_from`: a run that starts from the weights of a finished one (SPEC 6.4, 6.7)."""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import splitveil as sv
from splitveil.core.config import Config
from splitveil.core.errors import ConfigError, RunFolderError
from splitveil.core.run_folder import RunFolder
from splitveil.core.sections import Train
from splitveil.training.schedule import learning_rate, lr_factor

MakeConfig = Callable[..., Config]
STILL = ("train.epochs=1", "train.first_epoch_lr=zero")  # an epoch at rate 0 leaves parameters as they were


@pytest.fixture
def source(make_config: MakeConfig, tmp_path: Path) -> RunFolder:
    return sv.train(make_config("train.epochs=2", surrogate={"name": "gated"}), out=tmp_path / "source")


def weights(folder: RunFolder) -> dict[str, torch.Tensor]:
    return load_file(folder.checkpoints / "model.safetensors")


def parameters(folder: RunFolder, part: str) -> dict[str, torch.Tensor]:
    moving = ("running_mean", "running_var", "num_batches_tracked")
    return {k: v for k, v in weights(folder).items() if k.startswith(part) and not k.endswith(moving)}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_it_starts_from_the_weights_of_the_other_run(
    source: RunFolder, make_config: MakeConfig, tmp_path: Path
) -> None:
    tuned = sv.train(make_config(*STILL, f"train.init_from={source.path}"), out=tmp_path / "tuned")
    fresh = sv.train(make_config(*STILL), out=tmp_path / "fresh")
    assert same(parameters(tuned, "model."), parameters(source, "model."))
    assert not same(parameters(fresh, "model."), parameters(source, "model."))


def test_the_manifest_names_the_run_and_its_weights_without_a_path(
    source: RunFolder, make_config: MakeConfig, tmp_path: Path
) -> None:
    tuned = sv.train(make_config(*STILL, f"train.init_from={source.path}"), out=tmp_path / "tuned")
    manifest, result = tuned.read_json("manifest.json"), source.read_json("result.json")
    assert manifest is not None
    assert result is not None
    digest = hashlib.sha256((source.checkpoints / "model.safetensors").read_bytes()).hexdigest()
    assert manifest["init_from"] == {"run": "source", "sha256": digest, "signature": result["signature"]}
    assert str(tmp_path) not in str(manifest)


def test_the_same_surrogate_goes_on_and_another_starts_fresh(
    source: RunFolder, make_config: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start = f"train.init_from={source.path}"
    longer = ("train.epochs=2", "train.lr=1e-30", start)  # the surrogate needs a second epoch to be active
    with caplog.at_level(logging.INFO):
        same_kind = sv.train(make_config(*longer, surrogate={"name": "gated"}), out=tmp_path / "same")
        assert "the surrogate starts fresh" not in caplog.text
        sv.train(make_config(*longer, surrogate={"name": "slot_gated", "num_slots": 2}), out=tmp_path / "other")
    assert "the surrogate starts fresh" in caplog.text
    assert same(parameters(same_kind, "surrogate.pooling"), parameters(source, "surrogate.pooling"))
    assert parameters(source, "surrogate.pooling")


def test_a_defence_that_the_other_run_did_not_have_starts_fresh(
    source: RunFolder, make_config: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    learned = make_config(*STILL, f"train.init_from={source.path}", "defence.noise.scale=learned")
    with caplog.at_level(logging.INFO):
        tuned = sv.train(learned, out=tmp_path / "tuned")
    assert "starting from source; defence noise starts fresh" in caplog.text
    assert same(parameters(tuned, "model.edge."), parameters(source, "model.edge."))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("defence.bottleneck.channels=3", r"\S+ is \S*2\S* there and \S*3\S* here"),
        ("model.cut=2", r"\S+ is .+ there and .+ here"),
        ("model.output=batchnorm", r"\S+ is absent there and 2 here"),
        ("model.name=resnet20", r"\S+ is .+ there and .+ here"),
    ],
)
def test_another_network_is_refused_by_name_and_shape(
    source: RunFolder, make_config: MakeConfig, tmp_path: Path, override: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=f"the network of source differs: {words}"):
        sv.train(make_config(*STILL, f"train.init_from={source.path}", override), out=tmp_path / "tuned")
    assert not (tmp_path / "tuned").exists()  # the mended command would be told that a run is there already


def test_only_a_finished_run_can_be_the_start(source: RunFolder, make_config: MakeConfig, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no run folder"):
        sv.train(make_config("train.init_from=nowhere"), out=tmp_path / "a")
    (source.checkpoints / "model.safetensors").unlink()
    with pytest.raises(RunFolderError, match=r"train\.init_from: .* its weights are not here"):
        sv.train(make_config(f"train.init_from={source.path}"), out=tmp_path / "b")
    (source.path / "result.json").unlink()
    with pytest.raises(RunFolderError, match="has no finished model"):
        sv.train(make_config(f"train.init_from={source.path}"), out=tmp_path / "b")
    assert not (tmp_path / "b" / "config.toml").exists()  # refused before anything is written


def test_parts_that_differ_are_named(
    source: RunFolder, make_config: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sv.train(make_config(*STILL, f"train.init_from={source.path}"), out=tmp_path / "same")
    assert "holds out" not in caplog.text
    sv.train(make_config(*STILL, f"train.init_from={source.path}", "seed=9"), out=tmp_path / "other")
    assert "may have seen what this run holds out" in caplog.text


class Stop(Exception):  # noqa: N818
    """Stands for whatever ends a run."""


def _stop_after(epoch: int) -> Callable[[dict[str, float]], None]:
    def stop(row: dict[str, float]) -> None:
        if row["epoch"] == epoch:
            raise Stop

    return stop


def test_resume_is_exact_and_needs_the_other_run_only_before_the_first_checkpoint(
    source: RunFolder, make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(
        "train.epochs=3", "train.checkpoint_every=2", f"train.init_from={source.path}", surrogate={"name": "gated"}
    )
    whole = sv.train(config, out=tmp_path / "whole")
    for name, epoch in (("early", 1), ("late", 2)):
        with pytest.raises(Stop):
            sv.train(config, out=tmp_path / name, on_epoch=_stop_after(epoch))
    source.path.rename(tmp_path / "kept")
    late = sv.train(config, out=tmp_path / "late", resume=True)
    assert same(weights(late), weights(whole))
    with pytest.raises(RunFolderError, match="no run folder"):
        sv.train(config, out=tmp_path / "early", resume=True)
    (tmp_path / "kept").rename(source.path)
    early = sv.train(config, out=tmp_path / "early", resume=True)
    assert same(weights(early), weights(whole))
    assert (early.read_json("manifest.json") or {})["init_from"] == (whole.read_json("manifest.json") or {})[
        "init_from"
    ]


def test_a_start_that_has_changed_is_noticed(source: RunFolder, make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config("train.checkpoint_every=2", f"train.init_from={source.path}")
    with pytest.raises(Stop):
        sv.train(config, out=tmp_path / "tuned", on_epoch=_stop_after(1))
    other = sv.train(make_config("train.epochs=1"), out=tmp_path / "other")
    shutil.copy(other.checkpoints / "model.safetensors", source.checkpoints / "model.safetensors")
    with pytest.raises(ConfigError, match="has changed since this run began"):
        sv.train(config, out=tmp_path / "tuned", resume=True)


@pytest.mark.parametrize(("epochs", "expected"), [(80, [30, 50, 70]), (40, [15, 25, 35])])
def test_milestones_of_fine_tuning(epochs: int, expected: list[int]) -> None:
    train = Train(epochs=epochs, init_from="runs/x")
    drops = [e for e in range(2, epochs + 1) if learning_rate(train, e) < learning_rate(train, e - 1)]
    assert drops == expected
    own = Train(epochs=epochs, init_from="runs/x", milestones=(5,))
    assert learning_rate(own, 5) == pytest.approx(0.2 * own.lr)


@pytest.mark.parametrize("mode", ["faithful", "corrected"])
def test_the_learning_rate_factor_is_one(make_config: MakeConfig, mode: str) -> None:
    surrogate = {"name": "gmm", "mode": mode}
    assert make_config("train.init_from=runs/x", surrogate=surrogate).train.wlr == "off"
    assert make_config("train.init_from=runs/x", "train.wlr=capped", surrogate=surrogate).train.wlr == "capped"
    assert make_config(surrogate=surrogate).train.wlr == ("released" if mode == "faithful" else "capped")


def test_the_released_factor_knows_of_fine_tuning(source: RunFolder, make_config: MakeConfig, tmp_path: Path) -> None:
    assert lr_factor("released", 0.05, fine_tuning=True) == 1.0
    assert lr_factor("capped", 0.05, fine_tuning=True) == pytest.approx(0.02)
    options = ("train.epochs=2", "train.wlr=released", "train.lr=0.01", "train.privacy_weight=3")
    tuned = sv.train(
        make_config(*options, f"train.init_from={source.path}", surrogate={"name": "gmm"}), out=tmp_path / "tuned"
    )
    usual = sv.train(make_config(*options, surrogate={"name": "gmm"}), out=tmp_path / "usual")
    assert tuned.metrics()[-1]["effective_weight"] == pytest.approx(3.0)
    lr = usual.metrics()[-1]["lr"]
    assert usual.metrics()[-1]["effective_weight"] == pytest.approx(3.0 * 1e-3 / lr)
