"""An artefact folder, written whole or not at all, after its graphs were compared with torch."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from splitveil import __version__
from splitveil.core.errors import UsageError
from splitveil.core.files import leftover, sha256, write_atomic
from splitveil.core.manifest import now
from splitveil.core.places import check_folder, check_will_write
from splitveil.data.dataset import ImageSet
from splitveil.functional.guessing import beats_guessing, most_frequent
from splitveil.models.split import SplitModel, feature_shape
from splitveil.serving.artefact import MANIFEST, Artefact, read
from splitveil.serving.checks import SCORED, agreement, check_accuracy, served_accuracy, spread_over
from splitveil.serving.graphs import OPSET, CloudGraph, EdgeGraph, export_cloud, export_edge, random_inputs
from splitveil.serving.halves import CloudHalf, EdgeHalf
from splitveil.serving.manifest import CLOUD, EDGE, FILES, Checks, Feature, Manifest, Pictures
from splitveil.surrogates.base import Surrogate

log = logging.getLogger("splitveil.serving")

Progress = Callable[[str, int, int], None]
STEPS = ("exporting the edge half", "exporting the cloud half", "checking against torch", "done")


@dataclass(frozen=True)
class Contents:
    """What goes into an artefact. The model is in eval mode on the CPU."""

    model: SplitModel
    classifier: Surrogate | None  # answers in place of the cloud half
    pictures: Pictures
    test: ImageSet
    save: Callable[[Path], None]  # writes the files beside the graphs
    facts: dict[str, Any]  # of the manifest


def check_new(place: Path) -> None:
    """Refuse a place where something lies already, before the work that would be lost."""
    check_folder(place)
    if not place.name:  # the folder one stands in cannot be put in place at once
        raise UsageError(f"'{place}' is no name for a new folder.", "Give it one, for example: --out artefact")
    check_will_write(place.parent, "Change its permissions, or choose another place with --out (in Python: out).")
    if place.is_dir() and any(place.iterdir()):
        raise UsageError(f"{place} exists already.", "Name a new folder: nothing is overwritten.")


def write_artefact(place: Path, contents: Contents, progress: Progress | None = None) -> Artefact:
    """Write the folder `place`; it was read back before it got its name."""
    place.parent.mkdir(parents=True, exist_ok=True)
    made = leftover(place)
    try:
        made.mkdir()
        _fill(made, contents, progress or (lambda what, done, total: None))
        artefact = replace(read(made), path=place)  # before it has its name: with that, all is done
        if place.is_dir():
            place.rmdir()  # empty, as `check_new` has seen
        made.rename(place)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    if not artefact.manifest.defended:
        clean = "" if artefact.manifest.random else ": the clean feature is sent, which attackers read"
        log.warning("The model in %s has %s%s", place, artefact.manifest.undefended, clean)
    return artefact


def _fill(made: Path, contents: Contents, tell: Progress) -> None:
    model, pictures = contents.model, contents.pictures
    feature = Feature(shape=feature_shape(model.edge, pictures.shape))
    random = random_inputs(model, pictures.shape)
    edge_graph, cloud_graph = EdgeGraph(model, random), CloudGraph(model, contents.classifier)
    tell(STEPS[0], 0, 3)
    write_atomic(made / EDGE, export_edge(edge_graph, pictures, feature))
    tell(STEPS[1], 1, 3)
    write_atomic(made / CLOUD, export_cloud(cloud_graph, feature))
    contents.save(made)
    manifest = Manifest(
        splitveil=__version__,
        created=now(),
        classifier="cloud" if contents.classifier is None else "attention",
        input=pictures,
        feature=feature,
        random=random,
        opset=OPSET,
        files={name: sha256(made / name) for name in FILES if (made / name).exists()},
        **contents.facts,
    )
    tell(STEPS[2], 2, 3)
    checks = _checked(Artefact(made, manifest, b""), edge_graph, cloud_graph, contents.test)
    write_atomic(made / MANIFEST, manifest.model_copy(update={"checks": checks}).to_json())
    tell(STEPS[3], 3, 3)


def _checked(artefact: Artefact, edge_graph: EdgeGraph, cloud_graph: CloudGraph, test: ImageSet) -> Checks:
    threads = torch.get_num_threads()
    edge, cloud = EdgeHalf(artefact, threads=threads), CloudHalf(artefact, threads=threads)
    found = agreement(edge, cloud, edge_graph, cloud_graph, test)
    accuracy, count = served_accuracy(edge, cloud, test)
    if artefact.manifest.accuracy is not None:
        check_accuracy(accuracy, count, artefact.manifest.accuracy)
    labels = spread_over(test, SCORED).labels
    if not beats_guessing(accuracy, labels):
        log.warning(
            "The model is no better than guessing: it classifies %.1f%% of %d test pictures, and naming the most "
            "frequent class alone %.1f%%. Are they the pictures and classes that it was trained for?",
            100 * accuracy,
            count,
            100 * most_frequent(labels),
        )
    return Checks(**asdict(found), accuracy=accuracy, accuracy_pictures=count)
