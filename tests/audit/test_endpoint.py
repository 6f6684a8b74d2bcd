"""`splitveil audit --endpoint`: somebody's edge half behind an address, which need not be ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import splitveil as sv
from splitveil.attacks.base import silent
from splitveil.attacks.queries import Queries
from splitveil.audit.endpoint import LeastSquares, audit_endpoint, endpoint_model
from splitveil.audit.steadiness import ALONE, LATER
from splitveil.audit.subjects import AuditData
from splitveil.cli import main
from splitveil.core.errors import ServingError, SplitveilError, UsageError
from splitveil.serving.probing import FeatureClient
from splitveil.serving.transport import HttpTransport, Reply, TransportError
from splitveil.serving.wire import MEDIA_TYPE, Kind, decode, encode

NAME = bytes(range(32))


class Endpoint:
    """A device of another maker: it speaks the protocol of docs/serving.md and shares no code with our servers."""

    address = "http://the-device"

    def __init__(self, device: Callable[[np.ndarray], np.ndarray], **about: object) -> None:
        self.device = device
        self.about = {"artefact": NAME.hex(), "serves": "edge"} | about
        self.widths: set[int] = set()
        self.most = 0
        self.paths: set[str] = set()

    def request(self, method: str, path: str, body: bytes = b"", token: str | None = None) -> Reply:
        self.paths.add(path)
        if path == "/v1/manifest":
            return Reply(200, "application/json", json.dumps(self.about).encode())
        asked = decode(body)
        assert asked.kind is Kind.PICTURES
        self.widths.add(asked.bits)
        self.most = max(self.most, len(body))
        sent = self.device(asked.values).astype(np.float32)
        answer = encode(Kind.FEATURES, sent, artefact=asked.artefact, request=asked.request)
        return Reply(200, MEDIA_TYPE, answer)

    def close(self) -> None:
        pass


def plain(pictures: np.ndarray) -> np.ndarray:
    """Two channels at half the size: means of 2 x 2 pixels and their differences from top to bottom."""
    n, _, h, w = pictures.shape
    fields = pictures.reshape(n, h // 2, 2, w // 2, 2)
    return np.stack([fields.mean((2, 4)), (fields[:, :, 0] - fields[:, :, 1]).mean(3)], 1)


class Noisy:
    def __init__(self, sigma: float) -> None:
        self.sigma, self.random = sigma, np.random.default_rng(0)

    def __call__(self, pictures: np.ndarray) -> np.ndarray:
        clean = plain(pictures)
        return clean + self.sigma * self.random.normal(size=clean.shape)


@pytest.fixture
def pictures(tmp_path: Path) -> str:
    """Bars whose place tells the class."""
    random = np.random.default_rng(0)
    parts = {}
    for name, count in (("train", 480), ("test", 40)):
        labels = np.arange(count) % 3
        values = random.integers(0, 60, (count, 8, 8))
        for index, label in enumerate(labels):
            values[index, 2 * label : 2 * label + 3, 1:7] += random.integers(90, 190)
        parts |= {f"{name}_x": values.astype(np.uint8), f"{name}_y": labels}
    np.savez(tmp_path / "mine.npz", **parts)
    return str(tmp_path / "mine.npz")


def attacked(endpoint: Endpoint, pictures: str, out: Path, **options):
    options = {"attacks": ["linear"], "sanity": False, "device": "cpu", **options}
    return audit_endpoint(endpoint, data=pictures, out=out, progress=silent, **options)


def test_what_is_sent_is_attacked(pictures, tmp_path):
    endpoint = Endpoint(plain, max_message_bytes=10_000)
    report = attacked(endpoint, pictures, tmp_path / "out")
    # of each 2 x 2 field two of four degrees of freedom are sent, exactly: an attacker who finds those two and guesses
    # the others by their mean has this error; what pictures have in common makes it smaller
    test = np.load(pictures)["test_x"] / 255
    fields = test.reshape(40, 4, 2, 4, 2)
    across = fields.mean(4, keepdims=True)  # the mean over columns is known in every row
    unseen = float(((fields - across) ** 2).mean())
    assert report.attacks["linear"]["mse"] < unseen
    assert report.attacks["linear"]["mse"] < report.floors["mean_image"]["mse"] / 3
    assert report.tree["accuracy"] > 0.9, "the places of the bars are in the features"
    assert endpoint.paths == {"/v1/manifest", "/v1/features"}
    assert endpoint.most <= 10_000
    assert 8 in endpoint.widths, "pictures travel in 8 bits"
    assert NAME.hex()[:10] in report.tree["signature"]
    assert (tmp_path / "out" / "audit" / "audit.json").is_file()


def test_the_accuracy_is_named_as_that_of_the_auditors_own_classifier(pictures, tmp_path):
    report = attacked(Endpoint(plain), pictures, tmp_path / "out")
    assert report.tree["accuracy_of"] == "auditor"
    sentence = str(report).splitlines()[1]
    assert sentence.startswith("a classifier of the auditor's own names the class of ")
    assert "the model names" not in str(report)
    assert report.tree["about"] == {"kind": "endpoint", "artefact": NAME.hex()}


def test_a_useless_endpoint_is_not_called_a_useless_model(pictures, tmp_path):
    report = attacked(Endpoint(lambda images: np.zeros((len(images), 2, 4, 4))), pictures, tmp_path / "out")
    (told,) = [text for text in report.warnings if "most frequent" in text]
    assert told.startswith("The auditor's own classifier names the class of ")


def test_noise_protects_and_repetition_undoes_it(pictures, tmp_path):
    noisy = Endpoint(Noisy(0.5))
    report = attacked(noisy, pictures, tmp_path / "noisy", attacks=["linear", "average"], epochs=2)
    clean = attacked(Endpoint(plain), pictures, tmp_path / "clean")
    assert report.attacks["linear"]["mse"] > 3 * clean.attacks["linear"]["mse"]
    assert report.attacks["average"]["repeats"] == 8, "every query is a new transmission"
    assert any("sends other features each time" in text for text in report.warnings)
    assert not any("other features each time" in text for text in clean.warnings)


@pytest.mark.parametrize("repeats", [1, 8])
def test_the_attacker_learns_from_as_many_transmissions_as_it_averages(pictures, repeats):
    """Noise is drawn behind the address: n transmissions are n requests, and their mean has noise of sigma/sqrt(n)."""
    data = AuditData.of(sv.data.create(pictures), 0)
    model = endpoint_model(FeatureClient(Endpoint(Noisy(0.5))), data, 3)
    queries = Queries(*model.channel(), data.aux.images)
    sent, target = queries.batch(torch.arange(64), torch.Generator().manual_seed(0), repeats=repeats)
    noise = sent.numpy() - plain(target.numpy())
    # 64 x 2 x 4 x 4 values: the standard deviation is known to 1/sqrt(2·2048) = 1.6 %; five of those
    assert noise.std() == pytest.approx(0.5 / repeats**0.5, rel=0.08)


class Dropping:
    """Leaves out half of the values, and sends the others as they are."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)

    def __call__(self, pictures: np.ndarray) -> np.ndarray:
        clean = plain(pictures)
        return clean * (self.random.random(clean.shape) < 0.5)


def test_values_that_an_endpoint_leaves_out_are_not_averaged_with_zeros(pictures, tmp_path, monkeypatch):
    """After 8 transmissions one value in 256 never arrived; a plain mean still has the noise of 8 coins."""
    options = {"attacks": ["average"], "epochs": 6}
    knowing = attacked(Endpoint(Dropping()), pictures, tmp_path / "knowing", **options)
    monkeypatch.setattr("splitveil.attacks.average.leaves_out", lambda one, other: False)
    plainly = attacked(Endpoint(Dropping()), pictures, tmp_path / "plainly", **options)
    assert knowing.attacks["average"]["mse"] < 0.9 * plainly.attacks["average"]["mse"]


def test_without_noise_a_picture_is_asked_for_once(pictures):
    data = AuditData.of(sv.data.create(pictures), 0)
    client = FeatureClient(Endpoint(plain))
    queries = Queries(*endpoint_model(client, data, 3).channel(), data.aux.images)
    asked = client.pictures
    queries.batch(torch.arange(20), torch.Generator().manual_seed(0), repeats=4)
    assert client.pictures == asked


def test_attacks_that_need_weights_are_left_out_with_a_sentence(pictures, tmp_path):
    chosen = ["linear", "optimize", "refine", "membership", "substitute"]
    report = attacked(Endpoint(plain), pictures, tmp_path / "out", attacks=chosen, sanity=True)
    assert set(report.attacks) == {"linear"}
    assert report.tree["skipped"] == {
        "optimize": "It needs the weights, which are hidden here.",
        "refine": "It needs the weights, which are hidden here.",
        "membership": "It needs the weights, which are hidden here.",
        "substitute": "It needs the weights of the cloud half, which are hidden here.",
    }
    assert not report.tree["failures"]
    assert report.tree["sanity"]["passed"]
    assert set(report.tree["sanity"]["undefended"]["mse"]) == {"linear"}, "what cannot be used proves nothing"
    assert any("weights were hidden" in text for text in report.warnings)


def test_a_budget_beside_attacks_that_cannot_make_pictures_here_is_refused_before_they_run(pictures, tmp_path):
    endpoint = Endpoint(plain)
    with pytest.raises(UsageError, match="A budget needs an attack that makes pictures of this model: optimize and"):
        attacked(endpoint, pictures, tmp_path / "out", attacks=["optimize", "attribute"], sanity=True, verdict=True)
    assert not (tmp_path / "out").exists()


def test_white_box_attacks_alone_are_refused(pictures, tmp_path):
    with pytest.raises(SplitveilError, match="needs the weights, which are hidden here"):
        attacked(Endpoint(plain), pictures, tmp_path / "out", attacks=["optimize"])


def test_the_smoke_tier_is_all_black_box(pictures, tmp_path):
    report = attacked(Endpoint(plain), pictures, tmp_path / "out", attacks=None, epochs=1)
    assert set(report.attacks) == {"decoder", "linear", "average", "retrieval"}
    assert report.tree["skipped"] == {}


def test_pictures_of_another_shape(pictures, tmp_path):
    endpoint = Endpoint(plain, manifest={"input": {"shape": [3, 32, 32]}})
    with pytest.raises(UsageError, match=r"takes pictures of shape \[3, 32, 32\], but these are \[1, 8, 8\]"):
        attacked(endpoint, pictures, tmp_path / "out")


@pytest.mark.parametrize("about", [{"serves": "cloud"}, {"artefact": "no hex"}, {"manifest": 3}])
def test_what_is_no_edge_endpoint(pictures, tmp_path, about):
    with pytest.raises(ServingError, match=r"serves the cloud half|is no server of Splitveil"):
        attacked(Endpoint(plain, **about), pictures, tmp_path / "out")


def test_an_endpoint_that_dies_ends_the_audit_with_a_sentence(pictures, tmp_path):
    endpoint = Endpoint(plain)
    calls = 0

    def dying(values: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise ServingError("The device is dead.")
        return plain(values)

    endpoint.device = dying
    with pytest.raises(SplitveilError, match=r"The device is dead\."):
        attacked(endpoint, pictures, tmp_path / "out")


class Mortal:
    """Dies once the attack `until` is finished; `revived`, it answers again."""

    def __init__(self, out: Path, until: str) -> None:
        self.partial, self.until, self.revived, self.refused = out / "audit" / "partial", until, False, 0

    def __call__(self, values: np.ndarray) -> np.ndarray:
        if not self.revived and list(self.partial.glob(f"{self.until}-*.safetensors")):
            self.refused += 1
            raise TransportError("Nobody listens at http://the-device.", "Start it.")
        return plain(values)


def test_an_endpoint_that_dies_midway_says_so_once_and_the_audit_goes_on_later(pictures, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("splitveil.serving.asking.time.sleep", lambda seconds: None)
    chosen = {"attacks": ["linear", "retrieval", "decoder", "average"], "epochs": 1}
    mortal = Mortal(tmp_path / "out", until="linear")
    with pytest.raises(ServingError, match="Nobody listens") as caught:
        attacked(Endpoint(mortal), pictures, tmp_path / "out", **chosen)
    assert mortal.refused == 4, "one question and its three retries; the attacks after it do not ask"
    assert caught.value.hint == (
        "Start it. Once it answers, the same command goes on after the attacks that were finished."
    )
    assert not [record for record in caplog.records if record.levelname in {"WARNING", "ERROR"}]
    assert not (tmp_path / "out" / "audit" / "audit.json").exists(), "half an audit is none"

    mortal.revived = True
    run = []
    for name in chosen["attacks"]:
        attack = type(sv.attacks.create(name))
        monkeypatch.setattr(attack, "run", _noting(run, name, attack.run))
    report = attacked(Endpoint(mortal), pictures, tmp_path / "out", **chosen)
    assert run == ["retrieval", "decoder", "average"]
    whole = attacked(Endpoint(plain), pictures, tmp_path / "whole", **chosen)
    assert {name: entry["mse"] for name, entry in report.attacks.items()} == {
        name: entry["mse"] for name, entry in whole.attacks.items()
    }
    assert report.tree["failures"] == {}


def _noting(names: list[str], name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    def noted(self: Any, *arguments: Any) -> Any:
        names.append(name)
        return run(self, *arguments)

    return noted


def test_least_squares_against_the_normal_equations():
    """W = (ZᵀZ + λI)⁻¹ZᵀY, the other form of the same minimum."""
    torch.manual_seed(0)
    z, labels = torch.randn(20, 2, 3, dtype=torch.float64), torch.arange(20) % 4
    found = LeastSquares(z, labels, 4)
    flat = z.flatten(1) - z.flatten(1).mean(0)
    y = torch.nn.functional.one_hot(labels, 4).double()
    ridge = 1e-2 * (flat @ flat.T).diagonal().mean()
    weight = torch.linalg.inv(flat.T @ flat + ridge * torch.eye(6, dtype=torch.float64)) @ flat.T @ (y - y.mean(0))
    torch.testing.assert_close(found(z), (y.mean(0) + flat @ weight).float(), rtol=1e-5, atol=1e-6)


def test_an_endpoint_that_sends_something_else_for_a_picture_alone_has_no_verdict(pictures, tmp_path):
    noisy = Noisy(0.5)
    endpoint = Endpoint(lambda images: plain(images) if len(images) == 1 else noisy(images))
    report = attacked(endpoint, pictures, tmp_path / "out", sanity=True)
    assert report.tree["sanity"]["passed"]
    assert report.verdict is None
    assert report.warnings[0] == f"There is no verdict: {ALONE}."


def test_nor_has_one_that_is_exchanged_while_it_is_attacked(pictures, tmp_path):
    """Once the attack is over, another device answers: it sends the same numbers, negated."""
    partial = tmp_path / "out" / "audit" / "partial"
    endpoint = Endpoint(lambda images: plain(images) * (-1 if list(partial.glob("linear-*.safetensors")) else 1))
    report = attacked(endpoint, pictures, tmp_path / "out", sanity=True)
    assert report.verdict is None
    assert LATER in report.warnings[0]


@pytest.mark.parametrize("device", [plain, Noisy(0.5)])
def test_an_endpoint_that_always_sends_by_one_law_has_a_verdict(pictures, tmp_path, device):
    report = attacked(Endpoint(device), pictures, tmp_path / "out", sanity=True)
    assert report.verdict is not None


def test_attacks_that_read_less_than_the_auditors_classifier_leave_no_verdict(pictures, tmp_path):
    """Three values tell the class, among many of noise: least squares finds it, the nearest neighbour does not."""
    random = np.random.default_rng(0)

    def told(images: np.ndarray) -> np.ndarray:
        place = np.stack([images[:, 0, 2 * label + 1].mean(1) for label in range(3)], 1).argmax(1)
        return np.concatenate([1.5 * np.eye(3)[place], random.normal(size=(len(images), 40))], 1)[:, :, None, None]

    report = attacked(Endpoint(told), pictures, tmp_path / "out", attacks=["retrieval"], sanity=True)
    assert report.tree["accuracy"] > 0.9
    assert report.verdict is None
    assert report.warnings[0].startswith(
        "There is no verdict: the mean picture of the class that the auditor's own classifier names scores MSE "
    )


def test_the_auditors_classifier_reads_features_out_of_the_ordinary_range():
    """A factor for each picture, over six decades: the class is in the direction of the feature alone."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 3
    directions = F.one_hot(labels, 3) + 0.1 * torch.randn(300, 3, generator=generator)
    sent = directions * 10 ** (6 * torch.rand(300, 1, generator=generator))
    found = LeastSquares(sent[:200], labels[:200], 3)(sent[200:]).argmax(1)
    assert float((found == labels[200:]).float().mean()) > 0.95


def test_features_that_say_nothing_are_classified_by_frequency():
    found = LeastSquares(torch.ones(6, 3), torch.tensor([0, 0, 0, 0, 1, 2]), 3)
    assert found(torch.ones(2, 3)).argmax(1).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "nothing to attack"),
        (["--endpoint", "http://127.0.0.1:1"], "needs pictures"),
        (["--endpoint", "127.0.0.1", "--data", "fashion-mini"], "is no address"),
        (["runs/x", "--endpoint", "http://127.0.0.1:1", "--data", "fashion-mini"], "without RUN"),
        (["--endpoint", "http://127.0.0.1:1", "--at", "x", "--data", "fashion-mini"], "without --at"),
        (["--endpoint", "http://127.0.0.1:1", "--data", "fashion-mini", "--token-file", "no"], "token cannot be read"),
        (["runs/x", "--insecure"], "--insecure is for an endpoint"),
        (["runs/x", "--token-file", "no"], "--token-file is for an endpoint"),
        (["runs/x", "--ca", "no"], "--ca is for an endpoint"),
    ],
)
def test_wrong_calls(capsys, words, says):
    with pytest.raises(SystemExit) as caught:
        main(["audit", *words])
    assert caught.value.code == 2
    assert says in capsys.readouterr().err


def test_a_token_is_not_shown_to_everybody_on_the_way(capsys, tmp_path):
    (tmp_path / "token").write_text("a-long-enough-token")
    words = ["--endpoint", "http://device.example", "--data", "fashion-mini", "--token-file", str(tmp_path / "token")]
    with pytest.raises(SystemExit) as caught:
        main(["audit", *words])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "could read the token" in said
    assert "a-long-enough-token" not in said


@pytest.mark.parametrize("insecure", [False, True])
def test_insecure_is_what_it_is_for_a_device(capsys, monkeypatch, tmp_path, insecure):
    """As with `splitveil edge`: then, and only then, a token goes to another machine without TLS."""
    sent = []

    def exchange(self, method, path, body, headers, until):
        sent.append(headers.get("Authorization"))
        raise OSError("unreachable")

    monkeypatch.setattr("splitveil.serving.asking.time.sleep", lambda seconds: None)
    monkeypatch.setattr(HttpTransport, "_exchange", exchange)
    (tmp_path / "token").write_text("a-long-enough-token")
    words = ["--endpoint", "http://device.example", "--data", "fashion-mini", "--token-file", str(tmp_path / "token")]
    with pytest.raises(SystemExit) as caught:
        main(["audit", *words, *(["--insecure"] if insecure else [])])
    said = capsys.readouterr().err
    assert ("could read the token" in said) == (not insecure)
    assert "--insecure" in said or insecure
    assert caught.value.code == (1 if insecure else 2)
    assert set(sent) == ({"Bearer a-long-enough-token"} if insecure else set())
    with pytest.raises(UsageError if not insecure else ServingError):
        audit_endpoint("http://device.example", data="no", token="a-long-enough-token", insecure=insecure)


def test_nobody_listens(capsys, monkeypatch, pictures):
    monkeypatch.setattr("splitveil.serving.asking.time.sleep", lambda seconds: None)
    with pytest.raises(SystemExit) as caught:
        main(["audit", "--endpoint", "http://127.0.0.1:1", "--data", pictures])
    assert caught.value.code == 1
    assert "Nobody listens at http://127.0.0.1:1." in capsys.readouterr().err
