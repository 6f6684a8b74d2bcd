"""Which of several methods that nothing but noise defends is the one beside the headline."""

from __future__ import annotations

import json

import pytest

from splitveil.report.methods import group_runs
from splitveil.report.run_files import read_run
from splitveil.report.verdict import judge


@pytest.fixture
def write_set(tmp_path, write_run):
    """Write a run whose settings have a schedule, or anything else below [train]."""

    def write(name, *, works=True, attacked=True, **options):
        settings = options.pop("settings", "")
        folder = write_run(tmp_path / "runs" / name, images=1, **options)
        config = folder / "config.toml"
        config.write_text(config.read_text().replace("[train]", f"[train]\n{settings}"))
        if not works:
            result = json.loads((folder / "result.json").read_text())
            (folder / "result.json").write_text(json.dumps(result | {"works": False}))
        if not attacked:
            (folder / "audit/audit.json").unlink()

    return write


@pytest.fixture
def judged(tmp_path):
    """The verdict, the names of headline and baseline, and the limits of the claim."""

    def judge_all():
        verdict = judge(group_runs([read_run(folder) for folder in sorted((tmp_path / "runs").iterdir())]))
        names = [method and method.runs[0].name for method in (verdict.headline, verdict.undefended)]
        return verdict, names, " ".join(caveat.en for caveat in verdict.caveats)

    return judge_all


NOISE = {"surrogate": None, "sigma": 0.05}
COSINE, CONSTANT = ({"settings": f'schedule = "{name}"'} for name in ("cosine", "constant"))


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_of_equals_the_most_accurate_is_the_baseline_and_no_other_the_headline(write_set, judged, names):
    """The better schedule makes a model more accurate, and here safer: that is no defence."""
    better, worse = (COSINE, CONSTANT) if names == "ab" else (CONSTANT, COSINE)
    write_set(f"{names[0]}-noise", **NOISE, **better, accuracy=0.80, mse=0.05)
    write_set(f"{names[1]}-noise", **NOISE, **worse, accuracy=0.63, mse=0.06)
    write_set("gmm", sigma=0.05, **better, accuracy=0.78, mse=0.03)
    verdict, found, said = judged()
    assert found == ["gmm", f"{names[0]}-noise"]
    assert (verdict.defended, verdict.undefended.accuracy) == (1, 0.80)
    chosen, other = ("cosine", "constant") if names == "ab" else ("constant", "cosine")
    told = f"noise 0.05, schedule {chosen} stands for them, not noise 0.05, schedule {other}."
    assert f"Several models here have no defence, or noise alone, and differ in other settings: {told}" in said


def test_an_idle_model_is_no_baseline_while_another_works(write_set, judged):
    write_set("a", **NOISE, epochs=1, accuracy=0.9, works=False)
    write_set("b", **NOISE, epochs=3, accuracy=0.7, mse=0.06)
    write_set("c", sigma=0.05, epochs=3, accuracy=0.69, mse=0.03)
    _, found, said = judged()
    assert found == ["c", "b"]
    assert "No undefended run" not in said
    assert "therefore not considered above: a." in said


def test_a_model_that_nobody_attacked_is_no_baseline_while_another_was(write_set, judged):
    write_set("a", **NOISE, epochs=5, accuracy=0.9, attacked=False)
    write_set("b", **NOISE, epochs=3, accuracy=0.7)
    write_set("c", sigma=0.05, epochs=3, accuracy=0.69, mse=0.03)
    _, found, said = judged()
    assert found == ["c", "b"]
    assert "No undefended run" not in said
    assert "Several models" not in said  # the other one has no number that anybody could confuse with it


def test_a_name_counts_more_than_accuracy_but_not_more_than_working(write_set, judged):
    write_set("a", **NOISE, epochs=5, accuracy=0.9)
    write_set("undefended", **NOISE, epochs=3, accuracy=0.7)
    assert judged()[1] == ["undefended", "undefended"]
    write_set("undefended-idle", surrogate=None, sigma=0.0, works=False)
    assert judged()[1] == ["undefended", "undefended"]


def test_noise_is_a_defence_beside_a_model_with_less(write_set, judged):
    write_set("a", surrogate=None, sigma=0.0, accuracy=0.80, mse=0.01)
    write_set("b", **NOISE, accuracy=0.79, mse=0.05)
    write_set("c", sigma=0.05, accuracy=0.79, mse=0.03)
    verdict, found, said = judged()
    assert (found, verdict.defended) == (["b", "a"], 2)
    assert "Several models" not in said  # they differ in their noise, which their names say


def test_where_nothing_is_defended_the_baseline_itself_is_spoken_of(write_set, judged):
    write_set("a", **NOISE, **COSINE, accuracy=0.80, mse=0.03)
    write_set("b", **NOISE, **CONSTANT, accuracy=0.63, mse=0.06)
    verdict, found, _ = judged()
    assert (found, verdict.defended) == (["a", "a"], 0)


def test_undefended_models_are_told_apart_by_their_names(write_set, judged):
    write_set("a", surrogate=None, sigma=0.0, epochs=1, accuracy=0.63)
    write_set("b", surrogate=None, sigma=0.0, epochs=3, accuracy=0.80)
    verdict, _, said = judged()
    assert "undefended, epochs 3 stands for them, not no defence, epochs 1." in said
    assert verdict.undefended.label.zh == "无防御，epochs 3"  # noqa: RUF001
    assert verdict.undefended.short.en == "undefended"
