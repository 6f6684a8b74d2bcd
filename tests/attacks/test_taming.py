"""What anybody who looks at the numbers can undo must not stop an attack; ordinary features stay as they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests import worlds
from torch import Tensor

from splitveil import attacks
from splitveil.attacks.base import Reconstruction
from splitveil.attacks.taming import Taming
from splitveil.attacks.view import Scene, View
from splitveil.audit.metrics import compare
from splitveil.defences.base import Defence
from splitveil.models.split import SplitModel

AUX, TARGETS = worlds.patchwork(300, seed=1), worlds.patchwork(300, seed=2)
QUICK = {"kind": "shuffle", "blocks": 0, "width": 16, "epochs": 8, "batch_size": 32, "lr": 1e-2, "best_epoch": "off"}


class Trick(Defence):
    """Sends the feature in another way, without hiding any of it."""

    def __init__(self, change: Callable[[Tensor, torch.Generator | None], Tensor]) -> None:
        super().__init__(Defence.Options())
        self.change = change

    def transmit(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self.change(z, generator)


def model_with(change: Callable[[Tensor, torch.Generator | None], Tensor]) -> SplitModel:
    model = worlds.identity()
    model.defences["trick"] = Trick(change)
    return model.eval()


def below_noise(z: Tensor, generator: torch.Generator | None) -> Tensor:
    """A channel holds the picture, a millionth of the size of the noise in the three others."""
    noise = 100 * torch.randn(z[:, 1:].shape, generator=generator)
    return torch.cat([1e-6 * z[:, :1], noise], 1)


def resized(z: Tensor, generator: torch.Generator | None) -> Tensor:
    """Each feature times a number from 0.0025 to 400; a constant channel tells which."""
    factor = torch.exp(12 * torch.rand(len(z), 1, 1, 1, generator=generator) - 6)
    return factor * torch.cat([z[:, :3], torch.ones_like(z[:, :1])], 1)


def rarely_huge(z: Tensor, generator: torch.Generator | None) -> Tensor:
    """Noise without a variance (Cauchy): nearly always small, now and then enormous."""
    return z + 0.03 * torch.tan(torch.pi * (torch.rand(z.shape, generator=generator) - 0.5))


TRICKS = {
    "tiny": lambda z, _: 1e-8 * z,
    "far": lambda z, _: z + 1e4 * torch.tensor([3.0, -1.0, 2.0, -5.0]).view(1, 4, 1, 1),
    "below noise": below_noise,
    "resized": resized,
    "rarely huge": rarely_huge,
}


def error(model: SplitModel, name: str, **options: object) -> float:
    attack = attacks.create(name, **options)
    found = attack.run(View(Scene(model, AUX, TARGETS), attack.threat_model))
    assert isinstance(found, Reconstruction)
    return float(compare(found.images, TARGETS.images).mse.mean())


@pytest.mark.parametrize("trick", TRICKS)
def test_a_decoder_reads_what_was_only_disguised(trick: str) -> None:
    """Guessing has the variance of a uniform law, 1/12."""
    assert error(model_with(TRICKS[trick]), "decoder", **QUICK) < 0.25 / 12


@pytest.mark.parametrize("trick", ["below noise", "resized", "rarely huge"])
def test_so_does_least_squares(trick: str) -> None:
    assert error(model_with(TRICKS[trick]), "linear") < 0.25 / 12


def test_outliers_do_not_reach_an_average() -> None:
    assert error(model_with(rarely_huge), "average", **QUICK, repeats=4) < 0.25 / 12


def ordinary() -> dict[str, Tensor]:
    z = torch.randn(400, 8, 6, 6, generator=torch.Generator().manual_seed(0))
    rare = z.relu()
    rare[:, 2] = 0
    rare[7, 2, 0, 0] = 1e-4  # a channel that is nearly dead
    return {
        "gaussian": 0.1 * z,
        "relu": z.relu(),
        "nearly dead": rare,
        "sparse and noisy": 0.025 * z + (z.roll(1, 0) - 2).relu(),
        "constant": torch.full_like(z, 3.0),
        "zero": torch.zeros_like(z),
        "two values": z.flatten(1)[:, :2],
        "one picture": z[:1],
        "one value": z[:1, :1, 0, 0],
        "tokens": z.flatten(2),
    }


@pytest.mark.parametrize("name", ordinary())
def test_ordinary_features_stay_as_they_are(name: str) -> None:
    """To the bit: published numbers rest on it."""
    sent = ordinary()[name]
    assert Taming(sent)(sent) is sent


@pytest.mark.parametrize("shape", [(40, 6), (40, 3, 5), (40, 3, 4, 4)])
def test_what_is_tamed_has_the_same_form_and_loses_nothing(shape: tuple[int, ...]) -> None:
    z = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    tamed = Taming(1e-7 * z + 1e-4)(1e-7 * z + 1e-4)
    assert tamed.shape == z.shape
    assert tamed.dtype == z.dtype
    assert abs(float(tamed.std()) - 1) < 0.05
    assert float(torch.corrcoef(torch.stack([tamed.flatten(), z.flatten()]))[0, 1]) > 0.9


def test_a_channel_that_never_changes_stays_small() -> None:
    z = 1e-6 * torch.randn(50, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    z[:, 1] = 0.25
    assert float(Taming(z)(z)[:, 1].abs().max()) == 0
