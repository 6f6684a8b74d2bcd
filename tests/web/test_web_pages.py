"""What the pages are told: curves, details, comparisons, reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.web.conftest import OURS, append_epoch, wait, write_audit, write_run

from splitveil.core.toml import dump_toml


def curves_of(app, run: str, **args):
    return app.get("/api/curves", params={"id": [run], **args}).json()[0]


def test_curves_are_the_numbers_of_the_file(client, tmp_path):
    write_run(tmp_path / "a", epochs=4)
    app = client(tmp_path)
    found = curves_of(app, "a")
    assert found["epoch"] == 4
    assert found["curves"]["task_loss"] == [[1, 2.0], [2, 1.0], [3, 2 / 3], [4, 0.5]]
    assert list(found["curves"])[:4] == ["accuracy", "task_loss", "rob_loss", "intra_mse"]
    assert "gate_mean" in found["curves"]
    assert curves_of(app, "a", seen=[found["version"]]) == {"same": True}
    append_epoch(tmp_path / "a", 5)
    assert curves_of(app, "a", seen=[found["version"]])["curves"]["task_loss"][-1] == [5, 0.4]


def test_ten_thousand_epochs_are_thinned_without_losing_a_spike(client, tmp_path):
    run = write_run(tmp_path / "long", epochs=1)
    rows = [{"epoch": epoch, "task_loss": 99.0 if epoch == 6543 else 1.0 / epoch} for epoch in range(1, 10_001)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    app = client(tmp_path)
    answer = app.get("/api/curves", params={"id": ["long"]})
    points = answer.json()[0]["curves"]["task_loss"]
    assert len(points) <= 300
    assert [6543, 99.0] in points
    assert (points[0][0], points[-1][0]) == (1, 10_000)
    assert len(answer.content) < 20_000
    assert app.get("/api/run", params={"id": "long"}).json()["row"]["epoch"] == 10_000


def test_damaged_metrics_give_what_there_is(client, tmp_path):
    run = write_run(tmp_path / "torn", epochs=2)
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"epoch": 3, "task_loss": NaN, "accuracy": 0.5, "rob_loss": 1e999}\nrubbish\n{"epoch": 4, "task_')
    app = client(tmp_path)
    found = curves_of(app, "torn")["curves"]
    assert [point[0] for point in found["task_loss"]] == [1, 2]
    assert found["accuracy"][-1] == [3, 0.5]
    told = app.get("/api/run", params={"id": "torn"}).json()
    for notes in (told["notes"], told["alarms"]):
        assert any("metrics.jsonl" in note["en"] for note in notes)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.toml", b"\xff\xfe"),
        ("config.toml", b""),
        ("manifest.json", b"[]"),
        ("result.json", b'{"accuracy_late": {"deep": [1]}, "cost": 5}'),
        ("metrics.jsonl", b"\x00\x01"),
        ("audit/audit.json", b'{"attacks": {"x": 3}, "worst_case": "none", "floors": []}'),
    ],
)
def test_foreign_files_are_shown_with_a_note(client, tmp_path, name, content):
    run = write_run(tmp_path / "strange")
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).write_bytes(content)
    app = client(tmp_path)
    for path in ("run", "curves", "compare", "live", "log"):
        answer = app.get(f"/api/{path}", params={"id": "strange"})
        assert answer.status_code == 200, path
    assert app.get("/api/run", params={"id": "strange"}).json()["notes"] != []


def test_details_of_a_run(client, tmp_path):
    run = write_run(tmp_path / "a", accuracy=0.875)
    write_audit(run, 0.03, 0.4)
    found = client(tmp_path).get("/api/run", params={"id": "a"}).json()
    assert found["row"]["accuracy"] == 0.875
    assert ["defence.noise.sigma", "0.1"] in found["config"]
    assert found["attacks"][0]["name"] == "linear"
    assert found["floor"] == {"mse": 0.09, "ssim": 0.2}
    assert ["signature", "splitveil:0|config:1"] in found["facts"]
    assert found["job"] is None


def test_comparison_names_what_differs(client, tmp_path):
    for name, sigma in (("a", 0.1), ("b", 0.4)):
        write_audit(write_run(tmp_path / name, defence={"noise": {"sigma": sigma}}), sigma / 10, 1 - sigma)
    found = client(tmp_path).get("/api/compare", params={"id": ["b", "a"]}).json()
    order = [run["name"] for run in found["runs"]]
    assert sorted(order) == ["a", "b"]
    assert [run["letter"] for run in found["runs"]] == ["A", "B"]
    values = {"a": "0.1", "b": "0.4"}
    assert found["differing"] == [["defence.noise.sigma", *(values[name] for name in order)]]
    assert found["floor"]["mse"] == 0.09


def test_unknown_run_is_one_sentence(client, tmp_path):
    app = client(tmp_path)
    for path in ("run", "curves", "compare", "live", "leak/subject"):
        answer = app.get(f"/api/{path}", params={"id": "../secret"})
        assert answer.status_code == 400
        assert answer.json()["error"] == "There is no such run in this folder."


def test_wrong_questions_are_answered_with_a_sentence(client, tmp_path):
    app = client(tmp_path)
    assert app.get("/api/runs", params={"limit": "many"}).status_code == 422
    answer = app.post("/api/leak/look", content=b'{"id": "a", "sigma": NaN}', headers=OURS)
    assert answer.status_code == 422
    assert "Traceback" not in answer.text
    assert app.get("/api/nothing").status_code == 404


def test_empty_folder_is_an_empty_list(client, tmp_path):
    found = client(tmp_path).get("/api/runs").json()
    assert (found["total"], found["rows"]) == (0, [])


def test_new_runs_appear_by_themselves(client, tmp_path):
    app = client(tmp_path)
    write_run(tmp_path / "later")
    wait(lambda: app.get("/api/runs").json()["total"] == 1)


def test_report_of_ticked_runs(client, tmp_path):
    write_run(tmp_path / "a")
    write_run(tmp_path / "<img src=x onerror=alert(1)>")
    app = client(tmp_path)
    ids = [row["id"] for row in app.get("/api/runs").json()["rows"]]
    made = app.post("/api/report", json={"ids": ids}, headers=OURS).json()
    assert (tmp_path / made["file"]).is_file()
    page = app.get(made["url"])
    assert page.headers["content-type"].startswith("text/html")
    assert "<img src=x" not in page.text
    assert "&lt;img src=x" in page.text
    app.app.state.services.look_again()
    assert app.get("/api/runs").json()["total"] == 2, "a report is not taken for a run"


def test_report_goes_elsewhere_when_the_folder_cannot_be_written(client, tmp_path):
    write_run(tmp_path / "a")
    (tmp_path / "reports").write_text("a file where the folder would be", encoding="utf-8")
    app = client(tmp_path)
    made = app.post("/api/report", json={"ids": ["a"]}, headers=OURS).json()
    assert made["file"] == ""
    assert app.get(made["url"]).status_code == 200


def test_paths_of_the_machine_are_not_in_the_list(client, tmp_path):
    run = write_run(tmp_path / "a")
    tree = {"data": {"name": "/home/somebody/secret/faces.npz"}, "model": {"name": "tiny"}}
    (run / "config.toml").write_text(dump_toml(tree), encoding="utf-8")
    row = client(tmp_path).get("/api/runs").json()["rows"][0]
    assert row["data"] == "faces.npz"


def test_page_and_assets_are_served(client, tmp_path):
    app = client(tmp_path)
    assert '<div id="app">' in app.get("/").text
    for name in ("app.js", "app.css", "report.css", "icon.svg"):
        assert len(app.get(f"/assets/{name}").content) > 100, name
    assert Path(__file__).name not in app.get("/").text
