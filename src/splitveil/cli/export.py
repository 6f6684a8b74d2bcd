"""`splitveil export`: a finished run as an artefact folder that devices and servers run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Annotated[Path, typer.Argument(help="A run folder made by splitveil train.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="The new folder (default: RUN/artefact).", show_default=False)
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the manifest instead of a summary.")] = False,
) -> None:
    """Export a finished run: two ONNX graphs, the weights, the recipe, and a manifest that pins them all.

    The defences are inside edge.onnx, and their randomness enters it as inputs that the device draws from its operating
    system. Before anything is written, both graphs are compared with torch on test pictures.

    Example: splitveil export runs/mine --out artefacts/mine
    """
    from splitveil.cli.progress import progress
    from splitveil.core.run_folder import RunFolder
    from splitveil.core.shell import command

    RunFolder.open(run)  # a wrong path is told before torch is loaded
    from splitveil.serving.export import export_run

    with progress("exporting", quiet=json_) as advance:
        artefact = export_run(run, out, progress=advance)
    manifest = artefact.manifest
    if json_:
        print(manifest.to_json(), end="")
        return
    checks = manifest.checks
    assert checks is not None  # the exporter has just written them
    sizes = {name: (artefact.path / name).stat().st_size / 1024 for name in ("edge.onnx", "cloud.onnx")}
    drawn = ", ".join(f"{one.law} {list(one.shape)}" for one in manifest.random) or "nothing: every answer is fixed"
    print(f"edge.onnx {sizes['edge.onnx']:.0f} KiB, cloud.onnx {sizes['cloud.onnx']:.0f} KiB, opset {manifest.opset}")
    print(f"sent for a picture: {list(manifest.feature.shape)} float32; drawn on the device: {drawn}")
    print(
        f"against torch on {checks.pictures} pictures: features differ by at most {checks.feature_difference:.1e}, "
        f"logits by {checks.logit_difference:.1e}"
    )
    print(f"accuracy of the two halves {checks.accuracy:.1%} ({checks.accuracy_pictures} test pictures)")
    if manifest.audit is None:
        print(f"not audited: {command('audit', run)} first, and export again, so that the artefact says what leaks")
    elif manifest.audit.worst_case is not None:
        worst = manifest.audit.worst_case
        print(f"audited ({manifest.audit.named}): worst case MSE {worst.mse:.4f}, SSIM {worst.ssim:.3f}")
    print(f"The artefact is in {artefact.path}; its digest is {artefact.digest.hex()[:16]}")
