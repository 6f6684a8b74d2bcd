"""Two processes and a real socket: TLS, token, hostile clients, and Ctrl-C while somebody waits."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("fastapi", reason="the extra `serve` is not installed (pip install 'splitveil[serve]')")
pytest.importorskip("onnxruntime", reason="the extra `serve` is not installed (pip install 'splitveil[serve]')")

from tests.worlds.small_artefact import write_small_artefact

from splitveil.serving.artefact import read
from splitveil.serving.client import EdgeClient
from splitveil.serving.exchange import artefact_id
from splitveil.serving.transport import HttpTransport, Reply, TransportError
from splitveil.serving.wire import Kind, decode, encode

pytestmark = pytest.mark.slow

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "SPLITVEIL_TOKEN"}
TOKEN = "a-long-enough-token"
PATIENCE = 240  # seconds until a test gives up waiting for another process; never reached when all is well


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """An artefact, a token, two pictures; and a certificate where openssl is installed."""
    root = tmp_path_factory.mktemp("serving")
    write_small_artefact(root / "artefact")
    (root / "token").write_text(TOKEN)
    (root / "photos").mkdir()
    for number in range(2):
        values = np.random.default_rng(number).integers(0, 256, (4, 4), np.uint8)
        Image.fromarray(values).save(root / "photos" / f"{number}.png")
    return root


@pytest.fixture(scope="module")
def certificate(world) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command += ["-keyout", str(world / "key.pem"), "-out", str(world / "cert.pem")]
    done = subprocess.run(command, capture_output=True)
    if done.returncode != 0:
        pytest.skip("this openssl cannot make a certificate")
    return world / "cert.pem"


@contextmanager
def running(*words: str | Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server in a process of its own, with its address; on a machine that stands still its grace does not run out."""
    code = f"from splitveil.serving import running; running.GRACE_SECONDS = {PATIENCE}; "
    command = [sys.executable, "-c", code + "from splitveil.cli import main; main()", *map(str, words)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT | {"PYTHONUNBUFFERED": "1"}
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            address = re.match(r"https?://[\w.]+:\d+", line)
            assert address, line + (process.stderr.read() if process.stderr and process.poll() is not None else "")
            yield address[0], process
        finally:
            process.kill()


def stopped(process: subprocess.Popen[str]) -> str:
    """Ctrl-C; what the server said after its first line."""
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    return out


def test_sigterm_ends_it_in_order_too(world):
    """What schedulers and containers send."""
    with running("cloud", world / "artefact", "--port", "0") as (address, process):
        with connected(address) as transport:
            assert transport.request("GET", "/healthz").status == 200
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert "stopped (pictures: 0," in out
    assert "Traceback" not in errors


def connected(address: str) -> closing[HttpTransport]:
    return closing(HttpTransport(address, timeout=PATIENCE))


def edge(world: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "splitveil", "edge", world / "artefact", world / "photos", *words]
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, env=ENVIRONMENT, timeout=PATIENCE
    )


def test_tls_and_token_from_end_to_end(world, certificate):
    options = (
        "--port",
        "0",
        "--token-file",
        world / "token",
        "--tls-cert",
        certificate,
        "--tls-key",
        world / "key.pem",
    )
    with running("cloud", world / "artefact", *options) as (address, process):
        assert address.startswith("https://")
        trusting = ("--url", address, "--ca", certificate)
        good = edge(world, *trusting, "--token-file", world / "token", "--bits", "8", "--json")
        assert good.returncode == 0, good.stderr
        tree = json.loads(good.stdout)
        assert [Path(row["file"]).name for row in tree["pictures"]] == ["0.png", "1.png"]
        assert tree["server"] == address
        assert tree["bytes_sent"] > 0

        (world / "wrong").write_text("another-long-token")
        refused = edge(world, *trusting, "--token-file", world / "wrong")
        assert refused.returncode == 1
        assert "does not accept this token" in refused.stderr

        stranger = edge(world, "--url", address, "--token-file", world / "token")
        assert stranger.returncode == 1
        assert "cannot be trusted" in stranger.stderr

        port = int(address.rpartition(":")[2])
        with connected(f"http://127.0.0.1:{port}") as plain, pytest.raises(TransportError, match="https://"):
            plain.request("GET", "/v1/manifest")
        assert "stopped (pictures: 2," in stopped(process)


@pytest.fixture
def server(world) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    with running("cloud", world / "artefact", "--port", "0") as found:
        yield found


def raw(address: str, data: bytes) -> bytes:
    """Whatever comes back when `data` is written to the socket, until the server closes or falls silent."""
    host, _, port = address.removeprefix("http://").rpartition(":")
    answer = b""
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(data)
        try:
            while piece := connection.recv(4096):
                answer += piece
        except ConnectionResetError:
            pass  # closed with unread bytes of ours
    return answer


def test_hostile_clients(world, server):
    address, process = server
    head = b"POST /v1/infer HTTP/1.1\r\nHost: localhost\r\n"
    ten_gigabytes = raw(address, head + b"Content-Length: 10737418240\r\n\r\n" + b"x" * 1000)
    assert ten_gigabytes.startswith(b"HTTP/1.1 413")
    assert b"more than the 16777216 bytes" in ten_gigabytes
    assert raw(address, b"\x16\x03\x01\x02\x00\x01hello TLS\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert raw(address, head + b"Content-Length: -1\r\n\r\n").startswith(b"HTTP/1.1 400")
    host, _, port = address.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(head + b"Content-Length: 100\r\n\r\nhalf of it")  # and hangs up

    artefact = read(world / "artefact")
    with EdgeClient(artefact, address) as client:
        assert len(client.classify(np.zeros((3, 1, 4, 4), np.float32)).labels) == 3
    secure = address.replace("http:", "https:")
    with connected(secure) as wrong, pytest.raises(TransportError, match="does not answer with TLS"):
        wrong.request("GET", "/healthz")
    assert "stopped (pictures: 3," in stopped(process)


def test_ctrl_c_lets_a_request_end(world):
    """A request waits for its batch when the server is stopped, and gets its answer all the same."""
    artefact = read(world / "artefact")
    features = np.zeros((1, 2, 1, 1), np.float32)
    message = encode(Kind.FEATURES, features, artefact=artefact_id(artefact), request=5)
    with (
        running("cloud", world / "artefact", "--port", "0", "--max-wait-ms", "1000") as (address, process),
        connected(address) as transport,
        connected(address) as other,
    ):
        replies: list[Reply] = []
        assert transport.request("GET", "/healthz").status == 200
        asking = threading.Thread(target=lambda: replies.append(transport.request("POST", "/v1/infer", message)))
        asking.start()
        end = time.monotonic() + PATIENCE
        while b"splitveil_pictures_total 1" not in other.request("GET", "/metrics").body:
            assert time.monotonic() < end, "the request never arrived"
        assert "stopped (pictures: 1," in stopped(process)
        asking.join(PATIENCE)
    assert [reply.status for reply in replies] == [200]
    assert decode(replies[0].body).request == 5


def test_a_kept_connection_that_was_closed_is_opened_again(world, server):
    address, _ = server
    with connected(address) as transport:
        kept = None
        for _ in range(20):  # the server ends one that was idle for 5 seconds: a busy machine may take that long
            assert transport.request("GET", "/healthz").status == 200
            if transport._connection is kept:
                break
            kept = transport._connection
        assert transport._connection is kept, "one connection serves many requests"
        assert kept is not None
        assert kept.sock is not None
        kept.sock.sock.shutdown(socket.SHUT_RDWR)  # as after a long pause
        assert transport.request("GET", "/healthz").status == 200


def test_edge_serves_auditors(world):
    with running("edge", world / "artefact", "--serve", "127.0.0.1:0") as (address, process):
        artefact = read(world / "artefact")
        data = encode(Kind.PICTURES, np.zeros((2, 1, 4, 4), np.float32), artefact=artefact_id(artefact), request=1)
        with connected(address) as transport:
            reply = transport.request("POST", "/v1/features", data)
        assert decode(reply.body).values.shape == (2, 2, 1, 1)
        refused = edge(world, "--url", address)
        assert refused.returncode == 1
        assert "serves the edge half" in refused.stderr
        stopped(process)
