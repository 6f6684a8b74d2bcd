"""A run that was trained, exported and served: the promise holds from end to end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed (pip install 'splitveil[serve]')")

from tests.worlds.app_transport import AppTransport, opened

from splitveil.audit.endpoint import audit_endpoint
from splitveil.audit.served import audit_artefact
from splitveil.serving.artefact import Artefact
from splitveil.serving.client import EdgeClient
from splitveil.serving.cloud import build_app
from splitveil.serving.exchange import artefact_id
from splitveil.serving.features import build_edge_app
from splitveil.serving.halves import CloudHalf, EdgeHalf
from splitveil.serving.random_inputs import SeededSource
from splitveil.serving.service import Settings
from splitveil.serving.wire import Kind, decode, encode
from splitveil.training.loaded_run import load_run


@pytest.fixture
def artefact(three_artefact: Artefact) -> Artefact:
    """Three defences, two of which draw."""
    return three_artefact


@pytest.fixture(scope="module")
def labelled(three_run: Path) -> tuple[np.ndarray, np.ndarray]:
    test = load_run(three_run, "cpu").parts.test
    return test.images.numpy().astype(np.float32) / np.float32(255), test.labels.numpy()


@pytest.mark.parametrize("bits", [32, 16, 8])
def test_served_answers_are_those_of_the_audited_transmission(artefact, labelled, bits):
    """With the same noise: rounding may only change what lies on the border between two classes."""
    pictures, labels = labelled  # few enough for one message
    logits = CloudHalf(artefact).logits(EdgeHalf(artefact).features(pictures, SeededSource(1)))
    with opened(build_app(artefact)) as client:
        answer = EdgeClient(artefact, AppTransport(client), bits=bits, source=SeededSource(1)).classify(pictures)
    differ = answer.labels != logits.argmax(1)
    margin = np.diff(np.sort(logits, 1)[:, -2:], axis=1)[:, 0]
    assert margin[differ].max(initial=0) <= (0 if bits == 32 else 0.1 * margin.mean())
    assert (answer.labels == labels).mean() > 0.6, "guessing is right for a third"


def test_batches_of_a_real_network_give_the_answers_of_one_by_one(artefact, labelled):
    sent = EdgeHalf(artefact).features(labelled[0], SeededSource(2))
    alone = [CloudHalf(artefact).logits(sent[row : row + 1])[0] for row in range(len(sent))]
    app = build_app(artefact, Settings(max_batch=8, max_wait_ms=200))
    with opened(app) as client, ThreadPoolExecutor(8) as pool:

        def ask(row: int) -> np.ndarray:
            message = encode(Kind.FEATURES, sent[row : row + 1], artefact=artefact_id(artefact), request=row)
            return decode(client.post("/v1/infer", content=message).content).values[0]

        together = list(pool.map(ask, range(len(sent))))
    assert sum(app.state.metrics.batches.counts) < len(sent), "nothing was ever batched"
    np.testing.assert_allclose(np.stack(together), np.stack(alone), rtol=1e-4, atol=1e-5)


def test_an_auditor_behind_an_address_finds_what_the_owner_finds(three_run, artefact, tmp_path):
    options = {"attacks": ["linear"], "seed": 3, "num_images": 60, "sanity": False, "device": "cpu"}
    data = str(three_run.parent / "small.npz")
    owner = audit_artefact(artefact.path, data=data, out=tmp_path / "owner", **options)
    with opened(build_edge_app(artefact, source=SeededSource(5))) as client:
        auditor = audit_endpoint(AppTransport(client), data=data, out=tmp_path / "auditor", **options)
    low, high = owner.attacks["linear"]["mse_ci95"]
    # other noise in both, on 60 pictures: twice the interval, which has the spread of pictures alone
    assert low - (high - low) / 2 < auditor.attacks["linear"]["mse"] < high + (high - low) / 2
    assert auditor.attacks["linear"]["mse"] < auditor.floors["mean_image"]["mse"]
