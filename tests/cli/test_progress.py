"""The words and lines that a person sees while training."""

from __future__ import annotations

import io
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from splitveil.cli import main
from splitveil.cli.progress import epoch_words, keep_quiet, progress
from splitveil.cli.sweep_progress import sweep_progress
from splitveil.cli.train import train
from splitveil.experiments.sweep.live import Progress

ROW: dict[str, Any] = {
    "epoch": 4,
    "task_loss": 0.6142,
    "rob_loss": 0.2517,
    "intra_mse": 0.01234,
    "gate_soft_mean": 0.512,
    "gate_hard_mean": 0.431,
    "shut": 0.25,
    "accuracy": 0.8731,
}


def test_an_epoch_in_words() -> None:
    words = epoch_words(ROW)
    assert words == "accuracy 87.3%  loss 0.614  surrogate 0.252  spread 0.0123  gate 0.512  SNR gate 0.431  shut 25%"


def test_a_silent_surrogate_is_seen_and_an_absent_one_is_not() -> None:
    assert "surrogate 0 " in epoch_words(ROW | {"rob_loss": 0.0, "shut": 0.0})
    assert "shut" not in epoch_words(ROW | {"shut": 0.0})
    assert epoch_words({"epoch": 1, "task_loss": 1.0, "accuracy": None}) == "loss 1.000"


def test_every_word_of_an_epoch_is_explained() -> None:
    """In docs/training.md all of them; in the help those that every run with a surrogate shows."""
    words = re.findall(r"[a-zA-Z ]+(?= [0-9])", epoch_words(ROW))
    guide = Path(__file__).parents[2].joinpath("docs", "training.md").read_text(encoding="utf-8")
    assert len(words) == 7
    assert [word for word in words if f"| `{word.strip()}` |" not in guide] == []
    assert [word for word in ("accuracy", "loss", "surrogate", "spread") if f"{word} (" not in str(train.__doc__)] == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_with_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "240")
    with progress("training") as advance:
        advance("loss 9.000", 3, 4)
        advance(epoch_words(ROW), 4, 4)
    assert "4/4" in screen.getvalue()
    for word in ("training", "loss 0.614", "surrogate 0.252", "spread 0.0123", "gate 0.512", "accuracy 87.3%"):
        assert word in screen.getvalue()


def test_a_narrow_terminal_keeps_count_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "80")
    with progress("training") as advance:
        advance(epoch_words(ROW), 4, 4)
    last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue()).splitlines()[-1]
    assert re.search(r"4/4 \d:\d\d:\d\d left 0:00:00 accuracy 87.3%  loss 0.614", last)


def test_a_bar_does_not_count_to_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first report nobody knows how much there is to do."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "240")
    with progress("exporting"):
        pass
    assert "exporting" in screen.getvalue()
    assert "None" not in screen.getvalue()


def test_elsewhere_it_gets_plain_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first, the last, and one now and then; also on a machine that has just been started."""
    seconds = iter([1.0, 1.0, 5.0, 12.0, 12.0, 13.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(seconds))
    with progress("training") as advance:
        for epoch in (1, 2, 3, 4):
            advance(f"loss {epoch}", epoch, 4)
    assert capsys.readouterr().err.splitlines() == [f"training {epoch}/4 loss {epoch}" for epoch in (1, 3, 4)]


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("training", quiet=True) as advance:
        advance("loss", 1, 1)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("screen", [Terminal(), io.StringIO()], ids=["terminal", "file"])
def test_quiet_shows_no_progress(screen: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", screen)
    keep_quiet(True)
    try:
        with progress("training") as advance, sweep_progress() as watch:
            advance("loss 9.000", 4, 4)
            watch(Progress(2, 0, 2, 1.0, None, (), "the last"))
    finally:
        keep_quiet(False)
    assert screen.getvalue() == ""


def test_the_option_quiet_holds_for_one_command(
    small_data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = {"data.name": small_data, "data.limit": 64, "train.epochs": 1, "train.batch_size": 32}
    said = []
    for number, options in enumerate(([], ["--quiet"], [])):
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        with pytest.raises(SystemExit) as stop:
            main([*options, "train", "demo-fashion-mini", *words, "--out", str(tmp_path / str(number))])
        assert not stop.value.code
        captured = capfd.readouterr()
        assert "accuracy" in captured.out
        said.append("training 1/1" in captured.err)
    assert said == [True, False, True]
