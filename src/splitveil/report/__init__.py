"""Pages from run folders: reads JSON, TOML and pictures, needs no torch.

The package itself is callable: ``sv.report("runs/demo")`` is `build_report`.
"""

import sys

from splitveil.core.callable_package import CallablePackage
from splitveil.report.api import build_report

__all__ = ["build_report"]


class _Report(CallablePackage):
    target = "splitveil.report.api:build_report"


sys.modules[__name__].__class__ = _Report
