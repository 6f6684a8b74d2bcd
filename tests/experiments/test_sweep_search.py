"""`--search`: strengths tuned towards an accuracy, in cells that end at once with an accuracy we know."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.experiments.sweep_world import write_recipe

from splitveil.core.errors import UsageError
from splitveil.core.run_folder import RunFolder
from splitveil.experiments.sweep import api
from splitveil.experiments.sweep.folder import SweepFolder
from splitveil.experiments.sweep.live import Progress, Settings
from splitveil.experiments.sweep.recipe import load_sweep
from splitveil.experiments.sweep.runner import Outcome, Task, record_error
from splitveil.experiments.sweep.search import late_accuracy, run_search
from splitveil.experiments.sweep.study import Axis, Goal, Study
from splitveil.experiments.sweep.table import table

optuna = pytest.importorskip("optuna")

WEIGHT = Axis("train.privacy_weight", 1, 64, log=True)


def accuracy(weight: float, seed: int) -> float:
    """Falls with the weight, a little different for every seed; seeds 1 and 2 average 0.88 at weight 16."""
    return 0.92 - 0.01 * math.log2(weight) + 0.002 * (seed - 1.5)


class KnownEngine:
    """Ends cells with the accuracy of the formula; weights above `poison`, and one seed, fail."""

    workers = 1
    poison = math.inf
    poison_seed = -1

    def __init__(self) -> None:
        self.waiting: list[Task] = []
        self.busy = 0
        self.submitted = 0

    def submit(self, task: Task) -> None:
        self.waiting.append(task)
        self.submitted += 1
        self.busy = max(self.busy, len(self.waiting))

    def running(self) -> list[str]:
        return [task.id for task in self.waiting]

    def poll(self, seconds: float) -> list[Outcome]:
        task = self.waiting.pop(0)
        run = SweepFolder(task.out).run(task.id)
        run.write_json("cell.json", {**task.description, "made_by": task.made_by})
        weight = task.description["coordinates"].get("train.privacy_weight", 1.0)
        if weight > self.poison or task.description["seed"] == self.poison_seed:
            return [record_error(run, task.id, ValueError("too strong"))]
        found = accuracy(weight, task.description["seed"])
        run.append_metrics({"epoch": 1, "accuracy": found})
        run.write_json("result.json", {"accuracy_late": found, "epochs": 1, "seconds": 1.0})
        run.write_json("audit/audit.json", {"attacks": {}, "seconds": 1.0})
        return [Outcome(task.id)]

    def close(self) -> None:
        self.waiting.clear()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> KnownEngine:
    made = KnownEngine()
    monkeypatch.setattr(api, "make_engine", lambda settings, workers: made)
    return made


@pytest.fixture
def recipe(small_data: Path, tmp_path: Path) -> Path:
    return write_recipe(tmp_path, small_data)


def search(recipe: Path, out: Path, watch: Any = lambda now: None, goal: Goal | None = None, **given: Any) -> Any:
    goal = goal or Goal(0.88, tolerance=0.0005, trials=14)
    return run_search(load_sweep(recipe, **given), Settings(out, device="cpu"), [WEIGHT], goal, watch)


def test_the_strength_of_a_wanted_accuracy_is_found(recipe: Path, tmp_path: Path, engine: KnownEngine) -> None:
    tree = search(recipe, tmp_path / "s", methods=["gated"])
    (found,) = tree["search"]
    assert found["reached"]
    assert found["best"]["values"]["train.privacy_weight"] == pytest.approx(16, rel=0.05)
    assert found["best"]["accuracy"] == pytest.approx(0.88, abs=0.0005)
    assert 3 < len(found["trials"]) <= 8
    first = [trial["values"]["train.privacy_weight"] for trial in found["trials"][:3]]
    assert first == [8, 1, 64]  # the middle on a logarithmic scale, and both ends
    ids = {cell["id"] for cell in tree["cells"]}
    assert ids == {cell for trial in found["trials"] for cell in trial["cells"]}  # every trial is made of cells
    assert all(len(trial["cells"]) == 2 for trial in found["trials"])  # one per seed
    assert optuna.logging.get_verbosity() == optuna.logging.WARNING  # the sweep tells its progress, Optuna need not


def test_a_method_without_a_surrogate_runs_once(recipe: Path, tmp_path: Path, engine: KnownEngine) -> None:
    totals: set[int] = set()
    tree = search(recipe, tmp_path / "s", lambda now: totals.add(now.total), Goal(0.5, 0, 3))
    assert totals == {2 + 3 * 2}  # cells that there may be in the end, for whoever waits
    assert [cell["method"] for cell in tree["cells"]].count("none") == 2
    assert [found["method"] for found in tree["search"]] == ["gated"]
    assert not tree["search"][0]["reached"]
    assert len(tree["search"][0]["trials"]) == 3
    (call,) = tree["calls"]
    options = {name: call[call.index(name) + 1] for name in ("--search", "--target", "--trials", "--tolerance")}
    assert Axis.parse(options["--search"]) == WEIGHT
    assert Goal.parse(options["--target"], float(options["--tolerance"]), int(options["--trials"])) == Goal(0.5, 0, 3)


def test_it_runs_once_too_where_options_of_a_surrogate_are_searched(
    recipe: Path, tmp_path: Path, engine: KnownEngine
) -> None:
    sweep, threshold = load_sweep(recipe, methods=["none"]), Axis("surrogate.var_threshold", 0.1, 0.3)
    tree = run_search(sweep, Settings(tmp_path / "s", device="cpu"), [threshold, WEIGHT], Goal(0.5, 0, 1))
    assert [cell["coordinates"] for cell in tree["cells"]] == [{}, {}]  # two seeds
    assert tree["search"] == []


def test_a_method_without_a_surrogate_is_searched_where_the_range_concerns_it(
    recipe: Path, tmp_path: Path, engine: KnownEngine
) -> None:
    """The weight of a surrogate means nothing to it; the scale of the noise does."""
    noise = Axis("defence.noise.sigma", 0.1, 0.3)
    sweep = load_sweep(recipe, methods=["none"])
    tree = run_search(sweep, Settings(tmp_path / "s", device="cpu"), [noise], Goal(0.5, 0, 3))
    (found,) = tree["search"]
    assert [trial["values"]["defence.noise.sigma"] for trial in found["trials"]] == [0.2, 0.1, 0.3]


def test_a_trial_of_which_one_seed_failed_has_no_accuracy(recipe: Path, tmp_path: Path, engine: KnownEngine) -> None:
    """The mean over those that are left would be that of other seeds than every other trial's."""
    engine.poison_seed = 2
    (found,) = search(recipe, tmp_path / "s", methods=["gated"], goal=Goal(0.5, 0, 2))["search"]
    assert [(trial.get("failed"), "accuracy" in trial) for trial in found["trials"]] == [(True, False)] * 2
    assert found["best"] is None


def test_of_several_searches_all_advance_together(
    recipe: Path, tmp_path: Path, engine: KnownEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    submit = engine.submit
    monkeypatch.setattr(engine, "submit", lambda task: (order.append(task.description["method"]), submit(task)))
    recipe.write_text(recipe.read_text() + '\n[[sweep.method]]\nname = "other"\nsurrogate = { name = "gmm" }\n')
    search(recipe, tmp_path / "s", methods=["gated", "other"], goal=Goal(0.5, 0, 2))
    assert order == ["gated", "gated", "other", "other"] * 2  # two seeds each, by turns


def a_study(recipe: Path) -> Study:
    sweep = load_sweep(recipe, methods=["gated"])
    return Study(sweep, sweep.sweep.method[0], {}, {})


def test_a_search_is_named_by_method_data_and_place(recipe: Path) -> None:
    plain = a_study(recipe)
    other = Study(plain.recipe, plain.method, {"name": "cifar10"}, {"train.lr": 0.1})
    assert [study.name for study in (plain, other)] == ["gated", "gated cifar10 train.lr=0.1"]
    told = other.summary(Goal(0.88))
    assert (told["method"], told["data"], told["coordinates"]) == ("gated", "cifar10", {"train.lr": 0.1})


def test_near_enough_is_within_the_tolerance_on_either_side(recipe: Path) -> None:
    study = a_study(recipe)
    assert not study.reached(Goal(0.88, 0.01))
    for found in (0.873, 0.887):
        study.trials = [{"accuracy": 0.5}, {"accuracy": found}]
        assert study.reached(Goal(0.88, 0.01))
        assert not study.reached(Goal(0.88, 0.005))


def test_trials_outside_of_a_narrower_range_are_forgotten(recipe: Path) -> None:
    study = a_study(recipe)
    earlier = [study.propose([WEIGHT], 0.88) for _ in range(3)]  # 8, 1 and 64
    again = a_study(recipe)
    again.recall(earlier, [Axis(WEIGHT.key, 2, 32, log=True)])
    assert [trial["values"] for trial in again.trials] == [{WEIGHT.key: 8}]


def test_a_searched_strength_stands_in_for_the_grids(recipe: Path, tmp_path: Path, engine: KnownEngine) -> None:
    given = {"methods": ["gated"], "grid": {WEIGHT.key: [1, 2], "train.lr": [0.1]}}
    (found,) = search(recipe, tmp_path / "s", goal=Goal(0.5, 0, 1), **given)["search"]
    assert found["coordinates"] == {"train.lr": 0.1}


@pytest.mark.parametrize("steps", [1, 4, 9])
def test_an_interrupted_search_goes_on_as_if_it_had_not_been(
    recipe: Path, tmp_path: Path, engine: KnownEngine, steps: int
) -> None:
    goal = Goal(0.88, 0, 7)
    whole = search(recipe, tmp_path / "whole", goal=goal, methods=["gated"])
    left = steps

    def stop(now: Progress) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(recipe, tmp_path / "parts", stop, goal, methods=["gated"])
    parts = search(recipe, tmp_path / "parts", goal=goal, methods=["gated"])
    assert parts["search"] == whole["search"]
    assert {cell["id"] for cell in parts["cells"]} == {cell["id"] for cell in whole["cells"]}


@pytest.mark.parametrize("goal", [Goal(0.88, tolerance=0.0005, trials=14), Goal(0.5, tolerance=0, trials=4)])
def test_a_finished_search_given_again_says_the_same_and_tries_nothing(
    recipe: Path, tmp_path: Path, engine: KnownEngine, goal: Goal
) -> None:
    first = search(recipe, tmp_path / "s", goal=goal, methods=["gated"])
    ran = engine.submitted
    again = search(recipe, tmp_path / "s", goal=goal, methods=["gated"])
    assert engine.submitted == ran
    assert again["search"] == first["search"]
    assert again["search"][0]["best"]["accuracy"] is not None


def test_a_trial_that_fails_does_not_stop_the_search(recipe: Path, tmp_path: Path, engine: KnownEngine) -> None:
    engine.poison = 30
    (found,) = search(recipe, tmp_path / "s", methods=["gated"])["search"]
    assert any(trial.get("failed") for trial in found["trials"])
    assert found["reached"]
    assert len(found["trials"]) < 14


@pytest.mark.parametrize(("target", "edge"), [(0.99, 1), (0.5, 64)])
def test_a_target_beyond_the_range_costs_no_trial_twice(
    recipe: Path, tmp_path: Path, engine: KnownEngine, target: float, edge: float
) -> None:
    tree = search(recipe, tmp_path / "s", methods=["gated"], goal=Goal(target, trials=12))
    (found,) = tree["search"]
    tried = [trial["values"][WEIGHT.key] for trial in found["trials"]]
    assert len(tried) == len(set(tried)) < 12
    assert engine.submitted == 2 * len(tried)
    assert found["best"]["values"] == {WEIGHT.key: edge}
    assert "; nothing new was left to try: give another range or a wider --tolerance" in table(tree)
    again = search(recipe, tmp_path / "s", methods=["gated"], goal=Goal(target, trials=12))
    assert again["search"] == tree["search"]


def test_idle_workers_do_not_repeat_trials(recipe: Path, tmp_path: Path, engine: KnownEngine) -> None:
    engine.workers = 4
    (found,) = search(recipe, tmp_path / "s", methods=["gated"], goal=Goal(0.99, 0, 8))["search"]
    tried = [trial["values"][WEIGHT.key] for trial in found["trials"]]
    assert len(tried) == len(set(tried))
    assert all("accuracy" in trial for trial in found["trials"])


def test_a_range_of_two_values_is_tried_at_both_and_the_search_ends(
    recipe: Path, tmp_path: Path, engine: KnownEngine
) -> None:
    plan, narrow = load_sweep(recipe, methods=["gated"]), Axis(WEIGHT.key, 1, 1.001)
    (found,) = run_search(plan, Settings(tmp_path / "s", device="cpu"), [narrow], Goal(0.5))["search"]
    assert [trial["values"][narrow.key] for trial in found["trials"]] == [1, 1.001]


def test_idle_workers_get_trials(recipe: Path, tmp_path: Path, engine: KnownEngine) -> None:
    engine.workers = 4
    (found,) = search(recipe, tmp_path / "s", methods=["gated"], goal=Goal(0.88, 0, 6))["search"]
    assert len(found["trials"]) == 6
    assert engine.busy >= 4


def test_trials_of_other_settings_are_forgotten(recipe: Path, tmp_path: Path, engine: KnownEngine) -> None:
    search(recipe, tmp_path / "s", methods=["gated"], goal=Goal(0.88, 0, 4))
    tree = search(recipe, tmp_path / "s", methods=["gated"], goal=Goal(0.88, 0, 4), overrides=["train.epochs=2"])
    assert len(tree["cells"]) == 8  # the cells of the first search were set aside
    trials = tree["search"][0]["trials"]
    assert len(trials) == 4
    assert all("accuracy" in trial for trial in trials)
    assert {cell for trial in trials for cell in trial["cells"]} == {cell["id"] for cell in tree["cells"]}
    narrow = Axis("train.privacy_weight", 2, 32, log=True)
    plan, settings = load_sweep(recipe, methods=["gated"]), Settings(tmp_path / "s", device="cpu")
    again = run_search(plan, settings, [narrow], Goal(0.88, 0, 4))
    assert all(2 <= trial["values"][narrow.key] <= 32 for trial in again["search"][0]["trials"])


def test_accuracy_is_that_of_the_validation_pictures_late_in_training(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for epoch in range(1, 17):
        run.append_metrics({"epoch": epoch, "accuracy": 0.1 * epoch, "test_accuracy": 0.0})
    assert late_accuracy(run) == pytest.approx((1.5 + 1.6) / 2)


@pytest.mark.parametrize(
    "text", ["a.b", "a.b=1", "a.b=2:1", "a.b=1:x", "a.b=0:1:log", "a.b=1:2:exp", "a=1:2", "a.b=1:inf"]
)
def test_a_bad_range_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Axis.parse(text)


@pytest.mark.parametrize("text", ["", "accuracy", "accuracy=88", "mse=0.1", "accuracy=x"])
def test_a_bad_target_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"accuracy=0\.88"):
        Goal.parse(text, 0.1, 3)


def test_a_range_is_read_and_divided() -> None:
    assert Axis.parse("train.privacy_weight=1:64:log") == WEIGHT
    assert (WEIGHT.at(0), WEIGHT.at(0.5), WEIGHT.at(1)) == (1, 8, 64)
    assert Axis.parse("a.b=2:32:log").at(0.5) == 8
    assert Axis.parse("a.b=0:3").at(1 / 3) == 1
    assert Axis.parse("a.b=0:3").rounded(1.23456789) == 1.235
    odd = Axis.parse("a.b=0.123444:0.234567")  # rounded to four digits, either end lies outside
    assert (odd.at(0), odd.at(1)) == (0.123444, 0.234567)


def test_the_history_is_on_paper_before_a_trial_ends(recipe: Path, tmp_path: Path, engine: KnownEngine) -> None:
    def look(now: Progress) -> None:
        studies = json.loads((tmp_path / "s" / "search.json").read_text())["studies"]
        (trials,) = studies.values()
        assert {cell for trial in trials for cell in trial["cells"]} >= set(SweepFolder(tmp_path / "s").ids())

    search(recipe, tmp_path / "s", look, Goal(0.88, 0, 3), methods=["gated"])
