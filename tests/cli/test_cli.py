"""The command line as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from splitveil.cli import VERBS, main


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def test_help_does_not_import_torch() -> None:
    code = "import sys; from splitveil.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "assert 'torch' not in sys.modules and 'sklearn' not in sys.modules, 'heavy import'"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_has_help_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, verb, "--help")
    assert code == 0
    assert f"splitveil {verb}" in out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["trian"], "train"),
        (["train", "demo-fashion"], "demo-fashion-mini"),
        (["train", "demo-fashion-mini", "--set", "train.epoch=1"], "Did you mean 'epochs'"),
        (["train", "demo-fashion-mini", "--dry-run", "--set", "model.name=tyni"], "Did you mean 'tiny'"),
        (["list", "surogates"], "Did you mean 'surrogates'"),
        (["show", "gnm"], "Did you mean 'gmm'"),
        (["data", "cifar"], "cifar10"),
    ],
)
def test_a_slip_is_one_sentence_and_exit_2(args: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *args)
    assert code == 2
    assert words in err
    assert "Traceback" not in err + out


def test_errors_show_a_traceback_only_with_debug(capsys: pytest.CaptureFixture[str]) -> None:
    from splitveil.core.errors import UnknownNameError

    with pytest.raises(UnknownNameError):
        main(["--debug", "show", "gnm"])
    main_code, _, _ = run(capsys, "show", "gnm")
    assert main_code == 2


def test_list_and_show_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "list", "--json")
    listed = json.loads(out)
    assert code == 0
    assert {"surrogates", "defences", "attacks", "datasets", "models", "recipes"} == set(listed)
    code, out, _ = run(capsys, "show", "gmm", "--json")
    shown = json.loads(out)
    assert "gmm.released" in shown["presets"]
    assert shown["options"]["loss_scale"]["default"] == 1.0


@pytest.mark.parametrize("name", ["gated", "noise", "fashion-mini", "vgg11", "decoder", "demo-fashion-mini"])
def test_everything_listed_can_be_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "show", name)
    assert code == 0
    assert len(out) > 100


def test_dry_run_prints_the_resolved_recipe_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, "train", "demo-fashion-mini", "--dry-run", "--seed", "9")
    assert code == 0
    assert "seed = 9" in out
    assert list(tmp_path.iterdir()) == []


def test_train_and_audit_from_the_command_line(
    capsys: pytest.CaptureFixture[str], small_data: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f'[data]\nname = "{small_data}"\n[defence.bottleneck]\nchannels = 2\n'
        "[train]\nepochs = 2\nbatch_size = 32\n[surrogate]\nname = 'gmm'\n"
    )
    out = tmp_path / "run"
    code, text, _ = run(capsys, "train", str(recipe), "--out", str(out), "--json")
    assert code == 0
    assert json.loads(text)["surrogate"] == "gmm"
    code, text, _ = run(capsys, "audit", str(out), "--epochs", "1", "--attack", "decoder", "--json")
    assert code == 0
    assert set(json.loads(text)["attacks"]) == {"decoder"}
    code, _, err = run(capsys, "audit", str(out), "--epochs", "1", "--attack", "decoder", "--budget", "mse>=0.9")
    assert code == 3, err
    code, _, err = run(capsys, "train", str(recipe), "--out", str(out))
    assert code == 2
    assert "--resume" in err


def test_a_folder_that_cannot_be_made_is_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    code, out, err = run(capsys, "train", "demo-fashion-mini", "--out", str(tmp_path / "file" / "run"))
    assert code == 1
    assert "error: Not a directory" in err
    assert "Traceback" not in err + out


def test_doctor_finds_this_machine_usable(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor", "--json")
    rows = {row["check"]: row["state"] for row in json.loads(out)}
    assert code == 0
    assert rows["torch"] == rows["autograd"] == rows["python"] == "ok"
