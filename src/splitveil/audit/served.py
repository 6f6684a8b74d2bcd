"""Attack an exported artefact: what is attacked comes out of `edge.onnx`, with random inputs drawn as a device does.

Everything that an adversary can ask of a device (transmissions of the pictures under attack, answers to pictures of its
own) goes through the ONNX graph. What only the owner of the weights can do (gradients, the cloud half, the bounds) goes
through the artefact's weights in torch, after a check that both are the same model. A copy without weights or recipe
(the owner kept them back, or Splitveil did not train the model) is attacked through its graphs alone.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from splitveil import data as data_family
from splitveil.attacks.base import Progress, silent
from splitveil.audit.report import AuditReport
from splitveil.audit.run import NO_RECIPE, Asked, Case, attack
from splitveil.audit.subjects import AuditData, Mode
from splitveil.core.config import Config
from splitveil.core.errors import ArtefactError, ConfigError, DataError, InputError, UnknownNameError, UsageError
from splitveil.core.run_folder import RunFolder
from splitveil.core.shell import command
from splitveil.data.dataset import DataParts
from splitveil.models.split import SplitModel
from splitveil.serving.artefact import Artefact, read
from splitveil.serving.graphs import CloudGraph
from splitveil.serving.halves import CloudHalf, EdgeHalf
from splitveil.serving.manifest import CLOUD, CONFIG, EDGE, WEIGHTS
from splitveil.serving.random_inputs import SeededSource
from splitveil.serving.reload import Twin, check_twin, load_twin
from splitveil.serving.two_steps import TwoSteps, find_cut
from splitveil.training.device import pick_device

log = logging.getLogger("splitveil.audit")

TOLD = {"signature", "seed", "data", "model", "cut", "surrogate", "classifier", "defences", "accuracy"}


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
        else:
            self.defences = twin.model.defences
        self._graph = graph
        at = find_cut(artefact) if manifest.random else None
        self._steps = None if at is None else TwoSteps(artefact, at, threads=torch.get_num_threads())

    def send(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """What a device sends; the draws are fixed by `generator`, through the same code that draws securely."""
        return _sent(self._graph, x, generator)

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
    artefact = read(path, need=[])
    _check_graphs(artefact)
    twin = load_twin(artefact) if artefact.has(WEIGHTS) and artefact.has(CONFIG) else None
    recipe = _recipe(artefact) if twin is None else twin.config
    config = recipe or NO_RECIPE
    pictures = _pictures(artefact, recipe, data, image_size)
    if twin is None:
        log.warning("%s %s", artefact.path, _graphs_alone(artefact))
    else:
        check_twin(artefact, twin, pictures.test)
    mode = mode or config.audit.mode
    folder = RunFolder(Path("runs") / f"audit-{artefact.path.resolve().name}" if out is None else out)
    case = Case(
        ServedModel(artefact, twin),
        pictures,
        f"{artefact.manifest.signature}|artefact:{artefact.digest.hex()[:10]}",
        config,
        pick_device(device),
        _about(artefact),
    )
    return attack(case, mode, folder.audit_in(mode, own=config.audit.mode), progress, asked)


def _check_graphs(artefact: Artefact) -> None:
    """An audit needs what a device runs and what a server runs; copies for either have one of them."""
    if not artefact.has(EDGE):
        raise ArtefactError(
            f"{artefact.path} has no {EDGE}, so nothing here says what a device sends.", "Ask for a copy that has it."
        )
    if not artefact.has(CLOUD):
        serve = command("edge", artefact.path, "--serve", "127.0.0.1:8751")
        raise ArtefactError(
            f"{artefact.path} has no {CLOUD}, and an audit of an artefact needs both graphs.",
            f"Attack a device's copy as an endpoint: start {serve}, then: "
            "splitveil audit --endpoint http://127.0.0.1:8751 --data NAME",
        )


def _recipe(artefact: Artefact) -> Config | None:
    """What `config.toml` says, where the weights beside it are missing; None without it, or without its plug-ins."""
    if not artefact.has(CONFIG):
        return None
    try:
        return Config.parse(tomllib.loads(artefact.load(CONFIG).decode()), "")
    except UnknownNameError:
        return None


def _about(artefact: Artefact) -> dict[str, Any]:
    """What the artefact says of itself, for reports: they read the audit, and the artefact may be gone by then."""
    config = tomllib.loads(artefact.load(CONFIG).decode()) if artefact.has(CONFIG) else None
    told = artefact.manifest.model_dump(mode="json", include=TOLD)
    return {"kind": "artefact", "artefact": artefact.digest.hex(), **told, "config": config}


def _pictures(
    artefact: Artefact, config: Config | None, data: str | None, image_size: int | None
) -> AuditData | DataParts:
    """The parts of the run that was exported, or other pictures, of which the attacker gets a quarter."""
    manifest = artefact.manifest
    pictures: AuditData | DataParts
    if data is not None:
        pictures = AuditData.of(data_family.create(data, image_size=image_size), 0 if config is None else config.seed)
    elif config is None:
        raise UsageError(f"{artefact.path} does not say which pictures to attack.", "Add --data NAME.")
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


def _graphs_alone(artefact: Artefact) -> str:
    """Why only graphs are attacked, and what to do where the owner of the code asks."""
    if artefact.has(WEIGHTS):
        own = CONFIG not in artefact.manifest.files
        more = "; with the code of the model: splitveil audit FILE.py:NAME --data NAME" if own else ""
        return f"has no recipe ({CONFIG}): attacks that need the model in torch are left out{more}"
    missing = f"weights ({WEIGHTS})" if artefact.has(CONFIG) else f"weights and recipe ({WEIGHTS}, {CONFIG})"
    return f"has no {missing}: attacks that need them are left out"
