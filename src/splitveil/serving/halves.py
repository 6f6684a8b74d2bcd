"""The two halves of an artefact, run by onnxruntime on the CPU. No torch, no training code.

    pictures --EdgeHalf.features--> what is sent --CloudHalf.logits--> logits

The defences are inside the edge graph, and `EdgeHalf.features` always draws their random inputs. Whoever controls the
device can run the graph otherwise: with zeros in place of the draws it sends the clean feature.
"""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splitveil.core.errors import ArtefactError, InputError, MissingExtraError, reason
from splitveil.serving.artefact import AGAIN, Artefact, opened
from splitveil.serving.manifest import CLOUD, EDGE
from splitveil.serving.random_inputs import Draws, Source, draw

Floats = NDArray[np.float32]
Ends = dict[str, tuple[str, tuple[int, ...]]]  # type and shape for one picture, by name
FLOATS, INTEGERS = "tensor(float)", "tensor(int64)"
BATCH = 256  # pictures that go through a graph at once: bounds the memory, whatever the call


class EdgeHalf:
    """The device's half: pictures in, what is sent out. Safe to call from several threads.

    `artefact` is what `read` gives, or its folder; the same goes for the other half.
    """

    def __init__(self, artefact: Artefact | str | PathLike[str], *, threads: int = 1) -> None:
        artefact = opened(artefact, need=[EDGE])
        self.artefact, self.manifest = artefact, artefact.manifest
        inputs: Ends = {self.manifest.input.name: (FLOATS, self.manifest.input.shape)}
        for one in self.manifest.random:
            inputs[one.name] = (INTEGERS if one.law == "integers" else FLOATS, one.shape)
        feature = self.manifest.feature
        self._session = _session(artefact, EDGE, threads, inputs, {feature.name: (FLOATS, feature.shape)})

    def features(self, pictures: NDArray[Any], source: Source | None = None) -> Floats:
        """What is sent for pictures [B, ch, h, w], float32 in [0, 1]: [B, *feature shape], float32.

        Every call draws new noise, from the operating system's secure generator unless `source` is given.
        """
        images = self.checked(pictures)
        answers = [
            self.transmit(part, draw(self.manifest.random, len(part), source)) for part in in_parts(images)
        ]  # in parts, so that the random inputs never fill the memory either
        return np.concatenate(answers) if answers else np.zeros((0, *self.manifest.feature.shape), np.float32)

    def transmit(self, pictures: NDArray[Any], draws: Draws) -> Floats:
        """What is sent, given the random inputs by name: for tests and checks; `features` draws them itself."""
        feed = {self.manifest.input.name: self.checked(pictures), **draws}
        answer: Floats = self._session.run([self.manifest.feature.name], feed)[0]
        if not np.isfinite(answer).all():
            raise InputError(
                "The edge half sends values that are not finite.",
                "The model is of no use: splitveil audit of its run says which part fails.",
            )
        return answer

    def checked(self, pictures: NDArray[Any]) -> Floats:
        """`pictures`, where they are what the graph takes; InputError says what is wrong otherwise."""
        images = _array(pictures, "Pictures", self.manifest.input.shape)
        if not np.isfinite(images).all():
            raise InputError("A picture has values that are not finite.", "Look where they come from.")
        if images.size and not (images.min() >= 0 and images.max() <= 1):
            raise InputError(
                "Pictures must have values from 0 to 1.", "Divide 8-bit pictures by 255; the model normalises itself."
            )
        return images


class CloudHalf:
    """The server's half: what was sent in, logits out. Safe to call from several threads."""

    def __init__(self, artefact: Artefact | str | PathLike[str], *, threads: int = 1) -> None:
        artefact = opened(artefact, need=[CLOUD])
        self.artefact, self.manifest = artefact, artefact.manifest
        feature = self.manifest.feature
        self._session = _session(
            artefact,
            CLOUD,
            threads,
            {feature.name: (FLOATS, feature.shape)},
            {"logits": (FLOATS, (self.manifest.num_classes,))},
        )

    def logits(self, features: NDArray[Any]) -> Floats:
        """[B, num_classes] for features [B, *feature shape], float32."""
        sent = _array(features, "Features", self.manifest.feature.shape)
        if not np.isfinite(sent).all():
            raise InputError("A feature is not finite.", "Look for a damaged message or a broken device.")
        answers = [self._session.run(["logits"], {self.manifest.feature.name: part})[0] for part in in_parts(sent)]
        return np.concatenate(answers) if answers else np.zeros((0, self.manifest.num_classes), np.float32)


def _array(values: NDArray[Any], what: str, shape: tuple[int, ...]) -> Floats:
    array = np.asarray(values)
    if array.dtype != np.float32:
        scaled = " / 255" if array.dtype == np.uint8 else ""
        raise InputError(
            f"{what} must be float32, not {array.dtype}.", f"Convert them: array.astype('float32'){scaled}"
        )
    if array.shape[1:] != shape or array.ndim != len(shape) + 1:
        given, wanted = (" x ".join(str(side) for side in sides) for sides in (array.shape, shape))
        raise InputError(f"{what} must be [batch x {wanted}], not [{given}].")
    return np.ascontiguousarray(array)


def in_parts(values: Floats) -> list[Floats]:
    """Few enough at once for the memory, in their order; no part where there is nothing."""
    return [values[start : start + BATCH] for start in range(0, len(values), BATCH)]


def open_session(content: bytes, threads: int) -> Any:
    """onnxruntime's session for a graph, on the CPU."""
    if threads < 1:
        raise InputError(f"A graph cannot run in {threads} threads.", "Ask for one or more.")
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtraError("onnxruntime", "serve") from None
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 3  # errors; they are raised as well, and told by us
    return onnxruntime.InferenceSession(content, settings, providers=["CPUExecutionProvider"])


def _session(artefact: Artefact, name: str, threads: int, inputs: Ends, outputs: Ends) -> Any:
    """A session for one graph, whose inputs and output must be those of the manifest."""
    content = artefact.load(name)
    try:
        session = open_session(content, threads)
    except (InputError, MissingExtraError):
        raise
    except Exception as error:  # onnxruntime's errors have no common base
        why = reason(error, type(error).__name__)
        raise ArtefactError(f"{artefact.path / name} cannot be loaded: {why}", AGAIN) from error
    for what, ends, wanted in (
        ("takes", session.get_inputs(), inputs),
        ("gives", session.get_outputs(), outputs),
    ):
        if {one.name: (one.type, tuple(one.shape[1:])) for one in ends} != wanted:
            told = ", ".join(f"{one.name} {one.type} {one.shape}" for one in ends)
            raise ArtefactError(f"{artefact.path / name} does not fit the manifest: it {what} {told}.", AGAIN)
    return session
