"""`splitveil explain` on real, tiny runs: what is written agrees with the model, and the command draws it."""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import splitveil as sv
from splitveil.cli import main
from splitveil.core.config import load_config
from splitveil.core.errors import RunFolderError, UsageError
from splitveil.core.seeding import generator
from splitveil.data.augment import to_float
from splitveil.experiments.explain import explain
from splitveil.experiments.gate_summary import relative_attention
from splitveil.experiments.token_maps import token_maps
from splitveil.training.evaluate import clean_features
from splitveil.training.gate_maps import gate_maps
from splitveil.training.loaded_run import load_run

MakeRun = Callable[..., Path]
PICTURES = 20  # enough for a plane, quick for t-SNE


@pytest.fixture
def make_run(small_data: Path, tmp_path: Path) -> MakeRun:
    def make(name: str, *overrides: str, surrogate: dict[str, Any] | None = None) -> Path:
        tree: dict[str, Any] = {
            "data": {"name": str(small_data)},
            "model": {"name": "tiny"},
            "defence": {"bottleneck": {"channels": 2}, "noise": {"sigma": 0.05}},
            "train": {"epochs": 2, "batch_size": 32, "warmup_epochs": 0},
        }
        if surrogate is not None:
            tree["surrogate"] = surrogate
        return sv.train(load_config(overrides=list(overrides), **tree), out=tmp_path / name).path

    return make


FAITHFUL = {"name": "gated", "mode": "faithful"}


def test_gates_of_the_final_state_on_test_pictures(make_run: MakeRun) -> None:
    path = make_run("run", "train.epochs=3", "train.store_gates=true", surrogate=FAITHFUL)
    tree = explain(path, num_images=PICTURES)
    assert json.loads((path / "explain" / "explain.json").read_text()) == tree
    run = load_run(path)
    assert run.surrogate is not None
    chosen = torch.randperm(len(run.parts.test), generator=generator(run.config.seed, "explain"))[:PICTURES]
    pictures = run.parts.test.subset(chosen)
    turns = [[place for place, one in enumerate(pictures.labels.tolist()) if one == label] for label in range(3)]
    order = [place for turn in itertools.zip_longest(*turns) for place in turn if place is not None]
    batch = pictures.subset(torch.tensor(order))  # one of each class in turn: no class is short of samples
    z, y = next(clean_features(run.model, batch))
    maps = gate_maps(run.surrogate, z, y, epoch=3)
    found = tree["maps"]
    assert found["labels"] == y.tolist()
    assert found["attention"] == pytest.approx(relative_attention(maps["attn"].tolist(), y.tolist()), abs=1e-4)
    expected = maps["gate_hard"][:, 0].unflatten(1, (2, -1)).mean(dim=2)  # [C, channels]
    assert np.allclose(found["snr_gate"]["by_class"], expected, atol=1e-4)
    assert tree["training"]["epochs"] == [2, 3]  # the surrogate never acts in the first
    assert set(tree["training"]) == {"epochs", "dimension_gate", "snr_gate", "class_gate", "effective_samples"}
    assert tree["signature"].endswith(f"|explain|images:{PICTURES}|seed:{run.config.seed}")


def test_planes_show_what_is_sent(make_run: MakeRun) -> None:
    defended, undefended = make_run("defended", surrogate={"name": "rate"}), make_run("open", "defence.noise.sigma=0")
    tree = explain(defended, against=undefended, num_images=PICTURES)
    assert tree["maps"] == {}  # `rate` has no maps
    assert tree["training"] == {}
    assert [plane["run"] for plane in tree["planes"].values()] == ["open", "defended"]
    assert list(tree["planes"]) == ["before", "after"]
    # the same pictures in both, and the plane is that of the features with their noise
    assert tree["planes"]["before"]["labels"] == tree["planes"]["after"]["labels"]
    run = load_run(defended)
    seed = run.config.seed
    chosen = torch.randperm(len(run.parts.test), generator=generator(seed, "explain"))[:PICTURES]
    with torch.no_grad():
        sent = run.model.send(to_float(run.parts.test.images[chosen]), generator(seed, "explain noise"))
    x = sent.flatten(1).double()
    variance = torch.linalg.svdvals(x - x.mean(0)).square()
    ratio = (variance[:2] / variance.sum()).tolist()
    assert tree["planes"]["after"]["pca_ratio"] == pytest.approx(ratio, abs=1e-4)


def test_before_and_after_lie_the_same_way(make_run: MakeRun) -> None:
    tree = explain(make_run("after", "seed=5"), against=make_run("before"), num_images=40)
    before, after = (np.array(tree["planes"][name]["pca"]) for name in ("before", "after"))
    assert ((before - before.mean(0)) * (after - after.mean(0))).sum(0).min() >= 0


def test_the_seed_decides(make_run: MakeRun) -> None:
    path = make_run("run")
    first, again, other = (explain(path, num_images=PICTURES, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first["planes"] != other["planes"]


def test_slots_look_somewhere(make_run: MakeRun) -> None:
    path = make_run("run", surrogate={"name": "slot_cross", "num_heads": 2})
    looks = explain(path, num_images=PICTURES)["looks"]
    assert looks["places"] == [2, 2]
    assert [picture["label"] for picture in looks["pictures"]][:3] == [0, 1, 2]
    for picture in looks["pictures"]:
        maps = np.array(picture["slots"])
        assert maps.shape == (8, 4)
        assert np.allclose(maps.mean(axis=1), 1.0, atol=2e-3)
    run = load_run(path)
    assert run.surrogate is not None
    assert all(not module._forward_hooks for module in run.surrogate.modules())


def test_token_maps_are_the_last_attention() -> None:
    surrogate = sv.surrogates.create(
        "slot_cross", feature_shape=(4, 2, 3), num_classes=2, sigma=0.1, num_heads=2, num_slots=3
    )
    z, y = torch.rand(6, 4, 2, 3, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 2
    images = torch.zeros(6, 3, 5, 5, dtype=torch.uint8)
    found = token_maps(surrogate, z, y, images)
    surrogate.eval()
    with torch.no_grad():
        _, attention = surrogate.slots(surrogate.tokens(z.flatten(1)), y, None, None)  # type: ignore[operator]
    expected = attention.mean(dim=1)[0]
    expected = expected / expected.mean(dim=1, keepdim=True)
    assert np.allclose(found["pictures"][0]["slots"], expected, atol=1e-3)
    assert [picture["label"] for picture in found["pictures"]] == [0, 1, 0, 1, 0, 1]
    flat = sv.surrogates.create("gated", feature_shape=(4,), num_classes=2, sigma=0.1)
    assert token_maps(flat, torch.rand(6, 4), y, images) == {}


@pytest.mark.parametrize("channels", [1, 3])
def test_the_pictures_beside_token_maps_are_those_of_each_class_first(channels: int) -> None:
    surrogate = sv.surrogates.create("slot_cross", feature_shape=(4, 2, 3), num_classes=3, sigma=0.1, num_heads=2)
    random = torch.Generator().manual_seed(0)
    z, y = torch.rand(9, 4, 2, 3, generator=random), torch.tensor([1, 1, 1, 0, 1, 0, 0, 2, 1])
    images = torch.randint(256, (9, channels, 5, 7), dtype=torch.uint8, generator=random)
    found = token_maps(surrogate, z, y, images)["pictures"]
    assert [picture["label"] for picture in found] == [0, 1, 2, 1, 1, 1]
    for picture, place in zip(found, (3, 0, 7, 1, 2, 4), strict=True):
        pixels = np.array(Image.open(io.BytesIO(base64.b64decode(picture["png"]))))
        assert np.array_equal(pixels.reshape(5, 7, channels), images[place].permute(1, 2, 0))


def test_a_surrogate_without_weight_is_not_shown(make_run: MakeRun) -> None:
    path = make_run("run", "train.privacy_weight=0", surrogate={"name": "gmm"})
    tree = explain(path, num_images=PICTURES)
    assert tree["surrogate"] is None
    assert tree["maps"] == {}


def test_what_cannot_be_explained(make_run: MakeRun, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no run folder"):
        explain(tmp_path / "absent")
    path = make_run("run")
    with pytest.raises(UsageError, match="at least 10"):
        explain(path, num_images=3)
    other = np.load(tmp_path / "small.npz")
    np.savez(tmp_path / "other.npz", **other)
    stranger = sv.train(
        load_config(data={"name": str(tmp_path / "other.npz")}, model={"name": "tiny"}, train={"epochs": 1}),
        out=tmp_path / "stranger",
    ).path
    with pytest.raises(UsageError, match="on the same data"):
        explain(path, against=stranger, num_images=PICTURES)


def test_a_collapsed_encoder_is_said_and_the_rest_is_shown(make_run: MakeRun) -> None:
    from safetensors.torch import load_file, save_file

    path = make_run("run", "defence.noise.sigma=0")
    weights = path / "checkpoints" / "model.safetensors"
    tensors = load_file(weights)
    zeroed = {key: value * 0 if key.startswith("model.edge") else value for key, value in tensors.items()}
    save_file({key: value.contiguous() for key, value in zeroed.items()}, weights)
    tree = explain(path, num_images=PICTURES)
    assert tree["planes"] == {}
    assert "collapsed" in tree["notes"][0] or "not finite" in tree["notes"][0]


def test_the_command_draws_every_figure(make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_run("run", "train.store_gates=true", surrogate={"name": "slot_gated", "mode": "faithful"})
    out = tmp_path / "figures"
    capsys.readouterr()
    main_exit(["explain", str(path), "--against", str(path), "--out", str(out), "--num-images", "20", "--json"])
    told = json.loads(capsys.readouterr().out)
    names = {
        "slot_mass", "slot_training", "assignment", "dimension_gate", "dimension_gate_places", "snr_gate",
        "snr_gate_places", "gate_training", "pca", "tsne",
    }  # fmt: skip
    assert set(told["figures"]) == names
    assert {file.stem for file in out.glob("*.svg")} == names
    assert (path / "explain" / "explain.json").is_file()


def test_the_command_in_words(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_run("run", surrogate={"name": "gated"})
    capsys.readouterr()
    main_exit(["explain", str(path), "--num-images", "20"])
    told = capsys.readouterr().out
    assert str(path / "explain" / "pca.svg") in told
    assert "No gate maps: gated (corrected) was trained without gates" in told
    assert "No curves over training: the run did not keep them" in told
    assert "of nearest neighbours are of the same class" in told
    with pytest.raises(SystemExit) as ended:
        main(["explain", str(path), "--lang", "fr"])
    assert ended.value.code == 2


@pytest.mark.parametrize(
    "surrogate", [{"name": "slot_gated"}, {"name": "gated", "preset": "gated.raw"}, FAITHFUL | {"gates": "none"}]
)
def test_advice_that_is_followed_helps(
    surrogate: dict[str, str], make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever took the gates away: the mode, a preset or the option itself."""
    path = make_run("run", surrogate=surrogate)
    for place in ("with gates", "with curves"):
        capsys.readouterr()
        main_exit(["explain", str(path), "--num-images", "20"])
        advice = re.findall("splitveil (train .*) NEW_DIR", capsys.readouterr().out)
        path = tmp_path / place
        main_exit([*shlex.split(advice[0]), str(path)])
    capsys.readouterr()
    main_exit(["explain", str(path), "--num-images", "20"])
    told = capsys.readouterr().out
    assert str(path / "explain" / "snr_gate.svg") in told
    assert "No " not in told


@pytest.mark.parametrize("kept", ["true", "false"])
def test_curves_that_cannot_be_are_not_said_to_be_missing(
    kept: str, make_run: MakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_run("run", f"train.store_gates={kept}", surrogate={"name": "rate"})
    capsys.readouterr()
    main_exit(["explain", str(path), "--num-images", "20"])
    told = capsys.readouterr().out
    assert "No curves over training: rate has no attention, slots or gates." in told
    assert "store_gates" not in told  # which would train again for nothing


def test_curves_of_a_surrogate_that_never_acted(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_run("run", "train.store_gates=true", "train.warmup_epochs=9", surrogate={"name": "slot_gated"})
    capsys.readouterr()
    main_exit(["explain", str(path), "--num-images", "20"])
    assert "No curves over training: slot_gated acted in no epoch" in capsys.readouterr().out


@pytest.mark.parametrize("which", ["the run", "--out"])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """explain.json lies in the run, whatever --out says."""
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "config.toml").touch()
    (tmp_path / "run" / "checkpoints" / "model.safetensors").touch()
    (tmp_path / "figures").mkdir()
    refused = tmp_path / ("run" if which == "the run" else "figures")

    def refuse(dir: Path) -> contextlib.AbstractContextManager[None]:  # nothing is read-only for root
        if dir == refused:
            raise PermissionError(13, "Permission denied")
        return contextlib.nullcontext()

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    monkeypatch.setattr("splitveil.experiments.explain.load_run", lambda *_: pytest.fail("the work began"))
    with pytest.raises(SystemExit) as ended:
        main(["explain", str(tmp_path / "run"), "--out", str(tmp_path / "figures")])
    assert ended.value.code == 2
    assert f"{refused} cannot be written (Permission denied)." in capsys.readouterr().err.replace("\n", " ")


def main_exit(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0


def test_a_cell_of_a_sweep_is_called_by_its_method(make_run: MakeRun) -> None:
    path = make_run("0123456789ab")
    cell = {"id": "0123456789ab", "method": "noise only", "coordinates": {"defence.noise.sigma": 0.05}}
    (path / "cell.json").write_text(json.dumps(cell))
    tree = explain(path, num_images=PICTURES)
    assert tree["planes"]["after"]["run"] == f"noise only, sigma 0.05, seed {load_run(path).config.seed}"
