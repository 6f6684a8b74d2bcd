"""Attack an edge half behind an address: the auditor has neither its code nor its weights, only what it sends.

What an adversary can ask of a device (transmissions of the pictures under attack, answers to pictures of its own) goes
over the wire. Attacks that need the weights are left out. Nobody sees the cloud half either: what the features are good
for is measured with a least-squares classifier of the auditor's own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from splitveil import __version__
from splitveil import data as data_family
from splitveil.attacks.base import Progress, silent
from splitveil.attacks.queries import repeatable
from splitveil.attacks.taming import Taming
from splitveil.audit.report import AuditReport
from splitveil.audit.run import NO_RECIPE, Asked, Case, attack
from splitveil.audit.subjects import AuditData, Mode
from splitveil.core.errors import InputError, ServingError, UsageError
from splitveil.core.manifest import torch_version
from splitveil.data.augment import to_float
from splitveil.data.dataset import ImageSet
from splitveil.models.split import SplitModel
from splitveil.serving.probing import FeatureClient
from splitveil.serving.transport import Transport
from splitveil.training.device import pick_device

log = logging.getLogger("splitveil.audit")

MOST_FITTED = 2048  # pictures that the classifier is fitted to: a system of equations of that size
RIDGE = 1e-2  # relative to the mean square of a feature
GOES_ON = "Once it answers, the same command goes on after the attacks that were finished."


class RemoteEdge(nn.Module):
    """The edge half behind an address. No gradient passes it."""

    def __init__(self, client: FeatureClient) -> None:
        super().__init__()
        self.client = client

    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(self.client.features(x.detach().cpu().numpy())).to(x.device)


class EndpointModel(SplitModel):
    """An endpoint as a split model, with a classifier of the auditor's own in place of the cloud half.

    The noise is drawn behind the address, so a transmission is one piece; `random` says that each differs.
    """

    hidden = frozenset({"weights", "cloud"})
    random = False
    accuracy_of = "auditor"

    def channel(self) -> tuple[Callable[[Tensor], Tensor], Callable[..., Tensor]]:
        """Where transmissions differ all of it is fresh every time; `transmit` without defences leaves all as it is."""
        return (self.transmit, self.send) if self.random else (self.edge, self.transmit)

    @property
    def caveat(self) -> str:
        again = " It sends other features each time: another audit gives other numbers." if self.random else ""
        return f"The accuracy and recon_acc are those of a least-squares classifier on what the endpoint sends.{again}"


class LeastSquares(nn.Module):
    """Classes from features: ridge regression of the class indicators, W = Zᵀ(ZZᵀ + λI)⁻¹Y with centred Z and Y.

    Features out of the ordinary range are brought into it first, as attacks do. It is no part of what is attacked, so
    its state does not count: an interrupted audit goes on with another one.
    """

    mean: Tensor
    share: Tensor
    weight: Tensor

    def __init__(self, features: Tensor, labels: Tensor, num_classes: int) -> None:
        super().__init__()
        self.tame = Taming(features)
        z = self.tame(features).flatten(1).double()  # [N, D]
        y = F.one_hot(labels, num_classes).double()  # [N, C]
        self.register_buffer("mean", z.mean(0), persistent=False)
        self.register_buffer("share", y.mean(0), persistent=False)
        z, y = z - self.mean, y - self.share
        gram = z @ z.T  # [N, N]: pictures are fewer than the values of large features
        scale = gram.diagonal().mean().clamp_min(1e-12)  # features that never change: any positive number will do
        ridge = RIDGE * scale * torch.eye(len(z), dtype=z.dtype, device=z.device)
        weight = z.T @ torch.linalg.solve(gram + ridge, y)  # [D, C]
        self.register_buffer("weight", weight, persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        z = self.tame(features).flatten(1).double() - self.mean
        return (self.share + z @ self.weight).float()


def audit_endpoint(
    endpoint: str | Transport,
    *,
    data: str,
    token: str | None = None,
    insecure: bool = False,
    image_size: int | None = None,
    out: Path | None = None,
    mode: Mode | None = None,
    device: str = "auto",
    progress: Progress = silent,
    **asked: Unpack[Asked],
) -> AuditReport:
    """Attack the edge half at `endpoint` with the pictures in `data`; the result lies in OUT/audit.

    The attacker gets a quarter of the training pictures. An endpoint may change between two calls: a second call
    attacks again. Where it no longer answers, ServingError ends the audit, and the same call goes on after the attacks
    that were finished. A token is not sent in clear to another machine unless `insecure` is true.
    """
    asked["again"] = True
    client = FeatureClient(endpoint, token=token, insecure=insecure)
    try:
        found = data_family.create(data, image_size=image_size)
        pictures = AuditData.of(found, asked.get("seed") or NO_RECIPE.seed)
        _check_shape(client, pictures.test)
        where = pick_device(device)
        model = endpoint_model(client, pictures.to(where), found.info.num_classes)
        about = {"kind": "endpoint", "artefact": client.about.artefact.hex()}
        case = Case(model, pictures, _signature(client), device=where, about=about)
        folder = Path("runs") / "audit-endpoint" if out is None else out
        try:
            report = attack(case, mode or NO_RECIPE.audit.mode, folder / "audit", progress, asked)
        except ServingError as error:
            error.hint = f"{error.hint} {GOES_ON}".lstrip()
            raise
    finally:
        client.close()
    log.info("the endpoint was asked for the features of %d pictures", client.pictures)
    return report


def endpoint_model(client: FeatureClient, pictures: AuditData, num_classes: int) -> EndpointModel:
    """The endpoint and a classifier fitted to what it sends for some of the attacker's pictures."""
    edge, own = RemoteEdge(client), pictures.aux
    places = torch.linspace(0, len(own) - 1, min(MOST_FITTED, len(own))).long()
    some = own.subset(places)
    if len(some) == 0 or int(some.labels.max()) >= num_classes:
        raise InputError(
            "The auxiliary pictures have no labels of these classes.", "Give a data set with one labelling."
        )
    cloud = LeastSquares(edge(to_float(some.images)), some.labels, num_classes)
    model = EndpointModel(edge, cloud, image_shape=tuple(own.images.shape[1:]), num_classes=num_classes)
    model.random = not repeatable(edge, own.images)
    return model


def _check_shape(client: FeatureClient, test: ImageSet) -> None:
    shape, taken = tuple(test.images.shape[1:]), client.image_shape
    if taken is not None and taken != shape:
        raise UsageError(
            f"{client.address} takes pictures of shape {list(taken)}, but these are {list(shape)}.",
            "Choose other pictures with --data, or bring an image folder to that side with --image-size.",
        )


def _signature(client: FeatureClient) -> str:
    """Pins what the endpoint calls itself; that it tells the truth, nobody can pin."""
    return f"splitveil:{__version__}|endpoint:{client.about.artefact.hex()[:10]}|torch:{torch_version()}"
