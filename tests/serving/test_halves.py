"""The two halves through onnxruntime, against numbers computed by hand."""

from __future__ import annotations

import builtins
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.worlds.small_artefact import CHANNELS, CLASSES, GAIN, IMAGE, NOISE, PICK, SHIFT, write_small_artefact

from splitveil.core.errors import ArtefactError, InputError, MissingExtraError
from splitveil.serving import halves
from splitveil.serving.artefact import Artefact, read
from splitveil.serving.halves import CloudHalf, EdgeHalf
from splitveil.serving.manifest import Feature, RandomInput
from splitveil.serving.random_inputs import SeededSource, draw


def pictures(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((count, *IMAGE), dtype=np.float32)


def by_hand(images: np.ndarray, draws: dict[str, Any]) -> np.ndarray:
    """feature[b, c] = mean + gain·noise + shift[pick], as a loop."""
    rows = [
        [float(image.mean()) + GAIN * draws["noise"][b, c, 0, 0] + SHIFT[draws["pick"][b]] for c in range(CHANNELS)]
        for b, image in enumerate(images)
    ]
    return np.array(rows).reshape(-1, CHANNELS, 1, 1)


def test_the_edge_sends_what_the_graph_says(small_artefact: Artefact) -> None:
    images = pictures(5)
    sent = EdgeHalf(small_artefact).features(images, SeededSource(9))
    assert sent.dtype == np.float32
    np.testing.assert_allclose(sent, by_hand(images, draw((NOISE, PICK), 5, SeededSource(9))), atol=1e-6)


def test_every_transmission_draws_anew(small_artefact: Artefact) -> None:
    edge, images = EdgeHalf(small_artefact), pictures(3)
    assert not (edge.features(images) == edge.features(images)).any()


def test_a_long_call_runs_in_parts(small_artefact: Artefact, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halves, "BATCH", 4)
    images, source = pictures(10), SeededSource(2)
    sent = EdgeHalf(small_artefact).features(images, SeededSource(2))
    parts = [by_hand(images[k : k + 4], draw((NOISE, PICK), len(images[k : k + 4]), source)) for k in (0, 4, 8)]
    np.testing.assert_allclose(sent, np.concatenate(parts), atol=1e-6)
    assert CloudHalf(small_artefact).logits(sent).shape == (10, CLASSES)


def test_the_cloud_answers_what_the_graph_says(small_artefact: Artefact) -> None:
    sent = np.random.default_rng(1).normal(size=(4, CHANNELS, 1, 1)).astype(np.float32)
    expected = [[sum(float(v) for v in row.ravel()) * (k + 1) for k in range(CLASSES)] for row in sent]
    np.testing.assert_allclose(CloudHalf(small_artefact, threads=2).logits(sent), expected, rtol=1e-5)


def test_no_pictures_are_no_features(small_artefact: Artefact) -> None:
    assert EdgeHalf(small_artefact).features(pictures(0)).shape == (0, CHANNELS, 1, 1)
    assert CloudHalf(small_artefact).logits(np.zeros((0, CHANNELS, 1, 1), np.float32)).shape == (0, CLASSES)


def test_threads_share_a_half(small_artefact: Artefact) -> None:
    cloud = CloudHalf(small_artefact)
    sent = [np.full((2, CHANNELS, 1, 1), k, np.float32) for k in range(16)]
    with ThreadPoolExecutor(4) as pool:
        for one, answer in zip(sent, pool.map(cloud.logits, sent), strict=True):
            np.testing.assert_array_equal(answer, cloud.logits(one))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.zeros((2, *IMAGE)), "must be float32, not float64"),
        (np.zeros((2, *IMAGE), np.uint8), "must be float32, not uint8"),
        (np.zeros(IMAGE, np.float32), r"must be \[batch x 1 x 4 x 4\], not \[1 x 4 x 4\]"),
        (np.zeros((2, 1, 4, 5), np.float32), "not \\[2 x 1 x 4 x 5\\]"),
        (np.full((2, *IMAGE), 255, np.float32), "from 0 to 1"),
        (np.full((2, *IMAGE), -0.1, np.float32), "from 0 to 1"),
        (np.full((2, *IMAGE), np.nan, np.float32), "not finite"),
    ],
)
def test_wrong_pictures_are_refused(small_artefact: Artefact, wrong: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        EdgeHalf(small_artefact).features(wrong)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_features_that_are_not_finite_are_refused(small_artefact: Artefact, value: float) -> None:
    sent = np.zeros((2, CHANNELS, 1, 1), np.float32)
    sent[1, 0] = value
    with pytest.raises(InputError, match="not finite"):
        CloudHalf(small_artefact).logits(sent)
    with pytest.raises(InputError, match="Features must be"):
        CloudHalf(small_artefact).logits(sent[..., 0])


def test_no_threads_are_refused(small_artefact: Artefact) -> None:
    with pytest.raises(InputError, match="0 threads"):
        EdgeHalf(small_artefact, threads=0)


@pytest.mark.parametrize(
    ("changes", "half", "message"),
    [
        ({"random": (NOISE,)}, EdgeHalf, r"edge\.onnx does not fit the manifest: it takes pictures .*noise .*pick"),
        ({"random": (NOISE.model_copy(update={"shape": (1, 1, 1)}), PICK)}, EdgeHalf, "it takes"),  # would broadcast
        ({"random": (NOISE, RandomInput(name="pick", law="uniform", shape=()))}, EdgeHalf, "it takes"),
        ({"feature": Feature(shape=(CHANNELS, 1, 2))}, EdgeHalf, "it gives feature"),
        ({"feature": Feature(shape=(CHANNELS, 1, 2))}, CloudHalf, r"cloud\.onnx does not fit the manifest: it takes"),
        ({"num_classes": CLASSES + 1, "class_names": ()}, CloudHalf, "it gives logits"),
    ],
)
def test_a_graph_that_does_not_fit_the_manifest_is_refused(
    tmp_path: Path, changes: dict[str, Any], half: type[EdgeHalf | CloudHalf], message: str
) -> None:
    write_small_artefact(tmp_path, **changes)
    with pytest.raises(ArtefactError, match=message):
        half(read(tmp_path))


def test_a_file_that_is_no_graph_is_one_sentence(tmp_path: Path) -> None:
    import hashlib

    manifest = write_small_artefact(tmp_path)
    (tmp_path / "edge.onnx").write_bytes(b"not a graph")
    files = manifest.files | {"edge.onnx": hashlib.sha256(b"not a graph").hexdigest()}
    (tmp_path / "manifest.json").write_text(manifest.model_copy(update={"files": files}).to_json())
    with pytest.raises(ArtefactError, match="cannot be loaded") as error:
        EdgeHalf(read(tmp_path))
    assert "\n" not in str(error.value)


def test_without_onnxruntime_the_extra_is_named(small_artefact: Artefact, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == "onnxruntime":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"\.\[serve\]"):
        CloudHalf(small_artefact)


def test_a_folder_is_read_where_an_artefact_is_asked_for(small_artefact: Artefact) -> None:
    images = pictures(3)
    for place in (small_artefact.path, str(small_artefact.path)):
        sent = EdgeHalf(place).features(images, SeededSource(4))
        assert (sent == EdgeHalf(small_artefact).features(images, SeededSource(4))).all()
        assert (CloudHalf(place).logits(sent) == CloudHalf(small_artefact).logits(sent)).all()


def test_each_half_reads_a_copy_that_holds_its_own_graph_alone(small_artefact: Artefact) -> None:
    (small_artefact.path / "cloud.onnx").unlink()
    assert EdgeHalf(small_artefact.path).features(pictures(1)).shape == (1, CHANNELS, 1, 1)
    with pytest.raises(ArtefactError, match=r"has no cloud\.onnx"):
        CloudHalf(small_artefact.path)


def test_a_half_that_sends_what_is_not_finite_says_so_itself(small_artefact: Artefact) -> None:
    """The other half would blame the message."""
    draws = {"noise": np.full((1, CHANNELS, 1, 1), np.inf, np.float32), "pick": np.zeros(1, np.int64)}
    with pytest.raises(InputError, match="The edge half sends values that are not finite"):
        EdgeHalf(small_artefact).transmit(pictures(1), draws)


def test_what_is_neither_folder_nor_artefact_is_refused(small_artefact: Artefact) -> None:
    for half in (EdgeHalf, CloudHalf):
        with pytest.raises(InputError, match="an artefact or its folder, not a dict"):
            half({})  # type: ignore[arg-type]


def test_the_hints_for_pictures_lead_to_pictures_that_are_taken(small_artefact: Artefact) -> None:
    edge = EdgeHalf(small_artefact)
    eight_bits = np.full((1, *IMAGE), 255, np.uint8)
    with pytest.raises(InputError, match=r"float32, not uint8.*astype\('float32'\) / 255"):
        edge.features(eight_bits)
    assert len(edge.features(eight_bits.astype("float32") / 255)) == 1
    with pytest.raises(InputError, match="not float64") as wide:
        edge.features(np.zeros((1, *IMAGE)))
    assert "255" not in wide.value.hint
    for value in (np.nan, np.inf):
        with pytest.raises(InputError, match="not finite") as error:
            edge.features(np.full((1, *IMAGE), value, np.float32))
        assert "255" not in str(error.value)
