"""Where a graph can be cut before its first draw, and where it cannot. Graphs of a few nodes, written by hand."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from splitveil.serving.manifest import Feature, Pictures, RandomInput
from splitveil.serving.two_steps import find_cut

SHAPE = (1, 2, 2)


def graph(*nodes: tuple[str, str, str]) -> Any:
    """Each node is an operation, its inputs (with spaces between them) and its output."""
    floats = onnx.TensorProto.FLOAT
    ends = {name: onnx.helper.make_tensor_value_info(name, floats, ["batch", *SHAPE]) for name in ("pictures", "noise")}
    made = [onnx.helper.make_node(kind, inputs.split(), [output]) for kind, inputs, output in nodes]
    sent = onnx.helper.make_tensor_value_info("feature", floats, ["batch", *SHAPE])
    one = onnx.helper.make_graph(made, "edge", list(ends.values()), [sent])
    content = onnx.helper.make_model(one, opset_imports=[onnx.helper.make_opsetid("", 18)]).SerializeToString()
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


def test_without_the_package_a_graph_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    one = graph(("Relu", "pictures", "a"), ("Add", "a noise", "feature"))
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert find_cut(one) is None
