"""`splitveil doctor`: what works on this machine, and how to fix what does not."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

EXTRAS = {  # import name -> (extra, what it is for)
    "fastapi": ("ui", "the web app (splitveil ui) and, with extra serve, the servers (splitveil cloud, edge --serve)"),
    "uvicorn": ("ui", "the web app (splitveil ui) and, with extra serve, the servers (splitveil cloud, edge --serve)"),
    "onnx": ("serve", "exporting a run (splitveil export)"),
    "onnxscript": ("serve", "exporting a run (splitveil export)"),
    "onnxruntime": ("serve", "running the two halves of an artefact (splitveil edge, splitveil cloud)"),
    "optuna": ("sweep", "tuning strengths (splitveil sweep --search)"),
    "ray": ("ray", "sweeps over several machines (splitveil sweep --engine ray)"),
    "tensorboard": ("track", "curves in TensorBoard"),
    "datasets": ("hub", "data sets from the Hugging Face hub"),
    "lightning": ("lightning", "the Lightning callback"),
    "transformers": ("huggingface", "the Trainer of Hugging Face"),
    "accelerate": ("huggingface", "the Trainer of Hugging Face"),
}
NOT_ON_DEVICES = ("torch", "safetensors", "sklearn", "scipy")  # docs/serving.md: a device runs edge halves without them


def doctor(json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False) -> None:
    """Say what works on this machine and how to fix what does not.

    Example: splitveil doctor
    """
    rows = [*_basics(), *_compute(), *_extras(), *_plug_ins(), *_places()]
    if json_:
        print(json.dumps([{"check": c, "state": s, "detail": d} for c, s, d in rows], indent=2))
    else:
        for check, state, detail in rows:
            print(f"{state:<8} {check:<14} {detail}")
    if any(state == "broken" for _, state, _ in rows):
        raise typer.Exit(1)


Row = tuple[str, str, str]


def _basics() -> list[Row]:
    rows: list[Row] = []
    ok = sys.version_info >= (3, 11)
    rows.append(("python", "ok" if ok else "broken", platform.python_version() + ("" if ok else "; 3.11+ is needed")))
    device = importlib.util.find_spec("torch") is None
    for package in ("torch", "numpy", "safetensors", "pydantic", "sklearn", "scipy", "PIL"):
        if device and package in NOT_ON_DEVICES and importlib.util.find_spec(package) is None:
            rows.append((package, "absent", "most but `splitveil edge` needs it; in the clone: pip install -e ."))
            continue
        try:
            module = __import__(package)
            rows.append((package, "ok", str(getattr(module, "__version__", ""))))
        except Exception as error:  # a broken install may fail in any way; the doctor must survive it
            rows.append(
                (package, "broken", f"{type(error).__name__}: {error}; reinstall it; in the clone: pip install -e .")
            )
    return rows


def _compute() -> list[Row]:
    try:
        import torch
    except Exception:  # reported above
        return []
    rows: list[Row] = [("cpu", "ok", f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads")]
    if torch.cuda.is_available():
        gigabytes = torch.cuda.get_device_properties(0).total_memory / 2**30
        rows.append(("gpu", "ok", f"{torch.cuda.get_device_name()} with {gigabytes:.0f} GiB"))
    else:
        rows.append(("gpu", "absent", "no CUDA device: use the model `tiny`; vgg11 is slow on a CPU"))
    x = torch.randn(8, 4, requires_grad=True)
    torch.nn.functional.linear(x, torch.ones(2, 4)).square().sum().backward()
    good = x.grad is not None and bool(torch.isfinite(x.grad).all())
    rows.append(("autograd", "ok" if good else "broken", "a small backward pass"))
    return rows


def _extras() -> list[Row]:
    rows: list[Row] = []
    for package, (extra, purpose) in EXTRAS.items():
        found = importlib.util.find_spec(package) is not None
        detail = f"{purpose}; extra {extra}" if found else f"{purpose}; in the clone: pip install -e '.[{extra}]'"
        rows.append((package, "ok" if found else "absent", detail))
    return rows


def _plug_ins() -> list[Row]:
    """What other packages offer, family by family; whatever is wrong with one is told and does not end the others."""
    from splitveil.core.catalogue import FAMILIES
    from splitveil.core.errors import SplitveilError

    rows: list[Row] = []
    for family, registry in FAMILIES.items():
        try:
            foreign = [name for name in registry.names() if registry.entry(name).source != "splitveil"]
        except SplitveilError as error:  # two of one name
            rows.append((family, "broken", str(error)))
            continue
        for name in foreign:
            try:
                registry.load(name)
                rows.append((name, "ok", f"{family}, {registry.entry(name).summary}"))
            except SplitveilError as error:
                rows.append((name, "broken", str(error)))
    return rows


def _places() -> list[Row]:
    from splitveil.core.places import data_root

    rows: list[Row] = []
    for label, folder in (("data folder", data_root()), ("this folder", Path.cwd())):
        existing = next(p for p in [folder, *folder.parents] if p.exists())
        try:
            with tempfile.TemporaryFile(dir=existing):
                pass
            free = shutil.disk_usage(existing).free / 2**30
            state, detail = (
                ("ok", f"writable, {free:.0f} GiB free") if free > 1 else ("low", f"only {free:.1f} GiB free")
            )
        except OSError as error:
            other = "set SPLITVEIL_DATA to another" if label == "data folder" else "work in another"
            state, detail = "broken", f"not writable ({error.strerror}): {other}"
        rows.append((label, state, f"{folder}: {detail}"))
    return rows
