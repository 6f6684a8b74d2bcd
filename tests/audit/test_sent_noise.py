"""Noise that is stated is measured: what falls short is told, and no honest composition is accused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests import worlds
from tests.defences.building import build
from torch import Tensor, nn

import splitveil as sv
from splitveil.audit.sent_noise import missing_share
from splitveil.audit.subjects import AuditData
from splitveil.core.catalogue import DEFENCES
from splitveil.defences.fisher import Fisher
from splitveil.defences.noise import Noise

PICTURES = worlds.pictures(16, seed=2).images
OTHERS = [name for name in DEFENCES.names() if name != "noise"]


def small(name: str) -> dict[str, Any]:
    """Options that keep a defence with an adversary small."""
    fields = DEFENCES.load(name).Options.model_fields
    return {"adversary_blocks": 0, "adversary_width": 4} if "adversary_blocks" in fields else {}


def trained(tables: dict[str, dict[str, Any]]) -> sv.SplitModel:
    """A model whose defences are in the state that training may leave them in: learned scales differ by value."""
    model = build(tables).eval().requires_grad_(False)
    for defence in model.defences.values():
        if getattr(defence, "rho", None) is not None:
            defence.rho.add_(torch.randn(defence.rho.shape, generator=torch.Generator().manual_seed(1)))
        if hasattr(defence, "active"):
            defence.active.fill_(1.0)
        if isinstance(defence, Fisher):
            defence.power.mul_(0.25)
    return model


class Graphs(sv.SplitModel):
    """As an artefact without weights: what `model` sends, and a manifest's word for its defences."""

    def __init__(self, model: sv.SplitModel, tables: dict[str, dict[str, Any]]) -> None:
        super().__init__(nn.Identity(), nn.Identity())
        self.manifest_defences = tuple(tables.items())
        self._model = [model]

    def channel(self) -> tuple[Callable[[Tensor], Tensor], Callable[..., Tensor]]:
        return self._model[0].channel()


NOISES: list[dict[str, Any]] = [{"sigma": 0.5}, {"sigma": 0.05, "law": "laplace"}, {"sigma": 0.3, "scale": "learned"}]


@pytest.mark.parametrize("noise", NOISES, ids=["gaussian", "laplace", "learned"])
@pytest.mark.parametrize("name", OTHERS)
def test_no_honest_composition_is_accused(name: str, noise: dict[str, Any]) -> None:
    """Every defence of the catalogue before and after noise: masks and pruning change its variance, and may."""
    own = small(name) | ({"suppress": 0.15} if name == "cloak" else {})
    for tables in ({name: own, "noise": noise}, {"noise": noise, name: own}):
        model = trained(tables)
        assert missing_share(model, PICTURES) is None, list(tables)
        assert missing_share(Graphs(model, tables), PICTURES) is None, list(tables)


@pytest.mark.parametrize("count", [1, 2, 16])
@pytest.mark.parametrize("sigma", [1e-6, 0.01, 1e4])
def test_few_pictures_or_any_scale_accuse_nobody(count: int, sigma: float) -> None:
    """The smallest is of the size of what a float rounds."""
    assert missing_share(worlds.identity(sigma=sigma), PICTURES[:count]) is None
    one_value = worlds.split_model(OneValue(), 1, sigma=sigma)
    assert missing_share(one_value, PICTURES[:count]) is None


def test_noise_that_the_number_format_rounds_away_is_not_called_missing() -> None:
    model = worlds.split_model(Offset(), 4, sigma=0.02)
    assert missing_share(model, PICTURES) is None


class OneValue(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(1, 2, 3), keepdim=True)


class Offset(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.pixel_unshuffle(x, 2) + 1e6  # where a float32 step is 0.06


def none(z: Tensor, own: Tensor) -> Tensor:
    return 0 * own


def faint(z: Tensor, own: Tensor) -> Tensor:
    return 1e-3 * own


def half(z: Tensor, own: Tensor) -> Tensor:
    return 0.5 * own


def a_bit_less(z: Tensor, own: Tensor) -> Tensor:
    return 0.9 * own


def rare(z: Tensor, own: Tensor) -> Tensor:
    """Half of all transmissions are bare, the others twice as noisy in variance: as large on average as stated."""
    return own * 2**0.5 * (torch.rand(len(z), 1, 1, 1) < 0.5)


def one_value_bare(z: Tensor, own: Tensor) -> Tensor:
    mask = torch.ones_like(z[0]).flatten()
    mask[5] = 0
    return own * mask.view(z.shape[1:])


def one_picture_bare(z: Tensor, own: Tensor) -> Tensor:
    return own * (torch.arange(len(z)) != 3).float().view(-1, 1, 1, 1)


def one_loud_value(z: Tensor, own: Tensor) -> Tensor:
    factor = torch.full_like(z[0], 0.8)
    factor[0, 0, 0] = 1e3
    return own * factor


def fewer_than_half_quieter(z: Tensor, own: Tensor) -> Tensor:
    """No value by so much that it alone is told, and more than half of them as stated: the average is short."""
    factor = torch.ones_like(z[0]).flatten()
    factor[: 2 * len(factor) // 5] = 0.7
    return own * factor.view(z.shape[1:])


FORGERIES = [
    none,
    faint,
    half,
    a_bit_less,
    rare,
    one_value_bare,
    one_picture_bare,
    one_loud_value,
    fewer_than_half_quieter,
]


def forged(forgery: Callable[[Tensor, Tensor], Tensor], later: dict[str, dict[str, Any]]) -> sv.SplitModel:
    model = trained({"noise": {"sigma": 0.5}} | later)
    noise = model.defences["noise"]
    honest = noise.transmit
    noise.transmit = lambda z, generator=None: z + forgery(z, honest(z, generator) - z)  # type: ignore[assignment]
    return model


@pytest.mark.parametrize("later", [{}, {"topk": {}}, {"dropout": {}}, {"vib": {"sigma": 5.0}}], ids=str)
@pytest.mark.parametrize("forgery", FORGERIES)
def test_what_falls_short_is_found_whatever_comes_after(
    forgery: Callable[[Tensor, Tensor], Tensor], later: dict[str, dict[str, Any]]
) -> None:
    torch.manual_seed(0)
    assert "stated is 0.5" in (missing_share(forged(forgery, later), PICTURES) or "")


@pytest.mark.parametrize("forgery", FORGERIES)
def test_what_falls_short_is_found_in_graphs_alone(forgery: Callable[[Tensor, Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    model = Graphs(forged(forgery, {}), {"noise": {"sigma": 0.5}})
    assert "stated is 0.5" in (missing_share(model, PICTURES) or "")


def test_a_learned_scale_is_compared_with_its_power() -> None:
    tables = {"noise": {"sigma": 0.5, "scale": "learned"}}
    model = trained(tables)
    found = missing_share(Graphs(model, {"noise": {"sigma": 1.0, "scale": "learned"}}), PICTURES)
    assert found is not None
    assert "stated is 1:" in found


@pytest.mark.parametrize("left", [0.0, 1e-6])
def test_a_learned_scale_that_is_as_good_as_not_sent_is_found(left: float) -> None:
    model = forged(lambda z, own: left * own, {})
    found = missing_share(Graphs(model, {"noise": {"sigma": 0.5, "scale": "learned"}}), PICTURES)
    assert "stated is 0.5" in (found or "")


def test_a_learned_scale_that_few_values_carry_accuses_nobody() -> None:
    """Of 64 values one has nearly all the power, and one picture shows it 16 times."""
    for loud in range(0, 64, 4):
        model = trained({"noise": {"sigma": 0.5, "scale": "learned"}})
        rho = model.defences["noise"].rho
        rho.zero_().view(-1)[loud] = 6.0
        graphs = Graphs(model, {"noise": {"sigma": 0.5, "scale": "learned"}})
        assert missing_share(graphs, PICTURES[:1]) is None, loud


def test_noise_is_measured_before_a_defence_that_is_not_installed_here_and_not_after_it() -> None:
    torch.manual_seed(0)
    model = forged(half, {})
    assert missing_share(Graphs(model, {"of-another-package": {}, "noise": {"sigma": 0.5}}), PICTURES) is not None
    assert missing_share(Graphs(model, {"noise": {"sigma": 0.5}, "of-another-package": {}}), PICTURES) is None


@pytest.mark.parametrize("forgery", [none, half])
def test_one_picture_shows_that_noise_is_missing(forgery: Callable[[Tensor, Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    assert missing_share(forged(forgery, {}), PICTURES[:1]) is not None


class PastItsDefences(sv.SplitModel):
    def channel(self) -> tuple[Callable[[Tensor], Tensor], Callable[..., Tensor]]:
        return self.edge, lambda z, generator=None: z


def test_a_model_that_sends_past_its_defences_is_found() -> None:
    model = PastItsDefences(nn.PixelUnshuffle(2), worlds.Cloud(4))
    model.defences["noise"] = sv.defences.create("noise", sigma=0.5)
    assert "deviation of 0, stated is 0.5" in (missing_share(model, PICTURES) or "")


@pytest.mark.parametrize(("name", "options"), [("cloak", {"sigma": 0.1}), ("fisher", {"sigma": 0.3})])
def test_other_defences_that_state_a_scale_are_measured_too(name: str, options: dict[str, Any]) -> None:
    model = trained({name: options})
    assert missing_share(model, PICTURES) is None
    honest = model.defences[name].transmit
    model.defences[name].transmit = lambda z, generator=None: z + (honest(z, generator) - z) / 2  # type: ignore[assignment]
    assert missing_share(model, PICTURES) is not None


class FakeNoise(Noise):
    def transmit(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return z + 0.1 * torch.randn_like(z)


@pytest.mark.parametrize("kind", [Noise, FakeNoise])
def test_an_audit_withholds_the_bound_and_says_what_was_measured(kind: type[Noise]) -> None:
    model = worlds.identity()
    model.defences["noise"] = kind(Noise.Options(sigma=3.0))
    data = AuditData(aux=worlds.pictures(80, seed=1), test=worlds.pictures(30, seed=2))
    found = sv.audit(model, data, attacks=["retrieval"], check_sanity=False)
    said = [text for text in found.warnings if "The noise that is sent has a standard deviation of" in text]
    bound = found.tree["bound"]
    if kind is Noise:
        assert (bound["available"], bound["sigma"], said) == (True, 3.0, [])
    else:
        assert bound == {"available": False, "reason": said[0]}
        assert ", stated is 3:" in said[0]
