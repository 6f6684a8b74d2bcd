"""`sv.train(config)`: what `splitveil train` does."""

from __future__ import annotations

import logging
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import torch

from splitveil import data
from splitveil.core.config import Config
from splitveil.core.errors import DataError, InputError, SplitveilError
from splitveil.core.locks import only_writer
from splitveil.core.manifest import config_digest, environment, now, signature
from splitveil.core.pins import stated_checksum
from splitveil.core.plug_ins import plug_ins_of
from splitveil.core.run_folder import RunFolder, late_accuracies
from splitveil.data.dataset import DataParts
from splitveil.functional.guessing import beats_guessing, most_frequent
from splitveil.models.cost import cost
from splitveil.training import distributed
from splitveil.training.build import as_deployed
from splitveil.training.device import pick_device
from splitveil.training.engine import Engine
from splitveil.training.failures import explained
from splitveil.training.fine_tune import check_starting_run, starting_facts
from splitveil.training.place import check_start, clear_leftovers
from splitveil.training.tracking import EpochCallback, recording

log = logging.getLogger("splitveil.training")


def train(
    config: Config,
    *,
    out: str | Path | None = None,
    device: str = "auto",
    resume: bool = False,
    on_epoch: EpochCallback | None = None,
) -> RunFolder:
    """Train one run into the folder `out` and return it. With `resume`, go on where an earlier call stopped.

    Without `out` the folder is runs/NAME, NAME being made of the data set, the surrogate and a checksum of the config.
    """
    if not isinstance(config, Config):
        raise InputError(
            f"Training needs a Config, not a {type(config).__name__}.", "Make one with sv.load_config(RECIPE)."
        )
    if out is None:
        label = getattr(config.surrogate, "name", "none")
        out = Path("runs") / f"{Path(config.data.name).stem}-{label}-{config_digest(config)}"
    folder = RunFolder(Path(out))
    where = pick_device(device)
    distributed.start(where)
    try:
        if distributed.is_main():
            check_start(folder, config, resume)
        distributed.barrier()  # the others start when the folder is known to be usable, and before it is written
        previous = folder.read_json("result.json") if resume else None
        if previous is not None:
            log.info("%s is already finished", folder.path)
            if distributed.is_main():
                _mend_status(folder)
            return folder
        with explained(folder.path), only_writer(folder.path, tidy=True) if distributed.is_main() else nullcontext():
            if distributed.is_main():
                clear_leftovers(folder)
            _run(folder, config, where, resume, on_epoch)
        return folder
    finally:
        distributed.stop()


def _check_pictures(before: dict[str, Any], checksum: str) -> None:
    """A run goes on with the pictures it began with: others would bring held-out ones into training, or the reverse."""
    known = before.get("data", {}).get("checksum")
    if known is not None and known != checksum:
        raise DataError(
            f"The pictures are not those that this run began with (checksum {known[:8]}, now {checksum[:8]}).",
            "Bring the old ones back, or start a new run with another --out.",
        )


def _compare(before: dict[str, Any], now: dict[str, Any]) -> None:
    """A resumed run is the uninterrupted one, bit for bit, only where these agree; say where they do not."""
    facts = {
        "processes": lambda manifest: manifest.get("processes"),
        "torch": lambda manifest: manifest.get("versions", {}).get("torch"),
        "GPU": lambda manifest: manifest.get("hardware", {}).get("gpu"),
        "code": lambda manifest: manifest.get("code"),
        "plug-ins": lambda manifest: manifest.get("plug_ins"),
    }
    for name, fact in facts.items():
        if (old := fact(before)) != (new := fact(now)):
            log.warning("%s: was %s when this run began, is %s now; the result may differ", name, old, new)


def _run(folder: RunFolder, config: Config, device: torch.device, resume: bool, on_epoch: EpochCallback | None) -> None:
    began = time.monotonic()
    start = starting_facts(folder, config, resume)
    parts = data.load(config.data, config.seed)
    before = folder.read_json("manifest.json") if resume else None
    _check_pictures(before or {}, parts.checksum)
    engine = Engine(config, parts, folder, device)
    cost(as_deployed(engine.model, engine.surrogate))  # counted in the end: what cannot send one picture is told now
    if before is None:
        check_starting_run(config, engine.model)  # before the folder holds a run that the mended command would meet
    manifest: dict[str, Any] = {
        **environment(),
        "seed": config.seed,
        "data": {"name": parts.info.name, "protocol": parts.protocol, "checksum": parts.checksum},
        "processes": distributed.world()[1],
        **({"plug_ins": plug_ins} if (plug_ins := plug_ins_of(config)) else {}),
        **({"init_from": start} if start is not None else {}),
        "started": now(),
        "ended": None,
        "status": "running",
    }
    earlier = 0.0
    if distributed.is_main():
        if before is not None:
            manifest["started"] = before.get("started", manifest["started"])
            _compare(before, manifest)
            earlier = sum(s for row in folder.metrics() if isinstance(s := row.get("seconds"), int | float))
        folder.write_config(config)
    status = "failed"
    try:
        if distributed.is_main():
            folder.write_json("manifest.json", manifest)
        distributed.barrier()
        with explained(folder.path), recording(folder.path, on_epoch) as record:
            engine.run(record, resume)
            if distributed.is_main():
                folder.write_json("result.json", _result(engine, parts, earlier + time.monotonic() - began))
        status = "finished"
    except KeyboardInterrupt:
        status = "finished" if (folder.path / "result.json").exists() else "interrupted"
        raise
    except SplitveilError as error:
        manifest["error"] = str(error)
        raise
    finally:
        # on a full disk the reason counts, not that the manifest could not be written either
        with suppress(OSError) if status == "failed" else nullcontext():
            if distributed.is_main():
                _note_end(folder, manifest | {"ended": now(), "status": status})


def _note_end(folder: RunFolder, manifest: dict[str, Any]) -> None:
    """Written also where Ctrl-C falls into the writing: else the run would seem to be under way for ever."""
    try:
        folder.write_json("manifest.json", manifest)
    except KeyboardInterrupt:
        folder.write_json("manifest.json", manifest)
        raise


def _mend_status(folder: RunFolder) -> None:
    """A process that was killed between result.json and its last line left a manifest that says "running"."""
    manifest = folder.read_json("manifest.json")
    if manifest is not None and manifest.get("status") != "finished":
        folder.write_json("manifest.json", {**manifest, "status": "finished", "ended": now()})


def _result(engine: Engine, parts: DataParts, seconds: float) -> dict[str, Any]:
    """result.json (DESIGN 2)."""
    rows = engine.folder.metrics()
    config, last = engine.config, rows[-1]
    late = late_accuracies(rows)
    # the weights that are stored: those of the last epoch, or of the selected one; also after an early stop
    kept = engine.test_accuracy() if config.train.select != "last" or not late else late[-1]
    accuracy_late = sum(late) / len(late) if late else kept
    chosen = {}
    if config.train.select == "test_best":  # the notes' number, and that of the same weights under new noise (SPEC 8.2)
        chosen = {"accuracy_best": engine.keeper.best, "accuracy_retest": engine.test_accuracy(new_noise=True)}
    surrogate = config.surrogate
    return {
        "accuracy_late": accuracy_late,
        "accuracy_last": last.get("test_accuracy", kept),
        "accuracy_kept": kept,
        **chosen,
        "accuracy_guessing": most_frequent(parts.test.labels),
        "works": beats_guessing(accuracy_late, parts.test.labels),
        "rob_loss": last.get("rob_loss"),
        "intra_mse": last.get("intra_mse"),
        "effective_weight": last["effective_weight"],
        "surrogate": getattr(surrogate, "name", None),
        "mode": getattr(surrogate, "preset", None) or getattr(surrogate, "mode", None),
        "defences": list(config.defence),
        "protocol": parts.protocol,
        "epochs": len(rows),
        "cost": cost(as_deployed(engine.model, engine.surrogate)).to_dict(),
        "weights": stated_checksum(engine.folder.weights()),
        "guards": engine.guards.counts,
        "seconds": seconds,
        "signature": signature(config, data=parts.checksum[:8]),
    }
