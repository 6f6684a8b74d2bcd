"""The split model: an edge half, what is sent, and a cloud half; and `split`, which cuts any traceable module in two.

x --edge--> z --transmit (defences, in the order written)--> what the server, and the attacker, see --cloud--> logits
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, cast

import torch
from torch import Tensor, fx, nn

from splitveil.core.errors import InputError, nearest


class Transmits(Protocol):
    """The part of a defence that acts on what is sent."""

    def transmit(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor: ...


def transmitted(z: Tensor, defences: Iterable[nn.Module], generator: torch.Generator | None = None) -> Tensor:
    """What `defences` send in place of the clean feature z, each acting on what the one before it gave."""
    for defence in defences:
        if not hasattr(defence, "transmit"):
            raise InputError(
                f"The defence {type(defence).__name__} has no transmit(z, generator).",
                "Derive it from splitveil.defences.base.Defence and say there what is sent in place of z.",
            )
        z = cast(Transmits, defence).transmit(z, generator)
    return z


class SplitModel(nn.Module):
    """Two halves and the defences between them. The same object is trained, evaluated, attacked, exported and served.

    Example: ``SplitModel(edge, cloud)`` for any two modules whose composition makes sense.
    """

    hidden: frozenset[str] = frozenset()
    """What of the model nobody can see, in the words of a threat model: of one behind an address, `weights`."""

    def __init__(
        self,
        edge: nn.Module,
        cloud: nn.Module,
        *,
        image_shape: tuple[int, ...] | None = None,
        num_classes: int | None = None,
    ) -> None:
        super().__init__()
        self.edge = edge
        self.cloud = cloud
        self.defences = nn.ModuleDict()  # in the order in which they act
        self.image_shape = image_shape
        self.num_classes = num_classes

    def transmit(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """What leaves the device, given the clean feature: every defence acts, in training and in evaluation alike."""
        return transmitted(z, self.defences.values(), generator)

    def send(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """What the server, and anyone who listens, receives for the pictures x."""
        return self.transmit(self.edge(x), generator)

    def channel(self) -> tuple[Callable[[Tensor], Tensor], Callable[..., Tensor]]:
        """`send` in two steps: what one may compute once for a picture, and what is fresh in every transmission."""
        return self.edge, self.transmit

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self.cloud(self.send(x, generator))

    def adversaries(self) -> dict[str, nn.Module]:
        """Networks inside defences that play the attacker in training, by their place in the model."""
        found = {f"defences.{name}.adversary": getattr(d, "adversary", None) for name, d in self.defences.items()}
        return {name: adversary for name, adversary in found.items() if isinstance(adversary, nn.Module)}

    def deployed_state(self) -> dict[str, Tensor]:
        """The state without adversaries, which never leave the defender: what is sent and answered depends on this."""
        inside = tuple(f"{name}." for name in self.adversaries())
        return {name: value for name, value in self.state_dict().items() if not name.startswith(inside)}

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """Shape of the feature of one picture."""
        if self.image_shape is None:
            raise InputError("This model does not know its image shape.", "Pass image_shape= to SplitModel.")
        return feature_shape(self.edge, self.image_shape)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block; afterwards every layer is in the mode it was in."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@torch.no_grad()
def feature_shape(edge: nn.Module, image_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of edge(x) for one picture, found by running it; leaves modes and statistics untouched."""
    reference = next((tensor for tensor in [*edge.parameters(), *edge.buffers()] if tensor.is_floating_point()), None)
    like = torch.zeros(()) if reference is None else reference
    with evaluating(edge):
        return tuple(edge(like.new_zeros((1, *image_shape))).shape[1:])


def split(module: nn.Module, at: str, example: Tensor | None = None) -> SplitModel:
    """Cut any traceable module after the layer named `at` (a dotted name as in `module.named_modules()`).

    The halves share their parameters with `module`. With `example`, the composition of the halves is checked to give
    exactly what the whole gives.

    Raises InputError when the name is unknown, the module cannot be traced, more than one value crosses the cut, or the
    example is nothing that the module takes.

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
    if at not in known:
        raise InputError(f"The module has no layer called '{at}'.", nearest(at, known[:200]))
    edge_graph, cloud_graph, root = _cut_graph(module, at)
    model = SplitModel(fx.GraphModule(root, edge_graph, "Edge"), fx.GraphModule(root, cloud_graph, "Cloud"))
    modes = {layer: layer.training for layer in module.modules()}
    model.train(module.training)
    for layer, mode in modes.items():  # shared with the halves: a normalisation that was frozen stays so
        layer.training = mode
    if example is not None:
        model.image_shape = tuple(example.shape[1:])
        _check_composition(module, model, example)
    return model


class _Tracer(fx.Tracer):
    """Keeps the cut layer whole, so that it appears as one node."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name == self.at or super().is_leaf_module(m, module_qualified_name)


def _cut_graph(module: nn.Module, at: str) -> tuple[fx.Graph, fx.Graph, nn.Module]:
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
        raise InputError(f"The module takes {len(inputs)} inputs; only modules with one input can be split.")
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
    return _edge_graph(nodes[: position + 1], calls[0]), _cloud_graph(nodes, position), module


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
def _check_composition(module: nn.Module, model: SplitModel, example: Tensor) -> None:
    with evaluating(module), evaluating(model):
        try:
            whole = module(example)
        except Exception as error:  # whatever the user's own code raises on inputs that it was not made for
            told = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            raise InputError(
                f"{type(module).__name__} does not accept inputs of shape {list(example.shape[1:])}: {told}.",
                "Give it pictures of the size and with the channels that it was made for.",
            ) from error
        if not isinstance(whole, Tensor):
            raise InputError(
                f"{type(module).__name__} gives a {type(whole).__name__}, not a tensor.",
                "Wrap it in a module that returns the logits alone.",
            )
        composed = model.cloud(model.edge(example))
    if whole.shape != composed.shape or not torch.allclose(whole, composed, rtol=1e-5, atol=1e-6, equal_nan=True):
        raise InputError("The two halves do not give what the whole gives.", "The module may keep hidden state.")
