"""The audit: metrics, floors, tiers, statistics, bounds.

The package itself is callable: ``sv.audit(model, data, tier="standard")`` is `splitveil.audit.api.audit`. (Importing a
submodule binds the package to the name `audit` of its parent, so the function must live behind the same name.)
"""

from __future__ import annotations

import inspect
import sys
from os import PathLike
from types import ModuleType
from typing import Any

_ELSEWHERE = {  # what people look for among the arguments, and where it is
    "budget": "Judge the report with splitveil.audit.budget: check_budget(parse_budget('ssim<=0.5'), report.tree).",
    "train": "It belongs to the data: AuditData(train=...).",
    "attributes": "It belongs to the data: AuditData(attributes=...).",
    "protocol": "It belongs to the data: AuditData(protocol=...).",
    "sanity": "It is called check_sanity.",
}


class _CallableModule(ModuleType):
    """Signature and docstring are those of the function; it is imported when somebody asks for them, or calls it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from splitveil.audit.api import audit
        from splitveil.core.errors import UsageError, nearest
        from splitveil.core.shell import command

        subject = args[0] if args else kwargs.get("model")
        if isinstance(subject, str | PathLike):
            raise UsageError(
                f"sv.audit attacks a split model, not the folder {subject}.",
                f"Attack it with: {command('audit', subject)} (in Python: splitveil.audit.served.audit_artefact for an "
                "artefact, splitveil.audit.run.audit_run for a run)",
            )
        known = inspect.signature(audit).parameters
        for name in kwargs:
            if name not in known:
                raise UsageError(f"sv.audit has no argument '{name}'.", _ELSEWHERE.get(name) or nearest(name, known))
        missing = [name for name in ("model", "data")[len(args) :] if name not in kwargs]
        if missing:
            raise UsageError(
                f"sv.audit needs {' and '.join(f'{name}=' for name in missing)}: a split model, and the pictures to "
                "attack it with.",
                "For example: sv.audit(sv.SplitModel(edge, cloud), 'fashion-mini')",
            )
        return audit(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        from splitveil.audit.api import audit

        return inspect.signature(audit)

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        from splitveil.audit.api import audit

        return f"audit{inspect.signature(audit)}\n\n{inspect.getdoc(audit)}"


sys.modules[__name__].__class__ = _CallableModule
