"""The edge half as an endpoint for auditors."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed (pip install 'splitveil[serve]')")

from tests.worlds.app_transport import AppTransport, opened

from splitveil.serving.exchange import artefact_id
from splitveil.serving.features import build_edge_app
from splitveil.serving.halves import EdgeHalf
from splitveil.serving.probing import FeatureClient
from splitveil.serving.random_inputs import SeededSource
from splitveil.serving.wire import PIXELS, Kind, decode, encode


def pictures(count: int) -> np.ndarray:
    return (np.random.default_rng(0).integers(0, 256, (count, 1, 4, 4)) / np.float32(255)).astype(np.float32)


def question(artefact, values, **options) -> bytes:
    return encode(Kind.PICTURES, values, artefact=artefact_id(artefact), request=9, **options)


@pytest.mark.parametrize("options", [{}, {"bits": 8, "affine": PIXELS}])
def test_features_are_what_the_device_sends(small_artefact, options):
    images = pictures(3)
    with opened(build_edge_app(small_artefact, source=SeededSource(2))) as client:
        found = decode(client.post("/v1/features", content=question(small_artefact, images, **options)).content)
    assert (found.kind, found.request) == (Kind.FEATURES, 9)
    np.testing.assert_array_equal(found.values, EdgeHalf(small_artefact).features(images, SeededSource(2)))


def test_noise_is_new_in_every_request(small_artefact):
    with opened(build_edge_app(small_artefact)) as client:
        data = question(small_artefact, pictures(1))
        first, second = (decode(client.post("/v1/features", content=data).content).values for _ in range(2))
    assert not np.array_equal(first, second)


def test_an_auditor_is_told_shapes_and_nothing_else(small_artefact):
    with opened(build_edge_app(small_artefact)) as client:
        about = client.get("/v1/manifest").json()
    assert about["manifest"] == {"input": {"shape": [1, 4, 4]}, "feature": {"shape": [2, 1, 1]}}
    assert about["artefact"] == small_artefact.digest.hex()


def test_an_auditor_knows_how_many_pictures_were_asked_for(small_artefact, monkeypatch):
    monkeypatch.setattr("splitveil.serving.probing.PER_MESSAGE", 2)
    with opened(build_edge_app(small_artefact)) as client:
        transport = AppTransport(client)
        asking = FeatureClient(transport)
        assert asking.features(pictures(3)).shape == (3, 2, 1, 1)
        asking.features(pictures(1))
    assert asking.pictures == 4
    assert [len(decode(body).values) for body in transport.bodies] == [2, 1, 1]


def test_refusals(small_artefact):
    with opened(build_edge_app(small_artefact)) as client:
        too_bright = client.post("/v1/features", content=question(small_artefact, pictures(1) + 2))
        assert too_bright.status_code == 400
        assert "from 0 to 1" in too_bright.json()["error"]
        other = encode(Kind.PICTURES, pictures(1), artefact=bytes(16), request=9)
        assert client.post("/v1/features", content=other).status_code == 409
        assert client.post("/v1/features", content=b"").status_code == 400
        assert client.post("/v1/infer", content=b"").status_code == 404
        assert client.get("/v1/manifest").json()["serves"] == "edge"
        assert client.post("/v1/features", content=question(small_artefact, pictures(2))).status_code == 200
