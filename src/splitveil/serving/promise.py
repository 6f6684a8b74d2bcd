"""What an artefact promises, in the words of its manifest."""

from __future__ import annotations

from splitveil.serving.manifest import Manifest


def promise(manifest: Manifest) -> str:
    """One clause without a full stop, for the line that a server prints.

    The numbers are those of the audited run; they hold for what is served because the exporter checked that it is the
    same, and for one transmission of a picture unless the audit averaged several.
    """
    useful = "" if manifest.accuracy is None else f"accuracy {manifest.accuracy:.1%}"
    audit = manifest.audit
    if audit is None or audit.worst_case is None:
        return f"{useful or 'nothing'}; what it leaks was never audited"
    leaked = f"worst-case MSE {audit.worst_case.mse:.4f}, SSIM {audit.worst_case.ssim:.2f} ({audit.tier} audit)"
    floor = audit.floors.get("mean_image")
    guess = "" if floor is None else f", where guessing gives MSE {floor.mse:.4f}"
    return ", ".join(part for part in (useful, leaked) if part) + guess
