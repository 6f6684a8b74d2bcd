"""Measures beside those of SPEC 8.2, for those who want them: any function of reconstructions and pictures, or LPIPS.

    splitveil audit RUN --measure lpips              (or measures = ["lpips"] in [audit] of a recipe)
    sv.audit(model, data, measures=["lpips"])        (or a function, or a mapping of names to functions)

LPIPS (Zhang et al. 2018) compares features of a trained network. It is the package `lpips`, which nobody installs for
you: it needs torchvision, and fetches the weights of its network when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from splitveil.audit.floors import mean_picture
from splitveil.audit.statistics import bootstrap_interval
from splitveil.audit.subjects import Subjects
from splitveil.core.catalogue import MEASURES
from splitveil.core.errors import InputError, reason
from splitveil.data.augment import to_float

Measure = Callable[[Tensor, Tensor], Tensor]
"""Reconstructions and pictures [N, ch, h, w], floats in [0, 1], to one number for each pair [N]."""

CHUNK = 256  # pictures measured at once
SHAPES = "It is given reconstructions and pictures [N, ch, h, w], floats in [0, 1], and returns a tensor [N]."
SMALLEST = 64  # sides below this are enlarged for LPIPS: its network halves them five times


def lpips(network: str = "alex") -> Measure:
    """LPIPS as a measure: 0 for equal pictures. Grey pictures count as colour, small ones are enlarged to 64 pixels."""
    try:
        import lpips as package  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise InputError(
            "LPIPS needs the package lpips, which is not installed.",
            "Install it yourself (pip install lpips); it brings torchvision and fetches weights when first used.",
        ) from None
    try:
        judge: Any = package.LPIPS(net=network, verbose=False).eval().requires_grad_(False)
    except Exception as error:  # no connection, a broken file, a torchvision that does not fit: any of many classes
        why = reason(error, type(error).__name__)
        raise InputError(
            f"LPIPS could not load the weights of its network '{network}' ({why}).",
            "It fetches them when first used: do that once with a connection, or put them where torch.hub looks.",
        ) from None

    def measure(reconstructions: Tensor, pictures: Tensor) -> Tensor:
        judge.to(pictures.device)
        return judge(_prepared(reconstructions), _prepared(pictures)).flatten()

    return measure


def named(names: Iterable[str]) -> dict[str, Measure]:
    """Measures by name, ready to use: what they need is looked for now, not after hours of attacks."""
    return {name: MEASURES.load(name)() for name in names}


def chosen(measures: Mapping[str, Measure] | Sequence[str | Measure] | str | Measure | None) -> dict[str, Measure]:
    """What `measures=` takes: a mapping of names to functions, names and functions in a list, or one of either.

    A function is called by its own name.
    """
    if measures is None:
        return {}
    if isinstance(measures, Mapping):
        pairs = list(measures.items())
    else:
        single = isinstance(measures, str) or callable(measures)
        listed: list[Any] = [measures] if single else list(measures) if isinstance(measures, Iterable) else [None]
        pairs = [pair for one in listed for pair in _pairs(one)]
    if not all(isinstance(name, str) and callable(measure) for name, measure in pairs):
        raise InputError(
            "measures= takes functions of reconstructions and pictures.",
            'Give {"name": function}, one function, or a list of names and functions.',
        )
    names = [name for name, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"Two measures are called '{twice}'.", 'Give each a name of its own: {"name": function}.')
    return dict(pairs)


def _pairs(one: Any) -> list[tuple[str, Any]]:
    if isinstance(one, str):
        return list(named([one]).items())
    return [(getattr(one, "__name__", type(one).__name__), one)]


def try_out(measures: Mapping[str, Measure], subjects: Subjects) -> None:
    """Measure two pictures against the mean picture, so that a wrong function is found before hours of attacks."""
    pictures = subjects.targets.images[:2]
    floor = mean_picture(subjects.auxiliary.images).expand(len(pictures), *pictures.shape[1:])
    for name, measure in measures.items():
        try:
            _values(name, measure, floor, pictures)
        except InputError:
            raise
        except Exception as error:  # whatever somebody's function raises
            raise InputError(f"The measure '{name}' failed on two pictures ({_told(error)}).", SHAPES) from error


def _told(error: Exception) -> str:
    why = reason(error).rstrip(".")
    return why if isinstance(error, InputError) else f"{type(error).__name__}: {why}"


def _prepared(pictures: Tensor) -> Tensor:
    """Three channels in [-1, 1], sides of at least 64."""
    x = pictures.expand(-1, 3, -1, -1) if pictures.shape[1] == 1 else pictures
    side = min(x.shape[2:])
    if side < SMALLEST:
        x = F.interpolate(x, scale_factor=SMALLEST / side, mode="bilinear", align_corners=False)
    return 2 * x - 1


def measured(
    measures: Mapping[str, Measure], subjects: Subjects, answers: Mapping[str, Tensor]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """What audit.json says under `extra`: for each measure the mean picture (the floor), every attack's answers, and
    the answer to each picture that is worst by it.

    A measure that fails now is left out, and a warning says so: it must not cost the attacks that have run.
    """
    pictures = subjects.targets.images
    floor = mean_picture(subjects.auxiliary.images).expand(len(pictures), *pictures.shape[1:])
    found: dict[str, dict[str, Any]] = {}
    remarks = []
    for name, measure in measures.items():
        try:
            found[name] = _entry(name, measure, floor, pictures, answers)
        except Exception as error:  # whatever somebody's function raises
            remarks.append(f"The measure '{name}' is left out, because it failed: {_told(error)}.")
    return found, remarks


def _entry(
    name: str, measure: Measure, floor: Tensor, pictures: Tensor, answers: Mapping[str, Tensor]
) -> dict[str, Any]:
    guess = _values(name, measure, floor, pictures)
    reached = {attack: _values(name, measure, made, pictures[: len(made)]) for attack, made in answers.items()}
    larger = _larger_is_private(measure, guess, pictures)
    entry: dict[str, Any] = {
        "larger_is_private": larger,
        "floor": {"mean_image": _summary(guess)},
        "attacks": {attack: _summary(values) for attack, values in reached.items()},
    }
    if reached and larger is not None:
        seen_by_all = min(map(len, reached.values()))  # as in the worst case of our own measures
        together = torch.stack([values[:seen_by_all] for values in reached.values()])
        entry["worst_case"] = _summary(together.amin(0) if larger else together.amax(0))
    return entry


@torch.no_grad()
def _larger_is_private(measure: Measure, guess: Tensor, pictures: Tensor) -> bool | None:
    """Whether the larger value is the more private one: then guessing has a larger one than a perfect copy. A function
    says nothing of this itself. None where the two are equal, or a perfect copy cannot be measured."""
    copy = to_float(pictures[:CHUNK])
    try:
        perfect = float(measure(copy, copy).double().mean())  # may be infinite, as PSNR is
    except Exception:  # whatever somebody's function raises
        return None
    guessed = float(guess[:CHUNK].mean())
    return guessed > perfect if guessed != perfect == perfect else None


@torch.no_grad()
def _values(name: str, measure: Measure, reconstructions: Tensor, pictures: Tensor) -> Tensor:
    values = []
    for answer, picture in zip(reconstructions.split(CHUNK), pictures.split(CHUNK), strict=True):
        given = measure(answer, to_float(picture))
        if not isinstance(given, Tensor) or given.shape != (len(picture),) or not bool(given.isfinite().all()):
            raise InputError(f"The measure '{name}' must give one finite number for each picture.", SHAPES)
        values.append(given.double().cpu())
    return torch.cat(values)


def _summary(values: Tensor) -> dict[str, Any]:
    interval = bootstrap_interval(values.numpy())
    return {"mean": float(values.mean()), "ci95": None if interval is None else list(interval)}
