"""From a finished run, or from a split model of your own, to an artefact folder.

What leaves: the two graphs, the weights without adversaries and without the features that surrogates remember (they
are features of training pictures), the recipe where there is one, and the manifest.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from splitveil.core.errors import InputError, RunFolderError, UsageError
from splitveil.core.extras import require
from splitveil.core.files import write_atomic
from splitveil.core.run_folder import RunFolder
from splitveil.core.shell import command
from splitveil.models.digest import weights_digest
from splitveil.models.layers import Normalise
from splitveil.models.split import SplitModel, device_of, evaluating
from splitveil.serving.artefact import Artefact
from splitveil.serving.manifest import CONFIG, WEIGHTS, AuditDigest, Pictures, Scores
from splitveil.serving.own_model import check_own, checked_names, own_signature, pictures_of, stated_defences
from splitveil.serving.reload import facts
from splitveil.serving.writing import Contents, Progress, check_new, write_artefact
from splitveil.surrogates.base import Surrogate
from splitveil.surrogates.memory import FeatureMemory
from splitveil.training.build import own_classifier
from splitveil.training.checkpoint import save_weights
from splitveil.training.evaluate import accuracy
from splitveil.training.loaded_run import LoadedRun, load_run

log = logging.getLogger("splitveil.serving")

EXPORTER = ("onnx", "onnxscript", "onnxruntime")  # the packages that it takes


def export_run(
    run: str | PathLike[str], out: str | Path | None = None, *, progress: Progress | None = None
) -> Artefact:
    """Export the finished run in folder `run` into the new folder `out` (default: RUN/artefact), and read it back.

    Raises ArtefactError where the model cannot be exported, or where the exported halves do not answer as torch does.

    Example: ``sv.export("runs/mine", "artefacts/mine").manifest.accuracy``
    """
    if not isinstance(run, str | PathLike):
        raise UsageError(
            f"An export takes the folder of a finished run, not a {type(run).__name__}.",
            "A split model of your own: sv.serving.export_model(model, out, data)",
        )
    require("serve", *EXPORTER)
    folder = RunFolder.open(run)
    result = _finished(folder)
    place = folder.path / "artefact" if out is None else Path(out)
    check_new(place)
    loaded = load_run(folder.path, "cpu")
    stated = _facts(loaded, result)  # before anything is emptied: an audit is known by the weights it attacked
    classifier = own_classifier(loaded.surrogate)
    forget(classifier)

    def save(made: Path) -> None:
        save_weights(made / WEIGHTS, {"model": loaded.model, "surrogate": classifier})
        write_atomic(made / CONFIG, loaded.config.to_toml())

    info = loaded.parts.info
    pictures = Pictures(shape=info.image_shape, mean=info.mean, std=info.std)
    contents = Contents(loaded.model, classifier, pictures, loaded.parts.test, save, stated)
    return write_artefact(place, contents, progress)


def export_model(
    model: SplitModel,
    out: str | Path,
    data: Any,
    *,
    name: str = "own",
    class_names: Sequence[str] = (),
    progress: Progress | None = None,
) -> Artefact:
    """Export a split model that Splitveil did not train into the new folder `out`.

    The model takes float pictures in [0, 1] and normalises them itself. `data` are pictures that it was not trained on,
    as `sv.audit` takes them (`sv.data.create`, `sv.data.load`, `AuditData`: their test part), a data set's name or
    path, or uint8 pictures [N, ch, h, w] with their labels, (images, labels); the exported halves are checked on them.
    `class_names` are the data set's unless given. Such an artefact has no recipe, so an audit of it sees what its
    graphs send and answer; the code itself is attacked by `sv.audit(model, data)`. The model is left as it was.

    Example: ``export_model(sv.split(net, at="layer2"), "artefacts/net", "cifar10")``
    """
    require("serve", *EXPORTER)
    if not isinstance(model, SplitModel):
        raise InputError(
            f"Only a split model can be exported, not a {type(model).__name__}.",
            "Make one with sv.SplitModel(edge, cloud) or sv.split(module, at=...).",
        )
    place = Path(out)
    check_new(place)
    given = pictures_of(data)
    with evaluating(model), on_cpu(model):
        given = replace(given, test=given.test.to("cpu"))
        test, num_classes = given.test, check_own(model, given)
        names = checked_names(class_names or given.class_names, num_classes)
        right = float(accuracy(model, test, torch.Generator().manual_seed(0)))
        channels, height, width = test.images.shape[1:]
        normalise = getattr(model.edge, "normalise", None)
        mean, std = (
            (tuple(normalise.mean.flatten().tolist()), tuple(normalise.std.flatten().tolist()))
            if isinstance(normalise, Normalise)
            else ((), ())
        )
        pictures = Pictures(shape=(channels, height, width), mean=mean, std=std)
        facts = {
            "signature": own_signature(name, model),
            "model": name,
            "defences": stated_defences(model),
            "num_classes": num_classes,
            "class_names": names,
            "accuracy": right,
            "data": {"checksum": test.digest()},
        }

        def save(made: Path) -> None:
            save_weights(made / WEIGHTS, {"model": model})

        return write_artefact(place, Contents(model, None, pictures, test, save, facts), progress)


@contextmanager
def on_cpu(model: SplitModel) -> Iterator[None]:
    """On the CPU inside the block, where graphs are traced and compared; afterwards where it was."""
    where = device_of(model)
    model.to("cpu")
    try:
        yield
    finally:
        model.to(where)


def forget(surrogate: Surrogate | None) -> None:
    """Empty what a surrogate remembers: features of training pictures, which no answer needs."""
    for module in [] if surrogate is None else surrogate.modules():
        if isinstance(module, FeatureMemory):
            for buffer in module.buffers():
                buffer.zero_()


def _finished(folder: RunFolder) -> dict[str, Any]:
    result = folder.read_json("result.json")
    folder.weights()
    if result is None:
        raise RunFolderError(
            f"{folder.path} is not finished: it has no result.json.",
            f"Finish it with: {command('train', folder.path / 'config.toml', '--out', folder.path, '--resume')}",
        )
    return result


def _facts(run: LoadedRun, result: dict[str, Any]) -> dict[str, Any]:
    """What the manifest says of a run."""
    config, info, signature = run.config, run.parts.info, str(result.get("signature", ""))
    return {
        "signature": signature,
        **facts(config),
        "data": {"name": info.name, "protocol": run.parts.protocol, "checksum": run.parts.checksum},
        "num_classes": info.num_classes,
        "class_names": info.class_names,
        "accuracy": result.get("accuracy_kept"),
        "audit": _audit(run, signature),
    }


def _audit(run: LoadedRun, signature: str) -> AuditDigest | None:
    """What RUN/audit says, where it is about this run and these very weights."""
    tree = run.folder.read_json("audit/audit.json")
    if tree is None:
        return None
    said = str(tree.get("signature", ""))
    pins = [part for part in signature.split("|") if part.startswith(("config:", "seed:", "data:"))]
    if any(pin not in said.split("|") for pin in [*pins, f"model:{weights_digest(run.deployed)[:10]}"]):
        log.warning("%s is about another run or other weights: the artefact states no audit", run.folder.audit)
        return None
    worst = tree.get("worst_case") or None
    return AuditDigest(
        tier=tree["tier"],
        departures=tree.get("departures", []),
        mode=tree["mode"],
        num_images=tree["num_images"],
        worst_case=None if worst is None else _scores(worst),
        floors={name: _scores(found) for name, found in tree.get("floors", {}).items()},
        signature=said,
    )


def _scores(found: dict[str, Any]) -> Scores:
    return Scores(mse=found["mse"], ssim=found["ssim"], psnr=found["psnr"])
