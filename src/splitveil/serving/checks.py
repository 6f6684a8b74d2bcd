"""Is what is served what was trained? The ONNX halves against torch, on real pictures, before anything is promised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from splitveil.core.errors import ArtefactError
from splitveil.data.augment import to_float
from splitveil.data.dataset import ImageSet
from splitveil.models.split import DIVERGED
from splitveil.serving.claims import explained
from splitveil.serving.graphs import CloudGraph, EdgeGraph
from splitveil.serving.halves import CloudHalf, EdgeHalf
from splitveil.serving.random_inputs import draw

COMPARED = 256  # pictures that go through torch and ONNX alike
SCORED = 2_000  # pictures that go through ONNX for the accuracy: more would take minutes where a CPU runs vgg11
TOLERANCE = 1e-4  # of the largest value: two libraries sum in another order, which leaves about 1e-6 per layer
# Where a defence picks the largest values, rounding may swap two that are nearly equal: then two values differ wholly.
SWAPPED = 1e-3
ROUNDING = 1e-6  # of the largest value, in each value
NOISE = 0.01  # how far the strength of the noise may be off, beside what rounding does to so small a change
ALONE = 8  # of the compared pictures are sent one at a time, as devices do: a graph may know how many there are
SAME_LABEL = 0.99
REPORT = "Please report this with the run's config.toml."


@dataclass(frozen=True)
class Agreement:
    """How far ONNX and torch are apart on the same pictures with the same random inputs."""

    pictures: int
    feature_difference: float
    beyond_tolerance: float
    logit_difference: float
    same_label: float


def as_pictures(images: torch.Tensor) -> NDArray[np.float32]:
    """uint8 [N, ch, h, w] as the float32 in [0, 1] that the edge half takes."""
    return to_float(images.cpu()).numpy()


@torch.no_grad()
def agreement(
    edge: EdgeHalf, cloud: CloudHalf, edge_graph: EdgeGraph, cloud_graph: CloudGraph, part: ImageSet
) -> Agreement:
    """Compare, and refuse with one sentence where the two differ by more than rounding."""
    pictures = as_pictures(spread_over(part, COMPARED).images)
    sent, expected = _transmitted(edge, edge_graph, pictures)
    _refuse_broken("edge", expected)
    largest = max(1.0, float(expected.abs().max()))
    apart = (sent - expected).abs()
    beyond = float((apart > TOLERANCE * largest).double().mean())
    logits, right = torch.from_numpy(cloud.logits(expected.numpy())), cloud_graph(expected)
    _refuse_broken("cloud", right)
    logit_apart = float((logits - right).abs().max())
    labels = torch.from_numpy(cloud.logits(sent.numpy())).argmax(dim=1)
    found = Agreement(
        pictures=len(pictures),
        feature_difference=float(apart.max()),
        beyond_tolerance=beyond,
        logit_difference=logit_apart,
        same_label=float((labels == right.argmax(dim=1)).double().mean()),
    )
    # written so that NaN fails
    if not beyond <= SWAPPED or not bool(sent.isfinite().all()):
        raise ArtefactError(
            f"The exported edge half differs from torch's in {beyond:.2%} of the values, by up to "
            f"{found.feature_difference:.2g}.",
            REPORT,
        )
    if edge.manifest.random:
        again, expected_again = _transmitted(edge, edge_graph, pictures)
        close = torch.maximum(apart, (again - expected_again).abs()) <= TOLERANCE * largest
        wrong = other_noise(again - sent, expected_again - expected, close, ROUNDING * largest)
        if wrong:
            raise ArtefactError(f"The exported edge half has other noise than torch's in {wrong} values.", REPORT)
    if not logit_apart <= TOLERANCE * max(1.0, float(right.abs().max())):
        raise ArtefactError(f"The exported cloud half differs from torch's by up to {logit_apart:.2g}.", REPORT)
    if not found.same_label >= SAME_LABEL:
        raise ArtefactError(
            f"Only {found.same_label:.1%} of the pictures get the same label through ONNX and torch.", REPORT
        )
    return found


def _refuse_broken(half: str, values: torch.Tensor) -> None:
    """What torch itself makes NaN of is the model's fault, not the exporter's."""
    if not bool(values.isfinite().all()):
        raise ArtefactError(f"The {half} half gives values that are not finite.", DIVERGED)


def _transmitted(
    edge: EdgeHalf, edge_graph: EdgeGraph, pictures: NDArray[np.float32]
) -> tuple[torch.Tensor, torch.Tensor]:
    """One transmission through ONNX and through torch, with the same draws."""
    draws = draw(edge.manifest.random, len(pictures))
    parts = [*(slice(place, place + 1) for place in range(ALONE)), slice(ALONE, None)]
    some = [(pictures[part], {name: values[part] for name, values in draws.items()}) for part in parts]
    sent = np.concatenate([edge.transmit(images, inputs) for images, inputs in some if len(images)])
    inputs = [torch.from_numpy(draws[one.name]) for one in edge.manifest.random]
    return torch.from_numpy(sent), edge_graph(torch.from_numpy(pictures), *inputs)


def other_noise(change: torch.Tensor, expected: torch.Tensor, close: torch.Tensor, rounding: float) -> int:
    """In how many values of a feature the noise is another: what differs between two transmissions, all [N, ...].

    `TOLERANCE` is of the largest value, beside which noise may be small. So, over the pictures n whose values are
    `close`, how much of torch's change e is in ONNX's c: Σ c·e / Σ e² = 1, up to rounding / (rms(e)·√n).
    """
    c, e = ((values.double() * close).flatten(1) for values in (change, expected))  # [N, D]
    power = e.square().sum(0).clamp_min(1e-300)  # [D]; no change at all: rounding explains everything
    strength = (c * e).sum(0) / power
    never = ~close.flatten(1).any(0)  # not even once what torch sends
    explained = (strength - 1).abs() <= NOISE + 10 * rounding / power.sqrt()
    return int((never | ~explained).sum())


def served_accuracy(edge: EdgeHalf, cloud: CloudHalf, part: ImageSet) -> tuple[float, int]:
    """Share of test pictures that the two ONNX halves classify correctly with secure draws, and of how many."""
    part = spread_over(part, SCORED)
    right = 0
    for images, labels in zip(part.images.split(256), part.labels.split(256), strict=True):
        answers = cloud.logits(edge.features(as_pictures(images))).argmax(axis=1)
        right += int((answers == labels.cpu().numpy()).sum())
    return right / len(part), len(part)


def check_accuracy(found: float, count: int, stated: float) -> None:
    """Refuse an accuracy that other noise on (some of) the same pictures does not explain."""
    if not explained(found, count, stated):
        raise ArtefactError(
            f"The exported halves classify {found:.1%} of {count} test pictures, but the run states {stated:.1%}.",
            "Are data set and weights those of the run?",
        )


def spread_over(part: ImageSet, limit: int) -> ImageSet:
    """At most `limit` pictures, evenly from the whole part: test parts may be sorted by class."""
    if len(part) <= limit:
        return part
    return part.subset(torch.arange(limit) * len(part) // limit)
