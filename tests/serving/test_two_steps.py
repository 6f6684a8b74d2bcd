"""Where a graph can be cut before its first draw, and where it cannot. Graphs of a few nodes, written by hand."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from splitveil.serving.halves import BATCH
from splitveil.serving.manifest import Feature, Pictures, RandomInput
from splitveil.serving.random_inputs import SeededSource, draw
from splitveil.serving.two_steps import TwoSteps, find_cut

SHAPE = (1, 2, 2)


def graph(*nodes: tuple[str, str, str]) -> Any:
    """Each node is an operation, its inputs (with spaces between them) and its output."""
    floats = onnx.TensorProto.FLOAT
    ends = {name: onnx.helper.make_tensor_value_info(name, floats, ["batch", *SHAPE]) for name in ("pictures", "noise")}
    made = [onnx.helper.make_node(kind, inputs.split(), [output]) for kind, inputs, output in nodes]
    sent = onnx.helper.make_tensor_value_info("feature", floats, ["batch", *SHAPE])
    one = onnx.helper.make_graph(made, "edge", list(ends.values()), [sent])
    content = onnx.helper.make_model(
        one, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10
    ).SerializeToString()
    manifest = SimpleNamespace(
        input=Pictures(shape=SHAPE),
        random=(RandomInput(name="noise", law="normal", shape=SHAPE),),
        feature=Feature(shape=SHAPE),
    )
    return SimpleNamespace(manifest=manifest, load=lambda name: content)


@pytest.mark.parametrize(
    ("nodes", "at"),
    [
        ([("Relu", "pictures", "a"), ("Sigmoid", "a", "b"), ("Add", "b noise", "feature")], "b"),
        ([("Relu", "pictures", "a"), ("Add", "a noise", "c"), ("Sigmoid", "c", "feature")], "a"),
        # mean and spread of one feature, as `vib` has them: the last value that both come from
        (
            [
                ("Relu", "pictures", "a"),
                ("Sigmoid", "a", "mean"),
                ("Exp", "a", "spread"),
                ("Mul", "spread noise", "c"),
                ("Add", "mean c", "feature"),
            ],
            "a",
        ),
        # what acts on the noise alone is after the cut, wherever it stands
        ([("Relu", "pictures", "a"), ("Neg", "noise", "c"), ("Neg", "a", "b"), ("Add", "b c", "feature")], "b"),
        ([("Add", "pictures noise", "c"), ("Relu", "c", "feature")], None),
        ([("Relu", "pictures", "a"), ("Add", "a noise", "c"), ("Add", "c pictures", "feature")], None),
    ],
    ids=["at the end", "in the middle", "two branches", "noise first", "noise on pictures", "pictures again"],
)
def test_where_a_graph_is_cut(nodes: list[tuple[str, str, str]], at: str | None) -> None:
    assert find_cut(graph(*nodes)) == at


def test_the_two_steps_together_are_the_graph_for_any_number_of_pictures() -> None:
    """Clean once, then fresh noise in every call, on each picture its own; more pictures than go through at once."""
    one = graph(("Relu", "pictures", "a"), ("Sigmoid", "a", "b"), ("Add", "b noise", "feature"))
    pictures = np.random.default_rng(0).normal(size=(BATCH + 44, *SHAPE)).astype(np.float32)
    steps = TwoSteps(one, "b")
    clean = steps.before(pictures)
    np.testing.assert_allclose(clean, 1 / (1 + np.exp(-np.maximum(pictures, 0))), rtol=1e-6)
    source = SeededSource(1)
    noise = np.concatenate([draw(one.manifest.random, count, source)["noise"] for count in (BATCH, 44)])
    sent = steps.after(clean, SeededSource(1))
    np.testing.assert_allclose(sent, clean + noise, rtol=1e-6, atol=1e-6)
    assert not np.array_equal(steps.after(clean), steps.after(clean))


def test_without_the_package_a_graph_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    one = graph(("Relu", "pictures", "a"), ("Add", "a noise", "feature"))
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert find_cut(one) is None
