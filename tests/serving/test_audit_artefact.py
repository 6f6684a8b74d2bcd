"""What is audited is what is served: the attacks on an artefact see what `edge.onnx` sends."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.worlds.small_data import write_small_data

from splitveil.attacks.base import ThreatModel
from splitveil.attacks.view import Scene, View
from splitveil.audit.freezing import frozen
from splitveil.audit.run import audit_run
from splitveil.audit.served import ServedModel, audit_artefact
from splitveil.core.catalogue import DEFENCES
from splitveil.core.errors import ArtefactError, ConfigError, InputError, UnknownNameError, UsageError
from splitveil.core.files import sha256
from splitveil.data.augment import to_float
from splitveil.serving.artefact import Artefact, read
from splitveil.serving.graphs import EdgeGraph, export_edge
from splitveil.serving.halves import EdgeHalf
from splitveil.serving.manifest import Defence
from splitveil.serving.random_inputs import SeededSource
from splitveil.serving.reload import check_twin, load_twin
from splitveil.serving.two_steps import TwoSteps
from splitveil.training.loaded_run import load_run

BLACK_BOX = ThreatModel(features=True, repeats=True, queries=True, auxiliary=True)


def test_torch_loads_an_artefact_again(run: Path, artefact: Artefact) -> None:
    twin, loaded = load_twin(artefact), load_run(run, "cpu")
    assert twin.config == loaded.config
    for name, value in loaded.model.deployed_state().items():
        assert torch.equal(twin.model.deployed_state()[name], value), name
    check_twin(artefact, twin, loaded.parts.test)


def test_the_adversary_sees_what_the_device_sends(
    run: Path, artefact: Artefact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transmissions under attack, repeats and queries all come out of edge.onnx; torch's edge is never asked."""
    parts = load_run(run, "cpu").parts
    answers: list[np.ndarray] = []
    asked: list[int] = []
    real, real_before = EdgeHalf.features, TwoSteps.before

    def watched(self: EdgeHalf, *arguments: object) -> np.ndarray:
        answers.append(real(self, *arguments))  # type: ignore[arg-type]
        return answers[-1]

    def counted(self: TwoSteps, pictures: np.ndarray) -> np.ndarray:
        asked.append(len(pictures))
        return real_before(self, pictures)

    monkeypatch.setattr(EdgeHalf, "features", watched)
    monkeypatch.setattr(TwoSteps, "before", counted)
    model = ServedModel(artefact, load_twin(artefact))
    with frozen(model):
        view = View(Scene(model, parts.aux, parts.test, seed=3), BLACK_BOX)

        def forbidden(*_: object) -> None:
            raise AssertionError("torch's edge half was asked")

        model.edge.register_forward_hook(forbidden)
        model.defences["noise"].transmit = forbidden  # type: ignore[assignment]
        sent, again = view.sent, view.send_again()
        queries = view.query(view.auxiliary)
        asked_once = sum(asked)
        queried, pictures = queries.batch(torch.arange(5), torch.Generator().manual_seed(1))
        pooled, _ = queries.batch(torch.arange(5), torch.Generator().manual_seed(1), repeats=4)
        assert sum(asked) == asked_once, "what no draw changes is computed once for a picture"
        stream = torch.Generator().manual_seed(1)
        whole = [model.send(pictures, stream) for _ in range(4)]
    assert torch.equal(sent, torch.from_numpy(answers[0]))
    assert torch.equal(again, torch.from_numpy(answers[1]))
    assert not torch.equal(sent, again)
    assert torch.equal(pictures, to_float(parts.aux.images[:5]))
    # the graph as one piece, with the same draws: fresh in every transmission, and no other noise than the device's
    torch.testing.assert_close(queried, whole[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(pooled, torch.stack(whole).mean(0), rtol=1e-5, atol=1e-6)
    assert not torch.equal(whole[0], whole[1])


def test_one_seed_gives_the_same_transmissions(run: Path, artefact: Artefact) -> None:
    model, x = ServedModel(artefact, load_twin(artefact)), to_float(load_run(run, "cpu").parts.test.images[:4])
    first, second, other = (model.send(x, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert not torch.equal(model.send(x), model.send(x))


def test_the_audit_of_an_artefact_finds_what_the_audit_of_its_run_finds(
    run: Path, artefact: Artefact, tmp_path: Path
) -> None:
    shutil.copytree(run, tmp_path / "run")
    asked = {"attacks": ["linear"], "num_images": 60, "sanity": False, "device": "cpu"}
    of_run = audit_run(tmp_path / "run", **asked)  # type: ignore[arg-type]
    before = {path.name: sha256(path) for path in artefact.path.iterdir()}
    found = audit_artefact(artefact.path, out=tmp_path / "out", **asked)  # type: ignore[arg-type]
    low, high = of_run.worst_case["mse_ci95"]
    assert low < found.worst_case["mse"] < high  # other draws of the same noise, the same pictures
    assert found.floors == of_run.floors
    assert abs(found.tree["accuracy"] - of_run.tree["accuracy"]) < 0.1
    assert f"artefact:{artefact.digest.hex()[:10]}" in found.tree["signature"]
    assert json.loads((tmp_path / "out" / "audit" / "audit.json").read_text()) == found.tree
    assert {path.name: sha256(path) for path in artefact.path.iterdir()} == before
    again = audit_artefact(artefact.path, out=tmp_path / "out", **asked)  # type: ignore[arg-type]
    assert again.tree == found.tree  # read, not attacked again


def test_the_audit_says_what_the_artefact_is(run: Path, artefact: Artefact, tmp_path: Path) -> None:
    """A report reads the audit's JSON alone, and must tell recipe and origin out of it."""
    asked = {"attacks": ["linear"], "num_images": 20, "sanity": False, "device": "cpu"}
    tree = audit_artefact(artefact.path, out=tmp_path / "out", **asked).tree  # type: ignore[arg-type]
    about, manifest = tree["about"], json.loads((artefact.path / "manifest.json").read_text())
    assert about["kind"] == "artefact"
    assert about["artefact"] == artefact.digest.hex()
    for name in ("signature", "seed", "data", "model", "cut", "surrogate", "defences", "accuracy"):
        assert about[name] == manifest[name], name
    assert about["config"] == tomllib.loads((run / "config.toml").read_text())
    assert tree["accuracy_of"] == "model"


def test_the_audit_of_a_copy_without_recipe_says_what_the_manifest_says(artefact: Artefact, tmp_path: Path) -> None:
    shutil.copytree(artefact.path, tmp_path / "copy")
    (tmp_path / "copy" / "config.toml").unlink()
    write_small_data(tmp_path / "own.npz")
    asked = {"attacks": ["linear"], "num_images": 20, "sanity": False, "device": "cpu"}
    found = audit_artefact(tmp_path / "copy", data=str(tmp_path / "own.npz"), out=tmp_path / "out", **asked)  # type: ignore[arg-type]
    assert found.tree["about"]["config"] is None
    assert found.tree["about"]["seed"] == artefact.manifest.seed
    assert found.tree["accuracy_of"] == "model"  # the cloud half's own, through its graph


def test_white_box_attacks_use_the_weights(artefact: Artefact, tmp_path: Path) -> None:
    found = audit_artefact(
        artefact.path, out=tmp_path / "out", attacks=["linear", "optimize"], num_images=2, sanity=False, device="cpu"
    )
    assert not found.tree["failures"]
    assert {"linear", "optimize"} == set(found.attacks)


def test_pictures_of_the_auditor(artefact: Artefact, tmp_path: Path) -> None:
    write_small_data(tmp_path / "own.npz")
    asked = {"attacks": ["linear"], "num_images": 6, "sanity": False, "device": "cpu"}
    report = audit_artefact(artefact.path, data=str(tmp_path / "own.npz"), out=tmp_path / "out", **asked)  # type: ignore[arg-type]
    assert report.tree["data"] == "own"
    grey = np.zeros((40, 9, 9, 1), np.uint8)
    labels = np.arange(40) % 3
    np.savez(tmp_path / "large.npz", train_x=grey, train_y=labels, test_x=grey, test_y=labels)
    with pytest.raises(InputError, match=r"takes pictures of shape \(1, 8, 8\), but these are \(1, 9, 9\)"):
        audit_artefact(artefact.path, data=str(tmp_path / "large.npz"), out=tmp_path / "out")


def test_an_artefact_without_its_pictures_asks_for_others(artefact: Artefact, tmp_path: Path) -> None:
    config = artefact.load("config.toml").decode()
    moved = with_file(artefact, tmp_path / "moved", "config.toml", config.replace("/small.npz", "/gone.npz").encode())
    with pytest.raises(ConfigError, match=r"There is no file or folder .*gone\.npz") as error:
        audit_artefact(moved.path, out=tmp_path / "out")
    assert "--data" in error.value.hint


def with_file(artefact: Artefact, folder: Path, name: str, content: bytes) -> Artefact:
    """The artefact with another file, and a manifest that names it."""
    shutil.copytree(artefact.path, folder)
    (folder / name).write_bytes(content)
    files = artefact.manifest.files | {name: sha256(folder / name)}
    (folder / "manifest.json").write_text(artefact.manifest.model_copy(update={"files": files}).to_json())
    return read(folder)


def test_a_graph_with_less_noise_than_the_recipe_is_refused(artefact: Artefact, tmp_path: Path) -> None:
    twin, manifest = load_twin(artefact), artefact.manifest
    noise = twin.model.defences["noise"]
    noise.options = noise.options.model_copy(update={"sigma": 0.04})  # type: ignore[operator, union-attr]
    quiet = export_edge(EdgeGraph(twin.model, manifest.random), manifest.input, manifest.feature)
    forged = with_file(artefact, tmp_path / "forged", "edge.onnx", quiet)
    with pytest.raises(ArtefactError, match="are not those of its weights: the exported edge half differs"):
        audit_artefact(forged.path, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_copy_without_recipe_whose_graph_has_no_noise_is_found_out(
    artefact: Artefact, run: Path, tmp_path: Path
) -> None:
    """Nothing is left to compare the graph with but what the manifest says."""
    twin, manifest = load_twin(artefact), artefact.manifest
    noise = twin.model.defences["noise"]
    noise.options = noise.options.model_copy(update={"sigma": 1e-9})  # type: ignore[operator, union-attr]
    quiet = export_edge(EdgeGraph(twin.model, manifest.random), manifest.input, manifest.feature)
    asked = {"attacks": ["linear"], "num_images": 60, "sanity": False, "device": "cpu"}
    asked |= {"data": str(run.parent / "small.npz")}
    shutil.copytree(artefact.path, tmp_path / "honest")
    for copy in (with_file(artefact, tmp_path / "forged", "edge.onnx", quiet).path, tmp_path / "honest"):
        (copy / "model.safetensors").unlink()
        (copy / "config.toml").unlink()
        found = audit_artefact(copy, out=tmp_path / f"audit-{copy.name}", **asked).warnings  # type: ignore[arg-type]
        assert any("states noise (noise), but" in text for text in found) == (copy.name == "forged")


def test_a_copy_without_recipe_whose_graph_has_half_the_noise_is_found_out(
    artefact: Artefact, run: Path, tmp_path: Path
) -> None:
    """Such noise is much beside the features: only its size tells. And nobody denies what the manifest says."""
    twin, manifest = load_twin(artefact), artefact.manifest
    noise = twin.model.defences["noise"]
    noise.options = noise.options.model_copy(update={"sigma": 0.025})  # type: ignore[operator, union-attr]
    quiet = export_edge(EdgeGraph(twin.model, manifest.random), manifest.input, manifest.feature)
    asked = {"attacks": ["linear"], "num_images": 60, "sanity": False, "device": "cpu"}
    asked |= {"data": str(run.parent / "small.npz")}
    shutil.copytree(artefact.path, tmp_path / "honest")
    for copy in (with_file(artefact, tmp_path / "forged", "edge.onnx", quiet).path, tmp_path / "honest"):
        (copy / "model.safetensors").unlink()
        (copy / "config.toml").unlink()
        found = audit_artefact(copy, out=tmp_path / f"audit-{copy.name}", **asked)  # type: ignore[arg-type]
        said = [text for text in found.warnings if "The noise that is sent has a standard deviation of 0.02" in text]
        reason = found.tree["bound"]["reason"]
        assert said == ([reason] if copy.name == "forged" else [])
        assert ("cannot be read from the graphs alone" in reason) == (copy.name == "honest")


def test_a_manifest_that_draws_less_is_refused(artefact: Artefact, tmp_path: Path) -> None:
    """One number for a whole channel, in place of one for each value, would pass where shapes broadcast."""
    shutil.copytree(artefact.path, tmp_path / "forged")
    (one,) = artefact.manifest.random
    less = one.model_copy(update={"shape": (one.shape[0], 1, 1)})
    text = artefact.manifest.model_copy(update={"random": (less,)}).to_json()
    (tmp_path / "forged" / "manifest.json").write_text(text)
    with pytest.raises(ArtefactError, match="they draw other random numbers"):
        audit_artefact(tmp_path / "forged", out=tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"defences": (Defence(name="noise", options={"sigma": 0.5}),)}, r"noise\.sigma = 0\.5 where config"),
        ({"defences": (Defence(name="noise"), Defence(name="dropout"))}, "the defences noise, dropout where config"),
        ({"model": "vgg11"}, "names other model than its recipe"),
        ({"surrogate": "gmm"}, "names other surrogate than its recipe"),
        ({"seed": 7}, "names other seed than its recipe"),
        ({"accuracy": 0.01}, r"an accuracy of 1\.0% where its export"),
    ],
)
def test_a_manifest_that_boasts_is_refused(
    artefact: Artefact, tmp_path: Path, changes: dict[str, object], says: str
) -> None:
    shutil.copytree(artefact.path, tmp_path / "forged")
    (tmp_path / "forged" / "manifest.json").write_text(artefact.manifest.model_copy(update=changes).to_json())
    with pytest.raises(ArtefactError, match=says):
        audit_artefact(tmp_path / "forged", out=tmp_path / "out")


def test_a_defence_of_a_package_that_is_not_here_leaves_the_graphs(
    artefact: Artefact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(DEFENCES._entries, "noise")
    with pytest.raises(
        UnknownNameError, match=r"no defence called 'noise'. Install the package .* without config.toml"
    ):
        load_twin(artefact)


def test_a_classifier_of_the_surrogate_is_audited_as_served(
    attention_run: Path, attention_artefact: Artefact, tmp_path: Path
) -> None:
    twin, surrogate = load_twin(attention_artefact), load_run(attention_run, "cpu").surrogate
    assert surrogate is not None
    sent = torch.rand(5, *attention_artefact.manifest.feature.shape)
    with torch.no_grad():
        answers, expected = ServedModel(attention_artefact, twin).cloud(sent), surrogate.classify(sent).logits  # type: ignore[operator]
    assert torch.allclose(answers, expected, atol=1e-5)
    asked = {"attacks": ["linear"], "sanity": False, "device": "cpu"}
    report = audit_artefact(attention_artefact.path, out=tmp_path / "out", **asked)  # type: ignore[arg-type]
    assert not report.tree["failures"]


def test_a_copy_without_weights_is_attacked_through_its_graphs(
    artefact: Artefact, run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(artefact.path, tmp_path / "copy")
    (tmp_path / "copy" / "model.safetensors").unlink()
    asked = {"attacks": ["linear", "optimize"], "num_images": 60, "sanity": False, "device": "cpu"}
    data = str(run.parent / "small.npz")
    found = audit_artefact(tmp_path / "copy", data=data, out=tmp_path / "out", **asked)  # type: ignore[arg-type]
    whole = audit_artefact(artefact.path, data=data, out=tmp_path / "whole", **asked | {"attacks": ["linear"]})  # type: ignore[arg-type]
    assert found.tree["skipped"] == {"optimize": "It needs the weights, which this copy of the artefact does not have."}
    low, high = whole.worst_case["mse_ci95"]
    assert low < found.worst_case["mse"] < high
    assert abs(found.tree["accuracy"] - whole.tree["accuracy"]) < 0.1
    assert any("because this copy has no weights (model.safetensors)" in sentence for sentence in found.warnings)
    assert "has no weights (model.safetensors): attacks that need them are left out" in caplog.text
    assert "FILE.py" not in caplog.text


def test_a_copy_with_its_recipe_alone_is_attacked_as_that_says(
    artefact: Artefact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe names the pictures and their parts, also where the weights were kept back."""
    shutil.copytree(artefact.path, tmp_path / "copy")
    (tmp_path / "copy" / "model.safetensors").unlink()
    asked = {"attacks": ["linear"], "num_images": 60, "sanity": False, "device": "cpu"}
    found, whole = (
        audit_artefact(path, out=tmp_path / "out" / path.name, **asked)  # type: ignore[arg-type]
        for path in (tmp_path / "copy", artefact.path)
    )
    assert found.tree["auxiliary_images"] == whole.tree["auxiliary_images"]
    assert found.worst_case["mse"] == pytest.approx(whole.worst_case["mse"], rel=1e-3)
    monkeypatch.delitem(DEFENCES._entries, "noise")  # a plug-in that is not here
    with pytest.raises(UsageError, match="does not say which pictures"):
        audit_artefact(tmp_path / "copy", out=tmp_path / "again", **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cloud.onnx", r"has no cloud.onnx, .* as an endpoint: start splitveil edge .*copy --serve"),
        ("edge.onnx", "has no edge.onnx, so nothing here says what a device sends"),
    ],
)
def test_a_copy_for_one_side_is_told_how_it_is_attacked(
    artefact: Artefact, tmp_path: Path, name: str, says: str
) -> None:
    shutil.copytree(artefact.path, tmp_path / "copy")
    (tmp_path / "copy" / name).unlink()
    with pytest.raises(ArtefactError, match=says):
        audit_artefact(tmp_path / "copy", out=tmp_path / "out")


def test_without_random_inputs_a_picture_is_sent_once(disco_artefact: Artefact) -> None:
    assert disco_artefact.manifest.random == ()
    model = ServedModel(disco_artefact, load_twin(disco_artefact))
    x = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    once, each = model.channel()
    assert torch.equal(once(x), torch.from_numpy(EdgeHalf(disco_artefact).features(x.numpy(), SeededSource(0))))
    assert each(x) is x
