"""The audit: metrics, floors, tiers, statistics, bounds.

The package itself is callable: ``sv.audit(model, data, tier="standard")`` is `splitveil.audit.api.audit`.
"""

from __future__ import annotations

import sys
from os import PathLike, fspath
from typing import Any

from splitveil.core.callable_package import CallablePackage

_ELSEWHERE = {  # what people look for among the arguments, and where it is
    "budget": "Judge the report with splitveil.audit.budget: check_budget(parse_budget('ssim<=0.5'), report.tree).",
    "train": "It belongs to the data: AuditData(train=...).",
    "attributes": "It belongs to the data: AuditData(attributes=...).",
    "protocol": "It belongs to the data: AuditData(protocol=...).",
    "sanity": "It is called check_sanity.",
}


class _Audit(CallablePackage):
    target = "splitveil.audit.api:audit"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from splitveil.core.errors import UsageError, nearest
        from splitveil.core.shell import command

        subject = args[0] if args else kwargs.get("model")
        if isinstance(subject, str | PathLike):
            subject = fspath(subject)
            raise UsageError(
                f"sv.audit attacks a split model, not the folder {subject}.",
                f"Attack it with: {command('audit', subject)} (in Python: splitveil.audit.served.audit_artefact for an "
                "artefact, splitveil.audit.run.audit_run for a run)",
            )
        known = self.__signature__.parameters
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
        return super().__call__(*args, **kwargs)


sys.modules[__name__].__class__ = _Audit
