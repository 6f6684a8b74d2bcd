"""`export_run`: from a finished run to an artefact folder, checked first, and written whole or not at all.

What leaves: the two graphs, the weights without adversaries and without the features that surrogates remember (they
are features of training pictures), the recipe, and the manifest.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from splitveil import __version__
from splitveil.core.config import Config
from splitveil.core.errors import RunFolderError, UsageError
from splitveil.core.files import check_folder, sha256, write_atomic
from splitveil.core.manifest import now
from splitveil.core.run_folder import RunFolder
from splitveil.serving.artefact import MANIFEST, Artefact, read
from splitveil.serving.checks import agreement, check_accuracy, served_accuracy
from splitveil.serving.graphs import (
    OPSET,
    CloudGraph,
    EdgeGraph,
    export_cloud,
    export_edge,
    random_inputs,
    require_exporter,
)
from splitveil.serving.halves import CloudHalf, EdgeHalf
from splitveil.serving.manifest import (
    CLOUD,
    CONFIG,
    EDGE,
    FILES,
    WEIGHTS,
    AuditDigest,
    Checks,
    Defence,
    Feature,
    Manifest,
    Pictures,
    Scores,
)
from splitveil.surrogates.base import Surrogate
from splitveil.surrogates.memory import FeatureMemory
from splitveil.training.api import LoadedRun, load_run
from splitveil.training.checkpoint import save_weights

log = logging.getLogger("splitveil.serving")

Progress = Callable[[str, int, int], None]
STEPS = ("loading the run", "exporting the edge half", "exporting the cloud half", "checking against torch")


def export_run(run: str | Path, out: str | Path | None = None, *, progress: Progress | None = None) -> Artefact:
    """Export the finished run in folder `run` into the new folder `out` (default: RUN/artefact), and read it back.

    Raises ArtefactError where the model cannot be exported, or where the exported halves do not answer as torch does.

    Example: ``sv.export("runs/mine", "artefacts/mine").manifest.accuracy``
    """
    require_exporter()
    folder = RunFolder.open(run)
    result = _finished(folder)
    place = folder.path / "artefact" if out is None else Path(out)
    _check_new(place)
    tell = progress or (lambda what, done, total: None)
    tell(STEPS[0], 0, len(STEPS))
    loaded = load_run(folder.path, "cpu")
    place.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent))
    try:
        _write(made, loaded, result, tell)
        made.chmod(0o755)
        made.rename(place)  # onto an empty folder, or onto nothing
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return read(place)


def own_classifier(config: Config, surrogate: Surrogate | None) -> Surrogate | None:
    """The surrogate where it answers in place of the cloud half (SPEC 2.3), else None."""
    return surrogate if getattr(config.surrogate, "classifier", "cloud") == "attention" else None


def _finished(folder: RunFolder) -> dict[str, Any]:
    result = folder.read_json("result.json")
    folder.weights()
    if result is None:
        raise RunFolderError(
            f"{folder.path} is not finished: it has no result.json.",
            f"Finish it with: splitveil train {folder.path / 'config.toml'} --out {folder.path} --resume",
        )
    return result


def _check_new(place: Path) -> None:
    check_folder(place)
    if place.is_dir() and any(place.iterdir()):
        raise UsageError(f"{place} exists already.", "Delete it first, or give --out the name of a new folder.")


def _write(made: Path, run: LoadedRun, result: dict[str, Any], tell: Progress) -> None:
    model, config = run.model, run.config
    classifier = own_classifier(config, run.surrogate)
    pictures = Pictures(shape=run.parts.info.image_shape, mean=run.parts.info.mean, std=run.parts.info.std)
    feature = Feature(shape=model.feature_shape)
    random = random_inputs(model, pictures.shape)
    edge_graph, cloud_graph = EdgeGraph(model, random).eval(), CloudGraph(model, classifier).eval()
    tell(STEPS[1], 1, len(STEPS))
    write_atomic(made / EDGE, export_edge(edge_graph, pictures, feature))
    tell(STEPS[2], 2, len(STEPS))
    write_atomic(made / CLOUD, export_cloud(cloud_graph, feature))
    forget(classifier)
    save_weights(made / WEIGHTS, {"model": model, "surrogate": classifier})
    write_atomic(made / CONFIG, config.to_toml())
    manifest = Manifest(
        splitveil=__version__,
        created=now(),
        signature=str(result.get("signature", "")),
        seed=config.seed,
        data={"name": run.parts.info.name, "protocol": run.parts.protocol, "checksum": run.parts.checksum},
        model=config.model.name,
        cut=config.model.cut,
        surrogate=getattr(config.surrogate, "name", None),
        classifier="cloud" if classifier is None else "attention",
        defences=tuple(
            Defence(name=name, options=options.model_dump(mode="json")) for name, options in config.defence.items()
        ),
        input=pictures,
        feature=feature,
        num_classes=run.parts.info.num_classes,
        class_names=run.parts.info.class_names,
        random=random,
        accuracy=result.get("accuracy_kept"),
        audit=_audit(run.folder, str(result.get("signature", ""))),
        opset=OPSET,
        files={name: sha256(made / name) for name in FILES},
    )
    tell(STEPS[3], 3, len(STEPS))
    checks = _checked(Artefact(made, manifest, b""), edge_graph, cloud_graph, run)
    write_atomic(made / MANIFEST, manifest.model_copy(update={"checks": checks}).to_json())
    tell("done", len(STEPS), len(STEPS))


def _checked(artefact: Artefact, edge_graph: EdgeGraph, cloud_graph: CloudGraph, run: LoadedRun) -> Checks:
    edge, cloud = EdgeHalf(artefact), CloudHalf(artefact)
    found = agreement(edge, cloud, edge_graph, cloud_graph, run.parts.test)
    accuracy, count = served_accuracy(edge, cloud, run.parts.test)
    if artefact.manifest.accuracy is not None:
        check_accuracy(accuracy, count, artefact.manifest.accuracy)
    return Checks(**asdict(found), accuracy=accuracy, accuracy_pictures=count)


def forget(surrogate: Surrogate | None) -> None:
    """Empty what a surrogate remembers: features of training pictures, which no answer needs."""
    for module in [] if surrogate is None else surrogate.modules():
        if isinstance(module, FeatureMemory):
            for buffer in module.buffers():
                buffer.zero_()


def _audit(folder: RunFolder, signature: str) -> AuditDigest | None:
    """What RUN/audit says, where it is about this run."""
    tree = folder.read_json("audit/audit.json")
    if tree is None:
        return None
    said = str(tree.get("signature", ""))
    if any(
        part not in said.split("|") for part in signature.split("|") if part.startswith(("config:", "seed:", "data:"))
    ):
        log.warning("%s is about another run: the artefact states no audit", folder.audit)
        return None
    worst = tree.get("worst_case") or None
    return AuditDigest(
        tier=tree["tier"],
        mode=tree["mode"],
        num_images=tree["num_images"],
        worst_case=None if worst is None else _scores(worst),
        floors={name: _scores(found) for name, found in tree.get("floors", {}).items()},
        signature=said,
    )


def _scores(found: dict[str, Any]) -> Scores:
    return Scores(mse=found["mse"], ssim=found["ssim"], psnr=found["psnr"])
