"""`splitveil audit FILE.py:NAME`: models that Splitveil did not train."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import splitveil as sv
from splitveil.audit.foreign import audit_own, load_foreign, load_weights
from splitveil.audit.run import audit_run
from splitveil.cli import main
from splitveil.core.errors import InputError, SplitveilError, UsageError

CODE = """
import torch
from torch import nn
import splitveil as sv
from neighbour import WIDTH


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, WIDTH, 3, stride=2, padding=1)
        self.last = nn.Linear(WIDTH * 16, 3)

    def forward(self, x):
        return self.last(torch.sigmoid(self.first(x)).flatten(1))


net = Net()
halves = (nn.Conv2d(1, 2, 3, stride=2, padding=1), nn.Sequential(nn.Flatten(), nn.Linear(32, 3)))


def defended():
    model = sv.SplitModel(*halves)
    model.defences["noise"] = sv.defences.create("noise", sigma=0.5)
    return model


def broken():
    raise RuntimeError("boom")


number = 3
"""
SHAPE = (1, 8, 8)


@pytest.fixture
def code(tmp_path: Path) -> str:
    (tmp_path / "neighbour.py").write_text("WIDTH = 4\n")
    (tmp_path / "net.py").write_text(CODE)
    return str(tmp_path / "net.py")


@pytest.fixture
def pictures(tmp_path: Path) -> str:
    random = np.random.default_rng(0)
    parts = {}
    for name, count in (("train", 120), ("test", 30)):
        parts[f"{name}_x"] = random.integers(0, 256, (count, 8, 8), dtype=np.uint8)
        parts[f"{name}_y"] = np.arange(count) % 3
    np.savez(tmp_path / "mine.npz", **parts)
    return str(tmp_path / "mine.npz")


@pytest.mark.parametrize(("name", "at"), [("Net", "first"), ("net", "first"), ("halves", None), ("defended", None)])
def test_every_form_becomes_a_split_model(code: str, name: str, at: str | None) -> None:
    model = load_foreign(f"{code}:{name}", SHAPE, 3, at=at)
    assert isinstance(model, sv.SplitModel)
    assert not model.training
    assert model(torch.rand(2, *SHAPE)).shape == (2, 3)
    assert list(model.defences) == (["noise"] if name == "defended" else [])


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_weights_are_loaded(code: str, tmp_path: Path, suffix: str) -> None:
    state = {"first.weight": torch.full((4, 1, 3, 3), 0.25), "first.bias": torch.zeros(4)}
    state |= {"last.weight": torch.zeros(3, 64), "last.bias": torch.tensor([0.0, 7.0, 0.0])}
    path = tmp_path / f"w{suffix}"
    save_file(state, path) if suffix == ".safetensors" else torch.save(state, path)
    model = load_foreign(f"{code}:Net", SHAPE, 3, at="first", weights=path)
    assert model(torch.rand(1, *SHAPE)).argmax() == 1
    assert model.edge(torch.ones(1, *SHAPE))[0, 0, 1, 1].item() == 9 * 0.25


def test_a_pickled_model_is_not_read(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "whole.pt")
    with pytest.raises(InputError, match="cannot be read as weights alone"):
        load_weights(nn.Linear(2, 2), tmp_path / "whole.pt")
    torch.save(nn.Linear(2, 3).state_dict(), tmp_path / "other.pt")
    with pytest.raises(InputError, match="does not fit"):
        load_weights(nn.Linear(2, 2), tmp_path / "other.pt")
    with pytest.raises(UsageError, match="no file"):
        load_weights(nn.Linear(2, 2), tmp_path / "none.pt")


def test_files_of_weights_as_training_scripts_write_them_are_recognised(tmp_path: Path) -> None:
    net, file = nn.Linear(2, 2), tmp_path / "net.pt"
    torch.save({"epoch": 3, "model": net.state_dict()}, file)
    with pytest.raises(InputError, match=r"save that alone, torch\.save\(checkpoint\['model'\], FILE\)"):
        load_weights(net, file)
    torch.save(nn.DataParallel(net).state_dict(), file)
    with pytest.raises(InputError, match=r"Its names begin with 'module\.'"):
        load_weights(net, file)
    torch.save([1, 2], file)
    with pytest.raises(InputError, match=r"state dict of this very module"):
        load_weights(net, file)


@pytest.mark.parametrize(
    ("name", "at", "sentence"),
    [
        ("Ne", None, "Did you mean 'Net'"),
        ("Net", None, "not cut.*first, last"),
        ("Net", "frist", "Did you mean 'first'"),
        ("halves", "0", "cut already"),
        ("broken", None, "RuntimeError: boom"),
        ("number", None, "of type int, not a model"),
    ],
)
def test_slips_are_answered_in_one_sentence(code: str, name: str, at: str | None, sentence: str) -> None:
    with pytest.raises(SplitveilError, match=sentence):
        load_foreign(f"{code}:{name}", SHAPE, 3, at=at)


def test_pictures_that_the_model_does_not_take_are_no_defect_of_the_command(code: str) -> None:
    with pytest.raises(SplitveilError, match="Net does not accept inputs of shape"):
        load_foreign(f"{code}:Net", (2, *SHAPE[1:]), 3, at="first")


@pytest.mark.parametrize("target", ["nothere.py:Net", "no.such.module:Net", ":Net"])
def test_code_that_is_not_there(target: str) -> None:
    with pytest.raises(UsageError):
        load_foreign(target, SHAPE, 3, at="first")


def test_the_command_attacks_writes_and_judges(code: str, pictures: str, tmp_path: Path, capsys) -> None:
    more = ["--data", pictures, "--attack", "retrieval", "--num-images", "12", "--out", str(tmp_path / "theirs")]
    with pytest.raises(SystemExit) as ended:
        main(["audit", f"{code}:defended", *more, "--json", "--no-sanity"])
    assert ended.value.code == 0
    tree = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "theirs/audit/audit.json").read_text()) == tree
    assert 0 <= tree["accuracy"] <= 1
    assert "own:defended" in tree["signature"]
    assert tree["num_images"] == 12
    with pytest.raises(SystemExit) as ended:
        main(["audit", f"{code}:defended", *more, "--no-sanity", "--budget", "ssim<=1"])
    assert ended.value.code == 2  # without a sanity check there is no verdict, and so no budget to meet


@pytest.mark.parametrize("option", ["--at", "--weights"])
def test_options_of_own_models_are_refused_for_runs(tmp_path: Path, option: str, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["audit", str(tmp_path), option, "x"])
    assert ended.value.code == 2
    assert f"{option} is for models of your own" in capsys.readouterr().err


def test_own_models_need_pictures(code: str, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["audit", f"{code}:Net"])
    assert ended.value.code == 2
    assert "needs pictures" in capsys.readouterr().err


def test_accuracy_is_that_of_what_is_sent(code: str, pictures: str, tmp_path: Path) -> None:
    """A bias that always names class 1 is right for every third picture."""
    state = {"first.weight": torch.zeros(4, 1, 3, 3), "first.bias": torch.zeros(4)}
    state |= {"last.weight": torch.zeros(3, 64), "last.bias": torch.tensor([0.0, 1.0, 0.0])}
    torch.save(state, tmp_path / "w.pt")
    found = audit_own(
        f"{code}:Net",
        data=pictures,
        at="first",
        weights=tmp_path / "w.pt",
        out=tmp_path / "o",
        attacks=["retrieval"],
        sanity=False,
    )
    assert found.tree["accuracy"] == pytest.approx(1 / 3)
    assert "33.3%" in str(found)


@pytest.mark.parametrize(
    "ends",
    ["raise SystemExit(0)", "def halves(): raise SystemExit(0)", "End.forward = lambda self, x: sys.exit(0)"],
    ids=["when it is imported", "when it makes the model", "when it is attacked"],
)
def test_code_that_ends_the_program_does_not_end_the_audit_well(
    tmp_path: Path, pictures: str, ends: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gate reads the exit code alone."""
    cloud = "nn.Sequential(nn.Flatten(), nn.Linear(64, 3))"
    code = f"import sys\nfrom torch import nn\nclass End(nn.Module): pass\nhalves = (End(), {cloud})\n{ends}\n"
    (tmp_path / "own.py").write_text(code)
    with pytest.raises(SystemExit) as ended:
        main(["audit", f"{tmp_path / 'own.py'}:halves", "--data", pictures, "--out", str(tmp_path / "o")])
    assert ended.value.code == 2
    assert "own.py:halves ended the program" in capsys.readouterr().err


@pytest.mark.parametrize("attacks", [["linear"], ["membership"]])
def test_a_refused_audit_leaves_no_folder(tmp_path: Path, pictures: str, attacks: list[str]) -> None:
    broken = attacks == ["linear"]  # a model that does not fit, or an attack that cannot be made
    cloud = "nn.Linear(7, 3)" if broken else "nn.Sequential(nn.Flatten(), nn.Linear(64, 3))"
    (tmp_path / "own.py").write_text(f"from torch import nn\nhalves = (nn.Identity(), {cloud})\n")
    target, out = f"{tmp_path / 'own.py'}:halves", tmp_path / "runs" / "mine"
    with pytest.raises(SplitveilError):
        audit_own(target, data=pictures, out=out, attacks=attacks, sanity=False, device="cpu")
    assert not (tmp_path / "runs").exists()


def test_every_part_of_a_signature_has_a_name_of_its_own(tmp_path: Path, small_data: Path) -> None:
    config = sv.load_config(data={"name": str(small_data)}, model={"name": "tiny"}, train={"epochs": 1})
    run = sv.train(config, out=tmp_path / "run")
    report = audit_run(run.path, attacks=["linear"], sanity=False)
    names = [part.partition(":")[0] for part in report.tree["signature"].split("|")]
    assert len(names) == len(set(names))
    assert {"data", "pictures"} <= set(names)
