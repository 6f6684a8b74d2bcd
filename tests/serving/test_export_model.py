"""A split model that Splitveil did not train becomes an artefact, too."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tests.worlds.small_data import write_small_data
from torch import nn

import splitveil as sv
from splitveil import data, defences
from splitveil.audit.served import audit_artefact
from splitveil.core.errors import ArtefactError, InputError, UsageError
from splitveil.data.augment import to_float
from splitveil.data.dataset import Dataset
from splitveil.report import build_report
from splitveil.serving import writing
from splitveil.serving.artefact import Artefact, read
from splitveil.serving.export import export_model
from splitveil.serving.halves import CloudHalf, EdgeHalf
from splitveil.serving.own_model import own_signature


class Net(nn.Module):
    """A user's own network, with batch normalisation and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.drop(self.first(x - 0.5).flatten(1)))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    path = tmp_path_factory.mktemp("own") / "small.npz"
    write_small_data(path)
    return data.create(path)


@pytest.fixture(scope="module")
def trained(pictures: Dataset) -> sv.SplitModel:
    torch.manual_seed(0)
    net = Net()
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    x, y = to_float(pictures.train.images), pictures.train.labels
    for _ in range(40):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    found = sv.split(net, at="first", example=x[:2])
    found.defences["noise"] = defences.create("noise", sigma=0.1)
    return found.train()


@pytest.fixture
def model(trained: sv.SplitModel) -> sv.SplitModel:
    return copy.deepcopy(trained)


@pytest.fixture(scope="module")
def artefact(trained: sv.SplitModel, pictures: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Artefact:
    return export_model(copy.deepcopy(trained), tmp_path_factory.mktemp("model") / "artefact", pictures, name="net")


def test_export_serve_and_audit(
    model: sv.SplitModel, artefact: Artefact, pictures: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manifest = artefact.manifest
    assert (manifest.model, manifest.num_classes, manifest.seed) == ("net", 3, None)
    assert [(one.name, one.options["sigma"]) for one in manifest.defences] == [("noise", 0.1)]
    assert manifest.signature == own_signature("net", model)
    assert [one.law for one in manifest.random] == ["normal"]
    assert manifest.accuracy is not None
    assert manifest.accuracy > 0.9
    assert set(manifest.files) == {"edge.onnx", "cloud.onnx", "model.safetensors"}
    assert set(load_file(artefact.path / "model.safetensors")) == {f"model.{name}" for name in model.state_dict()}
    x = to_float(pictures.test.images)
    model.eval()
    with torch.no_grad():
        sent = model.send(x, torch.Generator().manual_seed(3))
        logits = model.cloud(sent)
    noise = torch.empty_like(sent).normal_(generator=torch.Generator().manual_seed(3)).numpy()
    np.testing.assert_allclose(EdgeHalf(artefact).transmit(x.numpy(), {"normal_0": noise}), sent.numpy(), atol=1e-5)
    np.testing.assert_allclose(CloudHalf(artefact).logits(sent.numpy()), logits.numpy(), atol=1e-4)
    with pytest.raises(ArtefactError, match=r"was exported without config\.toml"):
        read(artefact.path, need=["config.toml"])
    np.savez(
        tmp_path / "audit.npz",
        **{f"{part}_x": getattr(pictures, part).images.permute(0, 2, 3, 1).numpy() for part in ("train", "test")},
        **{f"{part}_y": getattr(pictures, part).labels.numpy() for part in ("train", "test")},
    )
    chosen = ["linear", "optimize", "substitute"]
    report = audit_artefact(
        artefact.path, data=str(tmp_path / "audit.npz"), out=tmp_path / "out", attacks=chosen, sanity=False
    )
    assert report.tree["accuracy"] > 0.9
    assert "|own:net|weights:" in report.tree["signature"]
    assert "has no recipe (config.toml)" in caplog.text
    assert "no weights" not in caplog.text
    assert "splitveil audit FILE.py:NAME" in caplog.text
    assert not any("weights were hidden" in sentence for sentence in report.warnings)
    (told,) = [sentence for sentence in report.warnings if "Only the graphs of the artefact were attacked" in sentence]
    assert "because its model is somebody's own and the code of it, which gradients need" in told
    assert "an attacker who has the device may do more, and no bound is known" in told
    assert list(report.attacks) == ["linear"]
    without = (
        "which torch cannot load without the code of the model: splitveil audit FILE.py:NAME attacks it with them."
    )
    assert report.tree["skipped"] == {
        "optimize": f"It needs the weights, {without}",
        "substitute": f"It needs the weights of the cloud half, {without}",
    }
    build_report([tmp_path / "out"], tmp_path / "report.html")  # nothing of this is left to audit.json alone
    page = (tmp_path / "report.html").read_text()
    assert "the attack optimize was left out" in page
    assert "Only the graphs of the artefact were attacked" in page


def test_pictures_alone_are_enough_and_the_model_is_left_as_it_was(
    model: sv.SplitModel, artefact: Artefact, pictures: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, file in (("export_edge", "edge.onnx"), ("export_cloud", "cloud.onnx")):  # traced before
        monkeypatch.setattr(writing, name, lambda *_, file=file: artefact.load(file))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    names = ("top", "middle", "bottom")
    assert export_model(model, tmp_path / "a", pictures.test, class_names=names).manifest.class_names == names
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_an_export_says_where_a_model_has_no_defences(
    model: sv.SplitModel, pictures: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    export_model(model, tmp_path / "a", pictures)
    assert "no defences" not in caplog.text
    del model.defences["noise"]
    bare = export_model(model, tmp_path / "b", pictures)
    assert bare.manifest.defences == ()
    assert "has no defences: the clean feature is sent" in caplog.text


def test_an_export_does_not_call_a_feature_clean_to_which_the_model_itself_adds_noise(
    model: sv.SplitModel, pictures: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Noisy(nn.Module):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return z + 0.1 * torch.randn_like(z)

    own = sv.SplitModel(nn.Sequential(model.edge, Noisy()), model.cloud)
    assert [one.name for one in export_model(own, tmp_path / "a", pictures).manifest.random] == ["normal_0"]
    assert "has no defence of Splitveil's; the graph draws 1 random input" in caplog.text
    assert "clean feature" not in caplog.text


def test_an_export_says_where_a_model_only_guesses(
    model: sv.SplitModel, pictures: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    export_model(model, tmp_path / "a", pictures)
    assert "guessing" not in caplog.text
    with torch.no_grad():
        for value in model.cloud.parameters():
            value.zero_()
    export_model(model, tmp_path / "b", pictures)
    assert "is no better than guessing: it classifies" in caplog.text


def test_what_cannot_be_exported_is_told_before_any_work(
    model: sv.SplitModel, pictures: Dataset, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="not a Net"):
        export_model(Net(), tmp_path / "a", pictures)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs pictures"):
        export_model(model, tmp_path / "a", pictures.test.subset(torch.arange(1)))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(UsageError, match="exists already") as error:
        export_model(model, tmp_path / "full", pictures)
    assert "--out" not in error.value.hint  # there is no such option in Python
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
