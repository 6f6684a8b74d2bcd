"""The CEM paper's GAN attack: a decoder regularised by a critic that knows real pictures (WGAN-GP; Gulrajani 2017).

The generator is a decoder trained as in `decoder`; then, in every batch, the critic learns

    mean D(fake) - mean D(real) + penalty · mean (|∇D(mixed)| - 1)²

and every `critic_steps`-th batch the generator lowers  -mean D(fake) + mse_weight · MSE. With the paper's weight of
1500 the error dominates: this attack trades little error for sharper pictures.
"""

from __future__ import annotations

from functools import partial

import torch
from pydantic import Field
from torch import Tensor, nn

from splitveil.attacks.base import Attack, Progress, Reconstruction, ThreatModel, round_of, silent
from splitveil.attacks.capture import accelerated, fast_convolutions, rewinding
from splitveil.attacks.decoder import NetworkOptions
from splitveil.attacks.fitting import decode
from splitveil.attacks.initialising import seeded
from splitveil.attacks.queries import Queries
from splitveil.attacks.resuming import fit_once
from splitveil.attacks.view import View
from splitveil.functional.adam import adam, cosine, set_rate


class GanOptions(NetworkOptions):
    """The paper's settings; `epochs` and `lr` are those of the decoder that the generator starts from."""

    gan_epochs: int = Field(150, ge=1, description="epochs of decoder against critic")
    gan_batch_size: int = Field(128, ge=2, description="pictures per step of both")
    generator_lr: float = Field(5e-4, gt=0, description="the decoder's rate")
    critic_lr: float = Field(5e-3, gt=0, description="the critic's rate")
    critic_steps: int = Field(10, ge=1, description="steps of the critic for each step of the decoder")
    critic_width: int = Field(64, ge=1, description="channels of the critic's first layer")
    penalty: float = Field(10.0, ge=0, description="weight of the critic's gradient penalty")
    mse_weight: float = Field(1500.0, ge=0, description="weight of the error beside the critic's opinion")


class Critic(nn.Module):
    """Strided 5 x 5 convolutions with instance norm down to a few pixels, then one number: high for real pictures."""

    def __init__(self, image_shape: tuple[int, ...], width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels, side = image_shape[0], min(image_shape[1:])
        while side > 4 and len(layers) < 9:
            layers += [nn.Conv2d(channels, width, 5, stride=2, padding=2), nn.InstanceNorm2d(width, affine=True)]
            layers.append(nn.LeakyReLU(0.2))
            channels, width, side = width, width * 2, (side + 1) // 2
        self.body = nn.Sequential(*layers)
        self.last = nn.Conv2d(channels, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.body(x)).mean(dim=(1, 2, 3))


class GanAttack(Attack):
    """See the module docstring."""

    name = "gan"
    threat_model = ThreatModel(features=True, queries=True, auxiliary=True)
    Options = GanOptions
    options: GanOptions

    def run(self, view: View, progress: Progress = silent) -> Reconstruction:
        options, generator = self.options, view.generator(self.name)
        decoder = options.build(view, generator)
        queries = view.query(view.auxiliary, tamed=True)
        report = round_of(progress, f"{self.name} decoder")
        fitted = fit_once(view.memory, "decoder", decoder, queries, options, generator, report)
        with seeded(generator):
            critic = Critic(view.image_shape, options.critic_width).to(view.device)
        self._duel(fitted.best(), critic, queries, generator, progress)
        return Reconstruction(
            decode(decoder, view.taming(view.sent)),
            details={"decoder": options.label, "gan_epochs": options.gan_epochs},
        )

    def _duel(
        self, decoder: nn.Module, critic: Critic, queries: Queries, generator: torch.Generator, progress: Progress
    ) -> None:
        options, betas = self.options, (0.5, 0.999)
        forger = adam(decoder.parameters(), options.generator_lr, betas=betas)
        judge = adam(critic.parameters(), options.critic_lr, betas=betas)
        rewind = rewinding([decoder, critic], forger, judge)

        def step(index: Tensor, forge: bool) -> None:
            """The critic learns, and where `forge`, the decoder too."""
            sent, real = queries.batch(index, generator)
            with torch.set_grad_enabled(forge):
                fake = decoder(sent)
            judge.zero_grad(set_to_none=True)
            loss = critic(fake.detach()).mean() - critic(real).mean()
            loss = loss + options.penalty * gradient_penalty(critic, real, fake.detach(), generator)
            loss.backward()
            judge.step()
            if forge:
                forger.zero_grad(set_to_none=True)
                (options.mse_weight * (fake - real).square().mean() - critic(fake).mean()).backward()
                forger.step()

        size, done, falls = min(options.gan_batch_size, len(queries)), 0, 0
        device, steps = generator.device, options.gan_epochs * (len(queries) // size)
        decoder.train()
        with fast_convolutions(device):
            first = torch.arange(size, device=device)
            plain = [partial(step, forge=forge) for forge in (False, True)]
            forms = [accelerated(None, one, first, generator, rewind, steps=steps) for one in plain]
            if forms[1] is plain[1]:
                forms = list(plain)  # where the second cannot be recorded, the first would draw its numbers again
            for epoch in range(options.gan_epochs):
                set_rate(forger, cosine(options.generator_lr, 0.0, falls, 2 * options.gan_epochs))
                set_rate(judge, cosine(options.critic_lr, 0.0, falls, 2 * options.gan_epochs))
                order = torch.randperm(len(queries), generator=generator, device=device)
                for index in order.split(size)[: len(queries) // size]:
                    done += 1
                    forms[done % options.critic_steps == 0](index)
                falls += done >= options.critic_steps  # before that the decoder has not stepped once
                progress(self.name, epoch + 1, options.gan_epochs)


def gradient_penalty(critic: nn.Module, real: Tensor, fake: Tensor, generator: torch.Generator) -> Tensor:
    """mean (|∇D| - 1)² at random mixtures of real and made pictures."""
    share = torch.rand(len(real), 1, 1, 1, generator=generator, device=real.device)
    mixed = (share * real + (1 - share) * fake).requires_grad_()
    (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    # a small constant under the root: its derivative at exactly zero is infinite
    length = (slope.flatten(1).square().sum(1) + 1e-12).sqrt()
    return (length - 1).square().mean()
