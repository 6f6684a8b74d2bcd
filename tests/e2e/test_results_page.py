"""The results page: every file is shown with its command, its signatures and what a person wrote about it."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from tests.worlds.scripts import load_script

from splitveil.core.files import write_atomic
from splitveil.experiments.compare.data_file import DataFile, data_text
from splitveil.experiments.compare.record import Record, Setting

SETTING = Setting("cifar10", "published", "training_time", "standard", "100", "abc", "0.1.0")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("scripts/make_results.py")


def record(seed: int) -> Record:
    return Record(
        name=f"run{seed}", setting=SETTING, settings={"surrogate.name": "gmm"}, seed=seed, accuracy=0.85 + seed / 100,
        scores={"decoder": {"mse": 0.04 + seed / 1000}}, hardware="NVIDIA H200", torch="2.11.0", seconds=90.0,
        signature=f"splitveil:0.1.0|seed:{seed}",
    )  # fmt: skip


def test_a_comparison_is_shown_with_everything_that_pins_it(tmp_path: Path, script: ModuleType) -> None:
    about = DataFile(
        [record(1), record(2)], "My table", ("splitveil sweep x",), ("It did not.",), {"attacks": ["decoder"]}
    )
    write_atomic(tmp_path / "mine.json", data_text(about))
    text, figures = script.page(tmp_path)
    part = text[text.index("## My table") :]
    for words in (
        "It did not.",
        "Data: `results/mine.json`",
        "```sh\nsplitveil sweep x\n```",
        "| gmm | - | 2 | 86.50 ± 0.71 ",
        "2 audited runs on NVIDIA H200, torch 2.11.0, 3 minutes of computing.",
        "run1 seed 1: splitveil:0.1.0|seed:1\nrun2 seed 2",
        "](images/results/mine.svg)",
    ):
        assert words in part, words
    assert set(figures) == {"mine.svg"}


def test_the_page_begins_with_what_was_measured_and_what_was_not(tmp_path: Path, script: ModuleType) -> None:
    twice = [record(1), record(2), replace(record(2), setting=replace(SETTING, mode="inference_time"))]
    write_atomic(
        tmp_path / "notes-table.json",
        data_text(
            DataFile(twice, "The notes' table: 2 runs", (), ("It adds .5 %. All of it.",), {"attacks": ["decoder"]})
        ),
    )
    (tmp_path / "a-speed.json").write_text(json.dumps({"title": "Seconds"}))
    text, _ = script.page(tmp_path)
    table = text[text.index("## What was measured") : text.index("Shipped as recipes")]
    first, second = [line for line in table.splitlines() if line.startswith("| [")]
    assert first == "| [The notes' table: 2 runs](#the-notes-table-2-runs) | It adds .5 %. | 2 audited runs, 2 seeds |"
    assert second == "| [Seconds](#seconds) |  | a measurement |"
    missing = text[text.index("Shipped as recipes") :].splitlines()[0]
    assert "`cuts` (where to cut" in missing
    assert "notes-table" not in missing  # it is there
    assert "demo" not in missing
    assert text.index("## The notes' table") < text.index("## What the printed") < text.index("## Seconds")


def test_a_run_that_was_audited_twice_is_one_run(tmp_path: Path, script: ModuleType) -> None:
    both = [record(1), replace(record(1), setting=replace(SETTING, mode="inference_time")), record(2)]
    write_atomic(tmp_path / "x.json", data_text(DataFile(both, "T", (), (), {"attacks": ["decoder"]})))
    text, _ = script.page(tmp_path)
    assert "| 2 audited runs, 2 seeds |" in text
    assert (
        "\n2 audited runs (3 audits) on NVIDIA H200, torch 2.11.0, "
        "4 minutes of computing (training counted with each audit).\n" in text
    )


def test_the_commands_of_all_results_can_be_given_one_after_the_other(script: ModuleType) -> None:
    made: dict[Path, str] = {}  # folder of a sweep -> the file of results that it is for
    for path in sorted(script.RESULTS.glob("*.json")):
        for command in json.loads(path.read_text(encoding="utf-8"))["commands"]:
            # a cell is named by its options: with one more the same cell has another name
            assert not re.search(r"cells/[0-9a-f]{12}", command), f"{path.name}: {command}"
            words = shlex.split(command)
            if words[:2] == ["splitveil", "sweep"]:
                assert made.setdefault(Path(words[words.index("--out") + 1]), path.name) == path.name
    nested = [(one, other) for one in made for other in made if other in one.parents]
    assert nested == []  # compare takes what lies below a folder, too


def test_seeds_are_those_of_a_cell_and_not_of_the_whole_table(script: ModuleType) -> None:
    other = replace(record(1), name="alone", settings={"surrogate.name": "gated"})
    assert script._count([record(1), record(2), other]) == "3 audited runs, 1 to 2 seeds per cell"
    assert script._count([record(1), other]) == "2 audited runs, 1 seed"
    newer = replace(record(2), setting=replace(SETTING, code="0.2.0"))  # the same cell, by other code
    assert script._count([record(1), newer]) == "2 audited runs, 2 seeds"


def test_a_long_table_is_folded_behind_its_caption(script: ModuleType) -> None:
    rows = ["| method |", "| --- |", *(f"| {number} |" for number in range(script.LONG + 1))]
    assert script._folded("\n".join(["Before", "", "Cells:", "", *rows[:-1]])) == "\n".join(
        ["Before", "", "Cells:", "", *rows[:-1]]
    )
    folded = script._folded("\n".join(["Before", "", "Cells:", "", *rows]))
    head = f"<details markdown><summary>Cells ({script.LONG + 1} rows)</summary>"
    assert folded == "\n".join(["Before", "", head, "", *rows, "", "</details>"])


def test_a_measurement_is_shown_as_tables(tmp_path: Path, script: ModuleType) -> None:
    tree = {
        "what": "seconds of it",
        "hardware": "one core",
        "ratios": {"gmm": {"s": 0.51234}, "rate": {"s": None, "n": 2}},
        "once": {"s": [1, 2.5]},
        "bar": 0.05,
    }
    (tmp_path / "speed.json").write_text(json.dumps(tree))
    text, figures = script.page(tmp_path)
    assert "## speed\n\nSeconds of it.\n" in text
    assert "|  | s | n |" in text
    assert "| gmm | 0.5123 | - |" in text
    assert "| rate | - | 2 |" in text
    assert "once:\n\n|  | value |\n| --- | --- |\n| s | 1, 2.5 |" in text
    assert text.endswith("hardware: one core; bar: 0.05.\n")
    assert figures == {}


@pytest.mark.parametrize(
    ("note", "shown"),
    [
        ("measured twice", "Measured twice."),
        ("recon_acc is the share", "recon_acc is the share."),
        ("`recon_acc` is the share", r"\`recon_acc\` is the share."),
        ("train.epochs was 40.", "train.epochs was 40."),
        ("Done. again", "Done. again."),
    ],
)
def test_a_note_is_a_sentence_but_a_name_keeps_its_spelling(
    tmp_path: Path, script: ModuleType, note: str, shown: str
) -> None:
    (tmp_path / "one.json").write_text(json.dumps({"notes": [note]}))
    assert script.page(tmp_path)[0].split("## one\n\n")[1].startswith(f"{shown}\n")


def test_the_paragraph_on_the_printed_number_is_there(tmp_path: Path, script: ModuleType) -> None:
    text = " ".join(script.page(tmp_path)[0].split())
    assert "These are not accuracies of the classifier." in text
    # The arithmetic in the paragraph: a sum of batch percentages is a multiple of 1/32.
    total = 24.447289700330046 * 1928 / 100
    assert f"{total:.5f}" in text
    assert abs(total * 32 - round(total * 32)) < 1e-3
