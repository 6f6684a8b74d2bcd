"""The edge client: what it sends, to whom, how often, and what it believes."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed (pip install 'splitveil[serve]')")

from tests.worlds.app_transport import AppTransport, opened
from tests.worlds.small_artefact import write_small_artefact

from splitveil.core.errors import InputError, ServingError, UsageError
from splitveil.serving import asking
from splitveil.serving import client as client_module
from splitveil.serving.artefact import read
from splitveil.serving.client import EdgeClient, softmax
from splitveil.serving.cloud import build_app
from splitveil.serving.exchange import OtherArtefactError, artefact_id
from splitveil.serving.halves import CloudHalf, EdgeHalf
from splitveil.serving.probing import FeatureClient
from splitveil.serving.random_inputs import SeededSource
from splitveil.serving.repeats import RepeatGuard, RepeatLimitError
from splitveil.serving.service import Settings
from splitveil.serving.transport import LocalTransport, Reply, TransportError
from splitveil.serving.wire import MEDIA_TYPE, Kind, decode, encode


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(asking.time, "sleep", lambda seconds: None)


@pytest.fixture
def transport(small_artefact):
    with opened(build_app(small_artefact)) as client:
        yield AppTransport(client)


def pictures(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((count, 1, 4, 4), dtype=np.float32)


class Scripted:
    """Gives the next reply of a list; raises it where it is an error. Asked for the manifest, it tells the truth."""

    address = "http://scripted"

    def __init__(self, artefact, *replies) -> None:
        self.artefact, self.replies, self.bodies = artefact, list(replies), []

    def request(self, method, path, body=b"", token=None):
        if path == "/v1/manifest":
            about = {"artefact": self.artefact.digest.hex(), "serves": "cloud", "max_message_bytes": 1000}
            return Reply(200, "application/json", json.dumps(about).encode())
        self.bodies.append(body)
        reply = self.replies.pop(0)
        if isinstance(reply, BaseException):
            raise reply
        return reply(body) if callable(reply) else reply

    def close(self) -> None:
        pass


def right(artefact):
    """Answers as the server would."""
    local = LocalTransport(CloudHalf(artefact))
    return lambda body: local.request("POST", "/v1/infer", body)


def test_answers_are_those_of_the_two_halves(small_artefact, transport):
    images = pictures(5)
    answer = EdgeClient(small_artefact, transport, source=SeededSource(3)).classify(images)
    sent = EdgeHalf(small_artefact).features(images, SeededSource(3))
    logits = CloudHalf(small_artefact).logits(sent)
    np.testing.assert_array_equal(answer.labels, logits.argmax(1))
    np.testing.assert_allclose(answer.probabilities, softmax(logits), rtol=1e-4, atol=1e-12)
    np.testing.assert_array_equal(decode(transport.bodies[0]).values, sent)  # the served feature is the audited one
    assert answer.bytes_sent == sum(len(body) for body in transport.bodies)
    assert answer.messages == 1


def test_in_this_process_the_answers_are_the_same(small_artefact, transport):
    images = pictures(4)
    local = LocalTransport(CloudHalf(small_artefact))
    near = EdgeClient(small_artefact, local, source=SeededSource(1), bits=8).classify(images)
    far = EdgeClient(small_artefact, transport, source=SeededSource(1), bits=8).classify(images)
    np.testing.assert_allclose(near.probabilities, far.probabilities, rtol=1e-5, atol=1e-12)


def test_noise_is_new_in_every_transmission(small_artefact, transport):
    client = EdgeClient(small_artefact, transport)
    client.classify(pictures(1))
    client.classify(pictures(1))
    first, second = (decode(body) for body in transport.bodies)
    assert not np.array_equal(first.values, second.values)
    assert first.request != second.request


@pytest.mark.parametrize("bits", [32, 16, 8])
def test_bits(small_artefact, transport, bits):
    EdgeClient(small_artefact, transport, bits=bits).classify(pictures(2))
    assert decode(transport.bodies[0]).bits == bits


def test_other_bits_are_refused(small_artefact, transport):
    with pytest.raises(UsageError, match="7 bits"):
        EdgeClient(small_artefact, transport, bits=7)


def test_many_pictures_are_many_messages(small_artefact, transport, monkeypatch):
    monkeypatch.setattr(client_module, "PER_MESSAGE", 3)
    images = pictures(8)
    answer = EdgeClient(small_artefact, transport, source=SeededSource(5)).classify(images)
    assert [len(decode(body).values) for body in transport.bodies] == [3, 3, 2]
    assert answer.messages == 3
    assert len(answer.labels) == 8


def test_messages_fit_the_server(small_artefact):
    with opened(build_app(small_artefact, Settings(max_message_bytes=160))) as client:
        transport = AppTransport(client)
        answer = EdgeClient(small_artefact, transport).classify(pictures(9))
    assert len(answer.labels) == 9
    assert max(len(body) for body in transport.bodies) <= 160
    assert answer.messages > 1


def test_no_pictures_no_messages(small_artefact, transport):
    answer = EdgeClient(small_artefact, transport).classify(pictures(0))
    assert len(answer.labels) == 0
    assert answer.probabilities.shape == (0, 3)
    assert transport.bodies == []


def test_a_message_is_sent_again_byte_for_byte(small_artefact):
    """New noise for the same picture would be something to average."""
    lost = TransportError("Nobody listens.")
    transport = Scripted(
        small_artefact, lost, Reply(503, "application/json", b'{"error": "Busy."}'), right(small_artefact)
    )
    guard = RepeatGuard()
    EdgeClient(small_artefact, transport, guard=guard).classify(pictures(1))
    assert len(transport.bodies) == 3
    assert len(set(transport.bodies)) == 1
    assert guard.most == 1


def test_retries_end(small_artefact):
    transport = Scripted(small_artefact, *[TransportError("Nobody listens.")] * 9)
    with pytest.raises(TransportError, match="Nobody listens"):
        EdgeClient(small_artefact, transport, retries=2).classify(pictures(1))
    assert len(transport.bodies) == 3


def test_what_cannot_succeed_is_not_tried_again(small_artefact):
    transport = Scripted(small_artefact, TransportError("The certificate is bad.", again=False))
    with pytest.raises(TransportError, match="certificate"):
        EdgeClient(small_artefact, transport).classify(pictures(1))
    assert len(transport.bodies) == 1


def test_nothing_is_sent_to_a_server_with_another_artefact(small_artefact, tmp_path):
    write_small_artefact(tmp_path / "other", class_names=("boot", "bag", "coat"))
    with opened(build_app(read(tmp_path / "other"))) as client:
        transport = AppTransport(client)
        with pytest.raises(OtherArtefactError, match="nothing was sent"):
            EdgeClient(small_artefact, transport).classify(pictures(1))
    assert transport.bodies == []


def test_a_server_that_changes_its_artefact_is_noticed(small_artefact, tmp_path):
    write_small_artefact(tmp_path / "other", class_names=("boot", "bag", "coat"))
    with opened(build_app(small_artefact)) as client:
        transport = AppTransport(client)
        device = EdgeClient(small_artefact, transport)
        device.check()
        with opened(build_app(read(tmp_path / "other"))) as replaced:
            transport.client = replaced
            with pytest.raises(ServingError, match="409"):
                device.classify(pictures(1))


ENDLESS = b'{"serves": "cloud", "artefact": "%s", "max_message_bytes": 1e999}' % (b"00" * 32)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"artefact": 1}', b'"x"', b"\xff", ENDLESS])
def test_a_server_of_something_else(small_artefact, body):
    transport = Scripted(small_artefact)
    transport.request = lambda *_: Reply(200, "text/html", body)
    with pytest.raises(ServingError, match="is no server of Splitveil"):
        EdgeClient(small_artefact, transport).check()


def logits(artefact, values, request):
    return Reply(200, MEDIA_TYPE, encode(Kind.LOGITS, values, artefact=artefact_id(artefact), request=request))


def asked_back(artefact, kind, asked) -> bytes:
    return encode(kind, np.zeros((1, 3), np.float32), artefact=artefact, request=asked.request)


@pytest.mark.parametrize(
    "reply",
    [
        lambda artefact, asked: logits(artefact, np.zeros((1, 3), np.float32), asked.request ^ 1),
        lambda artefact, asked: logits(artefact, np.zeros((2, 3), np.float32), asked.request),
        lambda artefact, asked: logits(artefact, np.zeros((1, 4), np.float32), asked.request),
        lambda artefact, asked: Reply(200, MEDIA_TYPE, asked_back(bytes(16), Kind.LOGITS, asked)),  # another artefact
        lambda artefact, asked: Reply(200, MEDIA_TYPE, asked_back(asked.artefact, Kind.PICTURES, asked)),
        lambda artefact, asked: Reply(200, MEDIA_TYPE, b"nonsense"),
        lambda artefact, asked: Reply(200, "application/json", b'{"error": "No."}'),
        lambda artefact, asked: Reply(400, "application/json", b'["No."]'),
        lambda artefact, asked: Reply(200, "text/html", b"<html>"),
        lambda artefact, asked: Reply(302, "text/html", b""),
        lambda artefact, asked: Reply(500, "text/html", b"{" * 5000),
        lambda artefact, asked: Reply(400, MEDIA_TYPE, b"nonsense"),
    ],
)
def test_answers_that_are_none(small_artefact, reply):
    transport = Scripted(small_artefact, lambda body: reply(small_artefact, decode(body)))
    with pytest.raises(ServingError) as caught:
        EdgeClient(small_artefact, transport).classify(pictures(1))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "says"), [(400, "refused with status 400: No: a [31mb c."), (503, "is too busy: No:")]
)
def test_what_a_refusal_says_is_shown_on_one_line(small_artefact, status, says):
    told = {"error": "No:\na\x1b[31mb\tc.", "hint": "Do\nthis."}
    reply = Reply(status, "application/json", json.dumps(told).encode())
    transport = Scripted(small_artefact, *[lambda body: reply] * 4)
    with pytest.raises(ServingError, match=re.escape(says)) as caught:
        EdgeClient(small_artefact, transport).classify(pictures(1))
    assert caught.value.hint == "Do this."
    assert caught.value.message.isprintable()


def test_a_server_with_too_many_connections_has_no_words_of_its_own(small_artefact):
    reply = Reply(503, "text/plain", b"Service Unavailable")
    transport = Scripted(small_artefact, *[lambda body: reply] * 4)
    with pytest.raises(ServingError, match=r"is too busy: it has too many connections\."):
        EdgeClient(small_artefact, transport).classify(pictures(1))


def test_a_refusal_of_our_server_reaches_the_user(small_artefact):
    """From the graph behind the server to the words of the client: status, sentence and hint."""
    with opened(build_app(small_artefact, Settings(max_message_bytes=60))) as client:
        asking = EdgeClient(small_artefact, AppTransport(client))
        asking._per_message = 4  # a client of another version, which does not ask how much is taken
        with pytest.raises(ServingError, match="refused with status 413: The message has more than the 60") as caught:
            asking.classify(pictures(4))
    assert caught.value.hint == "Send fewer pictures at once."


def test_token(small_artefact):
    with opened(build_app(small_artefact, Settings(token="a-long-enough-token"))) as client:
        transport = AppTransport(client)
        with pytest.raises(ServingError, match="wants a token"):
            EdgeClient(small_artefact, transport).classify(pictures(1))
        with pytest.raises(ServingError, match="does not accept this token"):
            EdgeClient(small_artefact, transport, token="another-long-token").classify(pictures(1))
        answer = EdgeClient(small_artefact, transport, token="a-long-enough-token").classify(pictures(1))
    assert len(answer.labels) == 1


def test_what_is_no_picture_is_never_sent(small_artefact, transport):
    client = EdgeClient(small_artefact, transport)
    for bad in (pictures(1) * 255, pictures(1).astype(np.float64), pictures(1)[:, :, :3]):
        with pytest.raises(InputError):
            client.classify(bad)
    assert transport.bodies == []


def test_repeated_pictures_are_refused_before_anything_is_sent(small_artefact, transport):
    client = EdgeClient(small_artefact, transport, guard=RepeatGuard(limit=2))
    same = pictures(1)
    client.classify(same)
    client.classify(same)
    with pytest.raises(RepeatLimitError):
        client.classify(np.concatenate([pictures(1, seed=1), same]))
    assert len(transport.bodies) == 2


def test_answers_are_handed_over_message_by_message(small_artefact, monkeypatch):
    """Of five pictures two have an answer when the server goes away, two may have arrived, and one never left."""
    monkeypatch.setattr(client_module, "PER_MESSAGE", 2)
    transport = Scripted(small_artefact, right(small_artefact), TransportError("Gone.", again=False))
    guard, sent = RepeatGuard(limit=1), pictures(5)
    client = EdgeClient(small_artefact, transport, guard=guard)
    answers = client.answers(sent)
    came = next(answers)
    assert (len(came.labels), came.messages, came.bytes_sent) == (2, 1, len(transport.bodies[0]))
    assert client.unanswered == 0
    with pytest.raises(TransportError, match="Gone"):
        next(answers)
    assert client.unanswered == 2
    with pytest.raises(RepeatLimitError) as error:
        guard.check(sent)
    assert error.value.places == [0, 1, 2, 3]


def test_pictures_that_the_edge_half_did_not_finish_count_as_never_sent(small_artefact, transport, monkeypatch):
    """There a slow device is where Ctrl-C meets it."""

    def interrupted(*_):
        raise KeyboardInterrupt

    client = EdgeClient(small_artefact, transport, guard=RepeatGuard(limit=1))
    with monkeypatch.context() as patch:
        patch.setattr(EdgeHalf, "features", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.classify(pictures(2))
    assert (client.unanswered, transport.bodies) == (0, [])
    assert len(client.classify(pictures(2)).labels) == 2


def test_pictures_over_the_limit_are_an_error_before_the_first_message(small_artefact, transport, monkeypatch):
    """Also where they would come in a later one: the caller can send the others, of which none was counted."""
    monkeypatch.setattr(client_module, "PER_MESSAGE", 2)
    client = EdgeClient(small_artefact, transport, guard=RepeatGuard(limit=1))
    some = pictures(4)
    with pytest.raises(RepeatLimitError) as error:
        client.classify(np.concatenate([some, some[:1]]))
    assert (error.value.places, transport.bodies) == ([4], [])
    assert len(client.classify(some).labels) == 4


def test_pictures_that_another_process_sent_before_the_call_are_an_error_before_the_first_message(
    small_artefact, transport, monkeypatch, tmp_path
):
    monkeypatch.setattr(client_module, "PER_MESSAGE", 2)
    some, path = pictures(4), tmp_path / "counts"
    client = EdgeClient(small_artefact, transport, guard=RepeatGuard(1, path))
    RepeatGuard(1, path).admit(some[3:])
    with pytest.raises(RepeatLimitError) as error:
        client.classify(some)
    assert (error.value.places, transport.bodies) == ([3], [])


def test_in_this_process_no_limit_holds_and_nothing_is_unanswered(small_artefact, monkeypatch):
    """Nobody listens."""
    monkeypatch.setattr(client_module, "PER_MESSAGE", 2)
    local = LocalTransport(CloudHalf(small_artefact))
    client = EdgeClient(small_artefact, local, guard=RepeatGuard(limit=1))
    found = client.classify(np.concatenate([pictures(2)] * 2))
    assert len(found.labels) == 4
    assert found.seconds > 0
    monkeypatch.setattr(local, "request", Scripted(small_artefact, KeyboardInterrupt()).request)
    with pytest.raises(KeyboardInterrupt):
        client.classify(pictures(1))
    assert client.unanswered == 0


def test_a_limit_that_another_process_reached_meanwhile_names_places_of_the_call(
    small_artefact, transport, monkeypatch, tmp_path
):
    monkeypatch.setattr(client_module, "PER_MESSAGE", 2)
    some, path = pictures(4), tmp_path / "counts"
    answers = EdgeClient(small_artefact, transport, guard=RepeatGuard(1, path)).answers(some)
    next(answers)
    RepeatGuard(1, path).admit(some[3:])
    with pytest.raises(RepeatLimitError) as error:
        next(answers)
    assert (error.value.places, len(transport.bodies)) == ([3], 1)


def test_many_repetitions_are_a_warning(small_artefact, transport, caplog):
    client = EdgeClient(small_artefact, transport)
    with caplog.at_level(logging.WARNING, "splitveil.serving"):
        for _ in range(client_module.MANY - 1):
            client.classify(pictures(1))
        assert not caplog.records
        client.classify(pictures(1))
        client.classify(pictures(1))
    assert [record.message for record in caplog.records] == [
        "A picture was sent 16 times (nearly equal ones count): "
        "whoever averages what was sent has 0.25 times the noise."
    ]


def test_without_noise_nothing_is_counted(tmp_path, monkeypatch):
    """The same message again tells nothing new."""
    write_small_artefact(tmp_path / "artefact")
    artefact = read(tmp_path / "artefact")
    transport = Scripted(artefact, right(artefact), right(artefact))
    client = EdgeClient(artefact, transport, guard=RepeatGuard(limit=1))
    client.manifest = artefact.manifest.model_copy(update={"random": ()})
    client.classify(pictures(1))
    client.classify(pictures(1))
    assert len(transport.bodies) == 2


@pytest.mark.parametrize("insecure", [False, True])
def test_a_token_in_clear_needs_a_word_of_the_caller(small_artefact, monkeypatch, insecure):
    """In Python as on the command line, for both clients; nothing leaves this machine here."""
    sent = []

    def exchange(self, method, path, body, headers, until):
        sent.append(headers["Authorization"])
        raise ConnectionRefusedError

    monkeypatch.setattr("splitveil.serving.transport.HttpTransport._exchange", exchange)
    options = {"token": "a-long-enough-token", "retries": 0, "insecure": insecure}
    with pytest.raises(TransportError if insecure else UsageError):
        EdgeClient(small_artefact, "http://192.0.2.1:8750", **options).classify(pictures(1))
    with pytest.raises(TransportError if insecure else UsageError):
        FeatureClient("http://192.0.2.1:8750", **options)
    assert len(sent) == 2 * insecure


def test_softmax_of_large_logits():
    found = softmax(np.array([[1000.0, 1000.0], [-1000.0, 0.0]], np.float32))
    np.testing.assert_allclose(found, [[0.5, 0.5], [0.0, 1.0]])


def test_the_device_needs_neither_torch_nor_training_code():
    code = (
        "import sys; import splitveil.serving.client, splitveil.serving.transport, splitveil.serving.repeats; "
        "print([n for n in sys.modules if n == 'torch' or n.startswith(('splitveil.training', 'splitveil.models', "
        "'splitveil.data', 'splitveil.attacks', 'fastapi', 'httpx'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_folder_is_read_where_an_artefact_is_asked_for(small_artefact):
    server = LocalTransport(CloudHalf(small_artefact))
    expected = EdgeClient(small_artefact, server, source=SeededSource(1)).classify(pictures(3))
    for place in (small_artefact.path, str(small_artefact.path)):
        client = EdgeClient(place, server, source=SeededSource(1))
        assert client.artefact == small_artefact
        assert (client.classify(pictures(3)).probabilities == expected.probabilities).all()
