"""From a finished run to an artefact: what is in it is what was trained, or nothing is written."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tests.serving.exporting import ATTENTION, NOISE, take_graphs, train_small
from tests.worlds.small_artefact import write_small_artefact

from splitveil.audit.run import audit_run
from splitveil.audit.subjects import in_turn
from splitveil.core.errors import (
    ArtefactError,
    MissingExtraError,
    NotARunError,
    RunFolderError,
    UsageError,
)
from splitveil.core.seeding import generator
from splitveil.data.augment import to_float
from splitveil.serving import graphs, writing
from splitveil.serving.artefact import Artefact, read
from splitveil.serving.export import export_run
from splitveil.serving.halves import CloudHalf, EdgeHalf
from splitveil.serving.random_inputs import SeededSource
from splitveil.training.checkpoint import save_weights
from splitveil.training.loaded_run import load_run


def sent_by_torch(run: Path, seed: int) -> tuple[np.ndarray, torch.Tensor, torch.Tensor]:
    """Test pictures, what torch sends for them, and its logits."""
    loaded = load_run(run, "cpu")
    x = to_float(loaded.parts.test.images)
    with torch.no_grad():
        sent = loaded.model.send(x, torch.Generator().manual_seed(seed))
        return x.numpy(), sent, loaded.model.cloud(sent)


def test_served_features_are_the_features_of_the_run(run: Path, artefact: Artefact) -> None:
    x, sent, logits = sent_by_torch(run, seed=4)
    # like `sent`: a generator fills a tensor in the order of its memory
    noise = torch.empty_like(sent).normal_(generator=torch.Generator().manual_seed(4)).numpy()
    served = EdgeHalf(artefact).transmit(x, {"normal_0": noise})
    assert served.dtype == np.float32
    np.testing.assert_allclose(served, sent.numpy(), atol=1e-5)
    np.testing.assert_allclose(CloudHalf(artefact).logits(sent.numpy()), logits.numpy(), atol=1e-4)


def test_the_manifest_says_what_it_is(run: Path, artefact: Artefact) -> None:
    manifest, result = artefact.manifest, json.loads((run / "result.json").read_text())
    assert manifest.signature == result["signature"]
    assert manifest.accuracy == result["accuracy_kept"] > 0.8  # the model works, or nothing would be tested
    assert [(one.name, one.options["sigma"]) for one in manifest.defences] == [("noise", 0.05)]
    assert [(one.law, one.shape) for one in manifest.random] == [("normal", manifest.feature.shape)]
    assert manifest.input.shape == (1, 8, 8)
    assert (manifest.model, manifest.cut, manifest.num_classes, manifest.classifier) == ("tiny", 2, 3, "cloud")
    checks = manifest.checks
    assert checks is not None
    assert checks.feature_difference < 1e-5
    assert checks.logit_difference < 1e-4
    assert checks.same_label == 1
    assert checks.accuracy_pictures == 60
    assert abs(checks.accuracy - result["accuracy_kept"]) < 0.2
    assert manifest.audit is None
    assert {path.name for path in artefact.path.iterdir()} == {"manifest.json", *manifest.files}
    assert not list(artefact.path.parent.glob(".*.part"))


def test_two_exports_of_one_run_are_one_artefact(run: Path, artefact: Artefact, tmp_path: Path) -> None:
    """Traced, measured and dated anew: whoever has one export talks to whoever has the other."""
    again = export_run(run, tmp_path / "again")
    assert again.manifest.files == artefact.manifest.files
    assert again.digest == artefact.digest


@pytest.mark.usefixtures("traced")
def test_the_audit_of_the_run_goes_along(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    report = audit_run(copy, attacks=["linear"], device="cpu")
    audit = export_run(copy).manifest.audit
    assert audit is not None
    assert audit.worst_case is not None
    assert audit.worst_case.mse == report.worst_case["mse"]
    assert audit.floors["mean_image"].ssim == report.floors["mean_image"]["ssim"]
    assert audit.signature == report.tree["signature"]
    assert audit.departures == report.tree["departures"]  # one attack alone is not the tier's audit
    assert "(smoke, altered audit)" in read(copy / "artefact").manifest.promise()
    tree = json.loads((copy / "audit" / "audit.json").read_text())
    tree["signature"] = tree["signature"].replace("|seed:", "|seed:9")  # another run's audit says nothing here
    (copy / "audit" / "audit.json").write_text(json.dumps(tree))
    assert export_run(copy, tmp_path / "second").manifest.audit is None


@pytest.mark.usefixtures("traced")
def test_an_audit_of_other_weights_does_not_go_along(run: Path, tmp_path: Path) -> None:
    """They may answer as well, and leak more."""
    shutil.copytree(run, tmp_path / "run")
    audit_run(tmp_path / "run", attacks=["linear"], device="cpu")
    model = load_run(tmp_path / "run", "cpu").model
    with torch.no_grad():
        next(p for p in model.parameters() if p.ndim == 4).mul_(1 + 1e-6)  # too little for the check against torch
    save_weights(tmp_path / "run" / "checkpoints" / "model.safetensors", {"model": model, "surrogate": None})
    assert export_run(tmp_path / "run", tmp_path / "artefact").manifest.audit is None


def test_three_defences_and_their_order(three_run: Path, three_artefact: Artefact) -> None:
    assert three_artefact.path == three_run / "artefact"
    assert [one.law for one in three_artefact.manifest.random] == ["uniform", "uniform"]
    x, sent, _ = sent_by_torch(three_run, seed=4)
    generator = torch.Generator().manual_seed(4)
    draws = {f"uniform_{k}": torch.empty_like(sent).uniform_(generator=generator).numpy() for k in (0, 1)}
    np.testing.assert_allclose(EdgeHalf(three_artefact).transmit(x, draws), sent.numpy(), atol=1e-5)


def answers_of_the_surrogate(run: Path, artefact: Artefact) -> dict[str, np.ndarray]:
    """Checks that the cloud half is the surrogate's classifier; what the artefact stores of its memory."""
    assert artefact.manifest.classifier == "attention"
    surrogate = load_run(run, "cpu").surrogate
    assert surrogate is not None
    _, sent, by_cloud = sent_by_torch(run, seed=1)
    with torch.no_grad():
        expected = surrogate.classify(sent).logits  # type: ignore[operator]
    answers = CloudHalf(artefact).logits(sent.numpy())
    np.testing.assert_allclose(answers, expected.numpy(), atol=1e-4)
    assert np.abs(answers - by_cloud.numpy()).max() > 0.01
    stored = load_file(artefact.path / "model.safetensors")
    remembered = {name: value for name, value in stored.items() if ".memory." in f".{name}"}
    assert len(remembered) == len([name for name, _ in surrogate.named_buffers() if name.startswith("memory.")])
    return remembered


def test_a_classifier_of_the_surrogate_is_the_cloud_half(attention_run: Path, attention_artefact: Artefact) -> None:
    remembered = answers_of_the_surrogate(attention_run, attention_artefact)
    assert remembered
    assert all((value == 0).all() for value in remembered.values())  # features of training pictures stay at home


def test_an_audit_of_a_run_asks_the_classifier_that_answers(
    attention_run: Path, attention_artefact: Artefact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC 2.3: the surrogate's classifier belongs to the cloud half in audits, too; the other one never trained."""
    shutil.copytree(attention_run, tmp_path / "run")
    tree = audit_run(tmp_path / "run", attacks=["linear"], num_images=60, device="cpu").tree
    loaded = load_run(tmp_path / "run", "cpu")
    assert loaded.surrogate is not None
    pictures = loaded.parts.test
    draws = generator(loaded.config.seed, "accuracy")  # the audit's own
    with torch.no_grad():
        order = in_turn(pictures.labels)  # in which an audit attacks them
        sent = loaded.model.send(to_float(pictures.images[order]), draws)
        answers = loaded.surrogate.classify(sent).logits.argmax(1)  # type: ignore[operator]
        by_cloud = loaded.model.cloud(sent).argmax(1)
    assert tree["accuracy"] == pytest.approx(float((answers == pictures.labels[order]).float().mean()))
    assert not torch.equal(answers, by_cloud)
    take_graphs(attention_artefact, monkeypatch)
    assert export_run(tmp_path / "run", tmp_path / "artefact").manifest.audit is not None  # of these very weights


def test_a_surrogate_without_a_memory(tmp_path: Path) -> None:
    surrogate = ATTENTION | {"mode": "faithful"}
    train_small(tmp_path / "run", NOISE, surrogate=surrogate, train={"warmup_epochs": 1, "privacy_weight": 0.1})
    assert not answers_of_the_surrogate(tmp_path / "run", export_run(tmp_path / "run"))


def test_adversaries_stay_at_home(disco_artefact: Artefact) -> None:
    stored = load_file(disco_artefact.path / "model.safetensors")
    assert not [name for name in stored if "adversary" in name]
    assert [name for name in stored if "filter" in name]


def test_every_answer_has_noise_of_its_own(artefact: Artefact, run: Path) -> None:
    edge, x = EdgeHalf(artefact), sent_by_torch(run, 0)[0]
    assert (edge.features(x) != edge.features(x)).mean() > 0.99
    assert (edge.features(x, SeededSource(1)) == edge.features(x, SeededSource(1))).all()


def test_what_is_no_finished_run_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(NotARunError, match="There is no run folder"):
        export_run(tmp_path / "nowhere", tmp_path / "a")
    with pytest.raises(NotARunError, match=r"no config.toml"):
        export_run(tmp_path, tmp_path / "a")
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(RunFolderError, match="not finished") as error:
        export_run(tmp_path / "run", tmp_path / "a")
    assert "--resume" in error.value.hint
    (tmp_path / "run" / "checkpoints" / "model.safetensors").unlink()
    with pytest.raises(RunFolderError, match="no finished model"):
        export_run(tmp_path / "run", tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_an_artefact_is_no_run(artefact: Artefact, tmp_path: Path) -> None:
    with pytest.raises(NotARunError, match="is an exported artefact"):
        export_run(artefact.path, tmp_path / "a")


@pytest.mark.usefixtures("traced")
def test_nothing_is_overwritten(run: Path, tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("mine")
    with pytest.raises(UsageError, match="exists already") as caught:
        export_run(run, run)  # whoever follows the hint must not delete the run
    assert caught.value.hint == "Name a new folder: nothing is overwritten."
    with pytest.raises(UsageError, match="exists already"):
        export_run(run, tmp_path)
    with pytest.raises(UsageError, match="is a file"):
        export_run(run, tmp_path / "kept.txt")
    with pytest.raises(UsageError, match="no name for a new folder"):
        export_run(run, Path())
    (tmp_path / "empty").mkdir()
    before = os.umask(0o077)  # who keeps files private keeps artefacts private
    try:
        made = export_run(run, tmp_path / "empty").path
    finally:
        os.umask(before)
    assert read(made)
    assert all(path.stat().st_mode & 0o077 == 0 for path in (made, *made.iterdir()))


def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(dir: Path) -> None:  # nothing is read-only for root
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    monkeypatch.setattr("splitveil.serving.export.load_run", lambda *_: pytest.fail("the work began"))
    for place, near in ((None, run), (tmp_path / "new" / "artefact", tmp_path)):
        with pytest.raises(UsageError, match=rf"^{near} cannot be written \(Permission denied\)\. .*--out"):
            export_run(run, place)
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("traced")
def test_a_stated_accuracy_that_is_not_found_is_refused(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    result = json.loads((run / "result.json").read_text())
    (tmp_path / "run" / "result.json").write_text(json.dumps(result | {"accuracy_kept": 0.3}))
    with pytest.raises(ArtefactError, match=r"but the run states 30\.0%"):
        export_run(tmp_path / "run", tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(
    ("exporter", "message"), [("export_edge", "edge half differs"), ("export_cloud", "cloud half differs")]
)
def test_a_graph_that_is_not_the_model_is_refused(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exporter: str, message: str
) -> None:
    real = getattr(graphs, exporter)  # `traced` replaces both in `writing`

    def wrong(graph: torch.nn.Module, *rest: Any) -> bytes:
        """As if the exporter had changed a little: one weight of a thousand is off by a percent of the largest."""
        parameter = next(p for name, p in graph.named_parameters() if p.ndim == 4)  # a convolution's
        before = parameter.detach().clone()
        with torch.no_grad():
            parameter.flatten()[0].add_(0.01 * parameter.abs().max())
        try:
            return real(graph, *rest)
        finally:
            with torch.no_grad():
                parameter.copy_(before)

    monkeypatch.setattr(writing, exporter, wrong)
    with pytest.raises(ArtefactError, match=message):
        export_run(run, tmp_path / "a")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_without_the_extra_one_sentence_names_it(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"needs the package {package}\. .*\.\[serve\]"):
        export_run(run, tmp_path / "a")


def test_ctrl_c_while_an_artefact_is_read_back_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command then says that nothing was written."""

    def interrupted(path: Path) -> Artefact:
        assert (path / "manifest.json").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(writing, "_fill", lambda made, contents, tell: write_small_artefact(made))
    monkeypatch.setattr(writing, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        writing.write_artefact(tmp_path / "artefact", None)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(writing, "read", read)
    assert writing.write_artefact(tmp_path / "artefact", None) == read(tmp_path / "artefact")  # type: ignore[arg-type]
