"""Attack an exported artefact: what is attacked comes out of `edge.onnx`, with random inputs drawn as a device does.

Where it has weights and recipe, they are first checked to be the model of its graphs. A copy without them (the owner
kept them back, or Splitveil did not train the model) is attacked through its graphs alone.
"""

from __future__ import annotations

import logging
import tomllib
from pathlib import Path
from typing import Any, Unpack

from splitveil import data as data_family
from splitveil.attacks.base import Progress, silent
from splitveil.audit.report import AuditReport
from splitveil.audit.run import NO_RECIPE, Asked, Case, attack
from splitveil.audit.served_model import ServedModel
from splitveil.audit.subjects import AuditData, Mode
from splitveil.core.config import Config
from splitveil.core.errors import ArtefactError, ConfigError, DataError, InputError, UnknownNameError, UsageError
from splitveil.core.run_folder import RunFolder
from splitveil.core.shell import command
from splitveil.data.dataset import DataParts
from splitveil.serving.artefact import Artefact, read
from splitveil.serving.manifest import CLOUD, CONFIG, EDGE, WEIGHTS
from splitveil.serving.reload import check_twin, load_twin
from splitveil.training.device import pick_device

log = logging.getLogger("splitveil.audit")

TOLD = {"signature", "seed", "data", "model", "cut", "surrogate", "classifier", "defences", "accuracy"}


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


def _graphs_alone(artefact: Artefact) -> str:
    """Why only graphs are attacked, and what to do where the owner of the code asks."""
    if artefact.has(WEIGHTS):
        own = CONFIG not in artefact.manifest.files
        more = "; with the code of the model: splitveil audit FILE.py:NAME --data NAME" if own else ""
        return f"has no recipe ({CONFIG}): attacks that need the model in torch are left out{more}"
    missing = f"weights ({WEIGHTS})" if artefact.has(CONFIG) else f"weights and recipe ({WEIGHTS}, {CONFIG})"
    return f"has no {missing}: attacks that need them are left out"
