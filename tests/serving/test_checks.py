"""What the exporter and the auditor of an artefact notice: a graph that sends other values, or other noise, than torch.

The halves in ONNX are played by numpy functions, so that every lie is one line.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from splitveil import defences
from splitveil.core.errors import ArtefactError
from splitveil.data.dataset import ImageSet
from splitveil.models.split import SplitModel
from splitveil.serving.checks import agreement, check_accuracy, other_noise, spread_over
from splitveil.serving.graphs import CloudGraph, EdgeGraph
from splitveil.serving.manifest import RandomInput

SHAPE, SIGMA, LARGE = (1, 4, 8), 0.025, 500.0
RANDOM = (RandomInput(name="normal_0", law="normal", shape=SHAPE),)
Lie = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Scaled(nn.Module):
    """x, but the first row a thousand times as large: beside such values the noise is small."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.tensor([LARGE, 1, 1, 1])[:, None]


def scaled(x: np.ndarray) -> np.ndarray:
    return x * np.float32([LARGE, 1, 1, 1])[:, None]


@pytest.fixture(scope="module")
def model() -> SplitModel:
    torch.manual_seed(0)
    made = SplitModel(Scaled(), nn.Sequential(nn.Flatten(), nn.Linear(32, 3)), image_shape=SHAPE, num_classes=3)
    made.defences["noise"] = defences.create("noise", sigma=SIGMA)
    return made.eval()


def compared(model: SplitModel, sends: Lie, lie: float = 0.0) -> Any:
    """What is found where the device sends `sends(pictures, noise)`, and the cloud's answers are off by `lie`."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(256, (300, *SHAPE), generator=generator, dtype=torch.uint8)
    edge = SimpleNamespace(
        manifest=SimpleNamespace(random=RANDOM),
        transmit=lambda x, draws: sends(x, draws["normal_0"]).astype(np.float32),
    )

    def logits(sent: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return (model.cloud(torch.from_numpy(sent)) + lie * LARGE).numpy()

    part = ImageSet(images, torch.zeros(300, dtype=torch.int64))
    cloud = SimpleNamespace(logits=logits)
    return agreement(edge, cloud, EdgeGraph(model, RANDOM), CloudGraph(model, None), part)  # type: ignore[arg-type]


def test_the_truth_passes(model: SplitModel) -> None:
    found = compared(model, lambda x, noise: scaled(x) + np.float32(SIGMA) * noise)
    assert found.pictures == 256
    assert found.beyond_tolerance == 0
    assert found.same_label == 1


def test_rounding_passes(model: SplitModel) -> None:
    """Another order of summation: one part in a million of the largest value, in every value."""
    random = np.random.default_rng(0)
    found = compared(model, lambda x, noise: scaled(x) + SIGMA * noise + 1e-6 * LARGE * random.uniform(-1, 1, x.shape))
    assert 0 < found.feature_difference <= 2e-6 * LARGE
    assert found.beyond_tolerance == 0


def only(place: tuple[int, ...], value: float) -> np.ndarray:
    changed = np.ones(SHAPE)
    changed[place] = value
    return changed


def test_one_value_that_is_no_number_is_refused(model: SplitModel) -> None:
    """NaN is not larger than any tolerance, and one picture in 256 may have another label."""

    def sends(x: np.ndarray, noise: np.ndarray) -> np.ndarray:
        sent = scaled(x) + SIGMA * noise
        sent[-1, 0, 2, 3] = np.nan if len(x) > 1 else sent[-1, 0, 2, 3]
        return sent

    with pytest.raises(ArtefactError, match="edge half differs from torch's"):
        compared(model, sends)


LIES: dict[str, Lie] = {
    "no noise": lambda x, noise: scaled(x),
    "less noise": lambda x, noise: scaled(x) + 0.9 * SIGMA * noise,
    "more noise": lambda x, noise: scaled(x) + 1.1 * SIGMA * noise,
    "noise of the other sign": lambda x, noise: scaled(x) - SIGMA * noise,
    "one value without noise": lambda x, noise: scaled(x) + SIGMA * only((0, 2, 3), 0) * noise,
    "noise of a neighbour": lambda x, noise: scaled(x) + SIGMA * np.roll(noise, 1, -1),
    "one number for a row": lambda x, noise: scaled(x) + SIGMA * noise[..., :1],
    "a picture that comes alone is clean": lambda x, noise: scaled(x) + SIGMA * noise * (len(x) > 1),
    "one value that is never sent": lambda x, noise: (scaled(x) + SIGMA * noise) * only((0, 0, 3), 0),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_noticed(model: SplitModel, lie: str) -> None:
    with pytest.raises(ArtefactError, match="exported edge half"):
        compared(model, LIES[lie])


def test_values_that_are_not_finite_are_noticed(model: SplitModel) -> None:
    with pytest.raises(ArtefactError, match="exported edge half"):
        compared(model, lambda x, noise: scaled(x) + SIGMA * noise + np.where(x == x.max(), np.nan, 0))


@pytest.mark.parametrize("half", ["edge", "cloud"])
def test_a_model_that_gives_nan_itself_is_told_from_a_fault_of_the_export(half: str) -> None:
    bad = nn.Sequential(nn.Flatten(), nn.Linear(32, 32), nn.Unflatten(1, SHAPE))
    broken = SplitModel(bad, nn.Sequential(nn.Flatten(), nn.Linear(32, 3))).eval()
    broken.defences["noise"] = defences.create("noise", sigma=SIGMA)
    with torch.no_grad():
        broken.get_submodule(half)[1].weight[0] = torch.nan  # type: ignore[index]
    with pytest.raises(ArtefactError, match=f"^The {half} half gives values that are not finite"):
        compared(broken, lambda x, noise: broken.edge(torch.from_numpy(x)).numpy() + SIGMA * noise)


def test_other_answers_are_noticed(model: SplitModel) -> None:
    with pytest.raises(ArtefactError, match="exported cloud half"):
        compared(model, lambda x, noise: scaled(x) + np.float32(SIGMA) * noise, lie=0.01)


def test_other_labels_are_noticed_where_features_and_logits_are_close() -> None:
    """An offset of 0.04 is within tolerance beside values of 500, but this cloud half looks at the small ones alone."""
    cloud = nn.Sequential(nn.Flatten(), nn.Linear(32, 2))
    with torch.no_grad():
        cloud[1].weight.zero_()
        cloud[1].weight[1, 8:] = 1 / 24
        cloud[1].bias.copy_(torch.tensor([0.0, -0.5]))
    sensitive = SplitModel(Scaled(), cloud, image_shape=SHAPE, num_classes=2).eval()
    sensitive.defences["noise"] = defences.create("noise", sigma=SIGMA)
    with pytest.raises(ArtefactError, match="get the same label"):
        compared(sensitive, lambda x, noise: scaled(x) + SIGMA * noise + 0.04)


def test_noise_of_the_other_sign_is_other_noise_however_small() -> None:
    change = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    everywhere = torch.ones(8, 5, dtype=torch.bool)
    assert other_noise(change, change, everywhere, rounding=1e-6) == 0
    assert other_noise(-change, change, everywhere, rounding=1e-6) == 5


def test_noise_that_rounding_swallows_is_no_lie() -> None:
    change = torch.randn(8, 5) * 1e-9
    assert other_noise(torch.zeros(8, 5), change, torch.ones(8, 5, dtype=torch.bool), rounding=1e-6) == 0
    assert other_noise(torch.zeros(8, 5), change, torch.ones(8, 5, dtype=torch.bool), rounding=0) == 5


def test_two_swapped_values_are_no_noise() -> None:
    """Where a defence picks the largest, rounding may swap two: those are counted elsewhere."""
    expected = torch.randn(8, 5)
    change, close = expected.clone(), torch.ones(8, 5, dtype=torch.bool)
    change[0, 0], close[0, 0] = 100, False
    assert other_noise(change, expected, close, rounding=1e-6) == 0
    close[:, 1] = False  # no swap: this value is never what torch sends
    assert other_noise(change, expected, close, rounding=1e-6) == 1
    close[:, 1] = close[0, 0] = True
    assert other_noise(change, expected, close, rounding=1e-6) == 1


@pytest.mark.parametrize(("found", "stated", "fine"), [(0.9, 0.9, True), (0.88, 0.9, True), (0.8, 0.9, False)])
def test_an_accuracy_may_be_off_by_sampling_alone(found: float, stated: float, fine: bool) -> None:
    """Two draws of 1,000 pictures at 0.89: the standard error of a difference is 0.014, of which five are allowed."""
    if fine:
        check_accuracy(found, 1000, stated)
    else:
        with pytest.raises(ArtefactError, match=r"classify 80\.0% of 1000 test pictures"):
            check_accuracy(found, 1000, stated)


def test_pictures_are_taken_from_the_whole_part() -> None:
    part = ImageSet(torch.zeros(10, 1, 2, 2, dtype=torch.uint8), torch.arange(10))
    assert spread_over(part, 4).labels.tolist() == [0, 2, 5, 7]
    assert spread_over(part, 10) is part
