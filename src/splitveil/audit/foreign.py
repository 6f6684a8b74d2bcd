"""Models that Splitveil did not train, named on the command line: FILE.py:NAME or package.module:NAME.

NAME is a module, a pair (edge, cloud), a `SplitModel`, or a function without arguments that returns one of them. The
file is the user's own code and is executed.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, Unpack

import torch
from torch import nn

from splitveil import __version__
from splitveil.attacks.base import Progress, silent
from splitveil.audit.report import AuditReport
from splitveil.audit.run import NO_RECIPE, Asked, Case, attack
from splitveil.audit.subjects import Mode
from splitveil.core.errors import InputError, UsageError, nearest
from splitveil.core.manifest import torch_version
from splitveil.data import create as load_data
from splitveil.models.cutting import split
from splitveil.models.split import SplitModel
from splitveil.training.device import pick_device

Result = TypeVar("Result")
FORM = "Name it as FILE.py:NAME or package.module:NAME."


def audit_own(
    target: str,
    *,
    data: str,
    image_size: int | None = None,
    at: str | None = None,
    weights: Path | None = None,
    out: Path | None = None,
    mode: Mode | None = None,
    device: str = "auto",
    progress: Progress = silent,
    **asked: Unpack[Asked],
) -> AuditReport:
    """Attack the model that `target` names; the result lies in OUT/audit, where `splitveil report OUT` finds it.

    What the code computes beside its weights is not pinned, so a finished audit is never taken for another's: a second
    call attacks again.
    """
    pictures = load_data(data, image_size=image_size)
    folder = Path("runs") / f"audit-{target.rpartition(':')[2]}" if out is None else out
    asked["again"] = True
    with _kept_running(target):
        model = load_foreign(target, pictures.info.image_shape, pictures.info.num_classes, at=at, weights=weights)
        case = Case(model, pictures, _signature(target, at), device=pick_device(device))
        return attack(case, mode or NO_RECIPE.audit.mode, folder / "audit", progress, asked)


def load_foreign(
    target: str, image_shape: tuple[int, ...], num_classes: int, *, at: str | None = None, weights: Path | None = None
) -> SplitModel:
    """The model that `target` names, with `weights` loaded, cut after the layer `at`, in evaluation mode."""
    found = _object(target)
    if not isinstance(found, nn.Module) and callable(found):
        found = _run(found, target)
    if isinstance(found, tuple) and len(found) == 2 and all(isinstance(half, nn.Module) for half in found):
        found = SplitModel(*found, image_shape=image_shape, num_classes=num_classes)
    if not isinstance(found, nn.Module):
        raise UsageError(
            f"{target} is of type {type(found).__name__}, not a model.",
            "It should be a module, a pair (edge, cloud), or a function without arguments that returns one of them.",
        )
    if weights is not None:
        load_weights(found, weights)
    found.eval()
    if isinstance(found, SplitModel):
        if at is not None:
            raise UsageError(f"{target} is cut already.", "Leave out --at.")
        return found
    if at is None:
        layers = [name for name, _ in found.named_children()]
        raise UsageError(f"{target} is not cut.", f"Say after which layer with --at, for example: {', '.join(layers)}.")
    model = split(found, at, example=torch.rand(2, *image_shape, generator=torch.Generator().manual_seed(0)))
    model.num_classes = num_classes
    return model


def load_weights(module: nn.Module, path: Path) -> None:
    """A state dict from .safetensors or from torch.save; nothing in the file is executed."""
    if not path.is_file():
        raise UsageError(
            f"There is no file {path}.", "Give --weights a state dict: .safetensors, or .pt of torch.save."
        )
    try:
        state = _state(path)
    except Exception as error:  # whatever a reader raises on a file that is none of its own
        raise InputError(
            f"{path} cannot be read as weights alone ({type(error).__name__}).",
            "Save a state dict, torch.save(module.state_dict(), FILE) or .safetensors; pickled models are not read.",
        ) from error
    try:
        module.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as error:
        reason = textwrap.shorten(" ".join(str(error).split()), 300, placeholder=" ...")
        raise InputError(f"{path} does not fit the model: {reason}", _other_weights(state, module)) from None


def _other_weights(state: Any, module: nn.Module) -> str:
    """What a file of weights that do not fit probably is: a checkpoint around them, or those of a wrapped module."""
    wanted = module.state_dict().keys()
    names = state if isinstance(state, dict) else {}
    inside = next((key for key, value in names.items() if isinstance(value, dict) and wanted & value.keys()), None)
    if inside is not None:
        return (
            f"It is a checkpoint with a state dict inside: save that alone, torch.save(checkpoint[{inside!r}], FILE)."
        )
    first = next(iter(wanted), None)
    longer = next((name for name in names if first and str(name).endswith(f".{first}")), None)
    if longer is not None:
        before = longer.removesuffix(str(first))
        return f"Its names begin with '{before}', as of a wrapped module: save the state dict of the module inside."
    return "Is it the state dict of this very module?"


def _state(path: Path) -> Any:
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    return torch.load(path, map_location="cpu", weights_only=True)


def _signature(target: str, at: str | None) -> str:
    """Names the model and pins its file, as far as one file tells."""
    place, _, name = target.rpartition(":")
    code = hashlib.sha256(Path(place).read_bytes()).hexdigest()[:10] if place.endswith(".py") else place
    cut = "" if at is None else f"|at:{at}"
    return f"splitveil:{__version__}|own:{name}|code:{code}{cut}|torch:{torch_version()}"


def _object(target: str) -> Any:
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise UsageError(f"'{target}' names no model.", FORM)
    module = _from_file(Path(place)) if place.endswith(".py") else _from_package(place)
    try:
        return getattr(module, name)
    except AttributeError:
        raise UsageError(f"{place} has nothing called '{name}'.", nearest(name, _public(module))) from None


def _public(module: ModuleType) -> list[str]:
    return [name for name in vars(module) if not name.startswith("_")]


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"There is no file {path}.", FORM)
    spec = importlib.util.spec_from_file_location(f"splitveil_audited_{path.stem}", path.resolve())
    assert spec is not None  # a file that ends in .py has a spec
    assert spec.loader is not None  # and a loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # as an import would: dataclasses and pickles look there
    beside = str(path.resolve().parent)
    sys.path.insert(0, beside)  # as `python FILE` would: the file may import its neighbours
    try:
        _run(lambda: spec.loader.exec_module(module), str(path))  # type: ignore[union-attr]
    finally:
        sys.path.remove(beside)
    return module


def _from_package(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` would
    try:
        return _run(lambda: importlib.import_module(name), name)
    finally:
        sys.path.remove(str(Path.cwd()))


@contextmanager
def _kept_running(target: str) -> Iterator[None]:
    """Code that ends the program would end the audit with an exit code of its own choice: 0 is a budget that is met."""
    try:
        yield
    except SystemExit as error:
        raise UsageError(
            f"The code of {target} ended the program, before the audit was done.",
            "Take sys.exit out of it; what a script does when it is called belongs behind if __name__ == '__main__'.",
        ) from error


def _run(call: Callable[[], Result], what: str) -> Result:
    """The user's own code: whatever it raises is told in one sentence; --debug shows where."""
    try:
        return call()
    except Exception as error:
        raise UsageError(f"{what} failed: {type(error).__name__}: {error}", "--debug shows where.") from error
