"""A decoder for every noise level: the small convolutional attacker, told sigma as one more channel.

It is the audit's own kind of decoder (attacks.networks, attacks.fitting), trained once per run on transmissions whose
sigma is drawn anew for each picture, and kept in RUN/ui as safetensors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from splitveil.attacks.fitting import FitOptions, decode, fit
from splitveil.attacks.networks import build
from splitveil.attacks.queries import Queries
from splitveil.core.files import save_atomic
from splitveil.core.seeding import generator
from splitveil.web.leak.channel import Channel

BLOCKS, WIDTH = 3, 40
PICTURES = 4000
LARGEST_VALUES = 2**15  # a wider feature, or a larger picture, would take a CPU too long
LARGEST_PIXELS = 64 * 64
FILE = "ui/decoder.safetensors"
OPTIONS = FitOptions(epochs=26, batch_size=128, lr=2e-3)


@dataclass(frozen=True, eq=False)
class DecoderAttacker:
    """A trained decoder; `highest` is the largest sigma it has seen."""

    network: nn.Module
    highest: float
    held_out: float

    def reconstruct(self, sent: Tensor, sigma: float) -> Tensor:
        """Pictures [B, ch, h, w] in [0, 1] from what was sent [B, ...] under noise `sigma`."""
        level = torch.full((len(sent), 1, 1, 1), sigma)
        return decode(self.network, _told(sent, level, self.highest))


def suits(feature_shape: tuple[int, ...], image_shape: tuple[int, ...]) -> bool:
    """Whether a CPU can train this decoder in about a minute."""
    small = math.prod(feature_shape) <= LARGEST_VALUES and math.prod(image_shape[1:]) <= LARGEST_PIXELS
    return len(feature_shape) == 3 and small


def train_decoder(
    channel: Channel, pictures: Tensor, seed: int, highest: float, progress: Callable[[int, int], None]
) -> DecoderAttacker:
    """Train on uint8 pictures of the attacker's own."""
    random = generator(seed, "ui", "decoder")
    network = _network(channel.feature_shape, tuple(pictures.shape[1:]), random)

    def transmit(clean: Tensor, stream: torch.Generator | None) -> Tensor:
        # as the slider has it: cubes of a uniform number, so that low noise, where most is to be seen, is seen most
        level = highest * torch.rand((len(clean), 1, 1, 1), generator=stream) ** 3
        return _told(channel.send(clean, level, stream or random), level, highest)

    queries = Queries(channel.model.edge, transmit, pictures)
    fitted = fit(network, queries, OPTIONS, random, progress)
    return DecoderAttacker(fitted.best(), highest, fitted.error)


def _network(feature_shape: tuple[int, ...], image_shape: tuple[int, ...], random: torch.Generator) -> nn.Module:
    channels, *sides = feature_shape
    return build("shuffle", (channels + 1, *sides), image_shape, blocks=BLOCKS, width=WIDTH, generator=random)


def _told(sent: Tensor, level: Tensor, highest: float) -> Tensor:
    """What was sent, with the cube root of sigma (0 to 1) as one more channel [B, C+1, h, w]."""
    place = (level / highest).clamp(0, 1) ** (1 / 3)
    return torch.cat([sent, place.expand(-1, 1, *sent.shape[2:])], dim=1)


def save_decoder(attacker: DecoderAttacker, folder: Path, version: str) -> None:
    """Keep a decoder beside its run; a folder that cannot be written keeps none."""
    tensors = {name: value.contiguous() for name, value in attacker.network.state_dict().items()}
    facts = {"version": version, "highest": attacker.highest, "held_out": attacker.held_out}
    save_atomic(folder / FILE, lambda path: save_file(tensors, path, metadata={"splitveil": json.dumps(facts)}))


def load_decoder(
    folder: Path, version: str, feature_shape: tuple[int, ...], image_shape: tuple[int, ...]
) -> DecoderAttacker | None:
    """The decoder that was kept for exactly this checkpoint, or None."""
    try:
        with safe_open(folder / FILE, "pt") as file:
            facts = json.loads((file.metadata() or {})["splitveil"])
            if facts["version"] != version:
                return None
            network = _network(feature_shape, image_shape, generator(0))
            network.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
            return DecoderAttacker(network.eval(), float(facts["highest"]), float(facts["held_out"]))
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, RuntimeError):
        return None  # absent, damaged or of another version: it is trained again
