"""The verb `compare`: thin over experiments.compare."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import typer
from typer.testing import CliRunner

from splitveil.cli.compare import compare
from splitveil.core.errors import UnknownNameError, UsageError
from splitveil.core.pins import sealed
from splitveil.experiments.compare.data_file import FORMAT

app = typer.Typer()
app.command()(compare)

RUN = """seed = {seed}
[data]
name = "cifar10"
protocol = "published"
[defence.noise]
sigma = 0.025
[surrogate]
name = "{surrogate}"
mode = "corrected"
[train]
privacy_weight = {weight}
"""


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two methods, two strengths, two seeds."""
    monkeypatch.chdir(tmp_path)
    for surrogate, gain in (("gmm", 0.0), ("gated", 0.01)):
        for weight in (4.0, 8.0):
            for seed in (1, 2):
                folder = tmp_path / "runs" / f"{surrogate}-{weight:g}-{seed}"
                (folder / "audit").mkdir(parents=True)
                (folder / "config.toml").write_text(RUN.format(seed=seed, surrogate=surrogate, weight=weight))
                (folder / "result.json").write_text(json.dumps({"accuracy_late": 0.92 - weight / 100 + seed / 1000}))
                scores = {"mse": 0.01 + gain + weight / 1000, "ssim": 0.5}
                audit = {"tier": "smoke", "mode": "training_time", "num_images": 10, "attacks": {"decoder": scores}}
                (folder / "audit" / "audit.json").write_text(json.dumps(audit | {"worst_case": scores}))
                (folder / "audit" / "card.json").write_text(json.dumps(sealed({})))  # pins nothing
    return tmp_path / "runs"


def invoke(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None:
        raise result.exception
    return result.output


def test_prints_a_table(runs: Path) -> None:
    output = invoke(runs)
    assert "gated (corrected)" in output
    assert "MSE at equal accuracy" in output


def test_writes_by_suffix(runs: Path, tmp_path: Path) -> None:
    assert "table.md" in invoke(runs, "--out", tmp_path / "table.md")
    assert (tmp_path / "table.md").read_text(encoding="utf-8").startswith("## cifar10")
    invoke(runs, "--out", tmp_path / "table.tex")
    assert r"\toprule" in (tmp_path / "table.tex").read_text(encoding="utf-8")


def test_a_data_file_repeats_its_own_options(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "results" / "mine.json"
    reference = tmp_path / "results" / "reference.toml"
    reference.parent.mkdir()
    reference.write_text('[[row]]\nlabel = "theirs"\nsurrogate = "gmm"\nmse = 0.02\n')
    words = ["--at", "0.86", "--attack", "decoder", "--reference", reference, "--title", "Mine", "--note", "A note."]
    invoke("runs", *words, "--command", "splitveil sweep x", "--out", out)
    tree = json.loads(out.read_text(encoding="utf-8"))
    assert tree["format"] == FORMAT
    assert "summary" not in tree  # computed again from the runs; --json prints it
    assert (tree["title"], tree["notes"]) == ("Mine", ["A note."])
    assert tree["view"] == {"attacks": ["decoder"], "at": [0.86], "reference": "reference.toml"}
    assert tree["commands"] == [
        "splitveil sweep x",
        "splitveil compare runs --at 0.86 --attack decoder --reference results/reference.toml --out results/mine.json",
    ]
    assert invoke(out) == invoke(runs, *words)
    assert "MSE at 86.00 %" in invoke(out)
    assert "MSE at 85.00 %" in invoke(out, "--at", "0.85")


def test_pairs_are_kept_and_take_the_place_of_a_baseline(runs: Path, tmp_path: Path) -> None:
    out, again = tmp_path / "mine.json", tmp_path / "again.json"
    pair = ("gmm (corrected)", "gated (corrected)")
    invoke("runs", "--baseline", pair[1], "--out", out)
    invoke(out, "--pair", " vs ".join(pair), "--out", again)
    tree = json.loads(again.read_text(encoding="utf-8"))
    assert tree["view"] == {"pairs": [list(pair)]}
    assert invoke(again) == invoke(runs, "--pair", " vs ".join(pair))
    invoke("runs", "--pair", " vs ".join(pair), "--out", out)
    assert json.loads(out.read_text(encoding="utf-8"))["commands"][-1] == (
        "splitveil compare runs --pair 'gmm (corrected) vs gated (corrected)' --out mine.json"
    )
    with pytest.raises(UnknownNameError, match="no finished run of a method called 'gm'"):
        invoke(runs, "--pair", f"gm vs {pair[1]}")
    told = invoke(runs, "--pair", f"gm vs {pair[1]}", "--pair", f"{pair[0]}  VS. {pair[1]}")
    assert "Not tested, because no finished run is here: gm." in told
    for words in ("gmm (corrected)", "a vs b vs c", " vs gmm (corrected)"):
        with pytest.raises(UsageError, match="names no pair"):
            invoke(runs, "--pair", words)


def test_a_data_file_that_is_looked_at_in_another_way_says_how(runs: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    invoke("runs", "--command", "splitveil sweep x", "--out", first)
    invoke("a.json", "--at", "0.86", "--out", second)
    assert json.loads(second.read_text(encoding="utf-8"))["commands"] == [
        "splitveil sweep x",
        "splitveil compare runs --out a.json",
        "splitveil compare a.json --at 0.86 --out b.json",
    ]


def test_a_rewritten_data_file_is_the_same_file(runs: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    invoke(runs, "--title", "T", "--at", "0.86", "--out", first)
    invoke(first, "--out", second)
    assert first.read_text() == second.read_text()


def test_a_data_file_tells_what_was_left_out(runs: Path, tmp_path: Path) -> None:
    (runs / "gmm-8-2" / "result.json").unlink()
    (runs / "gated-8-2" / "audit" / "audit.json").unlink()
    invoke(runs, "--out", tmp_path / "c.json")
    shown = invoke(tmp_path / "c.json")
    assert "gmm-8-2 has no result.json" in shown
    assert "No audit yet, left out: gated-8-2." in shown
    assert shown == invoke(runs)
    invoke(tmp_path / "c.json", "--out", tmp_path / "d.json")
    assert (tmp_path / "c.json").read_text() == (tmp_path / "d.json").read_text()


def test_json_for_machines(runs: Path) -> None:
    tree = json.loads(invoke(runs, "--json"))
    assert len(tree["runs"]) == 8
    assert len(tree["summary"]["tables"][0]["cells"]) == 4


def test_no_path_of_this_machine_is_written(runs: Path, tmp_path: Path) -> None:
    os.chdir(tmp_path / "runs" / "gmm-4-1")
    assert str(tmp_path) not in invoke(runs, "--json")


def test_draws_a_figure(runs: Path, tmp_path: Path) -> None:
    invoke(runs, "--figure", tmp_path / "figure.svg")
    figure = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(figure)
    assert "gated (corrected) (2 seeds)" in figure
    assert figure.count("<polyline") == 2


def test_a_figure_is_an_svg_file(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Only \.svg"):
        invoke(runs, "--figure", tmp_path / "f.png")
    with pytest.raises(UsageError, match="There is no folder"):
        invoke(runs, "--figure", tmp_path / "new" / "f.svg")
    assert not (tmp_path / "new").exists()


def test_nothing_to_compare_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        invoke(tmp_path)


def test_help_shows_an_example() -> None:
    assert "splitveil compare runs/sweep --at 0.88" in " ".join(invoke("--help").split())


def test_torch_is_not_loaded(runs: Path) -> None:
    """A laptop without a GPU build reads results in a moment."""
    code = (
        "import sys; from splitveil.cli import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code\n"
        "assert 'torch' not in sys.modules"
    )
    words = [sys.executable, "-c", code, "compare", str(runs), "--figure", str(runs / "f.svg")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_data_files_that_are_put_together_keep_how_each_was_made(runs: Path, tmp_path: Path) -> None:
    one, other, both = (tmp_path / name for name in ("one.json", "other.json", "both.json"))
    invoke("runs", "--command", "splitveil sweep x --seeds 1", "--out", one)
    invoke("runs", "--command", "splitveil sweep x --seeds 2", "--out", other)
    invoke(one, other, "--out", both)
    assert json.loads(both.read_text(encoding="utf-8"))["commands"] == [
        "splitveil sweep x --seeds 1",
        "splitveil compare runs --out one.json",
        "splitveil sweep x --seeds 2",
        "splitveil compare runs --out other.json",
        "splitveil compare one.json other.json --out both.json",
    ]


def test_a_comparison_among_the_given_commands_is_not_repeated(runs: Path, tmp_path: Path) -> None:
    given = ["splitveil sweep x --out runs/x", "splitveil compare runs/x --out results/x.json"]
    invoke(runs, *(word for line in given for word in ("--command", line)), "--out", tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))["commands"] == given


def test_an_accuracy_at_which_nothing_can_be_read_is_told_on_stderr(runs: Path, tmp_path: Path) -> None:
    words = ["--at", "0.95", "--out", str(tmp_path / "t.tex")]
    told = CliRunner().invoke(app, [str(runs), *words]).stderr
    assert "Nothing can be read at 95.00 % accuracy: no method's strengths cover it" in told
    assert " %; gmm (corrected) from 84.15 to 88.15 %" in told
    for folder in runs.glob("*-8-*"):
        shutil.rmtree(folder)
    told = CliRunner().invoke(app, [str(runs), *words]).stderr
    assert "Nothing can be interpolated at 95.00 % accuracy" in told
    assert "with fewer than two strengths: gated (corrected); gmm (corrected)" in told
    assert "Nothing can be" not in CliRunner().invoke(app, [str(runs)]).stderr  # nobody asked


def test_data_files_that_are_put_together_keep_the_options_in_which_they_agree(runs: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    reference = tmp_path / "theirs.toml"
    reference.write_text('[[row]]\nlabel = "theirs"\nsurrogate = "gmm"\nmse = 0.02\n')
    kept = ("--at", "0.86", "--attack", "decoder", "--reference", reference)
    gmm, gated = sorted(runs.glob("gmm-*")), sorted(runs.glob("gated-*"))
    invoke(*gmm, *kept, "--out", first)
    invoke(*gated, *kept, "--out", second)
    whole = invoke(runs, *kept)
    assert "theirs" in whole
    assert invoke(first, second) == whole
    assert invoke(first, *gated) == whole  # a run has no options of its own
    invoke(*gated, "--at", "0.85", "--attack", "decoder", "--out", second)
    told = invoke(first, second)
    assert "have different options here, so that the defaults are taken: at, reference\n" in told
    assert "MSE at 86.00 %" not in told
    assert "decoder" in told
    assert "different options" not in invoke(first, second, *kept)
