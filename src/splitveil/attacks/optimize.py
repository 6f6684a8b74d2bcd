"""White-box optimisation (rMLE; He et al. 2019): search the picture whose feature matches what was sent.

    x̂ = argmin over x in [0, 1] of  mean (E[sent(x)] - z̃)² / s²  +  (tv + tv_noise·v/s²)·TV(x),   x = sigmoid(u)

E[sent(x)], the expected transmission, is the clean feature where noise has mean zero; where values are left out at
random only those that arrived are compared; for other defences the mean of a few transmissions with gradient. s² is the
mean square of z̃, which makes one `tv` fit all features; v is the variance of the noise: the less the feature says, the
more the prior must. Several restarts; each picture keeps the one with the lowest objective, which the attacker can see.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from splitveil.attacks.base import Attack, NotApplicableError, Progress, Reconstruction, ThreatModel, silent
from splitveil.attacks.capture import accelerated, fast_convolutions
from splitveil.attacks.law import law_of
from splitveil.attacks.view import View
from splitveil.core.options import Options as AnyOptions
from splitveil.functional.adam import adam, cosine, forget, set_rate

CHUNK = 1024  # pictures searched at once


class OptimizeOptions(AnyOptions):
    """Length of the search and strength of the prior."""

    steps: int = Field(500, ge=1, description="gradient steps of each search")
    lr: float = Field(0.1, gt=0, description="rate of Adam at the start of its cosine schedule")
    tv: float = Field(1e-3, ge=0, description="weight of the total variation, relative to the feature's mean square")
    tv_noise: float = Field(0.3, ge=0, description="added weight, for each unit of noise variance over feature power")
    restarts: int = Field(
        2, ge=1, description="searches from different starts; each picture keeps the one that fits best"
    )
    samples: int = Field(1, ge=1, description="transmissions averaged where the expected one is not the clean feature")
    num_images: int = Field(1000, ge=1, description="at most so many pictures: the search is costly")


class OptimizeAttack(Attack):
    """See the module docstring."""

    name = "optimize"
    threat_model = ThreatModel(features=True, weights=True)
    Options = OptimizeOptions
    options: OptimizeOptions

    def run(self, view: View, progress: Progress = silent) -> Reconstruction:
        return self.search(view, view.sent[: self.options.num_images], progress)

    def search(
        self, view: View, sent: Tensor, progress: Progress, start: Tensor | None = None, start_error: float = 0.0
    ) -> Reconstruction:
        """Search from grey with small random changes, or from the pictures `start`.

        With `start_error` = ρ², the mean squared error the attacker expects of `start`, the search weighs both sources
        as Gaussian evidence: D/v on the feature's side, d/ρ² on the side of `start`.
        """
        options, generator = self.options, view.generator(self.name)
        channel = Channel(view, options.samples, generator)
        pieces, total = sent.split(CHUNK), len(sent.split(CHUNK)) * options.restarts
        images, curve, done = [], [0.0] * options.steps, 0
        for number, piece in enumerate(pieces):
            best_images, best_value = None, None
            for _ in range(options.restarts):
                shape = (len(piece), *view.image_shape)
                known = None
                u = 0.1 * torch.randn(shape, generator=generator, device=view.device)
                if start is not None:
                    known = start[number * CHUNK : number * CHUNK + len(piece)]
                    u = u * 0.1 + torch.logit(known.clamp(0.01, 0.99))  # logit of 0 or 1 is infinite
                objective = _Objective(channel, piece, options, known, start_error)
                found, value, history = _descend(objective, u, options, generator)
                curve = [old + new for old, new in zip(curve, history, strict=True)]
                if best_images is None or best_value is None:
                    best_images, best_value = found, value
                else:
                    better = value < best_value
                    best_images = torch.where(better[:, None, None, None], found, best_images)
                    best_value = torch.where(better, value, best_value)
                done += 1
                progress(self.name, done, total)
            assert best_images is not None
            images.append(best_images)
        points = [(float(step + 1), curve[step] / total) for step in _spread(options.steps)]
        return Reconstruction(torch.cat(images), curve=points, details=options.model_dump())


class Channel:
    """What the attacker knows of the way from a picture to a transmission, found by trial.

    If transmissions scatter around the clean feature, that is their mean. If values are left out at random and the rest
    scatter around the clean feature (`erases`), what was left out says nothing. Otherwise the mean of `samples`
    transmissions stands in, with gradient.
    """

    def __init__(self, view: View, samples: int, generator: torch.Generator) -> None:
        self._edge, self._transmit = view.edge, view.transmit
        self._samples, self._generator = samples, generator
        with torch.no_grad():
            # not a grey one: normalised it may be zero, where no ReLU has a slope and no mask shows
            probe = torch.rand((1, *view.image_shape), generator=generator, device=view.device)
            law = law_of(self._transmit, self._edge(probe), generator)
        self.unbiased, self.erases, self.variance = law.unbiased, law.erases, law.variance
        if _hides_its_slope(self._edge, probe):
            raise NotApplicableError(
                "The edge half passes no gradient on, so it cannot be searched.",
                "Where its code detaches tensors or uses torch.no_grad, let it not.",
            )

    def expected(self, x: Tensor) -> Tensor:
        """E[sent(x)], differentiable; of an erasing channel, what arrives if it arrives."""
        z = self._edge(x.clone())  # a copy: the edge half may work in place
        if self.unbiased or self.erases:
            return z
        return torch.stack([self._transmit(z, self._generator) for _ in range(self._samples)]).mean(0)

    def mismatch(self, x: Tensor, sent: Tensor) -> Tensor:
        """mean (E[sent(x)] - z̃)² of each picture [B]; of an erasing channel, over the values that arrived."""
        if self.erases:
            arrived = (sent != 0).to(sent.dtype)
            share = arrived.flatten(1).mean(1).clamp_min(1e-6)  # nothing at all may have arrived
            return ((self.expected(x) - sent).square() * arrived).flatten(1).mean(1) / share
        one = self.expected(x) - sent
        # two draws: the square of one would add the scatter of the transmission, which a search then lowers instead
        other = one if self.unbiased or self.variance == 0 else self.expected(x) - sent
        return (one * other).flatten(1).mean(1)


def _hides_its_slope(edge: nn.Module, probe: Tensor) -> bool:
    """Whether the feature depends on the picture, but its gradient says that it does not."""
    x = probe.clone().requires_grad_()
    with torch.enable_grad():
        z = edge(x.clone())
        slope = torch.autograd.grad(z.square().sum(), x)[0] if z.requires_grad else torch.zeros_like(x)
    if bool((slope != 0).any()):
        return False
    with torch.no_grad():
        return not torch.equal(edge(probe.clone()), edge(torch.zeros_like(probe)))


class _Objective:
    """The objective of each picture [B]; see the module docstring."""

    def __init__(
        self, channel: Channel, sent: Tensor, options: OptimizeOptions, start: Tensor | None, start_error: float
    ) -> None:
        self.channel, self.sent, self.start = channel, sent, start
        self.scale = sent.square().mean().clamp_min(1e-12)  # an all-zero feature would divide by zero
        ratio = channel.variance / self.scale
        self.tv = options.tv + options.tv_noise * ratio
        self.near = torch.zeros_like(self.scale)
        if start is not None and start_error > 0:
            self.tv = torch.full_like(self.scale, options.tv)  # the start is the prior
            self.near = ratio / start_error * start[0].numel() / sent[0].numel()

    def __call__(self, x: Tensor) -> Tensor:
        value = self.channel.mismatch(x, self.sent) / self.scale
        value = value + self.tv * total_variation(x)
        if self.start is not None:
            value = value + self.near * (x - self.start).square().flatten(1).mean(1)
        return value


def total_variation(x: Tensor) -> Tensor:
    """Mean absolute difference of neighbouring pixels of each picture [B]."""
    down = (x[:, :, 1:] - x[:, :, :-1]).abs().mean(dim=(1, 2, 3)) if x.shape[2] > 1 else x.new_zeros(len(x))
    across = (x[:, :, :, 1:] - x[:, :, :, :-1]).abs().mean(dim=(1, 2, 3)) if x.shape[3] > 1 else x.new_zeros(len(x))
    return down + across


def _descend(
    objective: _Objective, u: Tensor, options: OptimizeOptions, generator: torch.Generator
) -> tuple[Tensor, Tensor, list[float]]:
    """Adam on u with a cosine schedule; returns pictures, their objective [B], and the mean objective of each step.

    Nothing is asked of the device on the way: the history lies there, and a step is told its number. On CUDA the step
    is recorded once and replayed.
    """
    start, u = u.detach().clone(), u.detach().requires_grad_()
    history = torch.zeros(options.steps, device=u.device)
    optimiser = adam([u], options.lr)

    def rewind() -> None:
        with torch.no_grad():
            u.copy_(start)
        forget(optimiser)

    def step(number: Tensor) -> None:
        optimiser.zero_grad(set_to_none=True)
        value = objective(u.sigmoid())
        value.sum().backward()
        optimiser.step()
        history.index_copy_(0, number, value.detach().mean().view(1))

    numbers = torch.arange(options.steps, device=u.device).split(1)
    with fast_convolutions(u.device):
        advance = accelerated(None, step, numbers[0], generator, rewind, steps=options.steps)
        for done, number in enumerate(numbers):
            set_rate(optimiser, cosine(options.lr, 0.0, done, options.steps))
            advance(number)
    with torch.no_grad():
        x = u.sigmoid()
        return x, objective(x), history.tolist()


def _spread(steps: int) -> list[int]:
    """At most 20 steps to show."""
    return sorted({round(place * (steps - 1) / 19) for place in range(20)}) if steps > 20 else list(range(steps))
