"""`splitveil explain`: what the surrogate of a finished run looks at, and what its features look like.

RUN/explain/explain.json: attention, assignments, gates and slot masses of one batch of test pictures in the final
state, curves over training from the maps that training stored, and planes (PCA, t-SNE) of what the device sends. The
figures are drawn from this file alone (report/).
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from splitveil.attacks.base import Progress, silent
from splitveil.audit.subjects import in_turn
from splitveil.core.errors import InputError, UsageError
from splitveil.core.files import write_atomic
from splitveil.core.places import check_will_write
from splitveil.core.run_folder import RunFolder
from splitveil.core.seeding import derive_seed, generator
from splitveil.data.augment import to_float
from splitveil.data.dataset import ImageSet
from splitveil.experiments.embedding import FEWEST, embed, within_share
from splitveil.experiments.gate_summary import Values, over_training, summarise
from splitveil.experiments.token_maps import token_maps
from splitveil.models.split import SplitModel
from splitveil.training.evaluate import EVAL_BATCH, clean_features
from splitveil.training.gate_maps import gate_maps
from splitveil.training.loaded_run import LoadedRun, load_run

FILE = "explain/explain.json"


def explain(
    run: str | Path,
    *,
    against: str | Path | None = None,
    num_images: int = 500,
    seed: int | None = None,
    device: str = "auto",
    progress: Progress = silent,
) -> dict[str, Any]:
    """Look into a finished run, write RUN/explain/explain.json and return its content.

    `against` is a second run on the same data, usually the undefended one: its features are the picture before, those
    of `run` the picture after. `seed` (default: the run's) chooses the test pictures, the noise and the start of t-SNE.
    """
    if num_images < FEWEST:
        raise UsageError(f"--num-images must be at least {FEWEST}, not {num_images}.")
    place = RunFolder.open(run).path / FILE
    check_will_write(place.parent)
    loaded = load_run(run, device)
    other = None if against is None else _comparable(loaded, load_run(against, device))
    seed = loaded.config.seed if seed is None else seed
    test = loaded.parts.test
    chosen = torch.randperm(len(test), generator=generator(seed, "explain"))[:num_images]
    pictures = test.subset(chosen)
    steps = 2 if other is None else 3
    progress("surrogate", 0, steps)
    tree: dict[str, Any] = {
        "run": loaded.folder.name,
        "against": None if other is None else other.folder.name,
        "data": loaded.parts.info.name,
        "class_names": list(loaded.parts.info.class_names),
        "feature_shape": list(loaded.model.feature_shape),
        "num_images": len(pictures),
        "seed": seed,
        **_surrogate(loaded, pictures),
        "training": over_training(loaded.folder.path),
        "planes": {},
        "notes": [],
    }
    for step, (name, one) in enumerate((("before", other), ("after", loaded)), start=1):
        if one is None:
            continue
        progress(f"features of {one.folder.name}", step, steps)
        try:
            before = tree["planes"].get("before", {}).get("pca")
            tree["planes"][name] = _plane(one, pictures, seed, towards=before)
        except InputError as error:
            tree["notes"].append(f"{one.folder.name}: {error.message}")
    signature = (loaded.folder.read_json("result.json") or {}).get("signature", "")
    tree["signature"] = f"{signature}|explain|images:{len(pictures)}|seed:{seed}"
    # on one line: indented, every coordinate would stand on a line of its own
    write_atomic(place, json.dumps(tree, allow_nan=False, separators=(",", ":")) + "\n")
    progress("done", steps, steps)
    return tree


def _comparable(run: LoadedRun, other: LoadedRun) -> LoadedRun:
    mine, theirs = run.parts.info, other.parts.info
    if (mine.name, mine.image_shape, mine.class_names) != (theirs.name, theirs.image_shape, theirs.class_names):
        raise UsageError(
            f"{run.folder.name} was trained on {mine.name} and {other.folder.name} on {theirs.name}.",
            "Choose a run on the same data for --against.",
        )
    return other


def _surrogate(run: LoadedRun, pictures: ImageSet) -> dict[str, Any]:
    """Maps of the final state on one batch of the pictures, as large as in training.

    The classes take turns: one with too few pictures in the batch would have no gates to show (SPEC 3, 4).
    """
    surrogate, config = run.surrogate, run.config
    found: dict[str, Any] = {"surrogate": getattr(config.surrogate, "name", None), "maps": {}, "looks": {}}
    if surrogate is None or config.train.privacy_weight <= 0:  # without weight it was never trained
        return found | {"surrogate": None}
    size = min(config.train.batch_size, len(pictures))
    batch = pictures.subset(in_turn(pictures.labels.cpu())[:size])
    z, y = next(clean_features(run.model, batch, batch_size=size))
    maps = gate_maps(surrogate, z, y, epoch=config.train.epochs)
    plain = {name: Values(tuple(value.shape), value.double().flatten().tolist()) for name, value in maps.items()}
    found["mode"] = getattr(config.surrogate, "preset", None) or getattr(config.surrogate, "mode", None)
    found["maps"] = summarise(plain, run.model.feature_shape)
    found["looks"] = token_maps(surrogate, z, y, batch.images)
    return found


def _title(run: LoadedRun) -> str:
    """Above a picture: what a sweep calls its cell, whose folder is named by a checksum; else the folder's name."""
    cell = run.folder.read_json("cell.json") or {}
    if not cell.get("method"):
        return run.folder.name
    strengths = [f"{key.rpartition('.')[2]} {value}" for key, value in cell.get("coordinates", {}).items()]
    return ", ".join([str(cell["method"]), *strengths, f"seed {run.config.seed}"])


def _plane(run: LoadedRun, pictures: ImageSet, seed: int, towards: list[list[float]] | None = None) -> dict[str, Any]:
    clean, sent = _features(run.model, pictures, seed)
    labels = pictures.labels.cpu().numpy()
    aim = None if towards is None else np.array(towards)
    place = embed(sent.cpu().numpy(), labels, derive_seed(seed, "t-SNE"), towards=aim)
    return {
        "run": _title(run),
        "labels": labels.tolist(),
        "dimension": math.prod(sent.shape[1:]),
        "within": round(within_share(clean.cpu().numpy(), labels), 4),
        **place.to_dict(),
    }


@torch.no_grad()
def _features(model: SplitModel, pictures: ImageSet, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The clean features [N, ...], and what leaves the device, noise and all."""
    random = generator(seed, "explain noise", device=pictures.images.device)
    clean = torch.cat([model.edge(to_float(part)).float() for part in pictures.images.split(EVAL_BATCH)])
    return clean, torch.cat([model.transmit(part, random).float() for part in clean.split(EVAL_BATCH)])
