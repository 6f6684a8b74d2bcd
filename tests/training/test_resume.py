"""Resume: killed at any moment, the finished weights are those of an uninterrupted run, bit for bit."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.loaded_process import run_script
from tests.training.surrogate_cases import CASES

import splitveil as sv
from splitveil.core.config import Config
from splitveil.core.errors import ConfigError, InputError, RunFolderError, TrainingError, UsageError
from splitveil.core.files import append_line
from splitveil.core.pins import pin
from splitveil.core.run_folder import RunFolder
from splitveil.data.dataset import ImageSet
from splitveil.experiments.pinned import other_accuracy
from splitveil.training import checkpoint
from splitveil.training.api import _compare
from splitveil.training.engine import Engine
from splitveil.training.evaluate import Evaluator
from splitveil.training.gates import GateLog
from splitveil.training.keeping import Keeper
from splitveil.training.loaded_run import load_run
from splitveil.training.step import TrainStep

MakeConfig = Callable[..., Config]
WIDER = ("defence.bottleneck.channels=4",)  # for the heads of the cases


class Stop(Exception):  # noqa: N818
    """Stands for whatever ends a run."""


def weights(folder: RunFolder) -> dict[str, torch.Tensor]:
    return load_file(folder.checkpoints / "model.safetensors")


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_going_on_under_other_conditions_is_said(
    make_config: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def stop(row: dict[str, float]) -> None:
        raise Stop

    told = {
        "processes": "processes: was 2 when this run began, is 1 now",
        "plug_ins": "plug-ins: was 2 when this run began",
    }
    for change in (None, *told):
        out = tmp_path / str(change)
        with pytest.raises(Stop):
            sv.train(make_config(), out=out, on_epoch=stop)
        if change is not None:
            manifest = json.loads((out / "manifest.json").read_text())
            (out / "manifest.json").write_text(json.dumps(manifest | {change: 2}))
        caplog.clear()
        sv.train(make_config(), out=out, resume=True)
        said = [record.message for record in caplog.records if "when this run began" in record.message]
        assert len(said) == (change is not None)
        assert change is None or (said[0].startswith(told[change]) and said[0].endswith("; the result may differ"))


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ({"versions": {"torch": "2.8.0"}}, "torch: was 2.8.0 when this run began, is 2.9.0 now; the result may differ"),
        ({"hardware": {"gpu": None}}, "GPU: was None when this run began, is H200 now; the result may differ"),
        ({"code": "old"}, "code: was old when this run began, is new now; the result may differ"),
    ],
)
def test_other_versions_are_conditions_too(before: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture) -> None:
    now = {"processes": 1, "versions": {"torch": "2.9.0"}, "hardware": {"gpu": "H200"}, "code": "new"}
    _compare(now | before, now)
    assert caplog.messages == [said]


@pytest.mark.parametrize("case", CASES)
def test_resume_gives_the_weights_of_an_uninterrupted_run(case: str, make_config: MakeConfig, tmp_path: Path) -> None:
    """Every surrogate in both modes, with memories, banks, counters, slot noise and dropout."""
    config = make_config(*WIDER, "train.warmup_epochs=1", surrogate=CASES[case])
    whole = sv.train(config, out=tmp_path / "whole")

    def stop_after_two(row: dict[str, float]) -> None:
        if row["epoch"] == 2:
            raise Stop

    with pytest.raises(Stop):
        sv.train(config, out=tmp_path / "torn", on_epoch=stop_after_two)
    torn = sv.train(config, out=tmp_path / "torn", resume=True)
    assert same(weights(torn), weights(whole))
    assert whole.metrics()[-1]["rob_loss"] != 0
    for row, other in zip(torn.metrics(), whole.metrics(), strict=True):
        assert {k: v for k, v in row.items() if "seconds" not in k} == {
            k: v for k, v in other.items() if "seconds" not in k
        }


@pytest.mark.parametrize("case", ["slot_gated faithful", "enhanced corrected"])
def test_ctrl_c_inside_an_epoch_keeps_the_epochs_before_it(
    case: str, make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No checkpoint was due yet, and weights, momenta, statistics, counters and memories have moved on since."""
    rare = ("train.epochs=4", "train.warmup_epochs=1", "train.checkpoint_every=1000")
    config = make_config(*WIDER, *rare, surrogate=CASES[case])
    whole = sv.train(config, out=tmp_path / "whole")
    real, epochs = GateLog.look, []

    def stop_in_the_fourth(self: GateLog, step: TrainStep) -> None:
        real(self, step)
        epochs.append(step.epoch)
        if epochs[-3:] == [4, 4, 4]:
            raise KeyboardInterrupt

    monkeypatch.setattr(GateLog, "look", stop_in_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        sv.train(config, out=tmp_path / "torn")
    monkeypatch.setattr(GateLog, "look", real)
    torn = RunFolder(tmp_path / "torn")
    assert {path.stem for path in torn.checkpoints.glob("state-*")} == {"state-000003"}
    assert (torn.read_json("manifest.json") or {})["status"] == "interrupted"
    after: list[float] = []
    sv.train(config, out=torn.path, resume=True, on_epoch=lambda row: after.append(row["epoch"]))
    assert after == [4]
    assert same(weights(torn), weights(whole))
    for row, other in zip(torn.metrics(), whole.metrics(), strict=True):
        assert {k: v for k, v in row.items() if "seconds" not in k} == {
            k: v for k, v in other.items() if "seconds" not in k
        }


@pytest.mark.skipif(os.name == "nt", reason="has no SIGTERM that a process could answer")
def test_sigterm_stops_a_training_command_as_ctrl_c_does(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config("train.epochs=100000", "train.checkpoint_every=100000")
    recipe, run = tmp_path / "recipe.toml", RunFolder(tmp_path / "run")
    recipe.write_text(config.to_toml())
    command = [sys.executable, "-m", "splitveil", "-q", "train", str(recipe), "--out", str(run.path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    while len(run.metrics()) < 2 and process.poll() is None:
        time.sleep(0.01)
    process.terminate()
    said = process.communicate()[1]
    assert process.returncode == 130, said
    assert "--resume" in said
    states = [path.stem for path in run.checkpoints.glob("state-*.json")]
    # the signal may fall between an epoch's line and the copy of its state
    assert states in ([f"state-{len(run.metrics()) - late:06d}"] for late in (0, 1))
    assert (run.read_json("manifest.json") or {})["status"] == "interrupted"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be forked and killed")
def test_kill_9_inside_a_step_or_a_checkpoint(make_config: MakeConfig, tmp_path: Path) -> None:
    """Twice each, at steps drawn at random: 6 steps per epoch, 3 epochs, a checkpoint after each."""
    draw, jobs, configs = random.Random(11), [], {}
    for case in ("slot_gated faithful", "enhanced corrected"):
        config = make_config(*WIDER, "train.warmup_epochs=1", surrogate=CASES[case])
        name = case.replace(" ", "-")
        recipe, configs[name] = tmp_path / f"{name}.toml", config
        recipe.write_text(config.to_toml())
        job = {"recipe": str(recipe), "out": str(tmp_path / name)}
        jobs += [
            job | {"resume": False, "moment": "step", "at": draw.randint(7, 12)},  # in epoch 2
            job | {"resume": True, "moment": "checkpoint", "at": 1},  # of epoch 2
            job | {"resume": True, "moment": "step", "at": draw.randint(7, 12)},  # in epoch 3
        ]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    done = run_script(Path(__file__).with_name("kill_at_step.py"), tmp_path / "jobs.json")
    assert done.returncode == 0, done.stderr[-2000:]
    for name, config in configs.items():
        torn, whole = RunFolder(tmp_path / name), sv.train(config, out=tmp_path / f"{name}-whole")
        assert [row["epoch"] for row in torn.metrics()] == [1, 2]
        assert not (torn.checkpoints / "model.safetensors").exists()
        assert same(weights(sv.train(config, out=torn.path, resume=True)), weights(whole))


def test_two_runs_of_one_recipe_are_equal_and_another_seed_differs(make_config: MakeConfig, tmp_path: Path) -> None:
    one = sv.train(make_config(surrogate={"name": "gmm"}), out=tmp_path / "a")
    two = sv.train(make_config(surrogate={"name": "gmm"}), out=tmp_path / "b")
    three = sv.train(make_config("seed=7", surrogate={"name": "gmm"}), out=tmp_path / "c")
    assert same(weights(one), weights(two))
    assert not same(weights(one), weights(three))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that kills")
def test_kill_9_at_any_moment(make_config: MakeConfig, tmp_path: Path) -> None:
    """The command line, killed by the clock: a timer that it starts itself, so that it cannot end before."""
    config = make_config("train.epochs=15", surrogate={"name": "gmm"})
    whole = sv.train(config, out=tmp_path / "whole")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(config.to_toml())
    torn = RunFolder(tmp_path / "torn")
    script = tmp_path / "command.py"
    # a little after the line of epoch 5; Python knows nothing of this signal, so it ends like kill -9
    script.write_text(
        "import signal\nfrom splitveil.cli import main\nfrom splitveil.core.run_folder import RunFolder\n"
        "real = RunFolder.append_metrics\n"
        "def append(self, row):\n    real(self, row)\n"
        "    row['epoch'] == 5 and signal.setitimer(signal.ITIMER_REAL, 0.015)\n"
        "RunFolder.append_metrics = append\nmain()"
    )
    done = run_script(script, "-q", "train", recipe, "--out", torn.path)
    assert done.returncode == -signal.SIGALRM, done.stderr
    assert 5 <= len(torn.metrics()) < 15
    sv.train(config, out=torn.path, resume=True)
    assert same(weights(torn), weights(whole))


@pytest.mark.parametrize("damage", ["truncate", "flip", "json", "null"])
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(
    damage: str, make_config: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config("train.epochs=4", surrogate={"name": "gmm"})
    run = sv.train(config, out=tmp_path / "run")
    whole = weights(run)
    newest = run.checkpoints / "state-000004.safetensors"
    assert newest.exists()
    if damage == "truncate":
        newest.write_bytes(newest.read_bytes()[:100])
    elif damage == "flip":
        content = bytearray(newest.read_bytes())
        content[-5] ^= 1
        newest.write_bytes(bytes(content))
    else:
        newest.with_suffix(".json").write_text("{" if damage == "json" else "null")
    append_line(run.path / "metrics.jsonl", '{"epoch": null, "seconds": null}')  # a foreign row is in nobody's way
    (run.path / "result.json").unlink()
    (run.checkpoints / "model.safetensors").unlink()
    sv.train(config, out=run.path, resume=True)
    assert "damaged" in caplog.text
    assert same(weights(run), whole)
    assert [row["epoch"] for row in run.metrics()] == [1, 2, 3, 4]


@pytest.mark.parametrize("every", [1, 1000])
def test_last_two_and_every_nth_checkpoint_are_kept(make_config: MakeConfig, tmp_path: Path, every: int) -> None:
    """Also where no other checkpoint is due in those epochs."""
    config = make_config("train.epochs=7", "train.keep_every=3", f"train.checkpoint_every={every}")
    run = sv.train(config, out=tmp_path / "run")
    epochs = [int(p.stem.split("-")[1]) for p in sorted(run.checkpoints.glob("state-*.safetensors"))]
    assert epochs == [3, 6, 7]


def test_best_on_validation_is_kept_when_asked(make_config: MakeConfig, tmp_path: Path) -> None:
    # a rate that is far too high makes accuracy jump, so that the best epoch is not simply the last
    config = make_config("train.epochs=6", "train.select=val_best", "train.keep_every=1", "train.lr=0.8")
    run = sv.train(config, out=tmp_path / "run")
    rows = run.metrics()
    best = max(rows, key=lambda row: (row["accuracy"], -row["epoch"]))["epoch"]
    assert best < 6
    kept, then = weights(run), load_file(run.checkpoints / f"state-{best:06d}.safetensors")
    assert all(torch.equal(value, then[name]) for name, value in kept.items())


def test_a_full_disk_ends_the_run_with_the_last_good_checkpoint(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config("train.epochs=4")
    whole = sv.train(config, out=tmp_path / "whole")
    real = checkpoint.save_file
    calls = []

    def full(tensors: dict[str, torch.Tensor], path: Path, **facts: object) -> None:
        calls.append(path)
        if len(calls) > 2:
            Path(path).write_bytes(b"half")
            raise OSError(28, "No space left on device")
        real(tensors, path, **facts)

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(TrainingError, match="No space left"):
        sv.train(config, out=tmp_path / "run")
    monkeypatch.setattr(checkpoint, "save_file", real)
    run = RunFolder(tmp_path / "run")
    assert not list(run.checkpoints.glob(".*"))
    manifest = run.read_json("manifest.json")
    assert manifest is not None
    assert manifest["status"] == "failed"
    sv.train(config, out=run.path, resume=True)
    assert same(weights(run), weights(whole))


def test_an_occupied_folder_is_never_overwritten(make_config: MakeConfig, tmp_path: Path) -> None:
    sv.train(make_config(), out=tmp_path / "run")
    with pytest.raises(UsageError, match="already holds a run"):
        sv.train(make_config(), out=tmp_path / "run")
    changes = ("train.lr=0.01", "data.limit=90", "defence.dropout.p=0.5", "defence.noise.sigma=0.1")
    with pytest.raises(ConfigError) as refused:
        sv.train(make_config(*changes[:1]), out=tmp_path / "run", resume=True)
    assert refused.value.message.endswith(" was started with: train.lr was 0.05 and is 0.01.")
    with pytest.raises(ConfigError) as refused:
        sv.train(make_config(*changes), out=tmp_path / "run", resume=True)
    assert "data.limit was absent and is 90; " in refused.value.message
    assert refused.value.message.count(" was ") == 4  # "was started with", and three keys of four
    assert refused.value.message.endswith("; and 1 more.")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        sv.train(make_config(), out=tmp_path / "other")
    assert (tmp_path / "other" / "thesis.txt").read_text() == "mine"


def test_a_refused_run_leaves_neither_lock_nor_folders(make_config: MakeConfig, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    before = set(tmp_path.rglob("*"))
    for out in ("new/folder", "mine"):  # a folder that was there before stays
        with pytest.raises(ConfigError, match="larger than the"):
            sv.train(make_config("train.batch_size=100000"), out=tmp_path / out)
        assert set(tmp_path.rglob("*")) == before


def test_resume_of_nothing_is_said(make_config: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="splitveil.training")
    run = tmp_path / "run"
    said = {
        f"nothing to resume in {run}, starting from the beginning": "WARNING",
        f"{run} is already finished": "INFO",
        f"{run} has no checkpoint yet, starting from the beginning": "INFO",  # killed before the first one
    }
    for sentence, level in said.items():
        if sentence.startswith(f"{run} has"):
            (run / "result.json").unlink()
            shutil.rmtree(run / "checkpoints")
        caplog.clear()
        sv.train(make_config("train.epochs=1"), out=run, resume=True)
        assert [(record.message, record.levelname) for record in caplog.records] == [(sentence, level)]


def test_two_writers_in_one_folder_are_stopped(make_config: MakeConfig, tmp_path: Path) -> None:
    def second(row: dict[str, float]) -> None:
        for resume in (True, False):
            with pytest.raises(UsageError, match="Another process is writing"):
                sv.train(make_config(), out=tmp_path / "run", resume=resume)
        with pytest.raises(RunFolderError, match="still training, in another process"):
            load_run(tmp_path / "run")
        with pytest.raises(RunFolderError, match=r"train\.init_from: .* still training, in another process"):
            sv.train(make_config(f"train.init_from={tmp_path / 'run'}"), out=tmp_path / "tuned")

    run = sv.train(make_config(), out=tmp_path / "run", on_epoch=second)
    assert [row["epoch"] for row in run.metrics()] == [1, 2, 3]


def test_a_finished_run_comes_back_to_life(make_config: MakeConfig, tmp_path: Path) -> None:
    run = sv.train(make_config(surrogate={"name": "gmm"}), out=tmp_path / "run")
    loaded = load_run(run.path, device="cpu")
    result = run.read_json("result.json")
    assert result is not None
    with torch.no_grad():
        logits = loaded.model(loaded.parts.test.images.float() / 255)
    accuracy = (logits.argmax(1) == loaded.parts.test.labels).float().mean().item()
    assert accuracy == pytest.approx(result["accuracy_last"], abs=0.1)
    (run.checkpoints / "model.safetensors").unlink()
    with pytest.raises(RunFolderError, match="its weights are not here"):
        load_run(run.path)


DESIGN_2 = {
    "accuracy_late",
    "accuracy_last",
    "rob_loss",
    "intra_mse",
    "effective_weight",
    "surrogate",
    "defences",
    "seconds",
    "signature",
}


def test_result_json_has_what_design_2_names(make_config: MakeConfig, tmp_path: Path) -> None:
    began = time.monotonic()
    run = sv.train(make_config("train.epochs=9", surrogate={"name": "gmm"}), out=tmp_path / "run")
    result, rows = run.read_json("result.json"), run.metrics()
    assert result is not None
    assert sum(row["seconds"] for row in rows) <= result["seconds"] <= time.monotonic() - began
    ours = {"accuracy_kept", "accuracy_guessing", "works", "mode", "protocol", "epochs", "cost", "weights", "guards"}
    assert set(result) == DESIGN_2 | ours, "what nobody reads does not stand there"
    assert [row["epoch"] for row in rows] == list(range(1, 10))
    assert result["accuracy_late"] == rows[-1]["test_accuracy"]  # a ninth of nine epochs is one
    assert "test_accuracy" not in rows[0]  # test pictures are not looked at before the last eighth
    config = tomllib.loads((run.path / "config.toml").read_text(encoding="utf-8"))
    assert not other_accuracy(result, rows, config)
    assert other_accuracy({**result, "accuracy_kept": result["accuracy_kept"] + 0.01}, rows, config)
    assert all(result[key] is not None for key in DESIGN_2)
    for key in ("epoch", "task_loss", "rob_loss", "intra_mse", "accuracy", "lr", "seconds"):
        assert key in rows[-1]
    manifest = run.read_json("manifest.json")
    assert manifest is not None
    assert manifest["status"] == "finished"
    assert {"versions", "hardware", "revision", "seed", "data", "started", "ended"} <= manifest.keys()
    assert {"python", "splitveil", "torch", "numpy"} <= manifest["versions"].keys()
    assert manifest["data"]["checksum"].startswith(pin(result["signature"], "data"))
    assert manifest["started"] <= manifest["ended"]
    assert str(tmp_path) not in str(manifest)


@pytest.mark.parametrize("surrogate", [None, "gmm"])
def test_every_line_of_metrics_has_what_design_2_names(
    surrogate: str | None, make_config: MakeConfig, tmp_path: Path
) -> None:
    named = {"name": surrogate} if surrogate else None
    folder = sv.train(make_config("train.epochs=2", "train.eval_every=2", surrogate=named), out=tmp_path / "run")
    rows = folder.metrics()
    assert [row["epoch"] for row in rows] == [1, 2]
    for row in rows:
        keys = {"epoch", "task_loss", "rob_loss", "intra_mse", "accuracy", "lr", "seconds"}
        assert keys <= row.keys()
        acted = surrogate is not None and row["epoch"] == 2  # null where nothing was measured: warm-up, no surrogate
        assert [isinstance(row[key], float) for key in ("rob_loss", "intra_mse")] == [acted, acted]
        assert isinstance(row["accuracy"], float) == (row["epoch"] == 2)


def test_weights_of_another_recipe_are_not_loaded(make_config: MakeConfig, tmp_path: Path) -> None:
    folder = sv.train(make_config("train.epochs=1"), out=tmp_path / "run")
    text = (folder.path / "config.toml").read_text().replace("channels = 2", "channels = 3")
    (folder.path / "config.toml").write_text(text)
    with pytest.raises(RunFolderError, match=r"does not fit the run's config.toml: size mismatch") as told:
        load_run(folder.path)
    assert "\n" not in told.value.message


@pytest.mark.parametrize("wrong", ["demo-fashion-mini", {"seed": 1}])
def test_training_asks_for_a_config(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="load_config"):
        sv.train(wrong, out=tmp_path / "run")


def test_a_run_that_converges_early_still_has_a_result(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Keeper, "converged", lambda self: len(self.folder.metrics()) == 2)
    run = sv.train(make_config("train.epochs=40", "train.stop=converged"), out=tmp_path / "run")
    result = run.read_json("result.json")
    assert result is not None
    assert result["epochs"] == 2
    assert 0 < result["accuracy_late"] <= 1
    with pytest.raises(ConfigError, match="test accuracy"):
        sv.train(make_config("train.stop=converged", "data.protocol=published"), out=tmp_path / "other")


def test_the_best_test_accuracy_and_that_under_new_noise_are_recorded(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, float]] = []
    measure = Evaluator.accuracy

    def listen(self: Evaluator, part: ImageSet, epoch: int) -> float:
        asked.append((epoch, measure(self, part, epoch)))
        return asked[-1][1]

    monkeypatch.setattr(Evaluator, "accuracy", listen)
    run = sv.train(make_config("train.epochs=3", "train.select=test_best"), out=tmp_path / "run")
    result = run.read_json("result.json") or {}
    assert result["accuracy_best"] == max(row["test_accuracy"] for row in run.metrics())
    assert asked[-1] == (4, result["accuracy_retest"])  # the noise of an epoch that there was not
    run = sv.train(make_config("train.epochs=1"), out=tmp_path / "plain")
    assert "accuracy_best" not in (run.read_json("result.json") or {})


def test_the_accuracy_of_the_selected_weights_is_recorded(make_config: MakeConfig, tmp_path: Path) -> None:
    run = sv.train(make_config("train.epochs=5", "train.select=val_best"), out=tmp_path / "run")
    result = run.read_json("result.json")
    assert result is not None
    loaded = load_run(run.path, device="cpu")
    with torch.no_grad():
        logits = loaded.model.cloud(loaded.model.edge(loaded.parts.test.images.float() / 255))
    clean = (logits.argmax(1) == loaded.parts.test.labels).float().mean().item()
    assert result["accuracy_kept"] == pytest.approx(clean, abs=0.05)  # noise of 0.05 moves a few of 60 pictures


def test_training_without_a_folder_makes_one_named_after_the_run(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = sv.train(make_config("train.epochs=1"))
    assert run.path.parent.name == "runs"
    assert run.path.name.startswith("small-none-")


def test_s6_3_warm_up_leaves_the_surrogate_alone(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config("train.epochs=6", "train.warmup_epochs=5", surrogate={"name": "gated", "mode": "faithful"})
    seen: list[bool] = []
    first: dict[str, torch.Tensor] = {}

    class Spy(Engine):
        def _train_epoch(self) -> dict[str, float]:
            assert self.surrogate is not None
            if not first:
                first.update({k: v.clone() for k, v in self.surrogate.named_parameters()})
            row = super()._train_epoch()
            moved = any(not torch.equal(v, first[k]) for k, v in self.surrogate.named_parameters())
            seen.append(moved)
            assert (row["rob_loss"] is not None) == (self.epoch > 5)
            return row

    from splitveil import data

    Spy(config, data.load(config.data, config.seed), RunFolder(tmp_path / "run"), torch.device("cpu")).run()
    assert seen == [False] * 5 + [True]


@pytest.mark.parametrize("name", sv.surrogates.names())
def test_s6_7_weight_zero_is_bit_equal_to_no_surrogate(name: str, make_config: MakeConfig, tmp_path: Path) -> None:
    without = sv.train(make_config(), out=tmp_path / "without")
    heads = {"num_heads": 2} if name == "slot_cross" else {}
    zero = sv.train(make_config("train.privacy_weight=0", surrogate={"name": name, **heads}), out=tmp_path / "zero")
    model = {k: v for k, v in weights(zero).items() if k.startswith("model.")}
    assert same(model, weights(without))


def test_s6_7_the_surrogate_group_follows_the_schedule(make_config: MakeConfig, tmp_path: Path) -> None:
    from splitveil import data

    config = make_config("train.warmup_epochs=1", surrogate={"name": "gated", "mode": "faithful"})
    engine = Engine(config, data.load(config.data, config.seed), RunFolder(tmp_path / "run"), torch.device("cpu"))
    for lr in (0.05, 0.01):
        engine._set_rates(lr, 1.0, 1.0)
        assert {group["name"]: group["lr"] for group in engine.optimiser.param_groups} == {
            "edge": lr, "cloud": lr, "surrogate": lr,
        }  # fmt: skip


def test_a_run_killed_before_its_first_file_can_be_started_again(make_config: MakeConfig, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for name in (".lock", ".config.toml.x1.part"):
        (tmp_path / "run" / name).write_text("half")
    run = sv.train(make_config(), out=tmp_path / "run")
    assert len(run.metrics()) == 3
    assert not list(run.path.rglob(".*.part"))


def test_what_a_killed_run_left_half_written_is_cleared(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config()
    run = sv.train(config, out=tmp_path / "run")
    (run.path / "result.json").unlink()
    half = run.checkpoints / ".state-000003.safetensors.x2.part"
    half.write_bytes(b"half")
    sv.train(config, out=run.path, resume=True)
    assert not half.exists()


def test_states_that_a_resumed_run_has_passed_over_do_not_stay(tmp_path: Path) -> None:
    """A damaged one of a later epoch would take the place of the one to fall back to; so would lonely tensors."""
    folder = tmp_path / "run"
    module = torch.nn.Linear(1, 1)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    for epoch in (2, 3, 9):
        checkpoint.save_state(folder, epoch, checkpoint.take_state({"model": module}, optimiser), {}, None)
    (folder / "state-000009.json").write_text("{")
    (folder / "state-000007.safetensors").write_bytes(b"its JSON was never written")
    assert checkpoint.load_state(folder, {"model": module}, optimiser)["epoch"] == 3
    for epoch in (4, 5):
        checkpoint.save_state(folder, epoch, checkpoint.take_state({"model": module}, optimiser), {}, None)
    assert {path.stem for path in folder.iterdir()} == {"state-000004", "state-000005"}


def test_a_run_without_an_intact_checkpoint_says_that_it_starts_again(
    make_config: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config()
    run = sv.train(config, out=tmp_path / "run")
    first = weights(run)
    (run.path / "result.json").unlink()
    for state in run.checkpoints.glob("state-*.json"):
        state.write_text("{")
    sv.train(config, out=run.path, resume=True)
    assert "no checkpoint is intact: the run starts again from the beginning" in caplog.text
    assert same(weights(run), first)


def test_weights_that_cannot_be_read_are_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"nowhere\.safetensors cannot be read: .*No such file") as told:
        checkpoint.read_weights(tmp_path / "nowhere.safetensors")
    assert "Train the run again" in told.value.hint


def test_finished_weights_that_were_damaged_are_not_loaded(make_config: MakeConfig, tmp_path: Path) -> None:
    run = sv.train(make_config(), out=tmp_path / "run")
    path = run.checkpoints / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1  # inside a tensor: the file still parses
    path.write_bytes(bytes(content))
    with pytest.raises(RunFolderError, match="its checksum differs"):
        load_run(run.path, device="cpu")
