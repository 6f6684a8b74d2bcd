"""The cloud server in this process: answers, refusals, and that it outlives every message."""

from __future__ import annotations

import asyncio
import re
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed (pip install 'splitveil[serve]')")

from fastapi import Request
from tests.worlds.app_transport import opened

from splitveil.serving.cloud import build_app
from splitveil.serving.exchange import artefact_id
from splitveil.serving.halves import CloudHalf
from splitveil.serving.service import RefusedError, Settings, body
from splitveil.serving.wire import MEDIA_TYPE, Kind, decode, encode

TOKEN = "a-long-enough-token"


@pytest.fixture
def client(small_artefact):
    with opened(build_app(small_artefact)) as found:
        yield found


def features(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 2, 1, 1)).astype(np.float32)


def question(artefact, values, *, request=7, bits=32, kind=Kind.FEATURES) -> bytes:
    return encode(kind, values, artefact=artefact_id(artefact), request=request, bits=bits)


def refused(answer, status: int) -> str:
    """The sentence in a refusal, which is JSON on every route."""
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    told = answer.json()
    assert set(told) == {"error", "hint"}
    assert told["error"].endswith(".")
    assert told["hint"] == "" or told["hint"].endswith(".")
    return told["error"]


@pytest.mark.parametrize("bits", [32, 16, 8])
def test_answers_are_those_of_the_half(client, small_artefact, bits):
    data = question(small_artefact, features(5), bits=bits)
    answer = client.post("/v1/infer", content=data)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == MEDIA_TYPE
    found = decode(answer.content)
    assert (found.kind, found.request, found.artefact) == (Kind.LOGITS, 7, artefact_id(small_artefact))
    as_received = decode(data).values
    # logits[b, k] = Σ_c feature[b, c]·(k + 1), see the world of the artefact
    expected = as_received.sum((1, 2, 3))[:, None] * np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(found.values, expected, rtol=1e-5, atol=1e-6)


def test_batches_give_the_answers_of_one_by_one(small_artefact):
    """Threads ask at the same time; some of their messages share a batch, and nobody gets another's answer."""
    half = CloudHalf(small_artefact)
    asked = [features(1 + number % 5, seed=number) for number in range(60)]
    alone = [half.logits(values) for values in asked]
    app = build_app(small_artefact, Settings(max_batch=16, max_wait_ms=200))
    with opened(app) as client, ThreadPoolExecutor(8) as pool:

        def ask(number: int) -> np.ndarray:
            data = question(small_artefact, asked[number], request=number)
            found = decode(client.post("/v1/infer", content=data).content)
            assert found.request == number
            return found.values

        together = list(pool.map(ask, range(len(asked))))
        sizes = app.state.metrics.batches
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)
    assert sum(sizes.counts) < len(asked), "nothing was ever batched"
    assert sizes.total == sum(len(values) for values in asked)


def resealed(data: bytes) -> bytes:
    return data[:-4] + struct.pack("<I", zlib.crc32(data[:-4]))


def malformed(artefact) -> dict[str, tuple[bytes, int]]:
    good = question(artefact, features(2))
    forged = bytearray(good)
    forged[-5] = forged[-6] = 0xFF  # the last value becomes NaN
    other = bytearray(good)
    other[8] ^= 1
    return {
        "nothing": (b"", 400),
        "JSON": (b'{"features": [1, 2]}', 400),
        "a pickle": (b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94\x8c\x06system\x94\x93\x94" * 3, 400),
        "cut off": (good[:-9], 400),
        "too long": (good + b"x", 400),
        "flipped": (good[:50] + bytes([good[50] ^ 4]) + good[51:], 400),
        "NaN": (resealed(bytes(forged)), 400),
        "pictures": (question(artefact, features(2), kind=Kind.PICTURES), 400),
        "an answer": (question(artefact, features(2), kind=Kind.LOGITS), 400),
        "another shape": (question(artefact, np.zeros((1, 3, 1, 1), np.float32)), 400),
        "no batch axis": (question(artefact, np.zeros((2,), np.float32)), 400),
        "another artefact": (resealed(bytes(other)), 409),
        "overflow": (question(artefact, np.full((1, 2, 1, 1), 3e38, np.float32)), 400),
    }


def test_the_server_outlives_every_malformed_message(client, small_artefact):
    good = question(small_artefact, features(1))
    for name, (data, status) in malformed(small_artefact).items():
        text = refused(client.post("/v1/infer", content=data), status)
        assert "\n" not in text, name
        assert ("so large" in text) == (name == "overflow")
        assert client.post("/v1/infer", content=good).status_code == 200, f"dead after {name}"


def test_too_large_messages_are_refused_unread(small_artefact):
    with opened(build_app(small_artefact, Settings(max_message_bytes=200))) as client:
        assert client.post("/v1/infer", content=question(small_artefact, features(1))).status_code == 200
        answer = client.post("/v1/infer", content=question(small_artefact, features(100)))
        assert "more than the 200 bytes" in refused(answer, 413)
        assert answer.headers["connection"] == "close"
        announced = client.post("/v1/infer", content=b"x", headers={"content-length": str(10 << 30)})
        assert "more than the 200 bytes" in refused(announced, 413)
        endless = client.post("/v1/infer", content=iter([b"x" * 150, b"x" * 150]))  # chunks: no length is announced
        assert "more than the 200 bytes" in refused(endless, 413)


def test_a_message_that_never_ends_to_arrive():
    """Raw ASGI: the first half comes, then nothing; or the client hangs up."""

    async def read_body(second: str) -> bytes:
        came = iter([{"type": "http.request", "body": b"half", "more_body": True}, {"type": second}])

        async def receive() -> dict[str, Any]:
            message = next(came)
            if message["type"] == "silence":
                await asyncio.Event().wait()
            return message

        request = Request({"type": "http", "method": "POST", "headers": []}, receive)
        return await body(request, Settings(patience_seconds=0.05))

    for second, status in (("silence", 408), ("http.disconnect", 400)):
        with pytest.raises(RefusedError) as caught:
            asyncio.run(read_body(second))
        assert caught.value.status == status


def test_manifest_says_what_is_served(client, small_artefact):
    about = client.get("/v1/manifest").json()
    assert about["artefact"] == small_artefact.digest.hex()
    assert about["serves"] == "cloud"
    assert about["manifest"]["class_names"] == ["bag", "boot", "coat"]


def test_wrong_routes_and_methods(client):
    assert refused(client.get("/nowhere"), 404) == "There is no such route."
    assert refused(client.get("/v1/infer"), 405) == "This route takes another method."
    assert refused(client.post("/healthz"), 405)


def test_refusals_say_what_to_do(client, small_artefact):
    data = bytearray(question(small_artefact, features(1)))
    data[8] ^= 1
    answer = client.post("/v1/infer", content=resealed(bytes(data)))
    assert "The message is of the artefact" in refused(answer, 409)
    assert answer.json()["hint"] == "Both ends need copies of one artefact."
    named = client.get("/v1/manifest", headers={"Host": "rebound.example"})
    assert "does not answer to the name 'rebound.example'" in refused(named, 403)
    assert "local names" in named.json()["hint"]


@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"},
                                    {"Authorization": "Bearer"}, {"Authorization": f"Bearer {TOKEN}x"},
                                    {"Authorization": "Bearer \u00e9".encode("latin-1")}])  # fmt: skip
def test_token(small_artefact, header):
    with opened(build_app(small_artefact, Settings(token=TOKEN))) as client:
        right = {"Authorization": f"Bearer {TOKEN}"}
        data = question(small_artefact, features(1))
        assert "token" in refused(client.post("/v1/infer", content=data, headers=header), 401)
        for path in ("/v1/manifest", "/metrics", "/nowhere"):
            assert client.get(path, headers=header).status_code == 401
        assert client.get("/healthz", headers=header).json() == {"status": "ok"}
        assert client.post("/v1/infer", content=data, headers=right).status_code == 200
        assert client.get("/metrics", headers=right).status_code == 200


def test_refused_tokens_are_counted_and_now_and_then_logged(small_artefact, monkeypatch, caplog):
    """On every route: a device with a wrong token is refused when it asks which artefact this is."""
    clock = [1000.0]
    monkeypatch.setattr("splitveil.serving.service.time.monotonic", lambda: clock[0])
    wrong = {"Authorization": "Bearer a-wrong-guess"}
    with opened(build_app(small_artefact, Settings(token=TOKEN))) as client, caplog.at_level("WARNING"):
        for later in (0, 59, 2, 1):
            clock[0] += later
            assert client.get("/v1/manifest", headers=wrong).status_code == 401
        client.get("/healthz", headers=wrong)
        text = client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).text
    assert "splitveil_refused_total 4\n" in text
    lines = [record.getMessage() for record in caplog.records if record.name == "splitveil.serving"]
    assert [re.match(r"refused (\d+) requests", line)[1] for line in lines] == ["1", "2"]
    assert not any(secret in line for line in lines for secret in ("a-wrong-guess", TOKEN))


def test_the_token_is_compared_in_constant_time(small_artefact, monkeypatch):
    """Otherwise the time of a refusal would tell how much of a guess is right."""
    compared = []

    def watched(one: bytes, other: bytes) -> bool:
        compared.append({one, other})
        return one == other

    monkeypatch.setattr("hmac.compare_digest", watched)
    with opened(build_app(small_artefact, Settings(token=TOKEN))) as client:
        assert client.get("/metrics", headers={"Authorization": "Bearer guess"}).status_code == 401
    assert compared == [{b"guess", TOKEN.encode()}]


def test_without_a_token_only_names_of_this_machine_are_answered(client):
    """DNS rebinding: the name in the address is the attacker's, whatever it resolves to."""
    assert client.get("/v1/manifest", headers={"host": "evil.example"}).status_code == 403
    assert client.get("/v1/manifest", headers={"host": "["}).status_code == 403
    assert client.get("/v1/manifest", headers={"host": "localhost:1"}).status_code == 200


def test_metrics_count(client, small_artefact):
    client.post("/v1/infer", content=question(small_artefact, features(4)))  # a border counts as below it
    client.post("/v1/infer", content=b"nonsense")
    text = client.get("/metrics").text
    assert 'splitveil_requests_total{status="200"} 1\n' in text
    assert 'splitveil_requests_total{status="400"} 1\n' in text
    assert "splitveil_errors_total 1\n" in text
    assert "splitveil_pictures_total 4\n" in text
    assert 'splitveil_batch_pictures_bucket{le="2"} 0\n' in text
    assert 'splitveil_batch_pictures_bucket{le="4"} 1\n' in text
    assert 'splitveil_request_seconds_bucket{le="+Inf"} 2\n' in text
    assert "splitveil_request_seconds_count 2\n" in text


def test_a_fault_of_the_network_is_one_sentence_and_not_the_end(small_artefact, monkeypatch):
    def broken(self, values):
        raise RuntimeError("secret details")

    with opened(build_app(small_artefact)) as client:
        pass
    monkeypatch.setattr(CloudHalf, "logits", broken)
    with opened(build_app(small_artefact)) as client:
        answer = client.post("/v1/infer", content=question(small_artefact, features(1)))
        text = refused(answer, 500)
        assert "RuntimeError" in text
        assert "secret" not in text
        assert client.get("/healthz").status_code == 200


def test_a_busy_server_says_so(small_artefact, monkeypatch):
    from splitveil.serving.batching import Batcher, BusyError

    def full(self, values):
        raise BusyError("The server has too much to do.")

    monkeypatch.setattr(Batcher, "submit", full)
    with opened(build_app(small_artefact)) as client:
        answer = client.post("/v1/infer", content=question(small_artefact, features(1)))
        assert "too much to do" in refused(answer, 503)
        assert answer.headers["retry-after"] == "1"
