"""An exported artefact as a split model that can be attacked.

Everything that an adversary can ask of a device (transmissions of the pictures under attack, answers to pictures of its
own) goes through the ONNX graph. What only the owner of the weights can do (gradients, the cloud half, the bounds) goes
through the artefact's weights in torch. Without weights or recipe the graphs are all there is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from splitveil.models.split import SplitModel
from splitveil.serving.artefact import Artefact
from splitveil.serving.graphs import CloudGraph
from splitveil.serving.halves import CloudHalf, EdgeHalf
from splitveil.serving.manifest import CONFIG, WEIGHTS
from splitveil.serving.random_inputs import SeededSource
from splitveil.serving.reload import Twin
from splitveil.serving.two_steps import TwoSteps, find_cut


class ServedModel(SplitModel):
    """An artefact as a split model: `send` is its `edge.onnx`, the halves and defences are its weights in torch.

    Without a twin in torch the halves are the graphs themselves, and whatever needs gradients is hidden.
    """

    def __init__(self, artefact: Artefact, twin: Twin | None) -> None:
        manifest, graph = artefact.manifest, EdgeHalf(artefact, threads=torch.get_num_threads())
        super().__init__(
            _Called(partial(_sent, graph)) if twin is None else twin.model.edge,
            _Called(_answers(artefact)) if twin is None else CloudGraph(twin.model, twin.classifier),
            image_shape=manifest.input.shape,
            num_classes=manifest.num_classes,
        )
        if twin is None:
            self.hidden = frozenset({"weights", "cloud"})
            lacking, self.out_of_reach = _lacking(artefact)
            self.why_hidden = f"Only the graphs of the artefact were attacked, because {lacking}"
            self.manifest_defences = tuple((one.name, one.options) for one in manifest.defences)
        else:
            self.defences = twin.model.defences
        self._graph = graph
        at = find_cut(artefact) if manifest.random else None
        self._steps = None if at is None else TwoSteps(artefact, at, threads=torch.get_num_threads())

    def send(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """What a device sends; the draws are fixed by `generator`, through the same code that draws securely."""
        return _sent(self._graph, x, generator)

    def stated_noise(self) -> list[str]:
        """Of a copy without weights or recipe: what its manifest says."""
        stated = [name for name, options in self.manifest_defences if name == "noise" and options.get("sigma")]
        return super().stated_noise() or stated

    def channel(self) -> tuple[Callable[[Tensor], Tensor], Callable[..., Tensor]]:
        """What comes before the first draw runs once for a picture, as in the audit of a run; what comes after it, for
        every transmission. Where nothing is random all of it runs once, and where there is no such place every time.
        """
        if not self._graph.manifest.random:
            return self.send, _as_it_is
        return (_as_it_is, self.send) if self._steps is None else (self._before, self._after)

    def _before(self, x: Tensor) -> Tensor:
        assert self._steps is not None  # `channel` has looked
        return torch.from_numpy(self._steps.before(x.detach().cpu().numpy())).to(x.device)

    def _after(self, clean: Tensor, generator: torch.Generator | None = None) -> Tensor:
        assert self._steps is not None
        return torch.from_numpy(self._steps.after(clean.detach().cpu().numpy(), _source(generator))).to(clean.device)


class _Called(nn.Module):
    """A function as a module without weights."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def _sent(graph: EdgeHalf, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
    return torch.from_numpy(graph.features(x.detach().cpu().numpy(), _source(generator))).to(x.device)


def _source(generator: torch.Generator | None) -> SeededSource:
    """Draws that `generator` fixes, through the same code that draws securely."""
    device = "cpu" if generator is None else generator.device
    return SeededSource(int(torch.randint(2**62, (), generator=generator, device=device)))


def _answers(artefact: Artefact) -> Callable[[Tensor], Tensor]:
    graph = CloudHalf(artefact, threads=torch.get_num_threads())
    return lambda sent: torch.from_numpy(graph.logits(sent.detach().cpu().numpy())).to(sent.device)


def _as_it_is(values: Tensor, generator: torch.Generator | None = None) -> Tensor:
    return values


def _lacking(artefact: Artefact) -> tuple[str, str]:
    """Why torch cannot make the model again, for the report; and, of its weights, for an attack that needs them."""
    if not artefact.has(WEIGHTS):
        return f"this copy has no weights ({WEIGHTS})", "which this copy of the artefact does not have"
    if CONFIG in artefact.manifest.files:
        return f"this copy has no recipe ({CONFIG})", "which torch cannot load without the recipe"
    return (
        "its model is somebody's own and the code of it, which gradients need, is no part of an artefact",
        "which torch cannot load without the code of the model: splitveil audit FILE.py:NAME attacks it with them",
    )
