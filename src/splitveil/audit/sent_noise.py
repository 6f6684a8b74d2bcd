"""Whether the noise that a model states is in what it sends, measured on transmissions of the same pictures.

Two transmissions of a picture differ by the difference of two draws. The mean size of that, relative to what the stated
law and scale give, is 1 where they are true; it is below 1 for less noise, and for noise that is large but rare, whose
variance would look right. Each defence is measured where it acts, so that what comes after it (pruning, masks,
clipping) does not matter, and once more in what leaves the model where it and all after it only add. Of graphs alone
only the latter can be seen. Left out are values that Cloak replaces by constants, and those in which the number format
rounds the stated noise away.

Not measured: the shape of the law, and whether draws are independent of each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from splitveil import defences
from splitveil.attacks.queries import PROBES
from splitveil.core.errors import SplitveilError
from splitveil.data.augment import to_float
from splitveil.defences.base import Defence
from splitveil.defences.cloak import Cloak
from splitveil.defences.fisher import Fisher
from splitveil.defences.noise import Noise
from splitveil.defences.shredder import Shredder
from splitveil.defences.vib import Vib
from splitveil.models.split import SplitModel, transmitted

PAIRS = 16  # transmissions compared, of each of PROBES pictures: 16,000 differences for a feature of 64 values
LEAST = 0.9**0.5  # of the stated standard deviation: a tenth of the variance moves no conclusion that a bound allows
ERRORS = 6  # standard errors: thousands of values are looked at one by one, and an honest model is never to be accused
SPREAD = 0.9  # of a difference's size about its mean, relative to the mean: 0.76 for a Gaussian, 0.88 for Laplace
# mean size of the difference of two draws of unit variance
DIFFERENCE = {"gaussian": 2 / math.sqrt(math.pi), "laplace": 1.5 / math.sqrt(2)}


@dataclass(frozen=True)
class Stated:
    """Noise that a defence states: its standard deviation, for each value or for all, and its law."""

    scale: Tensor | float
    law: str = "gaussian"
    known: bool = True  # which value has which scale; if not, `scale` is the root mean square over them


@torch.no_grad()
def missing_share(model: SplitModel, pictures: Tensor) -> str | None:
    """One sentence where less noise is sent than the model, or the manifest of its graphs, states."""
    few = to_float(pictures[:PROBES])
    for stated, clean, transmit in _places(model, few):
        found = _shortfall(stated, clean, transmit)
        if found is not None:
            return found
    return None


def _places(model: SplitModel, x: Tensor) -> Iterator[tuple[Stated, Tensor, Callable[..., Tensor]]]:
    """What noise is stated, and where it can be seen: what goes in there, and what sends it."""
    own = list(model.defences.values())
    chain = own or _named(model.manifest_defences)
    for place, defence in enumerate(chain):
        stated = _stated(defence, learned_here=bool(own))
        if stated is None:
            continue
        if own:
            before = transmitted(model.edge(x), own[:place], torch.Generator(x.device).manual_seed(0))
            yield stated, before, lambda z, generator, one=defence: transmitted(z, [one], generator)
        if all(_only_adds(one) for one in chain[place:]):
            first, then = model.channel()
            yield stated, first(x), then


def _stated(defence: nn.Module | None, learned_here: bool) -> Stated | None:
    """What a defence says of its noise. What training has made of it is in its weights, not in the options that a
    manifest repeats."""
    if isinstance(defence, Noise) and not defence.idle:
        return Stated(defence.scale(), defence.options.law, learned_here or defence.options.scale == "fixed")
    if isinstance(defence, Cloak) and learned_here:
        scale, suppress = defence.scale(), defence.options.suppress
        return Stated(scale if suppress is None else scale * (scale <= suppress))
    if isinstance(defence, Fisher) and learned_here:
        return Stated(defence.noise_power() ** 0.5)
    return None


def _named(entries: Sequence[tuple[str, dict[str, object]]]) -> list[nn.Module | None]:
    """Defences by name and options, without weights; None for one that is not installed here."""
    found: list[nn.Module | None] = []
    for name, options in entries:
        try:
            found.append(defences.create(name, **options))
        except SplitveilError:
            found.append(None)
    return found


def _only_adds(defence: nn.Module | None) -> bool:
    """Whether noise that came before is still there in full; a value that is masked or picked has another variance."""
    if isinstance(defence, Cloak):
        return type(defence) is Cloak and defence.options.suppress is None
    return type(defence) in (Noise, Fisher, Vib, Shredder) or (
        isinstance(defence, Defence) and type(defence).transmit is Defence.transmit
    )


def _shortfall(stated: Stated, clean: Tensor, transmit: Callable[..., Tensor]) -> str | None:
    generator = torch.Generator(clean.device).manual_seed(0)
    total: Tensor | None = None
    for _ in range(PAIRS):
        first, second = (transmit(clean, generator).float() for _ in range(2))
        size = (first - second).abs()
        total = size if total is None else total + size
    assert total is not None  # PAIRS is not 0
    scale = torch.as_tensor(stated.scale, device=total.device).float().expand(total.shape[1:])
    telling = scale > torch.finfo(clean.dtype).eps * first.abs().amax(0)
    size, scale = total[:, telling], scale[telling]
    if size.numel() == 0:
        return None
    share = size / (PAIRS * DIFFERENCE[stated.law] * scale)  # [B, values], 1 on average
    rms = float(scale.square().mean().sqrt())
    by_value, by_picture = share.mean(0), share.mean(1)
    count = PAIRS * share.numel()
    if not stated.known:
        power = by_value.double().square().clamp_min(1e-100)  # where nothing is sent, equally little in all values
        # few loud values carry the mean, and its error is theirs
        count = int(PAIRS * len(share) * power.sum().square() / power.square().sum())
        return _told(float(power.mean().sqrt()), count, rms, "")
    quietest = int(by_value.argmin())
    return (
        # on average, and of half the values: no single one, however loud, speaks for the others
        _told(float(min(by_value.mean(), by_value.median())), count, rms, "")
        or _told(float(by_picture.min()), PAIRS * share.shape[1], rms, " for one of the pictures")
        or _told(float(by_value[quietest]), PAIRS * len(share), float(scale[quietest]), " in one of the values")
    )


def _told(share: float, count: int, stated: float, where: str) -> str | None:
    """The sentence, where `share` of the stated scale is less than the tolerance and the error of `count` explain."""
    if share >= LEAST * (1 - ERRORS * SPREAD / math.sqrt(count)):
        return None
    return (
        f"The noise that is sent has a standard deviation of {share * stated:.3g}{where}, stated is {stated:.3g}: "
        "what rests on the stated noise does not hold."
    )
