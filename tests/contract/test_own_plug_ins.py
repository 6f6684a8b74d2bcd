"""What a surrogate, a defence or a model of one's own gets wrong is said in a sentence that names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import splitveil as sv
from splitveil.core.errors import ConfigError, DataError, InputError
from splitveil.core.options import Options
from splitveil.data.assembly import assemble
from splitveil.defences.base import Defence, Step
from splitveil.models.layers import build_split
from splitveil.surrogates.base import Batch, Surrogate, Terms
from splitveil.training.compose import POLICIES
from splitveil.training.losses import StepModule


class Own(Surrogate):
    """Terms that are right, unless told otherwise; `name` is any options' own."""

    changed: Mapping[str, Any]

    def _terms(self, batch: Batch) -> Terms:
        cost = (batch.member @ batch.x.square()).mean(dim=1)
        right: dict[str, Any] = {
            "per_class_loss": cost,
            "weight": batch.share,
            "used": batch.count > 0,
            "normalise": False,
            "intra_mse": cost.sum(),
        }
        return Terms(**{**right, **self.changed})


def surrogate(**changed: Any) -> Own:
    made = Own(feature_shape=(4,), num_classes=3, sigma=0.1, options=Own.resolve(name="own"))
    made.changed = changed
    return made


def batch() -> tuple[Tensor, Tensor]:
    return torch.rand(6, 4, requires_grad=True), torch.arange(6) % 3


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"per_class_loss": torch.ones(4)}, r"gave 'per_class_loss' the shape \[4\], not \[3\]"),
        ({"weight": torch.ones(())}, r"gave 'weight' the shape \[\], not \[3\]"),
        ({"intra_mse": 0.5}, "gave a float as 'intra_mse', not a tensor"),
        ({"fit_loss": torch.ones(2)}, r"gave 'fit_loss' the shape \[2\], not \[\]"),
        ({"diagnostics": {"mine": 1}}, "gave a int as 'mine', not a tensor"),
        ({"per_class_loss": torch.ones(3)}, "gave a 'per_class_loss' without gradient"),
    ],
)
def test_terms_that_do_not_fit_are_named(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=f"Own._terms {said}"):
        surrogate(**changed)(*batch())


def test_right_terms_pass() -> None:
    assert surrogate()(*batch()).loss > 0
    with torch.no_grad():
        assert surrogate(per_class_loss=torch.ones(3))(*batch()).loss == 1  # nobody asks for a gradient


class Termless(Surrogate):
    def _term(self, batch: Batch) -> Terms:
        raise AssertionError


class Whole(Surrogate):
    def forward(self, *_: Any, **__: Any) -> Any:
        return "its own way"


def test_a_surrogate_without_terms_is_refused_when_it_is_made() -> None:
    """Training would call it only after the warm-up."""
    given: dict[str, Any] = {"feature_shape": (4,), "num_classes": 3, "sigma": 0.1, "options": Own.resolve(name="own")}
    with pytest.raises(InputError, match=r"The surrogate Termless has no _terms\(batch\)"):
        Termless(**given)
    assert Whole(**given)(*batch()) == "its own way"


class Odd(Defence):
    def __init__(self, sent: Any = None, term: Any = None) -> None:
        super().__init__(Options())
        self.sent, self.term = sent, term

    def transmit(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return cast(Tensor, self.sent(z)) if self.sent else z

    def loss(self, step: Step) -> Tensor | None:
        return cast(Tensor, self.term)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (lambda z: z[:, :1], r"sends the shape \[5, 1\] in place of a feature \[5, 4\]"),
        (lambda z: z.mean(dim=0, keepdim=True), r"sends the shape \[1, 4\]"),
        (lambda z: z.tolist(), "sends a list in place"),
    ],
)
def test_a_defence_that_sends_another_shape_is_named(sent: Any, said: str) -> None:
    model = sv.SplitModel(nn.Identity(), nn.Linear(4, 2))
    model.defences["odd"] = Odd(sent)
    with pytest.raises(InputError, match=f"The defence Odd {said}"):
        model.send(torch.rand(5, 4))


def test_a_defence_that_cuts_the_gradient_is_named_in_training_alone() -> None:
    model = sv.SplitModel(nn.Linear(4, 4), nn.Linear(4, 2))
    model.defences["odd"] = Odd(lambda z: z.detach().round())
    step = StepModule(model, None, POLICIES["single"], torch.float32)
    z = model.edge(torch.rand(5, 4))
    with pytest.raises(InputError, match=r"The defence 'odd' sends values without gradient.*z \+ \(chosen - z\)"):
        step._transmit(z, None)
    assert torch.equal(step._transmit(z.detach(), None)[0], z.detach().round())  # nobody asks for a gradient
    assert model.send(torch.rand(5, 4)).shape == (5, 4)  # an audit takes such a device as it is


class Misspelt(Defence):
    def transmitt(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return 0 * z


class NoGenerator(Defence):
    def transmit(self, z: Tensor) -> Tensor:  # type: ignore[override]
        return z


class FewerNames(Odd):
    """Only its way of being called counts."""

    def transmit(self, *given: Any) -> Tensor:
        return cast(Tensor, given[0])


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Misspelt, "The defence Misspelt does nothing: it overrides none of install, .*spelling"),
        (NoGenerator, r"transmit\(self, z.*\) -> .*, which is called as transmit\(z, generator\)"),
    ],
)
def test_a_defence_that_would_do_nothing_or_cannot_be_called_is_named(kind: type[Defence], said: str) -> None:
    with pytest.raises(InputError, match=said):
        kind(Options())


def test_a_defence_may_name_its_arguments_as_it_likes() -> None:
    assert FewerNames().transmit(torch.ones(1)) == 1


@pytest.mark.parametrize(("term", "said"), [(torch.ones(2), r"the shape \[2\]"), (1.0, "a float")])
def test_a_defence_whose_loss_is_no_number_is_named(term: Any, said: str) -> None:
    model = sv.SplitModel(nn.Identity(), nn.Linear(4, 2))
    model.defences["odd"] = Odd(term=term)
    step = StepModule(model, None, POLICIES["single"], torch.float32)
    z = torch.rand(5, 4)
    with pytest.raises(InputError, match=f"Odd.loss gave {said}, not a tensor with one number"):
        step.task(z, torch.zeros(5, dtype=torch.long), z, z, 1)


class Tokens(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).transpose(1, 2)


class Mean(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.head(x.mean(dim=1)))


class Former:
    """Features that are tokens [T, D], not maps."""

    name = "former"
    default_cut = 2
    width, more = 8, 0

    def layers(self, channels: int) -> list[nn.Module]:
        return [nn.Conv2d(channels, 8, 4, stride=4), Tokens(), nn.Linear(self.width, 8)]

    def classifier(self, feature: tuple[int, ...], num_classes: int) -> nn.Module:
        return Mean(feature[-1], num_classes + self.more)

    def initialise_edge(self, edge: nn.Module) -> None: ...


def test_a_model_may_send_tokens() -> None:
    model = build_split(Former, image_shape=(1, 16, 16), num_classes=3)
    assert model.feature_shape == (16, 8)
    assert model(torch.rand(2, 1, 16, 16)).shape == (2, 3)
    with pytest.raises(InputError, match=r"bottleneck defence narrows maps \[ch, h, w\], not features of \[16, 8\]"):
        sv.defences.create("bottleneck").install(model)


def test_a_layer_that_does_not_fit_and_a_wrong_classifier_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"Layer 1 of former does not take what reaches it, \[1, 2, 2\]"):
        build_split(Former, image_shape=(1, 2, 2), num_classes=3)
    monkeypatch.setattr(Former, "width", 5)
    with pytest.raises(ConfigError, match=r"Layer 3 of former does not take what reaches it, \[16, 8\]"):
        build_split(Former, image_shape=(1, 16, 16), num_classes=3)
    monkeypatch.undo()
    monkeypatch.setattr(Former, "more", 1)
    with pytest.raises(ConfigError, match=r"The classifier of former gives \[4\], not one number for each class"):
        build_split(Former, image_shape=(1, 16, 16), num_classes=3)


def test_a_data_set_may_be_made_of_tensors_and_needs_its_parts() -> None:
    part = (torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.arange(4) % 2)
    parts = cast(dict[str, tuple[np.ndarray, np.ndarray]], {"train": part, "test": part})
    assert assemble("own", parts, where="own").info.image_shape == (1, 8, 8)
    with pytest.raises(DataError, match="own has no test part"):
        assemble("own", {"train": parts["train"]}, where="own")


def test_what_a_notebook_shows_is_short_and_says_the_options() -> None:
    shown = repr(sv.surrogates.create("gated", feature_shape=(2, 2, 2), num_classes=3, sigma=0.1, memory=7))
    assert "feature_shape=(2, 2, 2), num_classes=3, sigma=0.1, mode='corrected', memory=7" in shown
    assert repr(surrogate()(*batch())).startswith("SurrogateOutput(loss=")
    assert "per_class=[3 numbers], diagnostics=[per_class_loss, " in repr(surrogate()(*batch()))
    assert len(repr(surrogate()(*batch()))) < 300
    assert repr(sv.defences.create("topk", p=0.25)) == "TopK(p=0.25)"
    parts = sv.data.load(sv.load_config(overrides=["data.limit=300"]).data, seed=0)
    assert "train=ImageSet(210 pictures [1, 28, 28] on cpu)" in repr(parts)
    assert len(repr(parts)) < 1500
