"""The two halves as ONNX graphs: traced by torch.export, with random draws as inputs and a batch axis of any length."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from splitveil.core.errors import ArtefactError, reason
from splitveil.models.split import SplitModel
from splitveil.serving.draws import drawn_by, replaying, sample
from splitveil.serving.manifest import Feature, Pictures, RandomInput
from splitveil.surrogates.base import Surrogate

OPSET = 18
TRACED = 3  # pictures of the example: torch.export takes 0 and 1 for constants
PLAIN = "Write it with tensor operations of fixed shapes that do not look at values or at the number of pictures."


class EdgeGraph(nn.Module):
    """pictures, and the random inputs in their order -> what is sent. The chain is the model's own `send`."""

    def __init__(self, model: SplitModel, random: Sequence[RandomInput]) -> None:
        super().__init__()
        self.model, self.random = model, tuple(random)

    def forward(self, *inputs: Tensor) -> Tensor:
        with replaying(self.random, inputs[1:]):
            return self.model.send(inputs[0])


class CloudGraph(nn.Module):
    """What was sent -> logits: by the cloud half, or by the surrogate where that is the run's classifier (SPEC 2.3)."""

    def __init__(self, model: SplitModel, surrogate: Surrogate | None) -> None:
        super().__init__()
        self.cloud: nn.Module = model.cloud if surrogate is None else surrogate
        self.by_surrogate = surrogate is not None

    def forward(self, *inputs: Tensor) -> Tensor:
        logits: Tensor = self.cloud.classify(inputs[0]).logits if self.by_surrogate else self.cloud(inputs[0])  # type: ignore[operator]
        return logits


def random_inputs(model: SplitModel, image_shape: tuple[int, ...]) -> tuple[RandomInput, ...]:
    """What the model draws for each transmission of one picture."""
    return drawn_by(lambda batch: model.send(torch.full((batch, *image_shape), 0.5)))


def export_edge(graph: EdgeGraph, pictures: Pictures, feature: Feature) -> bytes:
    """edge.onnx."""
    draws = [sample(one.law, (TRACED, *one.shape), one.high) for one in graph.random]
    names = [pictures.name, *(one.name for one in graph.random)]
    return _onnx(graph, [torch.rand(TRACED, *pictures.shape), *draws], names, feature.name, "edge half")


def export_cloud(graph: CloudGraph, feature: Feature) -> bytes:
    """cloud.onnx."""
    if drawn_by(lambda batch: graph(torch.full((batch, *feature.shape), 0.5))):
        raise ArtefactError("The cloud half draws random numbers: its answers would not be those that were tested.")
    return _onnx(graph, [torch.rand(TRACED, *feature.shape)], [feature.name], "logits", "cloud half")


def _onnx(module: nn.Module, example: list[Tensor], names: list[str], output: str, what: str) -> bytes:
    batch = torch.export.Dim("batch")
    try:
        with torch.no_grad(), _quiet():
            axes = {"inputs": tuple({0: batch} for _ in example)}
            traced = torch.export.export(module.eval(), tuple(example), dynamic_shapes=axes, strict=False)
            _refuse_random(traced, what)
            made = torch.onnx.export(
                traced, dynamo=True, opset_version=OPSET, input_names=names, output_names=[output], verbose=False
            )
    except ArtefactError:
        raise
    except Exception as error:  # the exporter raises what it likes, over many lines
        raise ArtefactError(f"The {what} cannot be exported: {type(error).__name__}: {reason(error)}", PLAIN) from error
    assert made is not None  # it returns nothing only where it writes a file
    return _tidied(made.model_proto)


def _refuse_random(traced: torch.export.ExportedProgram, what: str) -> None:
    """A draw that no input stands for would be a constant, or onnxruntime's own insecure draw."""
    if _random_node(traced) is None:
        return
    # it may be a layer that could draw, such as dropout, but sleeps in evaluation mode: its parts tell
    node = _random_node(traced.run_decompositions())
    if node is not None:
        raise ArtefactError(
            f"The {what} draws random numbers with {node.target}, which an artefact cannot carry.",
            "Draw with torch.randn, torch.rand, torch.randint, Tensor.normal_ or Tensor.uniform_.",
        )


def _random_node(traced: torch.export.ExportedProgram) -> torch.fx.Node | None:
    drawing = torch.Tag.nondeterministic_seeded
    return next((node for node in traced.graph.nodes if drawing in getattr(node.target, "tags", ())), None)


def _tidied(model: Any) -> bytes:
    """Name the batch axis, and take out what only tells about the machine of the exporter: paths, traces of calls."""
    import onnx

    graph = model.graph
    del graph.value_info[:]
    for value in [*graph.input, *graph.output]:
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    for part in [model, graph, *graph.node, *graph.initializer, *graph.input, *graph.output]:
        del part.metadata_props[:]
        part.doc_string = ""
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter speaks of its own insides: packages it would like to have, functions torch itself will replace."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [log.level for log in loggers]
    for log in loggers:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
            yield
    finally:
        for log, level in zip(loggers, levels, strict=True):
            log.setLevel(level)
