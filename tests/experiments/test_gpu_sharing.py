"""Sharing one GPU between runs: the service is started, told to stop, and left alone where it is the user's own."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from splitveil.experiments.sweep import api, gpu_sharing
from splitveil.experiments.sweep.gpu_sharing import PROGRAM, VARIABLES, can_share, shared_gpu


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for NVIDIA's program that writes down what it is asked; `fails` beside it makes it fail."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(gpu_sharing, "SECONDS", 240.0)  # a busy machine may take its time to start a shell
    program = tmp_path / "bin" / PROGRAM
    program.parent.mkdir()
    program.write_text(
        f"""#!/bin/sh
echo "$* $(cat) $CUDA_MPS_PIPE_DIRECTORY" >> {tmp_path}/asked
test -e {tmp_path}/fails && echo "no permission" >&2 && exit 1
exit 0
"""
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return tmp_path


def test_the_service_runs_within_the_block_only(service: Path) -> None:
    with shared_gpu() as shared:
        assert shared
        folder = os.environ[VARIABLES[0]]
        assert Path(folder).is_dir()
    assert VARIABLES[0] not in os.environ
    assert not Path(folder).exists()
    first, last = (service / "asked").read_text().splitlines()
    assert first.split() == ["-d", folder]
    assert last.split() == ["quit", folder]


def test_it_stops_when_the_work_fails(service: Path) -> None:
    with pytest.raises(RuntimeError, match="in between"), shared_gpu():
        raise RuntimeError("in between")
    assert "quit" in (service / "asked").read_text()
    assert VARIABLES[0] not in os.environ


def test_a_service_that_does_not_start_is_reported(service: Path, caplog: pytest.LogCaptureFixture) -> None:
    (service / "fails").touch()
    with shared_gpu() as shared:
        assert not shared
        assert VARIABLES[0] not in os.environ
    assert "no permission" in caplog.text
    assert "quit" not in (service / "asked").read_text()


def test_the_users_own_service_is_left_alone(service: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLES[0], "/somewhere")
    with shared_gpu() as shared:
        assert shared
        assert os.environ[VARIABLES[0]] == "/somewhere"
    assert os.environ[VARIABLES[0]] == "/somewhere"
    assert not (service / "asked").exists()


def test_without_the_service_one_run_at_a_time_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLES[0], raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not can_share()
    assert api.default_workers("cuda") == 1
    with shared_gpu() as shared:
        assert not shared
