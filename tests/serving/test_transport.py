"""HTTP with servers that misbehave: each is a socket that writes what the test says."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from splitveil.core.errors import ServingError, UsageError
from splitveil.serving import transport as module
from splitveil.serving.asking import Caller
from splitveil.serving.deadline import TimedSocket
from splitveil.serving.transport import HttpTransport, TransportError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x\r\n"


@contextmanager
def server(speak: Callable[[socket.socket], None], context: ssl.SSLContext | None = None) -> Iterator[tuple[int, list]]:
    """A port where each visitor's request is read and `speak` answers it; and the heads of the requests."""
    heads: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(60)  # only there so that a broken test ends

    def work() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with suppress(OSError), connection:
                connection.settimeout(60)
                if context is not None:
                    connection = context.wrap_socket(connection, server_side=True)
                with connection:
                    heads.append(connection.recv(65536))
                    speak(connection)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield listener.getsockname()[1], heads
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(60)


def says(*pieces: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: [connection.sendall(piece) for piece in pieces] and None


def asked(port: int, timeout: float = 60) -> module.Reply:
    with closing(HttpTransport(f"http://127.0.0.1:{port}", timeout=timeout)) as transport:
        return transport.request("GET", "/x")


def test_a_reply():
    with server(says(HEAD + b"Content-Length: 3\r\n\r\n", b"yes")) as (port, _):
        reply = asked(port)
    assert (reply.status, reply.media_type, reply.body) == (200, "application/x", b"yes")


def test_an_answer_without_end(monkeypatch):
    monkeypatch.setattr(module, "LARGEST_ANSWER", 100_000)

    def endless(connection: socket.socket) -> None:
        connection.sendall(HEAD + b"\r\n")
        for _ in range(1000):
            connection.sendall(b"x" * 10_000)

    with server(endless) as (port, _), pytest.raises(TransportError, match="an answer without end") as caught:
        asked(port)
    assert not caught.value.again, "it would send without end again"


@pytest.mark.parametrize(
    ("begin", "drop", "tls"),
    [
        (HEAD + b"Content-Length: 1000000\r\n\r\n", b"x", False),
        (b"HTTP/1.1 200 O", b"K", False),
        (HEAD + b"X-Long: ", b"x", False),
        (HEAD + b"X-Long: ", b"x", True),
        (HEAD, b"X: y\r\n", False),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", False),
    ],
    ids=["body", "status", "a line of the head", "the same over TLS", "lines of the head", "heads"],
)
def test_an_answer_in_drops(monkeypatch, tmp_path, begin, drop, tls):
    """Each piece comes in time; the whole does not: by the clock of this test each takes a second, of 60 in all."""
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])

    def drops(connection: socket.socket) -> None:
        connection.sendall(begin)
        for second in range(3000):
            now[0] = float(second)
            connection.sendall(drop)  # fails as soon as the client has given up
            time.sleep(0.001)

    trusted, context = certificate(tmp_path, "IP:127.0.0.1") if tls else (None, None)
    with server(drops, context) as (port, heads):
        url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        with (
            closing(HttpTransport(url, timeout=60, ca=trusted)) as transport,
            pytest.raises(TransportError, match=r"did not answer within 60 seconds") as caught,
        ):
            transport.request("GET", "/x")
    assert not caught.value.again
    assert len(heads) == 1


def test_a_message_that_is_taken_in_drops():
    """Too slow a reader stalls a sender just as well: http.client's own limit is for each piece over TLS."""
    mine, other = socket.socketpair()
    with mine, other:
        timed = TimedSocket(mine)
        timed.until = time.monotonic() + 0.3
        done = threading.Event()

        def drink() -> None:
            while not done.wait(0.01) and other.recv(4096):
                pass

        thread = threading.Thread(target=drink)
        thread.start()
        with pytest.raises(TimeoutError):
            timed.sendall(b"x" * (64 << 20))
        done.set()
        thread.join(60)


def test_a_time_that_is_over_is_not_used_for_one_more_piece():
    mine, other = socket.socketpair()
    with mine, other:
        other.sendall(b"there")
        timed = TimedSocket(mine)
        timed.until = time.monotonic() - 1
        with pytest.raises(TimeoutError), timed.makefile("rb") as reader:
            reader.read1(1)


def test_one_limit_for_a_kept_connection_and_the_one_after_it(monkeypatch):
    """The server takes the second request, lets the time pass, and hangs up: there is no time for a new connection."""
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    turns = iter([HEAD + b"Content-Length: 0\r\n\r\n", b""])

    def speak(connection: socket.socket) -> None:
        connection.sendall(next(turns))
        connection.recv(65536)  # the second request
        now[0] = 100.0

    with (
        server(speak) as (port, heads),
        closing(HttpTransport(f"http://127.0.0.1:{port}", timeout=50)) as transport,
    ):
        assert transport.request("GET", "/x").status == 200
        with pytest.raises(TransportError, match="did not answer within 50 seconds"):
            transport.request("GET", "/x")
    assert len(heads) == 1


@pytest.mark.parametrize(("kept", "connections"), [(b"", 1), (b"Connection: close\r\n", 2)])
def test_a_connection_is_kept_unless_the_server_ends_it(kept, connections):
    answer = HEAD + kept + b"Content-Length: 2\r\n\r\nme"

    def speak(connection: socket.socket) -> None:
        connection.sendall(answer)
        if not kept and connection.recv(65536):
            connection.sendall(answer)

    with (
        server(speak) as (port, heads),
        closing(HttpTransport(f"http://127.0.0.1:{port}", timeout=60)) as transport,
    ):
        assert [transport.request("GET", "/x").body for _ in range(2)] == [b"me", b"me"]
    assert len(heads) == connections


def test_a_limit_of_time_is_not_waited_for_again_and_again(monkeypatch):
    """Four times the limit would pass, where a retry is of no use: the server took the request and says nothing."""
    monkeypatch.setattr(module.time, "monotonic", lambda: 0.0)  # a busy machine loses no time before it listens
    done, asked = threading.Event(), []
    with server(lambda connection: done.wait(60) and None) as (port, _):
        transport = HttpTransport(f"http://127.0.0.1:{port}", timeout=0.2)
        real = transport.request
        monkeypatch.setattr(transport, "request", lambda *words: asked.append(words) or real(*words))
        caller = Caller(transport, "cloud")
        with closing(caller), pytest.raises(TransportError, match=r"did not answer within 0\.2 seconds"):
            caller.about()
        done.set()
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("serves", "hint"),
    [
        ("cloud", "Start it with: splitveil cloud ARTEFACT; or correct --url."),
        ("edge", "Start it with: splitveil edge ARTEFACT --serve HOST:PORT; or correct --endpoint."),
    ],
)
def test_who_is_not_there_is_started_with_its_own_command(serves, hint):
    with socket.socket() as silent:  # held, so that no other process takes the port; but it does not listen
        silent.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(TransportError, match="Nobody listens") as caught:
            Caller(HttpTransport(address), serves, retries=0).about()
    assert caught.value.hint == hint


def test_no_sentence_ends_twice():
    error = ssl.SSLCertVerificationError("certificate")
    error.verify_message = "Hostname mismatch, certificate is not valid for 'vm'."
    assert str(HttpTransport("https://vm")._explained(error).message).endswith("for 'vm'.")
    assert ".." not in HttpTransport("http://vm")._explained(OSError("broken.")).message


def test_an_answer_that_is_cut_off():
    with server(says(HEAD + b"Content-Length: 30\r\n\r\n", b"half")) as (port, _), pytest.raises(TransportError):
        asked(port)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(status):
    """Another address may belong to somebody else, who would get features and token."""
    with server(says(HEAD)) as (elsewhere, visitors):
        answer = f"HTTP/1.1 {status} Go\r\nLocation: http://127.0.0.1:{elsewhere}/\r\nContent-Length: 0\r\n\r\n"
        with server(says(answer.encode())) as (port, heads):
            with closing(HttpTransport(f"http://127.0.0.1:{port}", timeout=60)) as transport:
                caller = Caller(transport, "cloud", "a-long-enough-token")
                with pytest.raises(ServingError, match=f"status {status}"):
                    caller.about()
            assert b"Bearer a-long-enough-token" in heads[0]
    assert visitors == []


def test_no_proxy_is_asked(monkeypatch):
    with server(says(HEAD + b"Content-Length: 0\r\n\r\n")) as (proxy, visitors):
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy}")
        with server(says(HEAD + b"Content-Length: 2\r\n\r\nme")) as (port, _):
            assert asked(port).body == b"me"
    assert visitors == []


def certificate(folder: Path, names: str) -> tuple[Path, ssl.SSLContext]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    words += ["-addext", f"subjectAltName={names}", "-keyout", str(folder / "key"), "-out", str(folder / "cert")]
    if subprocess.run(words, capture_output=True).returncode != 0:
        pytest.skip("this openssl cannot make a certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", folder / "key")
    return folder / "cert", context


@pytest.mark.parametrize("form", [str, Path])
def test_certificates_are_named_by_text_or_by_path(tmp_path, form):
    trusted, _ = certificate(tmp_path, "IP:127.0.0.1")
    assert HttpTransport("https://127.0.0.1:1", ca=form(trusted)).private
    with pytest.raises(UsageError, match=r"There is no file .*another"):
        HttpTransport("https://127.0.0.1:1", ca=form(tmp_path / "another"))


@pytest.mark.parametrize(("names", "good"), [("IP:127.0.0.1", True), ("DNS:another.example", False)])
def test_a_certificate_must_name_the_server(tmp_path, names, good):
    """Also one that is trusted: it may be that of another server."""
    trusted, context = certificate(tmp_path, names)
    with server(says(HEAD + b"Content-Length: 0\r\n\r\n"), context) as (port, heads):
        with closing(HttpTransport(f"https://127.0.0.1:{port}", timeout=60, ca=trusted)) as transport:
            if good:
                assert transport.request("GET", "/", token="a-long-enough-token").status == 200
            else:
                with pytest.raises(TransportError, match="cannot be trusted") as caught:
                    transport.request("GET", "/", token="a-long-enough-token")
                assert not caught.value.again
        assert len(heads) == good


def met(monkeypatch) -> list[str]:
    """What the standard library would have been asked to send; nothing leaves this machine."""
    sent: list[str] = []

    def exchange(self, method, path, body, headers, until):
        sent.append(headers.get("Authorization", ""))
        raise ConnectionRefusedError

    monkeypatch.setattr(HttpTransport, "_exchange", exchange)
    return sent


@pytest.mark.parametrize("url", ["http://192.0.2.1:8750", "http://example.org", "http://0.0.0.0:8750"])
def test_a_token_is_not_sent_in_clear_to_another_machine(monkeypatch, url):
    """Whoever asks: it is the transport that refuses."""
    sent = met(monkeypatch)
    with pytest.raises(UsageError, match="could read the token"):
        HttpTransport(url).request("GET", "/v1/manifest", token="a-long-enough-token")
    assert sent == []
    with pytest.raises(TransportError):  # without a token there is nothing to hide
        HttpTransport(url).request("GET", "/v1/manifest")
    with pytest.raises(TransportError):
        HttpTransport(url, insecure=True).request("GET", "/v1/manifest", token="a-long-enough-token")
    assert sent == ["", "Bearer a-long-enough-token"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://localhost:1", "https://192.0.2.1:8750"])
def test_a_token_is_sent_where_nobody_reads_along(monkeypatch, url):
    sent = met(monkeypatch)
    with pytest.raises(TransportError):
        HttpTransport(url).request("GET", "/v1/manifest", token="a-long-enough-token")
    assert sent == ["Bearer a-long-enough-token"]
