"""What a model of the user's own must be before it is exported, and what its pictures may be."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.worlds.small_data import write_small_data
from torch import nn

import splitveil as sv
from splitveil import data, defences
from splitveil.audit.subjects import AuditData
from splitveil.core.errors import InputError, UnknownNameError, UsageError
from splitveil.data.dataset import Dataset, ImageSet
from splitveil.data.protocol import split
from splitveil.serving.export import export_model, export_run
from splitveil.serving.own_model import own_signature, pictures_of, stated_defences


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "small.npz"
    write_small_data(path)
    return path


@pytest.fixture(scope="module")
def pictures(path: Path) -> Dataset:
    return data.create(path)


def own(classes: int = 3, channels: int = 1) -> sv.SplitModel:
    torch.manual_seed(0)
    return sv.SplitModel(
        nn.Sequential(nn.Conv2d(channels, 2, 3, padding=1), nn.ReLU()),
        nn.Sequential(nn.Flatten(), nn.Linear(128, classes)),
    )


def test_pictures_come_in_all_the_forms_that_an_audit_takes_and_as_a_pair(path: Path, pictures: Dataset) -> None:
    test, names = pictures.test, pictures.info.class_names
    pair = (test.images, test.labels)
    arrays = [test.images.numpy(), test.labels.numpy().astype(np.int32)]
    named = [path, str(path), pictures, split(pictures, "disjoint", 0)]
    for given in named:
        found = pictures_of(given)
        assert found.test.digest() == test.digest()
        assert (found.class_names, found.num_classes) == (names, 3)
    audited = AuditData(aux=pictures.train, test=test, class_names=("a", "b", "c"))
    assert pictures_of(audited).class_names == ("a", "b", "c")
    for given in (test, audited, pair, arrays):
        found = pictures_of(given)
        assert found.test.digest() == test.digest()
        assert found.num_classes is None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (torch.zeros(4, 1, 8, 8, dtype=torch.uint8), "not a Tensor"),
        (np.zeros((4, 1, 8, 8), np.uint8), "not a ndarray"),
        (None, "not a NoneType"),
        (SimpleNamespace(test=None), "not a SimpleNamespace"),
        ((1, 2, 3), "not a tuple"),
        (("a", "b"), "not a tuple"),
        ((np.zeros((4, 1, 8, 8), np.float32), np.zeros(4, np.int64)), r"uint8 \[N, ch, h, w\]"),
        ((np.zeros((4, 1, 8, 8), np.uint8), np.zeros(3, np.int64)), "as many int64 labels"),
        ((np.zeros((4, 1, 8, 8), np.uint8), np.zeros(4, np.float32)), "as many int64 labels"),
    ],
)
def test_other_pictures_are_refused_in_one_sentence(given: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        export_model(own(), tmp_path / "a", given)
    assert not list(tmp_path.iterdir())


def test_an_unknown_data_set_is_told_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="fashion-mini'"):
        export_model(own(), tmp_path / "a", "fashion-mimi")


def test_pictures_of_another_shape_are_refused_where_broadcasting_would_hide_it(
    pictures: Dataset, tmp_path: Path
) -> None:
    class Colours(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * torch.tensor([0.5, 0.3, 0.2])[:, None, None]

    whole = nn.Sequential(Colours(), nn.Conv2d(3, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 3))
    model = sv.split(whole.eval(), at="1", example=torch.rand(2, 3, 32, 32))
    with pytest.raises(InputError, match=r"takes pictures of shape \(3, 32, 32\), but these are \(1, 8, 8\)"):
        export_model(model, tmp_path / "a", pictures)
    assert not list(tmp_path.iterdir())


def test_a_traced_half_that_fails_is_told_in_one_sentence_alone(
    pictures: Dataset, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flat = nn.Flatten()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.flat(x @ torch.ones(9, 8))

    with pytest.raises(InputError, match=r"edge half cannot take pictures \[1, 8, 8\]"):
        export_model(sv.split(Weighted(), at="flat"), tmp_path / "a", pictures)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("names", [("a", "b"), "abc", ("a", "b", 3)])
def test_class_names_that_do_not_fit_are_refused(names: Any, pictures: Dataset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="3 classes needs 3 class names"):
        export_model(own(), tmp_path / "a", pictures, class_names=names)


@pytest.mark.parametrize("classes", [2, 4])
def test_another_number_of_classes_than_the_data_is_refused(classes: int, pictures: Dataset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"names {classes} classes, but the data has 3"):
        export_model(own(classes), tmp_path / "a", pictures)


def test_labels_without_a_class_are_refused(pictures: Dataset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="labels from 0 to 2, but the model names 2 classes"):
        export_model(own(2), tmp_path / "a", pictures.test)
    shifted = ImageSet(pictures.test.images, pictures.test.labels - 1)
    with pytest.raises(InputError, match="labels from -1 to 1, but the model names 3 classes"):
        export_model(own(), tmp_path / "a", shifted)


class Plain(nn.Module):
    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return z


class Short(nn.Module):
    def transmit(self, z: torch.Tensor) -> torch.Tensor:
        return z


def with_defence(defence: nn.Module) -> sv.SplitModel:
    model = own()
    model.defences["mine"] = defence
    return model


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: own(channels=3), r"edge half cannot take pictures \[1, 8, 8\]"),
        (lambda: own().half(), r"weights of the model are torch\.float16.*model\.float\(\)"),
        (lambda: own().double(), r"weights of the model are torch\.float64"),
        (lambda: with_defence(Plain()), "The defence Plain has no transmit"),
        (lambda: with_defence(Short()), "transmission cannot take features"),
        (lambda: sv.SplitModel(own().edge, nn.Linear(5, 3)), "cloud half cannot take features"),
        (lambda: sv.SplitModel(own().edge, nn.Identity()), r"gives \[2, 8, 8\] values for a picture"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_in_one_sentence(
    make: Any, sentence: str, pictures: Dataset, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=sentence) as error:
        export_model(make(), tmp_path / "a", pictures)
    assert error.value.hint
    assert "\n" not in str(error.value)
    assert ".." not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_run_is_exported_by_its_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"not a SplitModel.*export_model"):
        export_run(own(), tmp_path / "a")  # type: ignore[arg-type]


def test_the_signature_pins_weights_and_defences() -> None:
    model, same, other = own(), own(), own()
    with torch.no_grad():
        other.cloud[1].bias[0] += 1e-3  # type: ignore[index]
    assert own_signature("net", model) == own_signature("net", same)
    assert own_signature("net", model) != own_signature("net", other)
    assert "|own:net|weights:" in own_signature("net", model)
    lines = {own_signature("net", model)}
    for sigma in (0.1, 0.2):
        same.defences["noise"] = defences.create("noise", sigma=sigma)
        lines.add(own_signature("net", same))
    assert len(lines) == 3


def test_defences_are_stated_with_their_options() -> None:
    model = with_defence(Short())
    model.defences["noise"] = defences.create("noise", sigma=0.25)
    first, second = stated_defences(model)
    assert (first.name, first.options) == ("mine", {})
    assert second.name == "noise"
    assert second.options["sigma"] == 0.25
