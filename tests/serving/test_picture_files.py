"""Picture files become what the model takes: the values that it was trained and audited on."""

from __future__ import annotations

import numpy as np
from PIL import Image

from splitveil.serving.client import EdgeClient
from splitveil.serving.files import Classified, classify
from splitveil.serving.halves import CloudHalf, EdgeHalf
from splitveil.serving.transport import LocalTransport


def test_a_file_is_sent_as_its_values_divided_by_255(small_artefact, tmp_path, monkeypatch):
    """As the trainer does it: black is 0 and white is 1."""
    values = np.linspace(0, 255, 16).astype(np.uint8).reshape(4, 4)
    Image.fromarray(values).save(tmp_path / "a.png")
    asked: list[np.ndarray] = []
    real = EdgeHalf.features
    monkeypatch.setattr(EdgeHalf, "features", lambda self, x, *rest: asked.append(x) or real(self, x, *rest))
    done = Classified(small_artefact.manifest, "here", 32)
    with EdgeClient(small_artefact, LocalTransport(CloudHalf(small_artefact))) as client:
        classify(client, [tmp_path / "a.png"], done)
    (sent,) = asked
    np.testing.assert_array_equal(sent, (values / 255).astype(np.float32)[None, None])
    assert (done.resized, done.recoloured) == (0, 0)
    assert not done.failed
