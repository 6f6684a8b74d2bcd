"""The attacks on a CUDA device: captured steps, and the same answers as on the CPU to within their randomness."""

from __future__ import annotations

import pytest
import torch
from tests import worlds

from splitveil import attacks
from splitveil.attacks import capture
from splitveil.attacks.view import Scene, View

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
SMALL = {"kind": "residual", "blocks": 1, "width": 16, "epochs": 20, "batch_size": 25, "lr": 5e-3}


def test_a_captured_step_draws_fresh_numbers_and_reads_its_input() -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    total = torch.zeros(4, device="cuda")
    noise = torch.zeros(4, device="cuda")

    def step(index: torch.Tensor) -> None:
        total.add_(index.float())
        noise.copy_(torch.empty_like(noise).normal_(generator=generator))

    advance = capture.recorded(step, torch.zeros(4, dtype=torch.int64, device="cuda"), generator)
    total.zero_()
    advance(torch.arange(4, device="cuda"))
    first = noise.clone()
    advance(torch.arange(4, device="cuda"))
    assert total.tolist() == [0, 2, 4, 6]
    assert not torch.equal(first, noise)


@pytest.mark.parametrize("way", ["compile", "fused", "graph", "eager"])
def test_the_decoder_attack_breaks_the_identity_on_the_device(
    way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(capture, "ways", lambda device, steps: [way, "eager"])
    scene = worlds.scene(worlds.identity(0.02).to("cuda"))
    there = Scene(scene.model, scene.auxiliary.to("cuda"), scene.targets.to("cuda"), seed=3)
    attack = attacks.create("decoder", **SMALL)
    made = attack.run(View(there, attack.threat_model))
    floor = worlds.floor_error(scene.auxiliary, scene.targets)
    assert worlds.mean_error(made.images.cpu(), scene.targets) < 0.1 * floor
    assert made.curve[-1][1] < made.curve[0][1]
    assert not [record for record in caplog.records if record.name.startswith("splitveil")]  # no slower way was taken


def test_a_step_that_cannot_be_recorded_takes_the_slower_way_and_draws_on() -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    drawn = torch.zeros(4, device="cuda")
    weights = torch.zeros(1, device="cuda")

    def step(index: torch.Tensor) -> None:
        drawn.copy_(torch.empty_like(drawn).normal_(generator=generator) + torch.rand(4, device="cuda"))
        float(drawn.sum())  # a look at the host: not allowed while recording

    index = torch.zeros(4, dtype=torch.int64, device="cuda")
    here = torch.cuda.current_stream()
    advance = capture.accelerated(torch.nn.Identity(), step, index, generator, weights.zero_, steps=1)
    assert advance is step
    assert torch.cuda.current_stream() == here
    advance(index)
    first = drawn.clone()
    advance(index)
    assert not torch.equal(first, drawn)
