"""The split model: an edge half, what is sent, and a cloud half.

x --edge--> z --transmit (defences, in the order written)--> what the server, and the attacker, see --cloud--> logits
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from splitveil.core.errors import InputError

# why a half may give values that are not finite
DIVERGED = (
    "Training may have diverged (a run tells it by task_loss and skipped in metrics.jsonl: lower train.lr), or a layer "
    "fails in evaluation mode alone (its running statistics, say)."
)


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
        sent = cast(Transmits, defence).transmit(z, generator)
        if not isinstance(sent, Tensor) or sent.shape != z.shape:
            gave = f"the shape {list(sent.shape)}" if isinstance(sent, Tensor) else f"a {type(sent).__name__}"
            raise InputError(
                f"The defence {type(defence).__name__} sends {gave} in place of a feature {list(z.shape)}.",
                "transmit keeps the shape; what changes it belongs into install, on both sides of the cut.",
            )
        z = sent
    return z


class SplitModel(nn.Module):
    """Two halves and the defences between them. The same object is trained, evaluated, attacked, exported and served.

    Example: ``SplitModel(edge, cloud)`` for any two modules whose composition makes sense.
    """

    hidden: frozenset[str] = frozenset()
    """What of the model nobody can see, in the words of a threat model: of one behind an address, `weights`."""
    why_hidden: str = "The weights were hidden"
    """How the sentence begins about what an audit cannot say where something is hidden."""
    out_of_reach: str = "which are hidden here"
    """How the sentence ends about an attack that needs what is hidden."""
    accuracy_of: str = "model"
    """Whose the accuracy is that an audit finds: the `auditor`'s where the cloud half is out of sight."""
    manifest_defences: tuple[tuple[str, dict[str, Any]], ...] = ()
    """Name and options of the defences in the order in which they act, where only a manifest says what they are."""

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
        if x.dtype == torch.uint8:  # stored pictures: the network would take 255 for a value and answer nonsense
            raise InputError(
                "Pictures of whole numbers (uint8) cannot be sent.", "Give floats in [0, 1]: x.float() / 255"
            )
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

    def stated_noise(self) -> list[str]:
        """Names of the defences that say of themselves that they add noise."""
        powers = {name: getattr(defence, "noise_power", None) for name, defence in self.defences.items()}
        return [name for name, power in powers.items() if power is not None and power() > 0]

    def check_shape(self, pictures: Tensor) -> None:
        """Refuse pictures [N, ch, h, w] of another shape than the model's: broadcasting may hide it in the network."""
        if self.image_shape is not None and tuple(self.image_shape) != tuple(pictures.shape[1:]):
            raise InputError(
                f"The model takes pictures of shape {tuple(self.image_shape)}, but these are "
                f"{tuple(pictures.shape[1:])}."
            )

    @property
    def caveat(self) -> str:
        """What else a reader of an audit should know about a model of which something is hidden."""
        return ""

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """Shape of the feature of one picture."""
        if self.image_shape is None:
            raise InputError(
                "This model does not know its image shape.", "Pass image_shape= to SplitModel, or example= to split."
            )
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


@contextmanager
def buffers_kept(model: nn.Module) -> Iterator[None]:
    """Whatever is counted or averaged inside the block (statistics of batch normalisation): afterwards as before it."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)


@torch.no_grad()
def feature_shape(edge: nn.Module, image_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of edge(x) for one picture, found by running it; leaves modes and statistics untouched."""
    reference = next((tensor for tensor in [*edge.parameters(), *edge.buffers()] if tensor.is_floating_point()), None)
    like = torch.zeros(()) if reference is None else reference
    with evaluating(edge):
        z = edge(like.new_zeros((1, *image_shape)))
    if not isinstance(z, Tensor):  # a tuple, say, of a recurrent layer
        raise InputError(
            f"The edge half gives a {type(z).__name__}.", "It should give a tensor, one row for each picture."
        )
    return tuple(z.shape[1:])


def device_of(module: nn.Module) -> torch.device:
    """Where the first of a module's parameters and buffers lies; the CPU where it has none."""
    return next((tensor.device for tensor in [*module.parameters(), *module.buffers()]), torch.device("cpu"))


def other_format(module: nn.Module) -> torch.dtype | None:
    """The first number format of a module's state that is not float32, such as float16; None where all of it is."""
    kept = [*module.parameters(), *module.buffers()]
    return next((one.dtype for one in kept if one.is_floating_point() and one.dtype != torch.float32), None)
