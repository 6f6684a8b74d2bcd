"""`splitveil audit RUN --data`: a run on other pictures than its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.worlds.small_data import write_small_data

from splitveil.audit.run import audit_run
from splitveil.cli.audit import audit
from splitveil.core.config import load_config
from splitveil.core.errors import UsageError
from splitveil.core.pins import intact
from splitveil.experiments.compare.collect import collect
from splitveil.report.methods import group_runs
from splitveil.report.run_files import read_run
from splitveil.training.api import train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("run")
    write_small_data(place / "small.npz")
    config = load_config(
        data={"name": str(place / "small.npz")},
        train={"epochs": 1, "batch_size": 32},
        defence={"noise": {"sigma": 0.05}},
        audit={"attacks": {"linear": {}}, "sanity": False},
    )
    return train(config, out=place / "run", device="cpu").path


@pytest.fixture
def other(tmp_path: Path) -> Callable[..., str]:
    """Pictures of another world: every pixel is any value."""

    def make(
        name: str = "others", side: int = 8, classes: int = 3, names: list[str] | None = None, **arrays: np.ndarray
    ) -> str:
        random = np.random.default_rng(7)
        parts = {}
        for part, count in (("train", 120), ("test", 30)):
            parts[f"{part}_x"] = random.integers(0, 255, (count, side, side)).astype(np.uint8)
            parts[f"{part}_y"] = np.arange(count) % classes
        extra = {} if names is None else {"class_names": np.array(names)}
        np.savez(tmp_path / f"{name}.npz", **(parts | extra | arrays))
        return str(tmp_path / f"{name}.npz")

    return make


def test_other_pictures_are_attacked_and_named(run: Path, other: Callable[..., str], tmp_path: Path, capsys) -> None:
    audit(run, data=other(), out=tmp_path / "out", device="cpu")
    tree, card = (json.loads((tmp_path / "out" / "audit" / name).read_text()) for name in ("audit.json", "card.json"))
    assert (tree["data"], card["data"], tree["num_images"], tree["auxiliary_images"]) == ("others", "others", 30, 30)
    assert intact(card)
    told = "The run was trained on small; the pictures under attack are those of others."
    assert told in tree["warnings"]
    assert told in card["warnings"]
    assert "30 pictures of others" in capsys.readouterr().out
    read = "audit/audit.json"  # by reports and comparisons: it is about the run's own pictures, where it is there
    assert not (run / read).exists() or json.loads((run / read).read_text())["data"] == "small"
    # pixels are independent, of variance (255² - 1)/12 on this scale: the mean picture has that error
    assert tree["floors"]["mean_image"]["mse"] == pytest.approx(1 / 12, rel=0.1)


def test_a_report_knows_whose_audit_it_is(run: Path, other: Callable[..., str], tmp_path: Path) -> None:
    audit(run, data=other(), out=tmp_path / "out", device="cpu")
    found = read_run(tmp_path / "out")
    assert found.audit_only
    assert found.data_name == "others"
    assert found.sigma == 0.05
    assert any(note.en.startswith("the audit of a run on other pictures") for note in found.notes)
    audit_run(run, device="cpu")
    (method,) = group_runs([read_run(tmp_path / "out"), read_run(run)])
    assert [one.about.get("kind") for one in method.runs] == ["run", None]
    assert len(method.counted) == 1, "one model, not two seeds"


def test_it_is_no_run_to_compare(run: Path, other: Callable[..., str], tmp_path: Path) -> None:
    audit(run, data=other(), out=tmp_path / "out", device="cpu")
    found = collect([run, tmp_path / "out"])
    assert [record.name for record in found.records] == ["run"]
    assert any(note.startswith("out is left out: only an audit is here") for note in found.notes)


def test_where_it_lies_without_out(run: Path, other: Callable[..., str], tmp_path: Path, monkeypatch) -> None:
    pictures = other()
    monkeypatch.chdir(tmp_path)
    audit(run, data=pictures, device="cpu")
    assert (tmp_path / "runs" / "audit-run-others" / "audit" / "audit.json").is_file()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"side": 12}, r"takes pictures of shape \[1, 8, 8\], but those of others are \[1, 12, 12\]"),
        ({"classes": 2}, "knows 3 classes, but others has 2"),
        ({"classes": 4}, "knows 3 classes, but others has 4"),
    ],
)
def test_pictures_that_do_not_fit_are_refused(run, other, tmp_path, options, says) -> None:
    with pytest.raises(UsageError, match=says):
        audit(run, data=other(**options), out=tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def test_classes_of_other_names_and_pictures_that_were_trained_on_are_told(other, tmp_path) -> None:
    config = load_config(
        data={"name": other("own", names=["cat", "dog", "owl"])},
        train={"epochs": 1, "batch_size": 32},
        audit={"attacks": {"linear": {}}, "sanity": False},
    )
    train(config, out=tmp_path / "run", device="cpu")
    own = np.load(tmp_path / "own.npz")  # the run was trained on 84 of its 120 training pictures, 70 %
    turned = other(
        names=["cat", "wolf", "owl"], train_x=255 - own["train_x"], test_x=own["train_x"], test_y=own["train_y"]
    )
    audit(tmp_path / "run", data=turned, out=tmp_path / "out", device="cpu")
    warnings = json.loads((tmp_path / "out" / "audit" / "audit.json").read_text())["warnings"]
    assert "84 of the 120 test pictures of others were trained on." in warnings
    (told,) = [text for text in warnings if text.startswith("Class ")]
    assert told.startswith("Class 1 is 'dog' to the run and 'wolf' in others: ")


@pytest.mark.parametrize("given", [{"out": Path("x")}, {"image_size": 8}])
def test_options_of_other_pictures_need_other_pictures(run: Path, given) -> None:
    with pytest.raises(UsageError, match=r"of a run goes with --data"):
        audit(run, **given)
