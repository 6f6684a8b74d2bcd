"""Plug-ins of other packages: which of them an error comes from."""

from __future__ import annotations

import traceback

from splitveil.core.catalogue import FAMILIES
from splitveil.core.errors import PlugInError, reason


def plug_in_failure(error: BaseException) -> PlugInError | None:
    """What to say where `error` arose inside a plug-in of another package; None where it did not."""
    packages = {package for registry in FAMILIES.values() for package in registry.packages()}
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        module = str(frame.f_globals.get("__name__", ""))
        package = module.partition(".")[0]
        if package in packages:
            return PlugInError(
                f"The plug-in package '{package}' failed in {frame.f_code.co_qualname} ({module}, line {line}): "
                f"{type(error).__name__}: {reason(error).rstrip('.')}.",
                "Run the same command with --debug to see the traceback; the fault is to be mended in that package.",
            )
    return None
