"""Ctrl-C and SIGTERM inside an import count when it has ended: what loads would crash, or swallow them."""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from splitveil.core import stopping
from splitveil.core.stopping import ctrl_c_between_imports, stopped_in_order

PATIENCE = 20.0  # seconds; a test that waits so long has failed

SWALLOWS = """
import signal, time
loaded = False
try:
    for _ in range(3):  # a person who sees nothing happen presses again
        signal.raise_signal(signal.{name})
    {then}
    loaded = True
except KeyboardInterrupt:  # as libraries do that look for something optional
    pass
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a module called `swallows`."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "swallows.py"
    sys.modules.pop("swallows", None)


def _load_and_work() -> None:
    importlib.import_module("swallows")
    time.sleep(PATIENCE)


@pytest.mark.parametrize(("name", "protected"), [("SIGINT", ctrl_c_between_imports), ("SIGTERM", stopped_in_order)])
def test_a_signal_inside_an_import_counts_once_when_it_has_ended(library: Path, name: str, protected) -> None:
    library.write_text(SWALLOWS.format(name=name, then="time.sleep(0.1)"))
    began = time.monotonic()
    with protected():
        with pytest.raises(KeyboardInterrupt):
            _load_and_work()
        time.sleep(2 * stopping.LOOK_SECONDS)  # nothing comes any more
    assert sys.modules["swallows"].loaded
    assert time.monotonic() - began < PATIENCE  # it wakes what sleeps


def test_one_inside_an_import_and_one_just_after_it_count_once(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "LOOK_SECONDS", 0.3)
    library.write_text(SWALLOWS.format(name="SIGINT", then="pass"))
    with ctrl_c_between_imports():
        importlib.import_module("swallows")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        time.sleep(0.5)  # the orderly end


def test_an_import_that_does_not_end_is_interrupted(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "LONGEST_IMPORT", 0.1)
    library.write_text(SWALLOWS.format(name="SIGINT", then=f"time.sleep({PATIENCE})"))
    with ctrl_c_between_imports():
        assert not importlib.import_module("swallows").loaded


def test_elsewhere_ctrl_c_counts_at_once() -> None:
    with ctrl_c_between_imports(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_who_ignores_ctrl_c_goes_on_ignoring_it() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ctrl_c_between_imports():
            signal.raise_signal(signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_command_is_not_interrupted_inside_an_import(library: Path) -> None:
    library.write_text(SWALLOWS.format(name="SIGINT", then="pass"))
    code = (
        f"import sys, time, types\nsys.path.insert(0, {str(library.parent)!r})\n"
        f"def run():\n    import swallows\n    time.sleep({PATIENCE})\n"
        "sys.modules['splitveil.cli'] = types.SimpleNamespace(main=run)\n"
        "from splitveil.__main__ import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "")
