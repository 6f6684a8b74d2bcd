"""The index agrees with the folders, whatever happens to either."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pytest
from tests.web.conftest import append_epoch, write_audit, write_run
from tests.worlds.shut_folder import shut_folder

from splitveil.core.errors import RunFolderError
from splitveil.core.locks import only_writer
from splitveil.web import index as index_module
from splitveil.web.details import details
from splitveil.web.index import FILE, Index, Query


def names(index: Index, **query: object) -> list[str]:
    return [row["name"] for row in index.page(Query(**query))["rows"]]  # type: ignore[arg-type]


@pytest.fixture
def three(tmp_path: Path) -> Path:
    write_run(tmp_path / "a", accuracy=0.7)
    write_run(tmp_path / "sweep" / "b", accuracy=0.9, surrogate={"name": "gated"})
    write_audit(tmp_path / "sweep" / "b", 0.02, 0.5)
    write_run(tmp_path / "c", accuracy=0.8, data={"name": "cifar10"})
    return tmp_path


def test_rows_tell_what_the_folders_say(three):
    index = Index(three)
    assert index.refresh() == 3
    rows = {row["name"]: row for row in index.page(Query())["rows"]}
    assert set(rows) == {"a", "b", "c"}
    b = rows["b"]
    assert (b["folder"], b["accuracy"], b["mse"], b["ssim"], b["tier"]) == ("sweep", 0.9, 0.02, 0.5, "smoke")
    assert (b["surrogate"], b["sigma"], b["epoch"], b["epochs"], b["status"]) == ("gated", 0.1, 6, 6, "finished")
    assert rows["a"]["mse"] is None
    index.close()


def test_a_folder_that_may_not_be_read_is_told_once_not_at_every_look(three, monkeypatch, caplog):
    shut_folder(three / "a", monkeypatch)
    index = Index(three)
    index.refresh()
    index.refresh()
    assert sorted(names(index)) == ["b", "c"]
    assert [message for message in caplog.messages if "may not be read" in message] == caplog.messages[:1]
    assert str(three / "a") in caplog.messages[0]
    index.close()


def test_whose_the_accuracy_is(three):
    """Of an endpoint there is an audit alone, and the accuracy in it is that of a classifier of the auditor's own."""
    for name, whose in (("endpoint", "auditor"), ("artefact", "model")):
        (three / name).mkdir()
        write_audit(three / name, 0.03, 0.4, accuracy=0.71, accuracy_of=whose)
    write_audit(three / "a", 0.03, 0.4, accuracy=0.71, accuracy_of="auditor")  # the run's own accuracy is what counts
    index = Index(three)
    index.refresh()
    rows = {row["name"]: (row["accuracy"], row["auditors_accuracy"]) for row in index.page(Query())["rows"]}
    assert rows == {"endpoint": (0.71, 1), "artefact": (0.71, 0), "a": (0.7, 0), "b": (0.9, 0), "c": (0.8, 0)}
    index.close()


def test_an_audit_alone_is_not_called_incomplete(three):
    for name in ("artefact", "damaged"):
        (three / name).mkdir()
        write_audit(three / name, 0.03, 0.4, accuracy=0.71)
    (three / "damaged" / "audit" / "audit.json").write_text("{", encoding="utf-8")
    index = Index(three)
    index.refresh()
    status = {row["name"]: row["status"] for row in index.page(Query())["rows"]}
    assert (status["artefact"], status["damaged"]) == ("audit", "unknown")
    index.close()


def test_filters_sorts_and_pages(three):
    index = Index(three)
    index.refresh()
    assert names(index, sort="accuracy") == ["b", "c", "a"]
    assert names(index, sort="accuracy", descending=False) == ["a", "c", "b"]
    assert names(index, sort="mse", descending=False)[0] == "b", "runs without the number come last"
    assert names(index, sort="mse")[0] == "b"
    assert names(index, text="SWEEP gated") == ["b"]
    assert names(index, surrogate="gated") == ["b"]
    assert names(index, data="cifar10") == ["c"]
    assert names(index, status="running") == []
    assert names(index, text="%") == [], "a percent sign is a percent sign"
    assert names(index, sort="accuracy", limit=1, offset=1) == ["c"]
    page = index.page(Query(text="a", limit=1))
    assert page["total"] == 3  # every run says "gmm" or "gated" or "fashion"
    assert page["facets"]["data"] == ["cifar10", "fashion-mini"]
    index.close()


def test_a_sort_that_does_not_exist_is_ignored(three):
    index = Index(three)
    index.refresh()
    assert len(names(index, sort="id; DROP TABLE runs")) == 3
    index.close()


def test_only_what_changed_is_read_again(three):
    index = Index(three)
    index.refresh()
    assert index.refresh() == 0
    append_epoch(three / "a", 7)
    assert index.refresh() == 1
    assert next(row for row in index.page(Query())["rows"] if row["name"] == "a")["epoch"] == 7
    shutil.rmtree(three / "c")
    assert index.refresh() == 0
    assert sorted(names(index)) == ["a", "b"]
    index.close()


def test_index_survives_the_server_and_is_rebuilt_from_the_folders(three):
    first = Index(three)
    first.refresh()
    first.close()
    assert (three / FILE).is_file()
    second = Index(three)
    assert len(names(second)) == 3, "known before any folder was read"
    assert second.refresh() == 0
    second.close()
    (three / FILE).unlink()
    third = Index(three)
    assert third.refresh() == 3
    third.close()


@pytest.mark.parametrize("content", [b"this is not a database" * 100, b"SQLite format 3\0" + b"\xff" * 4000])
def test_damaged_index_file_is_made_anew(three, content):
    (three / FILE).write_bytes(content)
    index = Index(three)
    assert not index.in_memory
    assert index.refresh() == 3
    index.close()


def test_index_of_another_version_is_made_anew(three, monkeypatch):
    monkeypatch.setattr(index_module, "VERSION", index_module.VERSION + 1)
    later = Index(three)
    later.refresh()
    later.close()
    monkeypatch.undo()
    index = Index(three)
    assert names(index) == []
    assert index.refresh() == 3
    index.close()


def test_folder_without_room_for_an_index_is_indexed_in_memory(three):
    (three / FILE).mkdir()  # stands for any folder in which no file can be made
    index = Index(three)
    assert index.in_memory
    assert index.refresh() == 3
    index.close()


def test_reopen_after_the_file_was_ruined(three):
    index = Index(three)
    index.refresh()
    (three / FILE).write_bytes(b"ruined" * 5000)
    with pytest.raises(sqlite3.DatabaseError):
        index.page(Query(sort="mse"))
    index.reopen()
    assert index.refresh() == 3
    index.close()


def test_a_run_whose_process_has_gone_is_not_running(tmp_path):
    run = write_run(tmp_path / "live", status="running")
    index = Index(tmp_path)
    with only_writer(run):
        index.refresh()
        assert index.page(Query())["rows"][0]["status"] == "running"
    index.refresh()  # no file has changed, but nobody holds the lock any more
    assert index.page(Query())["rows"][0]["status"] == "stopped"
    index.close()


def test_a_cell_that_its_sweep_gave_up_is_failed_and_says_why(tmp_path):
    cell = write_run(tmp_path / "sweep" / "cells" / "gmm-1")
    index = Index(tmp_path)
    index.refresh()
    assert index.page(Query())["rows"][0]["status"] == "finished"
    (cell / "cell.json").write_text('{"method": "gmm"}', encoding="utf-8")
    (cell / "error.json").write_text('{"error": "No attack gave a reconstruction."}', encoding="utf-8")
    assert index.refresh() == 1
    assert index.page(Query())["rows"][0]["status"] == "failed"
    told = details(tmp_path, cell)
    assert ["error", "No attack gave a reconstruction."] in told["facts"]
    assert any("No attack gave a reconstruction" in note["en"] for note in told["notes"])
    assert told["cell"]
    (cell / "error.json").write_bytes(b"\xff{")  # still a sign, even where it cannot be read
    index.refresh()
    assert index.page(Query())["rows"][0]["status"] == "failed"
    (cell / "error.json").unlink()
    index.refresh()
    assert index.page(Query())["rows"][0]["status"] == "finished"
    index.close()


def test_strange_folders_get_a_row(tmp_path):
    (tmp_path / "empty-config").mkdir()
    (tmp_path / "empty-config" / "config.toml").write_text("", encoding="utf-8")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "config.toml").write_bytes(b"\xff\xfe[[[")
    (tmp_path / "torn" / "metrics.jsonl").write_bytes(b'{"epoch": 1}\n{"epo')
    (tmp_path / "foreign").mkdir()
    foreign = '{"accuracy_late": "high", "seconds": 1e999, "surrogate": [1]}'
    (tmp_path / "foreign" / "result.json").write_text(foreign, encoding="utf-8")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "metrics.jsonl").write_text('{"epoch": 1e300, "accuracy": NaN}\n[]\n', encoding="utf-8")
    os.makedirs(os.fsencode(tmp_path) + b"/bad-\xff-name")
    with open(os.fsencode(tmp_path) + b"/bad-\xff-name/manifest.json", "w", encoding="utf-8") as file:
        file.write('{"status": "\\ud800"}')
    index = Index(tmp_path)
    assert index.refresh() == 5
    rows = {row["name"]: row for row in index.page(Query())["rows"]}
    assert set(rows) == {"empty-config", "torn", "foreign", "odd", "bad-\ufffd-name"}
    assert rows["torn"]["notes"] > 0
    assert index.path(rows["bad-\ufffd-name"]["id"]).is_dir()
    index.close()


def test_a_row_that_cannot_be_made_does_not_hide_the_others(three, monkeypatch):
    real = index_module.summarise

    def fails(root, folder, mark):
        if folder.name == "a":
            raise KeyError("never expected")
        return real(root, folder, mark)

    monkeypatch.setattr(index_module, "summarise", fails)
    index = Index(three)
    assert index.refresh() == 3
    assert {row["name"]: row["status"] for row in index.page(Query())["rows"]}["a"] == "unknown"
    index.close()


@pytest.mark.parametrize("identifier", ["../outside", "..", "/etc", "a/../../outside", "%2e%2e/outside", "a\0", ""])
def test_only_known_runs_have_a_path(three, identifier):
    write_run(three.parent / f"{three.name}-x" / "outside")
    index = Index(three)
    index.refresh()
    with pytest.raises(RunFolderError):
        index.path(identifier)
    index.close()


def test_a_run_folder_itself_is_a_list_of_one(tmp_path):
    index = Index(write_run(tmp_path / "alone"))
    assert index.refresh() == 1
    row = index.page(Query())["rows"][0]
    assert (row["id"], row["name"]) == (".", "alone")
    assert index.path(".").samefile(tmp_path / "alone")
    index.close()


def test_ten_thousand_runs_are_listed_by_the_database(tmp_path):
    """The rows are made up in the index itself: reading so many folders would only test the disk."""
    write_run(tmp_path / "one")
    index = Index(tmp_path)
    index.refresh()
    index._connection.executescript(
        """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9999)
        INSERT INTO runs SELECT 'r' || i, signature, 'r' || i, folder, status, method, method_zh, surrogate,
        data, model, sigma, weight, i % 7, epoch, epochs, (i * 37 % 9999) / 9999.0, 0, mse, ssim, tier, started,
        seconds, has_model, notes, 'r' || i || ' gmm' FROM runs, n"""
    )
    page = index.page(Query(sort="accuracy", text="gmm", limit=50, offset=5000))
    assert (page["total"], len(page["rows"])) == (10_000, 50)
    accuracies = [row["accuracy"] for row in page["rows"]]
    assert accuracies == sorted(accuracies, reverse=True)
    index.close()


def test_an_audit_of_a_model_of_ones_own_is_not_an_incomplete_run(tmp_path):
    (tmp_path / "theirs").mkdir()
    write_audit(tmp_path / "theirs", 0.01, 0.8)
    index = Index(tmp_path)
    index.refresh()
    [found] = index.page(Query())["rows"]
    assert (found["status"], found["mse"]) == ("audit", 0.01)
    index.close()
