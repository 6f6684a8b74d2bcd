"""The audit: metrics, floors, tiers, statistics, bounds.

The package itself is callable: ``sv.audit(model, data, tier="standard")`` is `splitveil.audit.api.audit`. (Importing a
submodule binds the package to the name `audit` of its parent, so the function must live behind the same name.)
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from splitveil.audit.api import audit

        return audit(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
