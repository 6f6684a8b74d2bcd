"""Attack an exported artefact: what is attacked comes out of `edge.onnx`, with random inputs drawn as a device does.

Everything that an adversary can ask of a device (transmissions of the pictures under attack, answers to pictures of its
own) goes through the ONNX graph. What only the owner of the weights can do (gradients, the cloud half, the bounds) goes
through the artefact's weights in torch, after a check that both are the same model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Unpack

import torch
from torch import Tensor

from splitveil import data as data_family
from splitveil.attacks.base import Progress, silent
from splitveil.audit.report import AuditReport
from splitveil.audit.run import Asked, attack_as
from splitveil.audit.subjects import AuditData, Mode
from splitveil.core.errors import ConfigError, DataError, InputError
from splitveil.core.run_folder import RunFolder
from splitveil.data.dataset import DataParts, Dataset
from splitveil.models.split import SplitModel
from splitveil.serving.artefact import Artefact, read
from splitveil.serving.graphs import CloudGraph
from splitveil.serving.halves import EdgeHalf
from splitveil.serving.random_inputs import SeededSource
from splitveil.serving.reload import Twin, check_twin, load_twin
from splitveil.training.api import pick_device

log = logging.getLogger("splitveil.audit")


class ServedModel(SplitModel):
    """An artefact as a split model: `send` is its `edge.onnx`, the halves and defences are its weights in torch."""

    def __init__(self, artefact: Artefact, twin: Twin) -> None:
        model = twin.model
        super().__init__(
            model.edge,
            CloudGraph(model, twin.classifier),
            image_shape=artefact.manifest.input.shape,
            num_classes=artefact.manifest.num_classes,
        )
        self.defences = model.defences
        self._device_half = EdgeHalf(artefact)

    def send(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """What a device sends; the draws are fixed by `generator`, through the same code that draws securely."""
        device = "cpu" if generator is None else generator.device
        seed = int(torch.randint(2**62, (), generator=generator, device=device))
        sent = self._device_half.features(x.detach().cpu().numpy(), SeededSource(seed))
        return torch.from_numpy(sent).to(x.device)

    def channel(self) -> tuple[Callable[[Tensor], Tensor], Callable[..., Tensor]]:
        """The graph is one piece: all of it runs for every transmission, or, where nothing is random, once."""
        if self._device_half.manifest.random:
            return _as_it_is, self.send
        return self.send, _as_it_is


def _as_it_is(values: Tensor, generator: torch.Generator | None = None) -> Tensor:
    return values


def audit_artefact(
    path: str | Path,
    *,
    data: str | None = None,
    image_size: int | None = None,
    out: Path | None = None,
    mode: Mode | None = None,
    device: str = "auto",
    progress: Progress = silent,
    **asked: Unpack[Asked],
) -> AuditReport:
    """Attack the artefact in folder `path` as its recipe's [audit] says, unless an argument (`Asked`) says otherwise.

    The pictures are those of the recipe, or `data`. The result lies in OUT/audit (default: runs/audit-NAME), where
    `splitveil report OUT` finds it; the artefact itself is left as it is.
    """
    artefact = read(path)
    twin = load_twin(artefact)
    pictures = _pictures(artefact, twin, data, image_size)
    check_twin(artefact, twin, pictures.test)
    mode = mode or twin.config.audit.mode
    folder = RunFolder(Path("runs") / f"audit-{artefact.path.resolve().name}" if out is None else out)
    return attack_as(
        twin.config,
        ServedModel(artefact, twin).to(pick_device(device)),
        pictures,
        mode=mode,
        out=folder.audit_in(mode, own=twin.config.audit.mode),
        signature=f"{artefact.manifest.signature}|artefact:{artefact.digest.hex()[:10]}",
        progress=progress,
        **asked,
    )


def _pictures(artefact: Artefact, twin: Twin, data: str | None, image_size: int | None) -> AuditData | DataParts:
    """The parts of the run that was exported, or other pictures, of which the attacker gets a quarter."""
    manifest, config = artefact.manifest, twin.config
    if data is not None:
        found: Dataset = data_family.create(data, image_size=image_size)
        pictures: AuditData | DataParts = AuditData.of(found, config.seed)
    else:
        try:
            pictures = data_family.load(config.data, config.seed)
        except (DataError, ConfigError) as error:
            error.hint = f"{error.hint} Or attack with other pictures: --data NAME".lstrip()
            raise
        if pictures.checksum != manifest.data.get("checksum"):
            log.warning("the pictures of %s are not those that the artefact was trained with", config.data.name)
    shape = tuple(pictures.test.images.shape[1:])
    if shape != manifest.input.shape:
        raise InputError(f"The artefact takes pictures of shape {manifest.input.shape}, but these are {shape}.")
    return pictures
