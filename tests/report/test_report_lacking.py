"""Runs that did not come to an attack: cells that failed, runs that go on, runs that nobody attacked."""

from __future__ import annotations

import json
import shutil

import pytest


@pytest.fixture
def write_failed(tmp_path, write_run):
    """A sweep's cell that failed in training, before its first epoch or after it."""

    def write(name, *, epochs=0, **options):
        folder = write_run(tmp_path / "runs" / name, images=1, **options)
        shutil.rmtree(folder / "audit")
        (folder / "result.json").unlink()
        (folder / "manifest.json").write_text(json.dumps({"status": "failed"}))
        (folder / "error.json").write_text(json.dumps({"error": "The loss is not finite."}))
        lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)[:epochs]
        (folder / "metrics.jsonl").write_text("".join(lines))
        return folder

    return write


def test_cells_that_failed_are_not_called_unfinished(tmp_path, write_run, write_failed, build, caplog):
    for seed in (1, 2):
        write_run(tmp_path / "runs" / f"good-{seed}", seed=seed, images=1)
        write_failed(f"bad-{seed}", seed=seed, weight=99.0)
    (write_failed("running", seed=3, epochs=2) / "error.json").unlink()
    page = build(tmp_path / "runs")
    said = page.text("caveats")
    assert "2 of 5 runs failed (error.json says why; “splitveil sweep ... --retry-failed” runs them again)" in said
    assert "and count in no mean: bad-1, bad-2." in said
    assert "1 of 5 runs is unfinished and counts in no mean: running." in said
    assert "5 次运行中有 2 次失败" in page.text("caveats", lang="zh")
    bad = ", ".join(str(tmp_path / "runs" / name) for name in ("bad-1", "bad-2"))
    retry = "see error.json, splitveil sweep ... --retry-failed runs them again"
    assert f"warning: failed (2 of 5; {retry}): {bad}" in caplog.messages
    assert f"warning: unfinished (1 of 5): {tmp_path / 'runs/running'} (epoch 2 of 12)" in caplog.messages


def test_a_method_that_never_trained_has_no_chip_and_no_mean(tmp_path, write_run, write_failed, build):
    for seed in (1, 2):
        write_run(tmp_path / "runs" / f"good-{seed}", seed=seed, images=1)
        write_failed(f"bad-{seed}", seed=seed, weight=99.0)
    page = build(tmp_path / "runs")
    assert page.text("legend").count("weight") == 1
    assert "weight 99" not in page.text("legend")
    assert "2 failed" in page.text("numbers")
    assert page.text("numbers").count("mean of 2") == 1
    write_failed("bad-3", seed=3, weight=99.0, epochs=2)  # now there are curves to hide
    page = build(tmp_path / "runs")
    assert "weight 99" in page.text("legend")
    assert "last epoch before it failed" in page.text("numbers")
    assert "last epoch so far" not in page.text("numbers")


def test_the_first_sentence_says_that_runs_failed(tmp_path, write_failed, build):
    write_failed("a", epochs=2)
    said = build(tmp_path / "runs").text("verdict")
    assert said.startswith("This run failed. There are no results here yet")
    write_failed("b", epochs=2, weight=99.0)
    assert build(tmp_path / "runs").text("verdict").startswith("2 of 2 runs failed. There are no results")


def test_a_finished_run_beside_a_failed_one_is_one_model(tmp_path, write_run, write_failed, build):
    write_failed("a", epochs=2)
    shutil.rmtree(write_run(tmp_path / "runs" / "b", weight=4.0, accuracy=0.8) / "audit")
    said = build(tmp_path / "runs").text("verdict")
    assert said.startswith("1 of 2 runs failed. This model reaches 80.0 % accuracy")


def test_runs_that_nobody_attacked_are_named_beside_others(tmp_path, write_run, build, caplog):
    for name, weight in (("a", 1.0), ("b", 2.0), ("c", 3.0)):
        write_run(tmp_path / "runs" / name, weight=weight, images=1)
    assert "not attacked" not in build(tmp_path / "runs").text("caveats")
    shutil.rmtree(tmp_path / "runs" / "a" / "audit")
    page = build(tmp_path / "runs")
    why = "(audit/audit.json is missing or holds no score)"
    assert f"1 of 3 runs was not attacked {why}: a." in page.text("caveats")
    assert "3 次运行中有 1 次未受到攻击" in page.text("caveats", lang="zh")
    assert caplog.messages == [f"warning: not attacked (1 of 3): {tmp_path / 'runs' / 'a'}"]
    shutil.rmtree(tmp_path / "runs" / "b" / "audit")
    assert f"2 of 3 runs were not attacked {why}: a, b." in build(tmp_path / "runs").text("caveats")
    shutil.rmtree(tmp_path / "runs" / "c" / "audit")
    caplog.clear()
    build(tmp_path / "runs")  # whose first sentence says it of all
    assert caplog.messages == []


def test_a_run_that_was_attacked_for_its_members_alone_was_attacked(tmp_path, write_run, build, caplog):
    """Such an audit has no score for pictures."""
    for name, weight in (("a", 1.0), ("b", 2.0)):
        write_run(tmp_path / "runs" / name, weight=weight, images=0, attacks=())
        path = tmp_path / "runs" / name / "audit/audit.json"
        inference = {"membership": {"auc": 0.6, "auc_ci95": [0.5, 0.7]}}
        path.write_text(json.dumps({"tier": "smoke", "num_images": 2000, "inference": inference}))
    page = build(tmp_path / "runs")
    assert page.text("verdict").startswith("No attack here has a score for pictures; what the others found stands")
    assert "holds no score" not in page.text("notes")
    write_run(tmp_path / "runs" / "c", images=1)
    assert "not attacked" not in build(tmp_path / "runs").text("caveats")
    assert caplog.messages == []


def test_an_attacked_copy_speaks_for_the_run(tmp_path, write_run, build, caplog):
    """Both are one model, and one of them was attacked."""
    for name in ("a", "b"):
        write_run(tmp_path / "runs" / name, images=1)
    shutil.rmtree(tmp_path / "runs" / "a" / "audit")
    assert "not attacked" not in build(tmp_path / "runs").text("caveats")
    assert "not attacked" not in caplog.text


def test_of_an_audit_that_cannot_be_read_the_terminal_does_not_say_that_there_was_none(demo, build, caplog):
    """Other damage does not keep a run from being named."""
    config = demo / "defended" / "config.toml"
    config.write_text(config.read_text().replace("epochs = 12", "epochs = 13"))
    (demo / "defended" / "audit/audit.json").write_text("= torn")
    build(demo)
    assert "audit/audit.json cannot be read" in caplog.text
    assert "not attacked" not in caplog.text
    shutil.rmtree(demo / "defended" / "audit")
    build(demo)
    assert "config.toml is not the one" in caplog.text
    assert f"warning: not attacked (1 of 2): {demo / 'defended'}" in caplog.messages
