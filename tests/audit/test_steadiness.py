"""What is attacked must be what the device sends: for one picture as for many, and at the end as at the beginning."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests import worlds
from torch import Tensor, nn

import splitveil as sv
from splitveil.audit.budget import check_budget, parse_budget
from splitveil.audit.steadiness import ALONE, LATER, Steadiness
from splitveil.audit.subjects import AuditData
from splitveil.core.errors import QualityGateError
from splitveil.defences.base import Defence
from splitveil.models.split import SplitModel

PICTURES = worlds.pictures(20, seed=2).images
Change = Callable[[Tensor, torch.Generator | None], Tensor]


def noise(z: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(z.shape, generator=generator)


class Sends(Defence):
    def __init__(self, change: Change) -> None:
        super().__init__(Defence.Options())
        self.change = change

    def transmit(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self.change(z, generator)


def model_that(change: Change, edge: nn.Module | None = None) -> SplitModel:
    model = worlds.split_model(nn.Sequential(edge, nn.PixelUnshuffle(2)) if edge else nn.PixelUnshuffle(2), 4)
    model.defences["sends"] = Sends(change)
    return model.eval()


HONEST: dict[str, Change] = {
    "as it is": lambda z, _: z,
    "noise": lambda z, g: z + noise(z, g),
    "noise of the global stream": lambda z, _: z + torch.randn(z.shape),
    "noise without a variance": lambda z, g: z + torch.tan(1.57 * noise(z, g).tanh()),
    "one factor for a picture": lambda z, g: z * (3 * torch.randn(len(z), 1, 1, 1, generator=g)).exp(),
    "dropout": lambda z, g: z * (noise(z, g) > 0),
    "levels": lambda z, _: (z * 8).round() / 8,
    "rounding that a batch changes": lambda z, _: z + 1e-6 * len(z),
}


@pytest.mark.parametrize("name", HONEST)
def test_a_model_that_always_sends_by_one_law_is_not_doubted(name: str) -> None:
    for seed in range(5):
        torch.manual_seed(seed)
        assert Steadiness(model_that(HONEST[name]), worlds.pictures(20, seed=seed).images).doubts() == []


OTHER_ALONE: dict[str, Change] = {
    "bare when alone": lambda z, g: z if len(z) == 1 else z + noise(z, g),
    "less noise when alone": lambda z, g: z + (0.3 if len(z) == 1 else 1.0) * noise(z, g),
    "the same noise in every batch": lambda z, _: z + noise(z, torch.Generator().manual_seed(7)),
    "another picture's": lambda z, _: z.flip(0),
    "a little more when alone": lambda z, _: z + 0.03 * (len(z) == 1),  # pictures differ by about 0.15
}


@pytest.mark.parametrize("name", OTHER_ALONE)
def test_one_that_sends_something_else_for_a_single_picture_is(name: str) -> None:
    assert Steadiness(model_that(OTHER_ALONE[name]), PICTURES).doubts() == [ALONE]


def test_so_is_one_that_normalises_by_the_batch() -> None:
    """Batch normalisation without running statistics: in eval mode, too, it uses those of the batch."""
    edge = nn.BatchNorm2d(1, track_running_stats=False)
    assert Steadiness(model_that(HONEST["as it is"], edge), PICTURES).doubts() == [ALONE]


def test_one_that_becomes_another_while_it_is_attacked_is_doubted() -> None:
    model = model_that(lambda z, g: z + noise(z, g))
    steady = Steadiness(model, PICTURES)
    model.defences["sends"].change = lambda z, g: z
    assert LATER in steady.doubts()


def test_doubt_leaves_no_verdict_and_no_budget_is_met() -> None:
    world = AuditData(aux=worlds.pictures(60, seed=1), test=worlds.pictures(40, seed=2))
    found = sv.audit(model_that(OTHER_ALONE["bare when alone"]), world, attacks=["retrieval", "linear"])
    assert found.tree["sanity"]["passed"]
    assert found.verdict is None
    assert found.warnings[0] == f"There is no verdict: {ALONE}."
    with pytest.raises(QualityGateError, match="not what the model sends"):
        check_budget(parse_budget("mse>=0"), found.tree)


def test_one_that_protects_only_after_its_first_pictures_gets_no_verdict() -> None:
    """Every picture is sent once before the attacks: that alone must not use up what a model does at first."""

    class Late:
        sent = 0

        def __call__(self, z: Tensor, generator: torch.Generator | None) -> Tensor:
            self.sent += len(z)
            return z + noise(z, generator) if self.sent > 600 else z

    world = AuditData(aux=worlds.pictures(600, seed=1), test=worlds.pictures(40, seed=2))
    found = sv.audit(model_that(Late()), world, attacks=["linear"])
    assert found.verdict is None
    assert LATER in found.warnings[0]


def test_one_picture_is_left_alone() -> None:
    assert Steadiness(model_that(OTHER_ALONE["bare when alone"]), PICTURES[:1]).doubts() == []


def test_the_global_stream_is_found_where_it_was() -> None:
    model = model_that(HONEST["noise of the global stream"])
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    Steadiness(model, PICTURES).doubts()
    assert torch.equal(torch.rand(1), expected)
