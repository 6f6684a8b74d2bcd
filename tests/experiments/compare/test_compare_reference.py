"""Published rows beside ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from splitveil.core.errors import ConfigError
from splitveil.experiments.compare.collect import collect
from splitveil.experiments.compare.comparison import compare
from splitveil.experiments.compare.machine import as_tree
from splitveil.experiments.compare.part import Part
from splitveil.experiments.compare.prose import parts
from splitveil.experiments.compare.reference import (
    beside,
    deviation,
    find_reference,
    read_reference,
    reference_names,
)
from splitveil.experiments.compare.render import as_latex, as_markdown, as_text

Make = Callable[..., Path]

FILE = """
title = "somebody's table"
source = "Somebody, 2020."
attack = "decoder"
[tolerance]
accuracy = 0.01
mse = 0.15
[[row]]
label = "gmm at 16"
mode = "training_time"
surrogate = "gmm"
defences = []
settings = { "train.privacy_weight" = 16.0 }
accuracy = [0.850, 0.853]
mse = 0.0350
note = "One run."
[[row]]
label = "nopeek"
defences = ["nopeek"]
mse = 0.01
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "reference.toml"
    path.write_text(FILE)
    return path


def test_a_row_finds_the_same_experiment_and_no_other(tmp_path: Path, run: Make, file: Path) -> None:
    for seed in (1, 2):
        run(tmp_path / "runs" / f"same{seed}", seed=seed, accuracy=0.851, mse=0.04)
    run(tmp_path / "runs" / "weight", weight=8.0)
    run(tmp_path / "runs" / "gated", surrogate="gated")
    run(tmp_path / "runs" / "sca", settings={"defence": {"sca": {"threshold": 0.01}, "noise": {"sigma": 0.025}}})
    found = compare(collect([tmp_path / "runs"]).records)
    pairs, missing = beside(found.groups, read_reference(file))
    assert [(one.row.label, len(one.cell.runs)) for one in pairs] == [("gmm at 16", 2)]
    assert missing == ["nopeek"]
    (one,) = pairs
    assert one.deviation("accuracy") == 0.0  # inside the range
    assert one.deviation("mse") == pytest.approx(0.04 * 1.05 / 0.035 - 1)  # the decoder's, not the worst case
    assert one.outside == ("mse",)
    text = as_text(parts(found, read_reference(file)))
    assert "85.10 ± 0.00 / 85.00-85.30 (+0.00)" in text
    assert "0.04200 ± 0.00000 / 0.03500 (+20.0 %)" in text
    assert "no: MSE" in text
    assert "Not run here: nopeek." in text
    assert "Somebody, 2020. Tolerance" in text.replace("\n", " ")
    assert "gmm at 16: One run." in text
    tree = as_tree(found, read_reference(file))["reference"]
    assert tree["not_run"] == ["nopeek"]
    assert tree["rows"][0]["deviation"]["mse"] == pytest.approx(0.2)


def test_another_mode_is_another_experiment(tmp_path: Path, run: Make, audit: Callable[..., dict], file: Path) -> None:
    run(tmp_path / "one", audit=audit(0.04, mode="inference_time"))
    found = compare(collect([tmp_path / "one"]).records)
    assert beside(found.groups, read_reference(file))[0] == []


@pytest.mark.parametrize(
    ("ours", "published", "relative", "expected"),
    [
        (0.90, (0.85, 0.85), False, 0.05),
        (0.80, (0.85, 0.86), False, -0.05),
        (0.87, (0.85, 0.86), False, 0.01),
        (0.855, (0.85, 0.86), False, 0.0),
        (0.02, (0.04, 0.05), True, -0.5),
    ],
)
def test_deviations(ours: float, published: tuple[float, float], relative: bool, expected: float) -> None:
    assert deviation(ours, published, relative=relative) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("title = 'x'", "has no [[row]]"),
        ("[[row]]\nmse = 1.0", "a row has no label"),
        ("[[row]]\nlabel = 'x'\nmsee = 1.0", "unknown key 'msee'"),
        ("[[row]]\nlabel = 'x'\nmse = 'low'", "is neither a number nor a range"),
        ("[[row]]\nlabel = 'x'\nmse = [2.0, 1.0]", "is neither a number nor a range"),
        ("[[row", "cannot be read"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "reference.toml"
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        read_reference(path)
    assert sentence in str(caught.value)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: missing"):
        read_reference(tmp_path / "none.toml")


def test_the_notes_rows_are_those_of_the_specification() -> None:
    rows = {row.label: row for row in read_reference(find_reference("notes")).rows}
    published = {label: row.values["mse"][0] for label, row in rows.items()}
    assert published == {
        "GMM (CEM-main), inference-time": 0.04364,
        "GMM (CEM-main), training-time": 0.03888,
        "gated, defaults, inference-time": 0.04732,
        "gated, defaults, training-time": 0.04055,
        "slot_gated, inference-time": 0.03931,
        "slot_gated, training-time": 0.03405,
    }
    assert all(row.mode is not None and row.mode.split("_")[0] in label for label, row in rows.items())
    assert rows["GMM (CEM-main), inference-time"].values["recon_acc"] == (0.244473, 0.244473)


@pytest.mark.parametrize("name", reference_names())
def test_every_reference_that_comes_along_reads(name: str) -> None:
    reference = read_reference(find_reference(name))
    assert reference.source
    assert all(row.values for row in reference.rows)


def test_a_reference_is_found_by_path_then_by_name(tmp_path: Path) -> None:
    assert reference_names() == ["defences", "n1", "notes", "tuning"]
    (tmp_path / "notes").write_text("[[row]]")
    assert find_reference("notes", tmp_path) == tmp_path / "notes"
    assert find_reference("notes").name == "notes.toml"
    with pytest.raises(ConfigError, match="no reference 'note'") as caught:
        find_reference("note")
    assert "notes" in str(caught.value)


def test_the_paragraph_on_the_printed_percentage_is_below_the_table() -> None:
    """What SPEC 8.3 says about 24.45 %, with its arithmetic."""
    told = read_reference(find_reference("notes")).explanation
    for words in ("24.45 %", "recon_acc", "inference-time", "1,928", "15083/32", "85.18 % and 84.34 %"):
        assert words in told
    total = 24.447289700330046 * 1928 / 100
    assert total == pytest.approx(15083 / 32, abs=1e-5)
    part = Part("t", [], [], ["a remark"], [told])
    for write in (as_text, as_markdown, as_latex):
        text = write([part])
        assert text.index("a remark") < text.index("Design note N3 prints")
