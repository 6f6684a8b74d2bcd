"""What is read from folders and files, and what is said about the rest."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.worlds.shut_folder import shut_folder

from splitveil.core.errors import UsageError
from splitveil.core.files import write_atomic
from splitveil.core.locks import only_writer
from splitveil.experiments.compare import collect as collecting
from splitveil.experiments.compare.collect import collect
from splitveil.experiments.compare.data_file import DataFile, data_text, read_data_file
from splitveil.experiments.compare.run_records import read_records
from splitveil.experiments.compare.stored import settle

Make = Callable[..., Path]


def test_a_run_is_read_completely(tmp_path: Path, run: Make) -> None:
    (record,) = collect([run(tmp_path / "one", seed=7, accuracy=0.8512345678, mse=0.04)]).records
    assert record.seed == 7
    assert record.accuracy == 0.851235  # six significant digits
    assert record.value("worst_case", "mse") == 0.04
    assert record.value("decoder", "recon_acc") == 0.24
    assert record.value("decoder.best_epoch", "mse") == pytest.approx(0.0408)
    assert record.intervals["worst_case"]["mse"] == (0.0388, 0.0412)
    assert record.floors == {"mean_image": 0.0618, "class_mean": 0.0574}
    assert record.setting.mode == "training_time"
    assert record.setting.attacks == "3aeec1c0"
    assert record.setting.code == "0.1.0 (aaaaaaaaaaaa)"
    assert record.hardware == "NVIDIA H200"
    assert record.torch == "2.11.0"
    assert "seed" not in record.settings
    assert not any(key.startswith("audit.") for key in record.settings)


def test_the_accuracy_of_a_run_is_the_mean_of_its_late_epochs(
    tmp_path: Path, run: Make, put: Callable[..., None]
) -> None:
    """SPEC 8.4 compares acc_late; that of the stored weights belongs to the attack's numbers and is kept beside it."""
    folder = run(tmp_path / "one")
    accuracies = {"accuracy_late": 0.85, "accuracy_last": 0.80, "accuracy_kept": 0.82}
    for known, expected in (
        (accuracies, (0.85, 0.82)),
        ({"accuracy_last": 0.80}, (0.80, 0.80)),
    ):
        put(folder / "result.json", known | {"signature": "splitveil:0.1.0|seed:1"})
        (record,), _ = read_records(folder)
        assert (record.accuracy, record.kept) == expected


def test_the_codes_own_checksum_goes_before_the_revision(tmp_path: Path, run: Make, put: Callable[..., None]) -> None:
    folder = run(tmp_path / "one")
    manifest = json.loads((folder / "manifest.json").read_text())
    put(folder / "manifest.json", manifest | {"code": "c0dec0dec0de"})
    assert collect([folder]).records[0].setting.code == "0.1.0 (c0dec0dec0de)"


def test_every_audit_of_a_run_is_a_record(tmp_path: Path, run: Make, put: Callable[..., None], audit: Any) -> None:
    folder = run(tmp_path / "one")
    put(folder / "audit-inference_time" / "audit.json", audit(0.05, mode="inference_time", num_images=1000))
    records = collect([tmp_path]).records
    assert {record.setting.mode for record in records} == {"training_time", "inference_time"}
    assert {record.accuracy for record in records} == {0.85}


def test_a_sweep_names_its_methods(tmp_path: Path, sweep: Make) -> None:
    root = sweep(tmp_path / "sweep", [{"method": "ours", "seed": 1}, {"method": "theirs", "surrogate": "gated"}])
    for path in (root, tmp_path, root / "cells"):
        assert [record.label for record in collect([path]).records] == ["ours", "theirs"]
    one = collect([root / "cells" / "00000001"])
    assert [record.label for record in one.records] == ["theirs"]


def test_a_sweep_is_read_once_however_many_cells_it_has(
    tmp_path: Path, sweep: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    whole = collecting.read_sweep
    monkeypatch.setattr(collecting, "read_sweep", lambda folder: (read.append(folder), whole(folder))[1])
    root = sweep(tmp_path / "sweep", [{"method": "ours", "seed": seed} for seed in range(4)])
    assert len(collect([root]).records) == 4
    assert read == [root.resolve()]


def test_unfinished_and_failed_cells_are_told_once(tmp_path: Path, sweep: Make) -> None:
    cells = [
        {"method": "a"},
        {"method": "b", "status": "waiting"},
        {"method": "c", "status": "failed", "error": "Training collapsed.\nmore"},
    ]
    root = sweep(tmp_path / "sweep", cells)
    (root / "cells" / "00000001").mkdir()
    (root / "cells" / "00000001" / "config.toml").write_text("seed = 1\n")
    notes = collect([root]).notes
    assert notes == [
        "sweep: 1 of 3 cells have no result yet (00000001).",
        "sweep: cell 00000002 (c) failed: Training collapsed.",
    ]
    assert collect([root / "cells" / "00000000"]).notes == []


def test_a_cell_whose_folder_was_renamed_has_its_result_and_its_method(
    tmp_path: Path, sweep: Make, put: Callable[..., None]
) -> None:
    root = sweep(tmp_path / "sweep", [{"method": "ours"}, {"method": "theirs", "surrogate": "gated"}])
    put(root / "cells" / "00000001" / "cell.json", {"id": "00000001"})
    (root / "cells" / "00000001").rename(root / "cells" / "the good one")
    found = collect([root])
    assert found.notes == []
    assert sorted(record.label for record in found.records) == ["ours", "theirs"]


def test_a_long_reason_ends_between_words_and_shows_that_it_goes_on(tmp_path: Path, sweep: Make) -> None:
    reason = " ".join(["collapsed"] * 40)
    root = sweep(tmp_path / "sweep", [{"method": "a"}, {"method": "b", "status": "failed", "error": reason}])
    (note,) = collect([root]).notes
    said = note.removeprefix("sweep: cell 00000001 (b) failed: ")
    assert 100 < len(said) <= 160
    assert set(said.split()) == {"collapsed", "..."}
    assert said.endswith(" collapsed ...")


def test_a_cell_whose_audit_failed_is_not_sent_to_the_audit(tmp_path: Path, sweep: Make) -> None:
    root = sweep(tmp_path / "sweep", [{"method": "a"}, {"method": "b", "error": "No memory.", "mse": None}])
    assert collect([root]).notes == ["sweep: cell 00000001 (b) failed: No memory."]


def test_a_damaged_sweep_file_leaves_the_runs(tmp_path: Path, sweep: Make) -> None:
    root = sweep(tmp_path / "sweep", [{"method": "ours"}])
    (root / "sweep.json").write_text('{"cells": [')
    found = collect([root])
    assert [record.label for record in found.records] == [None]
    assert "sweep.json cannot be read" in found.notes[0]


def test_a_run_that_was_killed_is_not_called_running(tmp_path: Path, run: Make) -> None:
    killed = run(tmp_path / "killed")
    (killed / "result.json").unlink()
    (killed / "manifest.json").write_text('{"status": "running"}')
    for word in ("running", "stopped"):
        with only_writer(killed) if word == "running" else nullcontext():
            _, notes = read_records(killed)
        assert notes == [f"killed has no result.json (status: {word}); it is left out."]


@pytest.mark.parametrize(
    ("whose", "says"),
    [
        ("auditor", "its accuracy is that of a classifier of the auditor's own on what it sends"),
        ("model", "only an audit is here, and its accuracy is that on the pictures under attack"),
    ],
)
def test_an_audit_alone_is_no_run_and_whose_accuracy_it_has_is_told(
    tmp_path: Path, run: Make, whose: str, says: str
) -> None:
    alone = run(tmp_path / "alone")
    for file in ("config.toml", "result.json", "manifest.json"):
        (alone / file).unlink()
    path = alone / "audit" / "audit.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"accuracy": 0.99, "accuracy_of": whose}))
    found = collect([run(tmp_path / "good"), alone])
    assert [record.name for record in found.records] == ["good"]
    (note,) = found.notes
    assert note.startswith("alone is left out: ")
    assert says in note


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("result.json", None, "bad has no result.json (status: finished); it is left out."),
        ("result.json", '{"accuracy_late": 0.8', "bad is left out: its result.json cannot be read"),
        ("config.toml", "seed = [", "bad is left out: its config.toml cannot be read"),
        ("config.toml", None, "bad is left out: its config.toml is missing."),
        ("result.json", '{"accuracy_late": NaN}', "bad has no usable accuracy in result.json"),
        ("result.json", '{"accuracy_late": "high"}', "bad has no usable accuracy in result.json"),
        ("audit/audit.json", "[1, 2]", "bad/audit/audit.json cannot be read (not a table)"),
        ("audit/audit.json", '{"worst_case": {"mse": NaN}}', "bad/audit/audit.json holds no usable MSE"),
        ("audit/audit.json", None, "No audit yet, left out: bad."),
    ],
)
def test_one_sentence_for_each_thing_that_is_wrong(
    tmp_path: Path, run: Make, file: str, content: str | None, sentence: str
) -> None:
    good, bad = run(tmp_path / "good"), run(tmp_path / "bad", seed=2)
    if content is None:
        (bad / file).unlink()
    else:
        (bad / file).write_text(content)
    found = collect([good, bad])
    assert any(sentence in note for note in found.notes), found.notes
    assert "good" in [record.name for record in found.records]


def test_a_run_without_a_manifest_still_counts(tmp_path: Path, run: Make) -> None:
    folder = run(tmp_path / "one")
    (folder / "manifest.json").unlink()
    (record,) = collect([folder]).records
    assert (record.setting.code, record.hardware, record.seed) == ("unknown", None, 1)


def test_a_failed_attack_is_told(tmp_path: Path, run: Make, audit: Any) -> None:
    run(tmp_path / "one", audit=audit(0.04, failures={"refine": "out of memory"}))
    assert (
        "one/audit/audit.json: the attack 'refine' failed, so the worst case is over fewer."
        in collect([tmp_path]).notes
    )


def test_an_audit_without_a_worst_case_is_told(tmp_path: Path, run: Make, audit: Any) -> None:
    run(tmp_path / "one", audit=audit(0.04, worst_case={"mse": None}))
    found = collect([tmp_path])
    assert "one/audit/audit.json has no usable worst case; only its single attacks count." in found.notes
    assert found.records[0].value("decoder", "mse") == pytest.approx(0.042)


def test_runs_that_nobody_attacked_are_compared_by_accuracy_alone(tmp_path: Path, run: Make) -> None:
    run(tmp_path / "one", mse=None)
    (record,) = collect([tmp_path]).records
    assert record.setting.mode == "not attacked"
    assert record.accuracy == 0.85


@pytest.mark.parametrize("name", ["empty", "absent"])
def test_nothing_to_compare_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="There is no"):
        collect([tmp_path / name])


def test_only_broken_runs_is_an_error_that_says_why(tmp_path: Path, run: Make) -> None:
    (run(tmp_path / "one") / "result.json").unlink()
    with pytest.raises(UsageError, match="nothing to compare") as caught:
        collect([tmp_path])
    assert "one has no result.json" in caught.value.hint


def test_a_data_file_gives_back_the_very_same_records(tmp_path: Path, two_curves: Path) -> None:
    found = collect([two_curves])
    about = DataFile(found.records, "Title", ("splitveil compare x",), ("A note.",), {"at": [0.88]})
    path = tmp_path / "results" / "data.json"
    write_atomic(path, data_text(about))
    again = read_data_file(path)
    assert again.records == found.records
    assert (again.title, again.commands, again.notes) == ("Title", ("splitveil compare x",), ("A note.",))
    assert again.view == {"at": [0.88]}
    assert collect([path]).records == found.records
    # one line per run, so that a changed run is a changed line; and one per method
    assert len(path.read_text().splitlines()) == len(found.records) + 2 + 13


def test_a_data_file_tells_each_setting_once(two_curves: Path) -> None:
    """Under `common`, under the method, or in the run; the strength alone differs within a method."""
    records = collect([two_curves]).records
    tree = json.loads(data_text(DataFile(records)))
    assert tree["methods"] == {name: {"surrogate.name": name} for name in ("gated", "gmm")}
    for run, record in zip(tree["runs"], records, strict=True):
        assert run["settings"] == {"train.privacy_weight": record.settings["train.privacy_weight"]}
        told = [tree["common"], tree["methods"][run["label"]], run["settings"]]
        assert sum(map(len, told)) == len(record.settings)
    assert "summary" not in tree


def test_a_data_file_of_the_first_version_is_read(tmp_path: Path, two_curves: Path) -> None:
    """There the runs list what their method has in common, and a summary comes last."""
    records = collect([two_curves]).records
    tree = json.loads(data_text(DataFile(records)))
    methods = tree.pop("methods")
    for run in tree["runs"]:
        run["settings"] |= methods[run["label"]]
    path = tmp_path / "old.json"
    path.write_text(json.dumps(tree | {"format": "splitveil comparison 1", "summary": {"tables": []}}))
    assert read_data_file(path).records == records


def test_runs_without_a_label_keep_their_own_settings(tmp_path: Path, run: Make) -> None:
    run(tmp_path / "a", surrogate="gmm")
    run(tmp_path / "b", surrogate="gated")
    records = collect([tmp_path]).records
    text = data_text(DataFile(records))
    assert json.loads(text)["methods"] == {}
    write_atomic(tmp_path / "data.json", text)
    assert read_data_file(tmp_path / "data.json").records == records


def test_a_run_given_with_its_data_file_counts_once(tmp_path: Path, two_curves: Path) -> None:
    from splitveil.experiments.compare.comparison import compare

    found = collect([two_curves])
    path = tmp_path / "data.json"
    write_atomic(path, data_text(DataFile(found.records)))
    assert compare(collect([two_curves, path]).records).records == compare(found.records).records


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "cannot be read"),
        ('{"what": "something else"}', "is not a comparison's data file"),
        ('{"format": "splitveil comparison 3", "settings": [], "runs": []}', "is not a comparison's data file"),
        ('{"format": "splitveil comparison 2", "settings": [], "runs": [{"setting": 3}]}', "is damaged"),
        ('{"format": "splitveil comparison 2", "settings": [], "runs": []}', "nothing to compare"),
    ],
)
def test_a_foreign_or_damaged_file_is_an_error(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "data.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=sentence):
        collect([path])


def test_a_file_without_runs_is_still_json() -> None:
    assert json.loads(data_text(DataFile([])))["runs"] == []


def test_no_path_of_the_machine_is_kept(tmp_path: Path, run: Make) -> None:
    run(tmp_path / "one", data=str(tmp_path / "secret" / "faces.npz"))
    (record,) = collect([tmp_path]).records
    assert record.settings["data.name"] == "faces.npz"
    assert record.setting.data == "faces.npz"
    assert "secret" not in data_text(DataFile([record]))


def test_numbers_under_settings_that_the_signature_does_not_pin_are_left_out(tmp_path: Path, run: Make) -> None:
    for name, file in (("trained", "result.json"), ("attacked", "audit/audit.json")):
        path = run(tmp_path / name) / file
        tree = json.loads(path.read_text())
        path.write_text(json.dumps(tree | {"signature": "splitveil:0.1.0|config:0123456789|audit|attacks:3aeec1c0"}))
    records, notes = read_records(tmp_path / "trained")
    assert records == []
    assert notes == ["trained is left out: its config.toml is not the one that its signature pins."]
    (record,), notes = read_records(tmp_path / "attacked")
    assert record.scores == {}
    assert notes == ["attacked/audit/audit.json is about other settings than those in config.toml; it is left out."]


def test_an_audit_that_was_changed_after_its_card_is_left_out(tmp_path: Path, run: Make) -> None:
    folder = run(tmp_path / "edited")
    (folder / "audit" / "card.json").write_text(json.dumps({"tier": "deep", "sha256": "0"}))
    (record,), (note,) = read_records(folder)
    assert record.scores == {}
    assert "was changed after the audit and is left out" in note


def test_audits_without_their_card_count_and_are_named_once(tmp_path: Path, run: Make) -> None:
    for name in ("b", "a", "whole"):
        run(tmp_path / name)
    for name in ("b", "a"):
        (tmp_path / name / "audit" / "card.json").unlink()
    found = collect([tmp_path])
    assert [bool(record.scores) for record in found.records] == [True] * 3
    assert found.notes == ["Without its card.json nobody can tell whether an audit was changed: a; b."]


def test_an_audit_that_may_not_be_read_does_not_pass_for_none(
    tmp_path: Path, run: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run(tmp_path / "run")
    shut_folder(folder / "audit", monkeypatch)
    (record,), notes = read_records(folder)
    assert record.scores == {}
    assert notes == ["run/audit cannot be read (Permission denied) and is left out: change its permissions."]


def test_other_weights_and_audits_of_other_pictures_are_left_out(tmp_path: Path, run: Make) -> None:
    folder = run(tmp_path / "swapped")
    header = json.dumps({"__metadata__": {"splitveil.sha256": "a" * 64}}).encode()
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(result | {"weights": "a" * 64}))
    assert read_records(folder)[1] == []
    (folder / "result.json").write_text(json.dumps(result | {"weights": "b" * 64}))
    assert read_records(folder) == ([], ["swapped is left out: its weights are not those that its result.json pins."])
    (folder / "result.json").write_text(json.dumps(result | {"signature": "data:91bd03aa"}))
    audit = folder / "audit" / "audit.json"
    audit.write_text(json.dumps(json.loads(audit.read_text()) | {"signature": "data:0456ee4c"}))
    (record,), (note,) = read_records(folder)
    assert record.scores == {}
    assert note == "swapped/audit/audit.json is about other pictures than those of the training; it is left out."


def test_a_run_whose_epochs_had_another_accuracy_is_left_out(tmp_path: Path, run: Make) -> None:
    folder = run(tmp_path / "edited", accuracy=0.8)
    row = json.dumps({"epoch": 1, "test_accuracy": 0.8})
    (folder / "metrics.jsonl").write_text(row)
    assert read_records(folder)[0][0].accuracy == 0.8
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(result | {"accuracy_late": 0.9}))
    assert read_records(folder) == (
        [],
        ["edited is left out: its result.json states another accuracy than its metrics.jsonl."],
    )
    (folder / "metrics.jsonl").write_text(row + "\n{")  # of a torn file nobody knows
    assert read_records(folder)[0][0].accuracy == 0.9


def test_an_accuracy_that_is_no_number_is_refused_however_it_comes() -> None:
    """A data file leaves such a number out; one that a caller gives would be left out without a word."""
    with pytest.raises(UsageError, match="--at nan is not an accuracy"):
        settle([], {"at": [float("nan")]}, None)
