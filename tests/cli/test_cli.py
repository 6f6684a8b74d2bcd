"""The command line as a user meets it."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import typing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from splitveil.audit.table import table as audit_table
from splitveil.cli import OTHER_NAMES, VERBS, main
from splitveil.cli.demo import worst_case_words
from splitveil.cli.doctor import EXTRAS, NOT_ON_DEVICES
from splitveil.core.catalogue import FAMILIES
from splitveil.core.toml import dump_toml

ROOT = Path(__file__).parents[2]


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from splitveil.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "heavy = {'torch', 'sklearn', 'numpy', 'pydantic'} & set(sys.modules); assert not heavy, heavy"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_has_help_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, verb, "--help")
    assert code == 0
    assert f"splitveil {verb}" in out


@pytest.mark.parametrize(("word", "verb"), [("serve", "cloud"), ("client", "edge"), ("attack", "audit")])
def test_what_people_try_first_names_the_verb(word: str, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "-q", word, "runs/demo", "--tier", "smoke")
    assert (code, out) == (2, "")
    assert err == f"error: There is no command '{word}'.\n  Did you mean: splitveil {verb}\n"


def test_other_names_are_no_verbs_and_stand_for_verbs() -> None:
    assert not OTHER_NAMES.keys() & VERBS.keys()
    assert set(OTHER_NAMES.values()) <= VERBS.keys()


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_no_help_text_loses_a_bracketed_word(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In help texts square brackets are markup unless they are escaped: [sweep] would vanish."""
    monkeypatch.setenv("COLUMNS", "300")
    written = [inspect.getdoc(VERBS[verb]) or ""]
    for hint in typing.get_type_hints(VERBS[verb], include_extras=True).values():
        written += [part.help or "" for part in getattr(hint, "__metadata__", ())]
    words = [word for text in written for word in re.findall(r"\[[^\]\s]+\]", text)]
    _, out, _ = run(capsys, verb, "--help")
    assert [word for word in words if word not in out] == []


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_help_breaks_its_lines_where_the_terminal_ends(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line stops early: the first word of the next one would not have fitted."""
    monkeypatch.setenv("COLUMNS", "100")
    _, out, _ = run(capsys, verb, "--help")
    lines = [line.strip() for line in out[: out.index("─")].splitlines()]
    early = [line for line, following in pairwise(lines) if following and len(f"{line} {following.split()[0]}") < 95]
    assert [line for line in early if line] == []


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


@pytest.mark.parametrize("verb", ["audit", "explain", "report", "compare"])
@pytest.mark.parametrize("folder", ["absent", "empty"])
def test_what_is_no_run_is_exit_2_with_a_hint_for_every_verb(
    verb: str, folder: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    code, _, err = run(capsys, verb, folder)
    assert code == 2
    message, hint = err.splitlines()
    assert folder in message
    assert hint.strip()


def test_a_folder_of_runs_is_told_which_run_to_give(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.toml").write_text("seed = 1\n")
    code, _, err = run(capsys, "audit", str(tmp_path))
    assert code == 2
    assert f"for example {tmp_path / 'mine'}" in err


def test_data_from_a_place_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, "data", "cifar10", "--from", str(tmp_path / "absent"), "--root", str(tmp_path))
    assert code == 2
    assert "There is no file or folder" in err


def test_a_path_to_no_data_is_no_slip_in_a_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, "data", "nofile.npz")
    assert code == 2
    assert "There is no file or folder nofile.npz." in err
    assert "Did you mean" not in err


@pytest.mark.parametrize("place", ["base.toml", "base.toml/run"])
@pytest.mark.parametrize("verb", ["train", "advise"])
def test_a_file_in_place_of_the_run_folder_is_said(
    verb: str, place: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.toml").write_text("seed = 1\n")
    code, _, err = run(capsys, verb, "base.toml", "--out", place)
    assert code == 2
    message, hint = err.splitlines()[-2:]
    assert message == "error: base.toml is a file, not a folder."
    assert "--out" in hint


@pytest.mark.parametrize("verb", ["compare", "report", "explain"])
def test_a_slip_in_out_makes_no_folders_and_is_found_before_the_work(
    verb: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()  # the work itself would fail, with another sentence
    code, _, err = run(capsys, verb, str(tmp_path / "run"), "--out", str(tmp_path / "new" / "t.md"))
    assert code == 2
    assert f"There is no folder {tmp_path / 'new'}" in err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("budget", ["", "  "])
def test_an_empty_budget_is_refused_before_the_audit(
    budget: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = run(capsys, "audit", str(tmp_path / "absent"), "--budget", budget)
    assert code == 2
    assert "ssim<=0.5" in err


def test_dry_run_as_json_is_the_same_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    _, text, _ = run(capsys, "train", "demo-fashion-mini", "--dry-run")
    code, out, _ = run(capsys, "train", "demo-fashion-mini", "--dry-run", "--json")
    assert code == 0
    assert dump_toml(json.loads(out)) == text


def test_an_audit_without_its_sanity_check_says_that_this_is_why_there_is_no_verdict() -> None:
    tree = {"tier": "smoke", "mode": "training_time", "protocol": "disjoint", "num_images": 3, "data": "x"}
    tree |= {"floors": {}, "attacks": {}, "worst_case": {"mse": 0.1, "ssim": 0.2, "psnr": 10.0}, "bound": {}}
    tree |= {"failures": {}, "warnings": [], "signature": "s", "verdict": None}
    assert "sanity check of the attacks was left out" in audit_table({**tree, "sanity": None})
    assert "did not prove itself" in audit_table({**tree, "sanity": {"passed": False}})
    assert "did not prove itself" in audit_table({**tree, "sanity": {"passed": True}, "failures": {"linear": "no"}})
    assert "the first note says why" in audit_table({**tree, "sanity": {"passed": True}})
    assert audit_table({**tree, "num_images": 1, "sanity": None}).startswith("1 picture of x,")


@pytest.mark.parametrize("against", [False, True])
def test_explain_speaks_of_after_only_where_there_is_a_before(
    against: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plane = {"neighbours": 0.5, "within": 0.25}
    planes = {"before": {**plane, "run": "zero"}} if against else {}
    planes["after"] = {**plane, "run": "first"}
    found = {"planes": planes, "notes": [], "surrogate": None, "signature": "s"}
    monkeypatch.setattr("splitveil.experiments.explain.explain", lambda *args, **options: found)
    monkeypatch.setattr("splitveil.report.figures.files.write_figures", lambda *args, **options: {})
    (tmp_path / "config.toml").touch()
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "model.safetensors").touch()
    code, out, _ = run(capsys, "explain", str(tmp_path))
    assert code == 0
    said = [line.split(": 50%")[0] for line in out.splitlines() if "nearest neighbours" in line]
    assert said == (["before (zero)", "after (first)"] if against else ["first"])


@pytest.mark.parametrize(
    ("attacks", "said", "several"),
    [
        (["decoder"], "Only the attack decoder ran; worst case: the best of its answers", False),
        (["decoder", "linear"], "Worst case", False),
        (["decoder", "average"], "Worst case", True),
    ],
)
def test_the_demo_speaks_of_the_attacks_that_ran(attacks: list[str], said: str, several: bool) -> None:
    words = worst_case_words(attacks)
    assert words.startswith(said)
    assert ("sent several times" in words) == several


def test_the_help_of_list_names_every_family() -> None:
    told = " ".join(str(inspect.getdoc(VERBS["list"])).split())
    assert [family for family in FAMILIES if family.replace("datasets", "data sets") not in told] == []


def test_list_and_show_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "list", "--json")
    listed = json.loads(out)
    assert code == 0
    assert {"surrogates", "defences", "attacks", "datasets", "models", "measures", "recipes"} == set(listed)
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
    out = tmp_path / "a run"
    code, text, _ = run(capsys, "train", str(recipe), "--out", str(out), "--json")
    assert code == 0
    assert json.loads(text)["surrogate"] == "gmm"
    code, text, _ = run(capsys, "audit", str(out), "--epochs", "1", "--attack", "linear", "--json")
    assert code == 0
    assert set(json.loads(text)["attacks"]) == {"linear"}
    assert "budget" not in json.loads(text)
    words = ("audit", str(out), "--epochs", "1", "--attack", "linear", "--json", "--budget")
    for budget, met in (("mse>=0.000001", True), ("mse>=0.9", False)):
        code, text, _ = run(capsys, *words, budget)
        assert json.loads(text)["budget"]["met"] is met
        assert code == (0 if met else 3)
    assert "budget" not in json.loads((out / "audit" / "audit.json").read_text()), "it is the same for any budget"
    code, text, err = run(capsys, "audit", str(out), "--epochs", "1", "--attack", "linear", "--budget", "mse>=0.9")
    assert code == 3, err
    assert f"The audit is in {out / 'audit'}; show it with: splitveil report '{out}'" in text
    code, text, _ = run(capsys, "train", str(recipe), "--out", str(out), "--resume")
    assert f"attack it with: splitveil audit '{out}'" in text
    code, _, err = run(capsys, "train", str(recipe), "--out", str(out))
    assert code == 2
    assert "--resume" in err


@pytest.mark.parametrize(("labels", "idle"), [([0] * 36 + [1] * 4, True), ([0, 1] * 20, False)])
def test_training_says_where_the_most_frequent_class_explains_the_accuracy(
    labels: list[int], idle: bool, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Light and dark pictures; of the unbalanced ones all look alike."""
    y = np.array(labels)
    x = np.zeros((40, 28, 28), np.uint8)
    x += np.uint8(0) if idle else (200 * y).astype(np.uint8)[:, None, None]
    x[:, 0, 0] = np.arange(40)
    np.savez(tmp_path / "own.npz", train_x=x, train_y=y, test_x=x + np.uint8(20), test_y=y)
    recipe = tmp_path / "recipe.toml"
    train = {"epochs": 8, "batch_size": 4, "lr": 0.05}
    recipe.write_text(dump_toml({"data": {"name": str(tmp_path / "own.npz"), "augment": False}, "train": train}))
    code, out, err = run(capsys, "train", str(recipe), "--out", str(tmp_path / "run"))
    assert code == 0, err
    assert ("note: always naming the most frequent class is right as often, up to chance (90.0%)" in out) is idle
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["works"], result["accuracy_guessing"]) == (not idle, 0.9 if idle else 0.5)


def test_a_folder_that_cannot_be_made_is_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = run(capsys, "train", "demo-fashion-mini", "--out", str(tmp_path / ("x" * 300)))
    assert code == 1
    assert "error: File name too long" in err
    assert "Traceback" not in err + out


def test_the_doctor_knows_every_extra_that_a_user_may_install(capsys: pytest.CaptureFixture[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {
        (re.split(r"[<>=]", package)[0], extra)
        for extra, packages in project["optional-dependencies"].items()
        if extra not in ("dev", "docs")
        for package in packages
    }
    packages = {package for package, _ in extras}
    assert packages == set(EXTRAS)
    assert {(package, extra) for package, (extra, _) in EXTRAS.items()} <= extras
    _, out, _ = run(capsys, "doctor", "--json")
    assert packages <= {row["check"] for row in json.loads(out)}


def test_doctor_finds_this_machine_usable(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor", "--json")
    rows = {row["check"]: row["state"] for row in json.loads(out)}
    assert code == 0
    assert rows["torch"] == rows["autograd"] == rows["python"] == "ok"


def test_the_doctor_says_of_each_place_what_helps_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    code, out, _ = run(capsys, "doctor", "--json")
    rows = {row["check"]: row["detail"] for row in json.loads(out)}
    assert code == 1
    assert "set SPLITVEIL_DATA" in rows["data folder"]
    assert "SPLITVEIL_DATA" not in rows["this folder"]


def on_a_device(*words: str) -> subprocess.CompletedProcess[str]:
    """The command where nothing is installed that a device does without (docs/serving.md)."""
    code = "import sys\nclass Bare:\n    def find_spec(self, name, path=None, target=None):\n"
    code += f"        if name.partition('.')[0] in {NOT_ON_DEVICES}:\n"
    code += "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
    code += "import importlib.util\nfind, sys.meta_path[:0] = importlib.util.find_spec, [Bare()]\n"
    code += f"importlib.util.find_spec = lambda name, package=None: None if name in {NOT_ON_DEVICES} else find(name)\n"
    code += f"from splitveil.cli import main\nmain({list(words)!r})\n"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_the_doctor_of_a_device_without_torch_says_what_works() -> None:
    done = on_a_device("doctor", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    rows = {row["check"]: row for row in json.loads(done.stdout)}
    assert {rows[package]["state"] for package in NOT_ON_DEVICES} == {"absent"}
    assert "splitveil edge" in rows["torch"]["detail"]
    assert rows["numpy"]["state"] == rows["data folder"]["state"] == "ok"


def test_the_doctor_calls_a_package_that_is_missing_beside_torch_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *more: None if name == "scipy" else find(name, *more))
    code, out, _ = run(capsys, "doctor", "--json")
    assert code == 1
    assert {row["check"]: row["state"] for row in json.loads(out)}["scipy"] == "broken"


@pytest.mark.parametrize(
    ("words", "package"),
    [(("show", "gmm"), "torch"), (("report", "x"), "safetensors"), (("train", "demo-fashion-mini"), "torch")],
)
def test_a_verb_that_a_device_cannot_run_names_the_package(words: tuple[str, ...], package: str) -> None:
    done = on_a_device(*words)
    assert done.returncode == 1
    assert f"error: This needs the package {package}, which is not installed." in done.stderr
    assert "report it" not in done.stderr


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModuleNotFoundError("none", name="torch.new_part"), "This needs the package torch.new_part, which is not"),
        (
            ModuleNotFoundError("none", name="splitveil.gone"),
            "Something unexpected went wrong (ModuleNotFoundError: none)",
        ),
        (ModuleNotFoundError("Get it at foo.org."), "Something unexpected went wrong (ModuleNotFoundError: Get it at"),
    ],
)
def test_a_package_that_is_missing_is_named_as_far_as_it_is_known(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(given: list[str]) -> None:
        raise error

    monkeypatch.setattr("splitveil.cli._commands", lambda: failing)
    code, _, err = run(capsys, "doctor")
    assert code == 1
    assert said in err


def test_a_dry_run_refuses_a_start_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", "demo-fashion-mini", "--dry-run", "--set", "train.init_from=nowhere"])
    assert stop.value.code == 2
    assert "There is no run folder nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["audit", "explain"])
def test_a_run_without_weights_is_refused_before_torch_is_loaded(verb: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch()
    code = f"import sys; from splitveil.cli import main\ntry: main([{verb!r}, {str(tmp_path)!r}])\n"
    code += "except SystemExit as stop: assert stop.code == 1 and 'torch' not in sys.modules, 'heavy import'"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "has no finished model" in done.stderr
