"""`edge.onnx` in two steps: what a picture alone determines, and what the draws change.

    pictures --before--> clean --after, with fresh draws--> what is sent

An audit asks for the same pictures in every epoch, and for several transmissions of each. The first step, which is
nearly all of the work, need be done once for a picture; the second is fresh in every transmission. Together they are
the nodes of the graph, each of them once: nothing is left out or added. A device runs the graph as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from splitveil.serving.artefact import Artefact
from splitveil.serving.halves import Floats, in_parts, open_session
from splitveil.serving.manifest import EDGE
from splitveil.serving.random_inputs import Source, draw


class TwoSteps:
    """The graph of `artefact`, cut after `at`, a value of the graph that `find_cut` gives."""

    def __init__(self, artefact: Artefact, at: str, *, threads: int = 1) -> None:
        from onnx.utils import Extractor

        self.manifest, self.at = artefact.manifest, at
        pictures, feature = self.manifest.input.name, self.manifest.feature.name
        extractor = Extractor(_graph(artefact))
        before = extractor.extract_model([pictures], [at])
        after = extractor.extract_model([at, *(one.name for one in self.manifest.random)], [feature])
        self._before = open_session(before.SerializeToString(), threads)
        self._after = open_session(after.SerializeToString(), threads)

    def before(self, pictures: Floats) -> Floats:
        """What pictures [B, ch, h, w] in [0, 1] alone determine: [B, ...]; the same in every call."""
        name = self.manifest.input.name
        return np.concatenate([self._before.run([self.at], {name: part})[0] for part in in_parts(pictures)])

    def after(self, clean: Floats, source: Source | None = None) -> Floats:
        """What is sent, with new draws in every call: [B, *feature shape]."""
        feature, random = self.manifest.feature.name, self.manifest.random
        answers = [
            self._after.run([feature], {self.at: part, **draw(random, len(part), source)})[0]
            for part in in_parts(clean)
        ]
        return np.concatenate(answers)


def find_cut(artefact: Artefact) -> str | None:
    """The last value of the graph that no draw has changed and that everything after it takes in place of the pictures.

    None where there is none, because draws act on the pictures themselves or pictures are looked at again after a draw;
    and where the package onnx is not here to cut a graph: whole it gives the same numbers, more slowly.
    """
    try:
        import onnx
    except ImportError:
        return None
    graph = _graph(artefact).graph
    floats = {one.name for one in graph.value_info if one.type.tensor_type.elem_type == onnx.TensorProto.FLOAT}
    drawn = {one.name for one in artefact.manifest.random}
    for node in graph.node:  # in the order in which they run
        if drawn.intersection(node.input):
            drawn |= set(node.output)
    clean = [name for node in graph.node for name in node.output if name not in drawn]
    pictures = artefact.manifest.input.name
    behind = [name for name in clean if name in floats and pictures in _needed(graph, name)]
    feature = artefact.manifest.feature.name
    return next((name for name in reversed(behind) if pictures not in _needed(graph, feature, name)), None)


def _needed(graph: Any, wanted: str, given: str = "") -> set[str]:
    """The names of all values that `wanted` is computed from, where `given` is there already."""
    needed = {wanted}
    for node in reversed(graph.node):
        if needed.intersection(node.output) - {given}:
            needed |= set(node.input)
    return needed


def _graph(artefact: Artefact) -> Any:
    """The graph with the types of all its values, which an artefact does not keep."""
    import onnx

    return onnx.shape_inference.infer_shapes(onnx.load_model_from_string(artefact.load(EDGE)))
