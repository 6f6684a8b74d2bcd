"""Numbers of an earlier version: a refactor proves that it changed none of them.

Oracles say that a formula is right for given parameters; these numbers also hold what parameters, projections and
stored draws are made of. Who changes them on purpose writes them anew, `python -m tests.golden.test_surrogate_numbers`,
and says so in the CHANGELOG.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import splitveil as sv

FILE = Path(__file__).with_name("surrogate_numbers.json")
SHAPE, CLASSES = (8, 2, 2), 4
# dropout draws otherwise with other builds of torch; a surrogate that is shut off has no number
QUIET = {"slot_cross": {"dropout": 0.0}, "enhanced": {"dropout": 0.0}, "slot_gated": {"early_shut": "off"}}


def features(first: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Features of overlapping classes, without a random generator: sines of places and labels."""
    y = torch.arange(first, first + size) % CLASSES
    place = torch.arange(size * 32, dtype=torch.float64).reshape(size, *SHAPE)
    return torch.sin(1.7 * place + first) + torch.cos(3.1 * y + 1).view(-1, 1, 1, 1), y


def numbers(name: str, mode: str) -> dict[str, float]:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        options = QUIET.get(name, {})
        contract = {"feature_shape": SHAPE, "num_classes": CLASSES, "sigma": 0.1}
        surrogate = sv.surrogates.create(name, **contract, mode=mode, **options).double()
        surrogate.refresh([features(5, 60), features(9, 60)])
        z, y = features(1, 24)
        out = surrogate(z.requires_grad_(), y, generator=torch.Generator().manual_seed(7))
    gradient = torch.autograd.grad(out.loss, z, retain_graph=True)[0]
    found = {"loss": out.loss, "fit_loss": out.fit_loss, "intra_mse": out.intra_mse, "gradient": gradient.norm()}
    return {key: value.item() for key, value in found.items()}


CASES = [f"{name} {mode}" for name in sv.surrogates.names() for mode in ("faithful", "corrected")]


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_those_of_the_file(case: str) -> None:
    assert numbers(*case.split()) == pytest.approx(json.loads(FILE.read_text())[case], rel=1e-5, abs=1e-9)


if __name__ == "__main__":
    FILE.write_text(json.dumps({case: numbers(*case.split()) for case in CASES}, indent=1) + "\n")
