"""Plug-ins of other packages: which code they are, and which of them an error comes from."""

from __future__ import annotations

import hashlib
import importlib.util
import traceback
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from splitveil.core.catalogue import FAMILIES
from splitveil.core.code_version import checksum_of
from splitveil.core.errors import PlugInError, reason

if TYPE_CHECKING:  # the command loads this file for whatever it does, and pydantic takes longer than all the rest of it
    from splitveil.core.config import Config


def plug_ins_of(config: Config, *, audit: bool = False) -> dict[str, str]:
    """The other packages whose plug-ins train a configuration's model, and with `audit` those that attack it, each with
    a checksum of its code."""
    named = {
        "surrogates": [] if config.surrogate is None else [config.surrogate.model_dump()["name"]],
        "defences": config.defence,
        "attacks": (config.audit.attacks or ()) if audit else (),
        "measures": config.audit.measures if audit else (),
        "datasets": [config.data.name],
        "models": [config.model.name],
    }
    return {package: code for family, names in named.items() for package, code in packages_of(family, names).items()}


def packages_of(family: str, names: Iterable[str]) -> dict[str, str]:
    """The other packages that offer `names`, each with a checksum of its code; a data set may be a path, too."""
    registry = FAMILIES[family]
    found = {registry.package(name) for name in names if name in registry.names()}
    return {package: _code(package) for package in sorted(found - {"splitveil"})}


def pinned(packages: dict[str, str]) -> dict[str, str]:
    """The packages as one short field of a signature; nothing where there are none."""
    if not packages:
        return {}
    text = " ".join(f"{package}={code}" for package, code in sorted(packages.items()))
    return {"plug_ins": hashlib.sha256(text.encode()).hexdigest()[:8]}


@cache
def _code(package: str) -> str:
    spec = importlib.util.find_spec(package)
    if spec is not None and spec.submodule_search_locations:
        root = Path(next(iter(spec.submodule_search_locations)))
        return checksum_of(root, sorted(root.rglob("*.py")))
    if spec is not None and spec.origin and spec.origin.endswith(".py"):
        return checksum_of(Path(spec.origin).parent, [Path(spec.origin)])
    return "unknown"


def plug_in_failure(error: BaseException) -> PlugInError | None:
    """What to say where `error` arose inside a plug-in of another package; None where it did not."""
    packages = {registry.package(name) for registry in FAMILIES.values() for name in registry.names()} - {"splitveil"}
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        module = str(frame.f_globals.get("__name__", ""))
        package = module.partition(".")[0]
        if package in packages:
            return PlugInError(
                f"The plug-in package '{package}' failed in {frame.f_code.co_qualname} ({module}, line {line}): "
                f"{type(error).__name__}: {reason(error).rstrip('.')}.",
                "Mend it in that package. --debug shows the traceback; that of a sweep's cell is in its error.json.",
            )
    return None
