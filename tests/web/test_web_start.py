"""Starting runs: the form follows the configuration, errors land at their field, the process is a plain `train`."""

from __future__ import annotations

import json
import os
import signal
import sys
import tomllib

import pytest
from tests.web.conftest import OURS, wait, write_run

from splitveil.core.config import Config, load_config
from splitveil.core.errors import SplitveilError
from splitveil.core.recipes import find_recipe, recipe_names
from splitveil.core.toml import read_toml
from splitveil.web import form, jobs

DEMO = "demo-fashion-mini"
TABLES = {"audit.attacks"}  # a table of tables: for a recipe, not for a form


def keys(errors: list[dict[str, str]]) -> set[str]:
    return {error["key"] for error in errors}


def test_every_option_of_the_configuration_has_a_field():
    made = form.form()
    for section, options in form.SECTIONS.items():
        expected = [f"{section}.{name}" for name in options.model_fields]
        assert [field["key"] for field in made["sections"][section]] == [key for key in expected if key not in TABLES]
    assert set(form.SECTIONS) | {"seed", "defence", "surrogate"} == set(Config.model_fields)
    everything = [
        field for part in (*made["surrogates"].values(), *made["defences"].values()) for field in part["fields"]
    ]
    everything += [field for fields in made["sections"].values() for field in fields]
    for field in everything:
        assert field["kind"] in {"whole", "number", "switch", "list", "choice", "text"}, field
        assert "(SPEC" not in field["description"]
    epochs = next(field for field in everything if field["key"] == "train.epochs")
    assert (epochs["kind"], epochs["low"], epochs["description"]) == ("whole", 1, "passes over the training pictures")
    assert json.loads(json.dumps(made, allow_nan=False)) == made


@pytest.mark.parametrize("name", [recipe["name"] for recipe in form.recipes()])
def test_recipes_pass_the_check(name):
    assert form.check(form.recipe_tree(name)) == []


def test_recipes_of_sweeps_are_left_to_the_sweep():
    offered = {recipe["name"] for recipe in form.recipes()}
    assert DEMO in offered
    for name in set(recipe_names()) - offered:
        assert "sweep" in read_toml(find_recipe(name))


def test_recipes_are_known_by_name_only(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("seed = 1\n", encoding="utf-8")
    with pytest.raises(SplitveilError):
        form.recipe_tree(str(path))
    with pytest.raises(SplitveilError, match=r"no recipe called 'demo-fashion'\. Did you mean 'demo-fashion-mini'\?"):
        form.recipe_tree("demo-fashion")


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"train": {"epochs": 0}}, "train.epochs"),
        ({"train": {"lr": "fast"}}, "train.lr"),
        ({"train": {"schedule": "never"}}, "train.schedule"),
        ({"train": {"milestones": [1, "a"]}}, "train.milestones"),
        ({"train": {"epoch": 3}}, "train.epoch"),
        ({"data": {"name": "no-such-data"}}, "data.name"),
        ({"model": {"name": "no-such-model"}}, "model.name"),
        ({"surrogate": {"name": "no-such"}}, "surrogate.name"),
        ({"surrogate": {"name": "gmm", "num_clusters": 0}}, "surrogate.num_clusters"),
        ({"surrogate": {"name": "gmm", "preset": "no-such"}}, "surrogate.preset"),
        ({"defence": {"noise": {"sigma": -1}}}, "defence.noise.sigma"),
        ({"defence": {"no-such": {}}}, "defence.no-such"),
        ({"seed": -5}, "seed"),
        ({"recipe": "/etc/passwd"}, ""),
        ({"overrides": ["train.epochs=1"]}, ""),
    ],
)
def test_errors_name_their_field(change, key):
    errors = form.check(form.recipe_tree(DEMO) | change)
    assert keys(errors) == {key}
    assert all(error["message"] for error in errors)


def test_all_errors_are_told_at_once():
    tree = form.recipe_tree(DEMO)
    tree["train"] |= {"epochs": 0, "lr": -1, "batch_size": "x"}
    tree["defence"]["noise"]["sigma"] = -1
    assert keys(form.check(tree)) == {"train.epochs", "train.lr", "train.batch_size", "defence.noise.sigma"}


@pytest.mark.parametrize("tree", [{"train": 5}, {"defence": [1]}, {"surrogate": "gmm"}, {"seed": {"a": 1}}])
def test_trees_of_the_wrong_shape_are_told(tree):
    assert form.check(tree) != []


@pytest.fixture
def app(client, tmp_path):
    write_run(tmp_path / "runs" / "taken")
    return client(tmp_path / "runs")


def start(app, name: str, tree: dict | None = None, device: str = "cpu"):
    body = {"name": name, "tree": form.recipe_tree(DEMO) if tree is None else tree, "device": device}
    return app.post("/api/start", json=body, headers=OURS).json()


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """A process in place of Python itself: it writes down what it was called with, and waits to be stopped."""
    script = tmp_path / "stand-in"
    script.write_text(
        f"#!{sys.executable}\nimport sys, time\n"
        "try:\n    print('called with', *sys.argv[1:], flush=True)\n    time.sleep(600)\nexcept KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n    sys.exit(130)\n",
        encoding="utf-8",
    )
    script.chmod(0o755)
    monkeypatch.setattr(jobs.sys, "executable", str(script))


@pytest.mark.parametrize(
    "name", ["", "../out", "a/b", "a\\b", ".hidden", "-option", "a\nb", "x" * 81, "taken", "a.", "\u202eabc", "con\0"]
)
def test_names_that_are_no_names(app, name):
    answer = start(app, name)
    assert keys(answer["errors"]) == {"name"}
    assert "id" not in answer


def test_wrong_settings_start_nothing(app):
    answer = start(app, "bad", {"train": {"epochs": 0}})
    assert keys(answer["errors"]) == {"train.epochs"}
    assert not (app.app.state.services.root / jobs.LOGS).exists()


def test_started_and_stopped(app, stand_in):
    tree = form.recipe_tree(DEMO)
    tree["train"]["epochs"] = 2
    run = start(app, "my run", tree)["id"]
    root = app.app.state.services.root
    log = wait(lambda: app.get("/api/log", params={"id": run}).json()["text"])
    recipe = root / jobs.LOGS / "my run.toml"
    words = ["called with -m splitveil train", str(recipe), "--out", str(root / "my run"), "--device cpu"]
    assert log.strip() == " ".join(words)
    assert load_config(recipe) == load_config(**tree)
    assert tomllib.loads(recipe.read_text(encoding="utf-8"))["train"]["epochs"] == 2
    job = app.get("/api/run", params={"id": run}).json()["job"]
    assert job["running"]
    assert os.getsid(job["pid"]) == job["pid"], "a session of its own: Ctrl-C on the server does not reach it"
    app.post("/api/stop", json={"id": run}, headers=OURS)
    wait(lambda: not app.get("/api/run", params={"id": run}).json()["job"]["running"])
    assert "interrupted" in app.get("/api/log", params={"id": run}).json()["text"]


def test_same_name_cannot_be_started_twice_at_once(app, stand_in):
    run = start(app, "once")["id"]
    (app.app.state.services.root / "once").mkdir()
    assert keys(start(app, "once")["errors"]) == {"name"}
    os.kill(app.get("/api/run", params={"id": run}).json()["job"]["pid"], signal.SIGKILL)
    wait(lambda: not app.get("/api/run", params={"id": run}).json()["job"]["running"])


def test_runs_of_others_cannot_be_stopped(app):
    answer = app.post("/api/stop", json={"id": "taken"}, headers=OURS)
    assert (answer.status_code, answer.json()["error"]) == (400, "This run was not started here.")


@pytest.mark.slow
def test_a_real_run_from_the_form(app, trained):
    """The whole way: a process that trains, and a run that appears in the list."""
    config = tomllib.loads((trained / "small" / "config.toml").read_text(encoding="utf-8"))
    config["train"]["epochs"] = 1
    run = start(app, "real", config)["id"]
    wait(lambda: not app.get("/api/run", params={"id": run}).json()["job"]["running"])
    found = app.get("/api/run", params={"id": run}).json()
    assert found["job"]["code"] == 0, app.get("/api/log", params={"id": run}).json()["text"]

    def row() -> dict:
        rows = app.get("/api/runs", params={"q": "real"}).json()["rows"]
        return rows[0] if rows else {}

    wait(lambda: row().get("status") == "finished")  # the list is read again every few seconds
    assert (row()["epoch"], row()["has_model"]) == (1, 1)


def test_a_progress_bar_shows_its_last_state(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"first\r\nepoch 1\repoch 2\repoch 3\nlast")
    assert jobs._tail(path) == "first\nepoch 3\nlast"
