"""Pages from run folders: reads JSON, TOML and pictures, needs no torch."""

from splitveil.report.api import build_report

__all__ = ["build_report"]
