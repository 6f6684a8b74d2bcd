"""A tiny artefact whose answers one computes by hand: no torch and no training in it.

feature[b, c] = mean of picture b + gain·noise[b, c] + shift[pick[b]],  shift = (0, 10, 20)
logits[b, k] = Σ_c feature[b, c]·(k + 1)
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from splitveil.serving.manifest import Feature, Manifest, Pictures, RandomInput

IMAGE, CHANNELS, CLASSES, OPSET = (1, 4, 4), 2, 3, 18
GAIN, SHIFT = 0.5, (0.0, 10.0, 20.0)
NOISE = RandomInput(name="noise", law="normal", shape=(CHANNELS, 1, 1))
PICK = RandomInput(name="pick", law="integers", shape=(), high=len(SHIFT))


def write_small_artefact(folder: Path, **changes: Any) -> Manifest:
    """Write it; `changes` replace fields of the manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "edge.onnx").write_bytes(edge_graph().SerializeToString())
    (folder / "cloud.onnx").write_bytes(cloud_graph().SerializeToString())
    (folder / "model.safetensors").write_bytes(b"no weights")
    (folder / "config.toml").write_text("seed = 0\n")
    files = ("edge.onnx", "cloud.onnx", "model.safetensors", "config.toml")
    fields: dict[str, Any] = {
        "splitveil": "0.1.0",
        "signature": "splitveil:0.1.0|made:by-hand",
        "seed": 0,
        "model": "by-hand",
        "input": Pictures(shape=IMAGE),
        "feature": Feature(shape=(CHANNELS, 1, 1)),
        "num_classes": CLASSES,
        "class_names": ("bag", "boot", "coat"),
        "random": (NOISE, PICK),
        "opset": OPSET,
        "files": {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files},
    }
    manifest = Manifest(**(fields | changes))
    (folder / "manifest.json").write_text(manifest.to_json())
    return manifest


def edge_graph() -> onnx.ModelProto:
    """See the module docstring."""
    inputs = [
        helper.make_tensor_value_info("pictures", TensorProto.FLOAT, ["batch", *IMAGE]),
        helper.make_tensor_value_info("noise", TensorProto.FLOAT, ["batch", CHANNELS, 1, 1]),
        helper.make_tensor_value_info("pick", TensorProto.INT64, ["batch"]),
    ]
    constants = {
        "axes": np.array([1, 2, 3]),
        "gain": np.float32(GAIN),
        "shift": np.array(SHIFT, dtype=np.float32).reshape(-1, 1, 1, 1),
    }
    nodes = [
        helper.make_node("ReduceMean", ["pictures", "axes"], ["mean"], keepdims=1),
        helper.make_node("Mul", ["noise", "gain"], ["scaled"]),
        helper.make_node("Add", ["mean", "scaled"], ["noisy"]),
        helper.make_node("Gather", ["shift", "pick"], ["shifted"], axis=0),
        helper.make_node("Add", ["noisy", "shifted"], ["feature"]),
    ]
    return _model(nodes, inputs, ("feature", [CHANNELS, 1, 1]), constants)


def cloud_graph() -> onnx.ModelProto:
    """See the module docstring."""
    weight = np.tile(np.arange(1, CLASSES + 1, dtype=np.float32), (CHANNELS, 1))  # [2, 3]
    nodes = [
        helper.make_node("Flatten", ["feature"], ["flat"], axis=1),
        helper.make_node("MatMul", ["flat", "weight"], ["logits"]),
    ]
    inputs = [helper.make_tensor_value_info("feature", TensorProto.FLOAT, ["batch", CHANNELS, 1, 1])]
    return _model(nodes, inputs, ("logits", [CLASSES]), {"weight": weight})


def _model(nodes: Any, inputs: Any, output: tuple[str, list[int]], constants: dict[str, Any]) -> onnx.ModelProto:
    name, shape = output
    graph = helper.make_graph(
        nodes,
        "half",
        inputs,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])],
        [numpy_helper.from_array(np.asarray(value), key) for key, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    onnx.checker.check_model(model)
    return model
