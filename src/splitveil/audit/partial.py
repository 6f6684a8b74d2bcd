"""Finished attacks of an unfinished audit, and finished steps of an unfinished attack: what an interruption spares."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from splitveil.attacks.base import Inference, Outcome, Reconstruction
from splitveil.core.dotted import below
from splitveil.core.errors import RunFolderError, reason
from splitveil.core.files import save_atomic

VARIANT, SCORES, PREDICTIONS = "variant/", "scores/", "predictions/"
VERSIONS = ("splitveil", "torch", "python", "plug_ins")  # fields of a signature that say which code, not of what
CHECKSUM = "[0-9a-f]{16}"
NAME = re.compile(f"(?P<attack>.+-{CHECKSUM}-{CHECKSUM})-{CHECKSUM}")  # with its options, what it attacks; versions


class PartialResults:
    """One safetensors file per finished attack below `folder`; `signature` says what they must have been made from.

    Audits of other models or settings may keep theirs beside them.
    """

    def __init__(self, folder: Path | None, signature: str) -> None:
        fields = signature.split("|")
        versions = [field for field in fields if field.partition(":")[0] in VERSIONS]
        self.folder = folder
        self.thing = _checksum([field for field in fields if field not in versions])
        self.versions = _checksum(versions)

    def load(
        self, name: str, options: dict[str, Any], made: Callable[[str], Reconstruction | None]
    ) -> tuple[Outcome, float] | None:
        """An earlier outcome and the seconds it took; None when there is none that fits.

        One that built on other attacks fits where they `made` the same in this audit, too.
        """
        path = self._path(name, options)
        if path is None or not path.exists():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                note = json.loads(file.metadata()["note"])
                if note["built_on"] != {other: _pictures(made(other)) for other in note["built_on"]}:
                    return None
                tensors: dict[str, Tensor] = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, KeyError, ValueError):
            return None  # a file of another version: run the attack again
        if note["kind"] == "inference":
            inferred = Inference(below(SCORES, tensors), below(PREDICTIONS, tensors), note["details"])
            return inferred, note["seconds"]
        variants = below(VARIANT, tensors)
        curve = [(x, y) for x, y in note["curve"]]
        return Reconstruction(tensors["images"], variants, curve, note["details"]), note["seconds"]

    def save(
        self,
        name: str,
        options: dict[str, Any],
        outcome: Outcome,
        seconds: float,
        built_on: Mapping[str, Reconstruction | None],
    ) -> None:
        path = self._path(name, options)
        if path is None:
            return
        note: dict[str, Any] = {"seconds": seconds, "details": outcome.details}
        note["built_on"] = {other: _pictures(made) for other, made in built_on.items()}
        if isinstance(outcome, Reconstruction):
            note |= {"kind": "reconstruction", "curve": outcome.curve}
            found = {"images": outcome.images, **{VARIANT + key: value for key, value in outcome.variants.items()}}
        else:
            note["kind"] = "inference"
            found = {SCORES + key: value for key, value in outcome.scores.items()}
            found |= {PREDICTIONS + key: value for key, value in outcome.predictions.items()}
        tensors = {key: value.detach().cpu().contiguous() for key, value in found.items()}
        _write(path, tensors, {"note": json.dumps(note)})
        shutil.rmtree(path.with_suffix(".steps"), ignore_errors=True)

    def memory(self, name: str, options: dict[str, Any], device: torch.device) -> StepMemory:
        """Where this attack keeps the steps it has finished; they are forgotten when the whole attack is saved."""
        path = self._path(name, options)
        return StepMemory(None if path is None else path.with_suffix(".steps"), device)

    def clear(self, plan: Mapping[str, Mapping[str, Any]], repeats: int) -> None:
        """Forget the attacks of this plan, each made `repeats` times, whatever version of the code kept them: their
        audit is complete. What others have not finished stays, the same attack with other options among them, unless
        code that gave other names kept it: nobody reads it any more.

        What cannot be deleted stays, too (Windows keeps files that are still mapped): the result is written.
        """
        if self.folder is None:
            return
        numbers = range(repeats)
        done = {self._attack(name, {**plan[name], "number": number}) for name in plan for number in numbers}
        for path in [*self.folder.glob("*.safetensors"), *self.folder.glob("*.steps")]:
            named = NAME.fullmatch(path.stem)
            if named is None or named["attack"] in done:
                with suppress(OSError):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        with suppress(OSError):  # others' results are in it, or there is none
            self.folder.rmdir()

    def _path(self, name: str, options: dict[str, Any]) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / f"{self._attack(name, options)}-{self.versions}.safetensors"

    def _attack(self, name: str, options: dict[str, Any]) -> str:
        """An attack with its options on this very thing, whatever the code."""
        return f"{name}-{_checksum(options)}-{self.thing}"


class StepMemory:
    """The finished steps of one unfinished attack (`attacks.memory.Memory`): a safetensors file for each."""

    def __init__(self, folder: Path | None, device: torch.device) -> None:
        self.folder = folder
        self.device = device

    def recall(self, step: str) -> dict[str, Tensor] | None:
        if self.folder is None or not self._path(step).exists():
            return None
        try:
            return load_file(self._path(step), device=str(self.device))
        except (SafetensorError, OSError):
            return None  # cut short by whatever interrupted the attack: do the step again

    def remember(self, step: str, tensors: dict[str, Tensor]) -> None:
        if self.folder is None:
            return
        kept = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
        _write(self._path(step), kept)

    def _path(self, step: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{hashlib.sha256(step.encode()).hexdigest()[:16]}.safetensors"


def _checksum(values: dict[str, Any] | list[str]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _pictures(made: Reconstruction | None) -> str | None:
    """A checksum of what an attack made, if it made anything."""
    return None if made is None else hashlib.sha256(made.images.detach().cpu().numpy().tobytes()).hexdigest()[:16]


def _write(path: Path, tensors: dict[str, Tensor], facts: dict[str, str] | None = None) -> None:
    """A full disk ends the audit: it is no fault of the attack, and every later one would run for nothing."""
    try:
        save_atomic(path, lambda temporary: save_file(tensors, temporary, metadata=facts))
    except (OSError, SafetensorError) as error:
        raise RunFolderError(
            f"What an attack found cannot be written below {path.parent} ({reason(error)}).",
            "Free some disk space and give the same command again: attacks that were kept are not run again.",
        ) from None
