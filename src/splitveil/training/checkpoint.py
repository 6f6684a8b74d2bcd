"""Checkpoints: safetensors + JSON, atomic, checksummed; a damaged newest one falls back to the one before.

    checkpoints/model.safetensors         the weights that the run stands for (audit and report read these), without
                                          the adversaries inside defences, which no device and no server needs
    checkpoints/state-000012.safetensors  everything that epoch 13 needs: weights, banks, momenta, adversaries' state
    checkpoints/state-000012.json         epoch, checksum, counters
    checkpoints/best.safetensors          weights of the best epoch on validation

All randomness is derived from seed and epoch, so there are no generator states to keep.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from splitveil.core.dotted import below
from splitveil.core.errors import RunFolderError, TrainingError
from splitveil.core.files import save_atomic, sha256, write_json
from splitveil.core.pins import CHECKSUM
from splitveil.core.places import check_name
from splitveil.models.split import SplitModel
from splitveil.training.failures import FREE_SPACE
from splitveil.training.optimiser_state import all_tensors, load_all_tensors, load_momenta, momenta

log = logging.getLogger("splitveil.training")

KEEP = 2  # the newest and the one before it
RESTORE = "Train the run again or restore the file."


def save_weights(path: Path, parts: dict[str, nn.Module | None]) -> None:
    """Write what modules are used with (no adversaries) into one file, keys prefixed by part name, with a checksum."""
    tensors = _stored(_module_tensors(parts, deployed=True))
    _save(path, tensors, {CHECKSUM: _digest(tensors)})


def load_weights(path: Path, parts: dict[str, nn.Module | None]) -> None:
    """Read back what `save_weights` wrote; parts that are None are skipped, adversaries stay as they are."""
    tensors = read_weights(path)
    try:
        _load_modules(tensors, parts)
    except RuntimeError as error:  # torch's word for missing, unexpected or misshapen entries
        reason = " ".join(str(error).split(":", 1)[-1].split())[:200]
        raise RunFolderError(
            f"{path} does not fit the run's config.toml: {reason}", "Restore whichever of the two was changed."
        ) from None


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a file of weights, keys prefixed by part name; RunFolderError where the file is damaged."""
    check_name(path)
    try:
        with safe_open(path, "pt") as file:
            expected = (file.metadata() or {}).get(CHECKSUM)
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise RunFolderError(f"{path} cannot be read: {error}.", RESTORE) from None
    if expected is not None and expected != _digest(tensors):
        raise RunFolderError(f"{path} is damaged: its checksum differs.", RESTORE)
    return tensors


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """Checksum of names and values."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def take_state(
    parts: dict[str, nn.Module | None],
    optimiser: torch.optim.Optimizer,
    others: Mapping[str, torch.optim.Optimizer] | None = None,
) -> dict[str, Tensor]:
    """A copy of everything that the next epoch needs, where it lies: on a GPU this takes no longer than a kernel.

    `others` are further optimisers by name (those of the adversaries inside defences), with whatever state they have.
    """
    tensors = _module_tensors(parts) | momenta(optimiser)
    for owner, other in (others or {}).items():
        tensors |= {f"optimiser.{owner}.{key}": value for key, value in all_tensors(other).items()}
    return tensors


def save_state(
    folder: Path, epoch: int, tensors: Mapping[str, Tensor], facts: dict[str, Any], keep_every: int | None
) -> None:
    """Write the state (of `take_state`) after `epoch`; then delete older ones that nobody asked to keep."""
    name = folder / f"state-{epoch:06d}"
    _save(name.with_suffix(".safetensors"), _stored(tensors))
    checksum = sha256(name.with_suffix(".safetensors"))
    write_json(name.with_suffix(".json"), {"epoch": epoch, "sha256": checksum, **facts})
    _discard(folder, epoch, keep_every)


def _discard(folder: Path, newest: int, keep_every: int | None) -> None:
    """Delete what nobody resumes from.

    That is: states before the last two, unless asked for; damaged ones of later epochs, which a resumed run has passed
    over; tensors whose JSON was never written.
    """
    facts, tensors = ({_epoch(p): p for p in folder.glob(f"state-*.{end}")} for end in ("json", "safetensors"))
    reached = sorted(epoch for epoch in facts if epoch <= newest)
    keep = {*reached[-KEEP:], *(epoch for epoch in reached if keep_every and epoch % keep_every == 0)}
    for files in (facts, tensors):  # in this order: tensors without their JSON do not count, JSON without tensors warns
        for epoch in files.keys() - keep:
            files[epoch].unlink()


def _epoch(path: Path) -> int:
    return int(path.stem.removeprefix("state-"))


def load_state(
    folder: Path,
    parts: dict[str, nn.Module | None],
    optimiser: torch.optim.Optimizer,
    others: Mapping[str, torch.optim.Optimizer] | None = None,
) -> dict[str, Any]:
    """Restore the newest intact state and return its facts (an empty dictionary when there is none)."""
    states = sorted(folder.glob("state-*.json"), reverse=True)
    for path in states:
        tensors_path = path.with_suffix(".safetensors")
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(facts, dict):
                raise ValueError("its facts are not a table")
            if sha256(tensors_path) != facts["sha256"]:
                raise ValueError("checksum differs")
            tensors = load_file(tensors_path)
        except (OSError, ValueError, KeyError, RecursionError, SafetensorError) as error:
            log.warning("checkpoint %s is damaged (%s); trying the one before", path.stem, error)
            continue
        _load_modules(tensors, parts)
        load_momenta(optimiser, tensors)
        for owner, other in (others or {}).items():
            load_all_tensors(other, below(f"optimiser.{owner}.", tensors))
        return facts
    if states:
        log.warning("no checkpoint is intact: the run starts again from the beginning")
    return {}


def _module_tensors(parts: dict[str, nn.Module | None], *, deployed: bool = False) -> dict[str, Tensor]:
    """The state of several modules, keys prefixed by part name; with `deployed`, without adversaries."""
    return {
        f"{part}.{key}": value.detach().clone()
        for part, module in parts.items()
        if module is not None
        for key, value in (
            module.deployed_state() if deployed and isinstance(module, SplitModel) else module.state_dict()
        ).items()
    }


def _stored(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """As files hold them: on the CPU, in plain memory order."""
    return {name: value.cpu().contiguous() for name, value in tensors.items()}


def _load_modules(tensors: dict[str, Tensor], parts: dict[str, nn.Module | None]) -> None:
    """The inverse; adversaries that the tensors lack stay as they are."""
    for part, module in parts.items():
        if module is not None:
            state = below(f"{part}.", tensors)
            own = module.state_dict() if isinstance(module, SplitModel) else {}
            used = module.deployed_state() if isinstance(module, SplitModel) else {}
            module.load_state_dict({key: own[key] for key in own.keys() - used.keys()} | state)


def _save(path: Path, tensors: dict[str, Tensor], facts: dict[str, str] | None = None) -> None:
    try:
        save_atomic(path, lambda temporary: save_file(tensors, temporary, metadata=facts))
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"{path.name} could not be written: {error}.", FREE_SPACE) from None
