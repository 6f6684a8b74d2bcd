"""Every part of a run folder may be missing, damaged or foreign: the page is written, well formed, and says so."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
from oddities import places, spoil
from tests.worlds.shut_folder import shut_folder

from splitveil.core.locks import only_writer

FILES = ["config.toml", "manifest.json", "metrics.jsonl", "result.json", "audit/audit.json", "audit/gallery.json"]
GARBAGE = {
    "empty": b"",
    "torn": b'{"accuracy_late": 0.8, "attacks": {"dec',
    "binary": bytes(range(256)),
    "list": b"[1, 2, 3]",
    "null": b"null",
    "number": b"17",
    "deep": b"[" * 100_000,
    "nan": b'{"accuracy_late": NaN, "epoch": Infinity, "num_images": NaN, "attacks": {"a": {"mse": NaN}}}',
    "huge": b'{"accuracy_late": 1'
    + b"0" * 400
    + b', "worst_case": {"mse": 1e308, "ssim": -1e308}, "num_images": 1e300}',
    "lone surrogate": b'{"tier": "\\ud800", "signature": "\\udfff", "class_name": "\\ud800"}',
}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("kind", GARBAGE)
def test_damaged_file(demo, build, file, kind):
    (demo / "defended" / file).write_bytes(GARBAGE[kind])
    page = build(demo)
    assert page.faults == []
    assert "undefended" in page.text()


@pytest.mark.parametrize("file", FILES)
def test_missing_file_is_noted(demo, build, file):
    (demo / "defended" / file).unlink()
    page = build(demo)
    assert page.faults == []
    noted = file in page.text("notes")
    assert noted == (file != "audit/gallery.json")  # the gallery is optional; its absence shows in the gallery itself


@pytest.mark.parametrize("file", ["result.json", "audit/audit.json"])
def test_a_failed_cell_is_not_called_one_that_is_still_to_come(demo, build, file):
    (demo / "defended" / file).unlink()
    (demo / "defended" / "error.json").write_text('{"error": "No memory."}')
    notes = build(demo).text("notes")
    assert f"{file} is missing because the cell failed" in notes
    assert "not attacked yet" not in notes
    assert "has not finished" not in notes


def test_broken_json_is_named_with_the_reason(demo, build):
    (demo / "defended" / "result.json").write_text("{ not json")
    assert "result.json cannot be read (Expecting property name" in build(demo).text("notes")


def test_torn_metric_lines_are_counted_and_the_rest_is_drawn(demo, build):
    path = demo / "defended" / "metrics.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(["garbage", *lines, '{"epoch": 99, "acc']))
    page = build(demo)
    assert "2 lines of metrics.jsonl are damaged" in page.text("notes")
    assert "training" in [attrs.get("id") for attrs in page.named("section")]


def test_only_one_sign_of_a_run(tmp_path, build):
    folder = tmp_path / "started"
    folder.mkdir()
    (folder / "config.toml").write_text("seed = 1\n")
    page = build(folder)
    assert page.faults == []
    assert "no results here yet" in page.text("verdict")


def test_trained_but_not_attacked(demo, build):
    for name in ("defended", "undefended"):
        shutil.rmtree(demo / name / "audit")
    page = build(demo)
    assert page.text("verdict").startswith("These models reach 88.9 % accuracy, but nobody has attacked them yet")
    assert "not attacked yet" in page.text("notes")


def test_running_and_failed_runs_say_so(demo, build):
    for status in ("running", "failed"):
        (demo / "defended" / "manifest.json").write_text(json.dumps({"status": status}))
        with only_writer(demo / "defended"):
            assert f"its status is “{status}”" in build(demo).text("notes")


def test_a_run_that_was_killed_is_not_called_running(demo, build):
    """Its manifest still says so, but no process holds its folder."""
    (demo / "defended" / "manifest.json").write_text(json.dumps({"status": "running"}))
    page = build(demo)
    assert "its status is “stopped”" in page.text("notes")
    provenance = page.source[page.source.index('id="provenance"') :]
    assert ">stopped<" in provenance
    assert ">running<" not in provenance


def test_missing_pictures(demo, build):
    shutil.rmtree(demo / "defended" / "audit" / "decoder")
    shutil.rmtree(demo / "defended" / "audit" / "optimize")
    page = build(demo)
    assert "no picture" in page.text("missing")
    for name in ("defended", "undefended"):
        for attack in ("original", "decoder", "optimize"):
            shutil.rmtree(demo / name / "audit" / attack, ignore_errors=True)
    assert "The audit kept no pictures" in build(demo).text("empty")


def test_ten_thousand_epochs_are_thinned(demo, build):
    path = demo / "defended" / "metrics.jsonl"
    rows = [
        {"epoch": e, "task_loss": 1 / e, "accuracy": 0.5, "rob_loss": 7.5 if e == 4321 else 0.1}
        for e in range(1, 10_001)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = build(demo)
    curves = [attrs["data-v"] for attrs in page.named("g") if "data-v" in attrs]
    assert max(len(curve.split()) for curve in curves) <= 125
    assert any("4321,7.5" in curve.split() for curve in curves), "the one spike must survive"
    assert len(page.source) < 1_000_000


@pytest.mark.parametrize("seed", range(40))
def test_foreign_values_anywhere(demo, build, seed):
    """A few places in each JSON file get a value of another kind; whatever they are, the page is well formed."""
    chance = random.Random(seed)
    for file in ("manifest.json", "result.json", "audit/audit.json", "audit/gallery.json"):
        path: Path = demo / chance.choice(["defended", "undefended"]) / file
        tree = json.loads(path.read_text())
        spoil(tree, chance.sample(list(places(tree)), 4), chance)
        path.write_text(json.dumps(tree))
    page = build(demo)
    assert page.faults == []
    assert not [attrs for _, attrs in page.elements if "nan" in attrs.get("points", "") + attrs.get("d", "")]


def test_foreign_toml(demo, build):
    (demo / "defended" / "config.toml").write_text(
        'seed = 1979-05-27\nsurrogate = 3\ntrain = "x"\n'
        '[defence]\nnoise = [1]\nnopeek = {weight = "a"}\n[data]\nname = 2\n'
    )
    page = build(demo)
    assert page.faults == []
    assert "1979-05-27" in page.text()


def unfinished(folder, epochs):
    """As training leaves a folder while it runs: no result, no audit, some lines of metrics."""
    shutil.rmtree(folder / "audit")
    (folder / "result.json").unlink()
    (folder / "manifest.json").write_text(json.dumps({"status": "running"}))
    lines = (folder / "metrics.jsonl").read_text().splitlines()[:epochs]
    rows = [json.loads(line) for line in lines]
    for row in rows:
        row.pop("test_accuracy", None)
    rows[-1]["accuracy"] = 0.767
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_first_sentence_says_that_a_run_is_unfinished(demo, build, caplog):
    unfinished(demo / "defended", 3)
    page = build(demo / "defended")
    said = page.text("verdict")
    assert said.startswith("This run is unfinished: epoch 3 of 12.")
    assert "accuracy of its last epoch so far is 76.7 %" in said
    assert "These models" not in said
    assert "last epoch so far" in page.text("numbers")
    assert page.text("verdict", lang="zh").startswith("本次运行尚未完成：第 3 轮，共 12 轮。")  # noqa: RUF001
    assert f"unfinished (1 of 1): {demo / 'defended'} (epoch 3 of 12)" in caplog.text


def test_an_unfinished_run_beside_a_finished_one(demo, build):
    unfinished(demo / "defended", 3)
    shutil.rmtree(demo / "undefended" / "audit")
    said = build(demo).text("verdict")
    assert said.startswith("1 of 2 runs is unfinished. This model reaches 88.9 % accuracy, but nobody has attacked it")


def test_an_unfinished_seed_counts_in_no_mean(tmp_path, write_run, build):
    for seed, accuracy in ((1, 0.8), (2, 0.9), (3, 0.1)):
        write_run(tmp_path / f"s{seed}", seed=seed, accuracy=accuracy)
    unfinished(tmp_path / "s3", 2)
    page = build(tmp_path)
    assert "At 85.0 % accuracy" in page.text("verdict")
    assert "1 of 3 runs is unfinished and counts in no mean: s3." in page.text("caveats")


def test_settings_that_the_signature_does_not_pin_stand_above_the_verdict(demo, build, caplog):
    assert "Do not rely on the numbers" not in build(demo).text("caveats")
    path = demo / "defended" / "config.toml"
    path.write_text(path.read_text().replace("sigma = 0.025", "sigma = 5.0"))
    page = build(demo)
    assert "Do not rely on the numbers of defended:" in page.text("caveats")
    assert "config.toml is not the one that the signature pins" in page.text()
    assert "config.toml is not the one that the signature pins" in caplog.text


def test_an_audit_that_its_card_does_not_fit_stands_there_too(demo, build):
    (demo / "defended" / "audit" / "card.json").write_text(json.dumps({"tier": "deep", "sha256": "0"}))
    page = build(demo)
    assert "Do not rely on the numbers of defended:" in page.text("caveats")
    assert "audit/audit.json does not say what its card.json says" in page.text()


def test_a_card_that_is_missing_is_told(demo, build):
    """With it goes the only means to find out, by reading, that somebody wrote better numbers into audit.json."""
    (demo / "undefended" / "audit" / "card.json").write_text("{}")
    words = "audit/card.json is missing: nobody can tell whether audit.json was changed after the audit"
    assert build(demo).text().count(words) == 1
    assert words in build(demo / "defended").text()
    assert words not in build(demo / "undefended").text()


def test_an_audit_folder_that_may_not_be_read_is_named_with_what_to_do(demo, build, caplog, monkeypatch):
    shut_folder(demo / "defended" / "audit", monkeypatch)
    page = build(demo)
    words = "the folder audit cannot be read (Permission denied): change its permissions and make this report again"
    assert words in page.text()
    assert caplog.text.count(words) == 1
    assert "not attacked yet" not in page.text("notes")
    assert "undefended" in page.text()


def test_the_audit_of_another_mode_that_may_not_be_read_is_named_too(demo, build, monkeypatch):
    shutil.copytree(demo / "defended" / "audit", demo / "defended" / "audit-inference_time")
    shut_folder(demo / "defended" / "audit-inference_time", monkeypatch)
    assert "the folder audit-inference_time cannot be read (Permission denied)" in build(demo).text("notes")


def test_weights_and_pictures_that_are_not_pinned_stand_there_too(demo, build):
    folder = demo / "defended"
    header = json.dumps({"__metadata__": {"splitveil.sha256": "a" * 64}}).encode()
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    result = json.loads((folder / "result.json").read_text())
    for pins, words in (
        ({"weights": "b" * 64}, "model.safetensors is not the one that result.json pins"),
        ({"signature": result["signature"] + "|data:91bd03aa"}, "audit.json is about other pictures than those of"),
    ):
        audit = folder / "audit" / "audit.json"
        tree = json.loads(audit.read_text())
        audit.write_text(json.dumps(tree | {"signature": tree["signature"] + "|data:0456ee4c"}))
        (folder / "result.json").write_text(json.dumps(result | {"weights": "a" * 64}))
        assert "Do not rely on the numbers" not in build(demo).text("caveats")
        (folder / "result.json").write_text(json.dumps(result | pins))
        page = build(demo)
        assert "Do not rely on the numbers of defended:" in page.text("caveats")
        assert words in page.text()


def test_an_accuracy_that_no_epoch_had_stands_there_too(demo, build):
    path = demo / "defended" / "result.json"
    result = json.loads(path.read_text())
    row = {"epoch": 1, "test_accuracy": result["accuracy_late"]}
    (demo / "defended" / "metrics.jsonl").write_text(json.dumps(row))
    path.write_text(json.dumps(result | {"accuracy_last": result["accuracy_late"]}))
    assert "Do not rely on the numbers" not in build(demo).text("caveats")
    path.write_text(json.dumps(result | {"accuracy_late": 0.99}))
    page = build(demo)
    assert "Do not rely on the numbers of defended:" in page.text("caveats")
    assert "result.json states another accuracy than metrics.jsonl" in page.text()
