"""A generative prior of our own: a small flow model of pictures, trained on the auxiliary part, guided to the feature.

Training (flow matching; Lipman et al. 2023): x_t = (1 - t)·x + t·ε; the network predicts x from (x_t, t).
Attack (plug-and-play, as DiffPIR of Zhu et al. 2023 and DRAG of Lei et al. 2025): from pure noise, at every t the
prediction x̂ is moved to agree with what was sent,

    argmin over x of  D·mean (E[sent(x)] - z̃)² / v  +  d·mean (x - x̂)² / ρ_t²

with v the noise of the channel and ρ_t² the error of the network at t, both of which the attacker knows; then the path
goes on from there with fresh noise. Several samples are averaged: the mean of the posterior has the smallest squared
error.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from splitveil.attacks.base import Attack, Progress, Reconstruction, ThreatModel, silent
from splitveil.attacks.epochs import run_epochs
from splitveil.attacks.initialising import seeded
from splitveil.attacks.optimize import Channel
from splitveil.attacks.resuming import train_once
from splitveil.attacks.view import View
from splitveil.core.options import Options as AnyOptions
from splitveil.data.augment import to_float

CHUNK = 512  # pictures searched at once


class PriorOptions(AnyOptions):
    """Size and training of the flow model, and length of the guided path."""

    width: int = Field(64, ge=8, description="channels of the flow model")
    epochs: int = Field(60, ge=1, description="epochs of the flow model on the adversary's pictures")
    batch_size: int = Field(128, ge=2, description="pictures per step of the flow model")
    lr: float = Field(1e-3, gt=0, description="the flow model's rate")
    steps: int = Field(50, ge=2, description="points of the path from noise to picture")
    inner: int = Field(10, ge=1, description="gradient steps towards the feature at each point")
    inner_lr: float = Field(0.03, gt=0, description="size of the gradient steps towards the feature")
    samples: int = Field(4, ge=1, description="paths whose ends are averaged")
    num_images: int = Field(1000, ge=1, description="at most so many pictures: the search is costly")


class FlowNetwork(nn.Module):
    """Predicts the picture from a noisy one and the time: two resolutions, skip connection, time as extra channels."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(channels + 2, width, 3, padding=1)
        self.fine = nn.ModuleList([_Block(width) for _ in range(2)])
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.coarse = nn.ModuleList([_Block(2 * width) for _ in range(3)])
        self.up = nn.Conv2d(2 * width, width, 3, padding=1)
        self.after = nn.ModuleList([_Block(width) for _ in range(2)])
        self.leave = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        time = t.view(-1, 1, 1, 1).expand(-1, 1, *x.shape[2:])
        fine = self.enter(torch.cat([x, time, (time * torch.pi).cos()], dim=1))
        for block in self.fine:
            fine = block(fine)
        coarse = self.down(fine)
        for block in self.coarse:
            coarse = block(coarse)
        fine = fine + F.interpolate(self.up(coarse), size=tuple(x.shape[2:]), mode="nearest")
        for block in self.after:
            fine = block(fine)
        return self.leave(fine)


class _Block(nn.Module):
    """Normalise, two convolutions, add."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.GroupNorm(8, width),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class PriorAttack(Attack):
    """See the module docstring."""

    name = "prior"
    threat_model = ThreatModel(features=True, weights=True, auxiliary=True)
    Options = PriorOptions
    options: PriorOptions

    def run(self, view: View, progress: Progress = silent) -> Reconstruction:
        options, generator = self.options, view.generator(self.name)
        channel = Channel(view, 1, generator)  # first: where it cannot be searched, nothing need be trained
        with seeded(generator):
            network = FlowNetwork(view.image_shape[0], options.width).to(view.device)

        def train() -> dict[str, Tensor]:
            return {"curve": torch.tensor(self._train(view, network, generator, progress), dtype=torch.float64)}

        found = train_once(view.memory, "flow model", network, generator, train)
        curve = [(epoch, error) for epoch, error in found["curve"].tolist()]
        network.eval().requires_grad_(False)
        times = torch.linspace(1, 0, options.steps + 1, device=view.device)
        errors = self._errors(view, network, times[:-1], generator)
        pieces = view.sent[: options.num_images].split(CHUNK)
        images, total = [], len(pieces) * options.samples
        for number, sent in enumerate(pieces):
            mean = torch.zeros(len(sent), *view.image_shape, device=view.device)
            for sample in range(options.samples):
                mean += self._path(network, channel, sent, mean.shape, times, errors, generator) / options.samples
                progress(f"{self.name} search", number * options.samples + sample + 1, total)
            images.append(mean)
        return Reconstruction(torch.cat(images).clamp(0, 1), curve=curve, details=options.model_dump())

    def _train(
        self, view: View, network: nn.Module, generator: torch.Generator, progress: Progress
    ) -> list[tuple[float, float]]:
        """Flow matching on the auxiliary pictures; the curve is the training error."""
        options, own = self.options, view.auxiliary

        def loss(index: Tensor) -> Tensor:
            x = to_float(own[index])
            t = torch.rand(len(x), generator=generator, device=view.device)
            return (network(_noisy(x, t, generator), t) - x).square().mean()

        return run_epochs(
            [network],
            loss,
            len(own),
            generator,
            epochs=options.epochs,
            batch_size=options.batch_size,
            lr=options.lr,
            smallest=1,
            progress=lambda epoch: progress(f"{self.name} flow", epoch, options.epochs),
        )

    @torch.no_grad()
    def _errors(self, view: View, network: nn.Module, times: Tensor, generator: torch.Generator) -> Tensor:
        """ρ_t² at each time, on own pictures."""
        x = to_float(view.auxiliary[:CHUNK])
        found = []
        for t in times:
            many = t.expand(len(x))
            found.append((network(_noisy(x, many, generator), many) - x).square().mean())
        return torch.stack(found)

    def _path(
        self,
        network: nn.Module,
        channel: Channel,
        sent: Tensor,
        shape: torch.Size,
        times: Tensor,
        errors: Tensor,
        generator: torch.Generator,
    ) -> Tensor:
        """One guided way from noise to a picture."""
        x = torch.randn(shape, generator=generator, device=sent.device)
        guess = x
        for step in range(self.options.steps):
            now, then = times[step], times[step + 1]
            with torch.no_grad():
                guess = network(x, now.expand(len(x))).clamp(0, 1)
            guess = self._agree(channel, sent, guess, errors[step])
            # fresh noise, not the one left in x: that belonged to the guess before it was moved
            x = (1 - then) * guess + then * torch.randn(shape, generator=generator, device=sent.device)
        return guess

    def _agree(self, channel: Channel, sent: Tensor, guess: Tensor, error: Tensor) -> Tensor:
        """Move the guess towards what was sent, weighing both as Gaussian evidence."""
        # without noise a thousandth of the feature's power stands in: an infinite weight has no gradient
        variance = max(channel.variance, 1e-3 * float(sent.square().mean()), 1e-12)
        x = guess.clone().requires_grad_()
        optimiser = torch.optim.Adam([x], lr=self.options.inner_lr)
        for _ in range(self.options.inner):
            optimiser.zero_grad(set_to_none=True)
            evidence = channel.mismatch(x, sent).sum() * sent[0].numel() / variance
            (evidence + (x - guess).square().sum() / error.clamp_min(1e-8)).backward()
            optimiser.step()
        return x.detach().clamp(0, 1)


def _noisy(x: Tensor, t: Tensor, generator: torch.Generator) -> Tensor:
    """x_t = (1 - t)·x + t·ε."""
    t = t.view(-1, 1, 1, 1)
    return (1 - t) * x + t * torch.randn(x.shape, generator=generator, device=x.device)
