"""`split`: cut any traceable module in two, with a check that the halves together are the whole."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

from splitveil.core.errors import InputError, nearest, reason
from splitveil.models.split import SplitModel, evaluating, other_format


def split(module: nn.Module, at: str, example: Tensor | None = None) -> SplitModel:
    """Cut any traceable module after the layer named `at` (a dotted name as in `module.named_modules()`).

    The halves share their parameters with `module`. With `example`, the composition of the halves is checked to give
    exactly what the whole gives.

    Raises InputError when the name is unknown, the module cannot be traced, more than one value crosses the cut, the
    layer gives no tensor, or the example is nothing that the module takes.

    >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> model = split(net, at="1", example=torch.ones(1, 4))
    >>> model.edge(torch.ones(1, 4)).shape
    torch.Size([1, 3])
    """
    if not isinstance(module, nn.Module):
        raise InputError(
            f"Only a torch module can be split, not a {type(module).__name__}.",
            "Write the two halves as modules and pass them to sv.SplitModel(edge, cloud).",
        )
    known = [name for name, _ in module.named_modules() if name]
    if not isinstance(at, str):
        raise InputError(f"A layer is given by its name, a string, not by {at!r}.", nearest(str(at), known[:200]))
    if at not in known:
        raise InputError(f"The module has no layer called '{at}'.", nearest(at, known[:200]))
    if example is not None and not isinstance(example, Tensor):
        raise InputError(
            f"The example is a {type(example).__name__}, not a tensor.",
            "Give a batch of pictures: torch.as_tensor(...).",
        )
    edge_graph, cloud_graph = _cut_graph(module, at)
    model = SplitModel(_Half(module, edge_graph, "Edge"), _Half(module, cloud_graph, "Cloud"))
    modes = {layer: layer.training for layer in module.modules()}
    model.train(module.training)
    for layer, mode in modes.items():  # shared with the halves: a normalisation that was frozen stays so
        layer.training = mode
    if example is not None:
        model.image_shape = tuple(example.shape[1:])
        _check_composition(module, model, at, example)
    return model


class _Half(fx.GraphModule):
    """A traced half that is called as any module: torch.fx's own call prints a stack and generated code to stderr,
    beside the exception, where the input does not fit."""

    def recompile(self) -> Any:
        code = super().recompile()
        # torch.fx has made this class for this one object
        type(self).__call__ = nn.Module.__call__  # type: ignore[method-assign]
        return code


class _Tracer(fx.Tracer):
    """Keeps the cut layer whole, so that it appears as one node."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name == self.at or super().is_leaf_module(m, module_qualified_name)


def _cut_graph(module: nn.Module, at: str) -> tuple[fx.Graph, fx.Graph]:
    try:
        graph = _Tracer(at).trace(module)
    except Exception as error:
        raise InputError(
            f"{type(module).__name__} cannot be traced ({type(error).__name__}: {error}).",
            "Write the two halves yourself and pass them to sv.SplitModel(edge, cloud).",
        ) from error
    nodes = list(graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    calls = [node for node in nodes if node.op == "call_module" and node.target == at]
    if len(inputs) != 1:
        raise InputError(
            f"The module takes {len(inputs)} inputs; only modules with one input can be split.",
            "Wrap it in a module whose forward takes the pictures alone and returns the logits alone.",
        )
    if len(calls) != 1:
        raise InputError(f"The layer '{at}' is called {len(calls)} times; cut at a layer that is called once.")
    position = nodes.index(calls[0])
    before = set(nodes[: position + 1])
    crossing = {
        source
        for node in nodes[position + 1 :]
        for source in node.all_input_nodes
        if source in before and source.op != "get_attr" and source is not calls[0]
    }
    if crossing:
        names = ", ".join(sorted(node.target if isinstance(node.target, str) else node.name for node in crossing))
        raise InputError(
            f"Besides '{at}', the value of {names} also crosses the cut (a skip connection).",
            "Cut after the layer where the branches meet.",
        )
    return _edge_graph(nodes[: position + 1], calls[0]), _cloud_graph(nodes, position)


def _edge_graph(nodes: list[fx.Node], last: fx.Node) -> fx.Graph:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        copies[node] = graph.node_copy(node, lambda n: copies[n])
    graph.output(copies[last])
    return graph


def _cloud_graph(nodes: list[fx.Node], position: int) -> fx.Graph:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {nodes[position]: graph.placeholder("z")}
    after = nodes[position + 1 :]
    read_later = {source for node in after for source in node.all_input_nodes}
    for node in nodes[:position]:
        if node.op == "get_attr" and node in read_later:  # constants and parameters may be read on both sides
            copies[node] = graph.node_copy(node)
    for node in after:
        copies[node] = graph.node_copy(node, lambda n: copies[n])
    return graph


@torch.no_grad()
def _check_composition(module: nn.Module, model: SplitModel, at: str, example: Tensor) -> None:
    with evaluating(module), evaluating(model):
        try:
            whole = module(example)
        except Exception as error:  # whatever the user's own code raises on inputs that it was not made for
            told = reason(error, type(error).__name__).rstrip(".")
            other = other_format(module)
            if other not in (None, example.dtype):
                hint = f"Its weights are {other} and the example is {example.dtype}: use module.float()."
            elif other is None and example.dtype != torch.float32:
                hint = f"The example is {example.dtype}: give it float32, of pictures values in [0, 1]."
            else:
                hint = "Give it pictures of the size and with the channels that it was made for."
            raise InputError(
                f"{type(module).__name__} does not accept inputs of shape {list(example.shape[1:])}: {told}.", hint
            ) from error
        if not isinstance(whole, Tensor):
            raise InputError(
                f"{type(module).__name__} gives a {type(whole).__name__}, not a tensor.",
                "Wrap it in a module that returns the logits alone.",
            )
        sent = model.edge(example)
        if not isinstance(sent, Tensor):
            raise InputError(
                f"The layer '{at}' gives a {type(sent).__name__}, and only a tensor can be sent.",
                "Cut after another layer, or wrap this one in a module that returns the tensor alone.",
            )
        composed = model.cloud(sent)
    if whole.shape != composed.shape or not torch.allclose(whole, composed, rtol=1e-5, atol=1e-6, equal_nan=True):
        raise InputError("The two halves do not give what the whole gives.", "The module may keep hidden state.")
