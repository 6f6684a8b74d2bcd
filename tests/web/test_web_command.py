"""`splitveil ui` as a user meets it."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
from tests.web.conftest import write_run
from typer.testing import CliRunner

from splitveil.cli import app, main


def test_help_shows_an_example():
    done = CliRunner().invoke(app, ["ui", "--help"])
    assert done.exit_code == 0
    assert "Example: splitveil ui runs" in done.output


def test_address_of_the_network_without_a_token(tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["ui", str(tmp_path), "--host", "0.0.0.0", "--no-browser"])
    assert caught.value.code == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 2
    assert "needs a token" in message
    assert "--token" in message


def test_missing_folder(tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["ui", str(tmp_path / "nowhere"), "--port", "0", "--no-browser"])
    assert caught.value.code == 2
    assert "There is no folder" in capsys.readouterr().err


def test_port_that_is_taken(tmp_path, capsys):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(SystemExit) as caught:
            main(["ui", str(tmp_path), "--port", str(other.getsockname()[1]), "--no-browser"])
    assert caught.value.code == 2
    assert "cannot listen" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["bad host", "x" * 70, "203.0.113.7"])  # the last one: kept free for documentation
def test_a_wrong_host_is_not_blamed_on_the_port(tmp_path, capsys, host):
    with pytest.raises(SystemExit) as caught:
        main(["ui", str(tmp_path), "--host", host, "--port", "0", "--token", "a-long-token", "--no-browser"])
    assert caught.value.code == 2
    message = capsys.readouterr().err
    assert f"no address '{host}'" in message
    assert "--host" in message
    assert "--port" not in message


def test_missing_extra_is_one_sentence(tmp_path, capsys, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "uvicorn" else real(name, *rest)
    )
    with pytest.raises(SystemExit) as caught:
        main(["ui", str(tmp_path), "--no-browser"])
    assert caught.value.code == 1
    assert "pip install -e '.[ui]'" in capsys.readouterr().err


@pytest.mark.slow
def test_serves_until_it_is_interrupted(tmp_path):
    write_run(tmp_path / "a")
    command = [sys.executable, "-m", "splitveil", "ui", str(tmp_path), "--port", "0", "--no-browser"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            address = re.search(r"http://127\.0\.0\.1:\d+/", line)
            assert address, line
            with urllib.request.urlopen(address[0], timeout=240) as answer:  # the socket listens already: this waits
                assert b'<div id="app">' in answer.read()
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=240)
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, "")  # Ctrl-C is the way to end it
