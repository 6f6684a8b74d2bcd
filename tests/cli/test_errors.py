"""Whatever goes wrong is one sentence and the documented exit code; a traceback only with --debug (DESIGN 2)."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from splitveil.cli import listing, main
from splitveil.core.catalogue import SURROGATES
from splitveil.core.errors import QualityGateError
from splitveil.core.registry import Entry
from splitveil.experiments import bench

Raise = Callable[[BaseException], None]


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Raise:
    """Makes `splitveil list` fail with a given error."""

    def install(error: BaseException) -> None:
        def fail() -> None:
            raise error

        monkeypatch.setattr(listing, "_everything", fail)

    return install


def test_an_error_nobody_foresaw_is_one_sentence_too(broken: Raise, capsys: pytest.CaptureFixture[str]) -> None:
    broken(ZeroDivisionError("division by zero\nand more"))
    code, out, err = run(capsys, "list")
    assert (code, out) == (1, "")
    message, hint = err.splitlines()
    assert message == "error: Something unexpected went wrong (ZeroDivisionError: division by zero)."
    assert "--debug" in hint


@pytest.mark.parametrize(("error", "code"), [(QualityGateError("missed."), 3), (ValueError("x"), 1), (OSError(), 1)])
def test_debug_adds_the_traceback_and_keeps_the_exit_code(
    error: Exception, code: int, broken: Raise, capsys: pytest.CaptureFixture[str]
) -> None:
    broken(error)
    found, _, err = run(capsys, "--debug", "list")
    assert found == code
    assert err.startswith("Traceback")
    assert "\nerror: " in err


def test_debug_may_stand_behind_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "list", "surogates", "--debug")
    assert code == 2
    assert "Traceback" in err
    assert "Did you mean 'surrogates'" in err
    code, _, err = run(capsys, "list", "surogates")
    assert code == 2
    assert "Traceback" not in err  # it is not remembered


def test_behind_two_dashes_it_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "list", "--", "--debug")
    assert code == 2
    assert "There is no family called '--debug'." in err
    assert "Traceback" not in err


def test_a_warning_is_one_line_without_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def warn() -> dict[str, dict[str, str]]:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("the bank stays as it was.", RuntimeWarning, stacklevel=2)
        return {"models": {}}

    monkeypatch.setattr(listing, "_everything", warn)
    shown = warnings.showwarning
    assert run(capsys, "list") == (0, "models:\n", "warning: the bank stays as it was.\n")
    assert warnings.showwarning is shown


def test_a_recipe_is_json_where_json_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "show", "demo-fashion-mini", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["name"], found["family"]) == ("demo-fashion-mini", "recipes")
    assert found["settings"]["data"]["name"] == "fashion-mini"
    assert run(capsys, "show", "demo-fashion-mini")[1] == found["documentation"]


def test_data_sets_are_listed_by_either_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "list", "data", "--json") == run(capsys, "list", "datasets", "--json")


def test_a_plug_in_explained_at_its_class_is_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plugged_in.py").write_text('class Spread:\n    """Half the logarithm."""\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(vars(SURROGATES), "_entries", {"spread": Entry("plugged_in:Spread", "from plugged_in")})
    code, out, _ = run(capsys, "show", "spread")
    assert code == 0
    assert "Half the logarithm." in out


@pytest.mark.parametrize(("number", "what_to_do"), [(errno.EACCES, "permissions"), (errno.ENOSPC, "Make room")])
def test_what_the_system_refuses_comes_with_what_to_do(
    number: int, what_to_do: str, broken: Raise, capsys: pytest.CaptureFixture[str]
) -> None:
    broken(OSError(number, os.strerror(number), "runs/mine"))
    code, _, err = run(capsys, "list")
    message, hint = err.splitlines()
    assert (code, message) == (1, f"error: {os.strerror(number)}: runs/mine")
    assert what_to_do in hint


def test_what_bench_did_not_measure_is_null(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"seconds": 0.5, "loop_to_fast": float("nan"), "peak_mib": float("nan")}
    monkeypatch.setattr(bench, "measure", lambda *_, **__: {"step_seconds": 1.0, "surrogates": {"rate": row}})
    threads = torch.get_num_threads()
    _, out, _ = run(capsys, "bench", "rate", "--json")
    torch.set_num_threads(threads)
    assert "NaN" not in out
    assert json.loads(out)["surrogates"]["rate"] == {"seconds": 0.5, "loop_to_fast": None, "peak_mib": None}


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_letter_without_a_code_is_a_question_mark(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    shown = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", shown)
    with pytest.raises(SystemExit) as stop:
        main(["show", "gmm"])
    shown.flush()
    text = shown.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
    assert stop.value.code == 0
    assert "gmm (surrogates)" in text
    assert "?" in text


def test_a_closed_stream_stops_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--fast", "--set", "train.epoch=1"])
    sys.stderr.close()  # the command's own, in the place of the closed one
    assert stop.value.code == 2
    assert capsys.readouterr().out == "", "an error is no result"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such pipes")
@pytest.mark.parametrize(
    ("work", "code"),
    [
        ("main(['list'])", 0),
        ("open_streams(); print('much' * 99999); print('the rest'); sys.exit(3)", 3),  # a gate that was not met, say
    ],
)
def test_a_reader_that_goes_away_changes_nothing(work: str, code: int) -> None:
    """As in `splitveil list | head -1`."""
    theirs, ours = os.pipe()
    os.close(theirs)
    program = f"import sys; from splitveil.cli import main; from splitveil.cli.streams import open_streams; {work}"
    done = subprocess.run([sys.executable, "-c", program], stdout=ours, stderr=subprocess.PIPE, text=True)
    os.close(ours)
    assert (done.returncode, done.stderr) == (code, "")


def test_a_program_that_calls_the_command_keeps_what_it_says_itself() -> None:
    """Before the command, through a stream that it held before, and after it has put that one back."""
    program = (
        "import sys; print('one'); from splitveil.cli.streams import open_streams; open_streams(); print('two')\n"
        "sys.__stdout__.write('three\\n'); print('four'); sys.stdout = sys.__stdout__; print('five')"
    )
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)
    assert (done.stdout.split(), done.stderr) == (["one", "two", "three", "four", "five"], "")
