"""What the adversary of an attack sees: exactly what its threat model grants, and an error for everything else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from splitveil.attacks.memory import Forgetful, Memory
from splitveil.attacks.outcome import Reconstruction
from splitveil.attacks.queries import CHUNK, Queries, Transmit
from splitveil.attacks.taming import Taming
from splitveil.attacks.threat import ThreatModel
from splitveil.core import seeding
from splitveil.core.errors import ThreatModelError
from splitveil.data.augment import Augmentation, to_float
from splitveil.data.dataset import ImageSet
from splitveil.models.split import SplitModel


@dataclass(frozen=True)
class Scene:
    """Everything there is in an audit. Attacks never get one; they get a `View` of it.

    The model must be in eval mode with parameters that need no gradient (`audit.frozen`).
    """

    model: SplitModel
    auxiliary: ImageSet
    targets: ImageSet
    seed: int = 0
    augmentation: Augmentation | None = None
    candidates: ImageSet | None = None
    attributes: dict[str, Tensor] = field(default_factory=dict)  # of the auxiliary pictures, [M] each
    num_classes: int | None = None  # None: the auxiliary labels do not name the model's classes
    earlier: dict[str, tuple[ThreatModel, Reconstruction]] = field(default_factory=dict)


class View:
    """One adversary's view of a scene. Reading what is hidden raises `ThreatModelError`.

    Only what is granted is put in: there is no hidden attribute that holds the rest.
    """

    def __init__(
        self,
        scene: Scene,
        threat_model: ThreatModel,
        *,
        attack: str = "this attack",
        memory: Memory | None = None,
    ) -> None:
        self.memory: Memory = memory or Forgetful()  # of the attack's own finished steps
        model, targets, seed = scene.model, scene.targets, scene.seed
        device = targets.images.device
        self.attack = attack
        self.threat_model = threat_model
        self.device = device
        self.num_targets = len(targets)
        channels, height, width = targets.images.shape[1:]
        self.image_shape = (channels, height, width)
        self.feature_shape = tuple(model.edge(to_float(targets.images[:1])).shape[1:])
        self.augmentation = scene.augmentation
        self._seed = seed
        self._granted: dict[str, Any] = {}
        grant = self._grant
        once = seeding.generator(seed, "sent", device=device)
        grant("features", "sent", lambda: _transmissions(model, targets.images, once))
        again = seeding.generator(seed, "sent again", device=device)
        grant("repeats", "send_again", lambda: _transmissions(model, targets.images, again))
        grant("auxiliary", "auxiliary", lambda: scene.auxiliary.images)
        grant("labels", "auxiliary_labels", lambda: scene.auxiliary.labels)
        grant("labels", "attributes", lambda: scene.attributes)
        grant("labels", "num_classes", lambda: scene.num_classes)
        grant("queries", "query", lambda pictures, change: Queries(*model.channel(), pictures, change))
        grant("weights", "edge", lambda: model.edge)
        grant("weights", "cloud", lambda: model.cloud)
        grant("cloud", "cloud", lambda: model.cloud)
        grant("candidates", "candidates", lambda: scene.candidates)
        visible = {name: made for name, (seen, made) in scene.earlier.items() if threat_model.covers(seen)}
        self._granted["earlier"] = visible
        self.asked: dict[str, Reconstruction | None] = {}  # what `reconstruction` gave: the attack builds on it
        self._granted["transmit"] = lambda: model.transmit  # the law of the noise is no secret
        self._sent: Tensor | None = None
        self._taming: Taming | None = None

    def _grant(self, right: str, name: str, give: Callable[..., Any]) -> None:
        if getattr(self.threat_model, right):
            self._granted[name] = give

    def _take(self, name: str, *arguments: Any) -> Any:
        if name not in self._granted:
            granted = ", ".join(self.threat_model.granted())
            raise ThreatModelError(f"'{name}' is hidden from {self.attack}, whose adversary sees {granted} only.")
        return self._granted[name](*arguments)

    def generator(self, *purpose: str | int) -> torch.Generator:
        """A random stream of the attack's own, on its device."""
        return seeding.generator(self._seed, "attack", *purpose, device=self.device)

    @property
    def sent(self) -> Tensor:
        """One transmission of each picture under attack [N, ...]; the same for every attack of an audit."""
        if self._sent is None:
            self._sent = self._take("sent")
        return self._sent

    @property
    def taming(self) -> Taming:
        """Brings `sent` into the range in which networks learn, and what is sent for queries (`tamed`)."""
        if self._taming is None:
            self._taming = Taming(self.sent[:CHUNK])
        return self._taming

    def send_again(self) -> Tensor:
        """A fresh transmission of each picture under attack [N, ...]."""
        return self._take("send_again")

    @property
    def auxiliary(self) -> Tensor:
        """The adversary's own pictures [M, ch, h, w] uint8."""
        return self._take("auxiliary")

    @property
    def auxiliary_labels(self) -> Tensor:
        """The labels of the adversary's own pictures [M]."""
        return self._take("auxiliary_labels")

    @property
    def attributes(self) -> dict[str, Tensor]:
        """What else the adversary knows about its own pictures: values [M] by name of the attribute."""
        return self._take("attributes")

    @property
    def num_classes(self) -> int | None:
        """Number of classes where the auxiliary labels name the model's own classes; None elsewhere."""
        return self._take("num_classes")

    def query(self, pictures: Tensor, augmentation: Augmentation | None = None, *, tamed: bool = False) -> Queries:
        """Pass uint8 pictures of one's choice through the device; `tamed`, what it sends is changed by `taming`."""
        queries: Queries = self._take("query", pictures, augmentation)
        if tamed:
            queries.tame = self.taming
        return queries

    @property
    def edge(self) -> nn.Module:
        """The edge half itself."""
        return self._take("edge")

    @property
    def cloud(self) -> nn.Module:
        """The cloud half itself."""
        return self._take("cloud")

    @property
    def transmit(self) -> Transmit:
        """The law of what is sent, given the clean feature."""
        return self._take("transmit")

    @property
    def candidates(self) -> ImageSet | None:
        """Pictures of which the adversary asks whether they were trained on; None where the audit has none."""
        return self._take("candidates")

    def reconstruction(self, name: str) -> Reconstruction | None:
        """What an earlier attack of the audit made, if this adversary could have run that attack itself."""
        self.asked[name] = self._granted["earlier"].get(name)
        return self.asked[name]


@torch.no_grad()
def _transmissions(model: SplitModel, pictures: Tensor, generator: torch.Generator) -> Tensor:
    """In pieces of fixed size, so that a seed gives the same transmissions on every call."""
    return torch.cat([model.send(to_float(piece), generator) for piece in pictures.split(CHUNK)])
