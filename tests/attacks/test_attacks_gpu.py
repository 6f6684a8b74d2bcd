"""The attacks on a CUDA device: captured steps, and the same answers as on the CPU to within their randomness."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests import worlds
from torch import nn

from splitveil import attacks
from splitveil.attacks import capture
from splitveil.attacks.base import Inference, Outcome, Reconstruction, ThreatModel
from splitveil.attacks.view import Scene, View
from splitveil.models.split import SplitModel

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
    in_use = torch.cuda.memory_stats()["active_bytes.all.current"]
    block = torch.empty(1 << 20, device="cuda")
    block.record_stream(torch.cuda.Stream())  # as long as torch believes to be recording, it keeps such memory
    del block
    torch.cuda.synchronize()
    torch.empty(1, device="cuda")  # asking for memory makes torch look at what it may have back
    assert torch.cuda.memory_stats()["active_bytes.all.current"] == in_use


def slower(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What had to take a slower way."""
    return [record.message for record in caplog.records if record.name.startswith("splitveil")]


def on_device(model: SplitModel, **more: object) -> Scene:
    """A small scene on the GPU, with all that any attack may ask for."""
    here = worlds.scene(model.to("cuda"), targets=20, candidates=worlds.pictures(30, seed=4).to("cuda"), num_classes=3)
    own = here.auxiliary.to("cuda")
    known = {"auxiliary": own, "targets": here.targets.to("cuda"), "attributes": {"class": own.labels}, **more}
    return replace(here, **known)


def both_ways(
    name: str, scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, **options: Any
) -> tuple[Outcome, Outcome]:
    """The outcome of the recorded step and of the plain one."""
    attack = attacks.create(name, **options)
    recorded = attack.run(View(scene, attack.threat_model))
    assert not slower(caplog)
    monkeypatch.setattr(capture, "ways", lambda device, steps: ["eager"])
    return recorded, attack.run(View(scene, attack.threat_model))


def shallow() -> SplitModel:
    torch.manual_seed(0)
    return worlds.split_model(nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Sigmoid()), channels=4)


@pytest.mark.parametrize("name", ["optimize", "refine"])
def test_a_recorded_search_gives_what_the_plain_one_gives(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without noise nothing is drawn in the steps, so the two agree up to the order of sums."""
    start = Reconstruction(torch.full((20, 1, 8, 8), 0.5, device="cuda"), curve=[(1.0, 0.05)])
    scene = on_device(shallow(), earlier={"decoder": (ThreatModel(queries=True, auxiliary=True), start)})
    fast, plain = both_ways(name, scene, monkeypatch, caplog, steps=60, lr=0.05, tv=0.0)
    assert isinstance(fast, Reconstruction)
    assert isinstance(plain, Reconstruction)
    torch.testing.assert_close(fast.images, plain.images, atol=0.01, rtol=0)
    assert fast.curve[0][1] == pytest.approx(plain.curve[0][1], rel=1e-3)  # the warm-up has left no trace
    assert fast.curve[-1][1] < 0.1 * fast.curve[0][1]


def test_a_recorded_search_draws_fresh_transmissions(caplog: pytest.LogCaptureFixture) -> None:
    """Where the expected transmission is a mean of drawn ones, every replay must draw its own."""

    class Gain(nn.Module):
        def transmit(self, z: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
            return z * (0.6 + 0.4 * torch.empty_like(z).uniform_(generator=generator))

    model = worlds.identity()
    model.defences["gain"] = Gain()
    scene = on_device(model)
    attack = attacks.create("optimize", steps=300, restarts=1)
    made = attack.run(View(scene, attack.threat_model))
    floor = worlds.floor_error(scene.auxiliary.to("cpu"), scene.targets.to("cpu"))
    assert worlds.mean_error(made.images.cpu(), scene.targets.to("cpu")) < floor
    assert len({error for _, error in made.curve}) > 10
    assert not slower(caplog)


def test_recorded_classifiers_read_attributes_as_well_as_plain_ones(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene = on_device(worlds.identity(0.02))
    fast, plain = both_ways("attribute", scene, monkeypatch, caplog, epochs=60, hidden=32, batch_size=48, lr=5e-3)
    for outcome in (fast, plain):
        assert isinstance(outcome, Inference)
        right = outcome.predictions["class from feature"] == scene.targets.labels
        assert float(right.double().mean()) > 0.7


def test_recorded_shadow_models_learn_like_plain_ones(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene = on_device(shallow())
    fast, plain = both_ways("membership", scene, monkeypatch, caplog, epochs=5, shadows=2, batch_size=25)
    assert isinstance(fast, Inference)
    assert isinstance(plain, Inference)
    assert torch.equal(fast.scores["loss"], plain.scores["loss"])
    assert bool(fast.scores["likelihood_ratio"].isfinite().all())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gan", {**SMALL, "gan_epochs": 2, "gan_batch_size": 25, "critic_width": 8, "critic_steps": 3}),
        ("prior", {"width": 16, "epochs": 20, "steps": 5, "inner": 3, "samples": 1, "batch_size": 48}),
        ("substitute", {**SMALL, "substitute_epochs": 5, "substitute_width": 16}),
    ],
)
def test_the_other_trained_attacks_record_their_steps(
    name: str, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    scene = on_device(worlds.identity(0.02))
    attack = attacks.create(name, **options)
    made = attack.run(View(scene, attack.threat_model))
    assert isinstance(made, Reconstruction)
    assert bool(made.images.isfinite().all())
    if name != "substitute":  # an imitation of a few epochs proves nothing
        floor = worlds.floor_error(scene.auxiliary.to("cpu"), scene.targets.to("cpu"))
        assert worlds.mean_error(made.images.cpu(), scene.targets.to("cpu")) < floor
    assert not slower(caplog)


def test_an_edge_half_that_looks_at_the_host_is_searched_step_by_step(caplog: pytest.LogCaptureFixture) -> None:
    class Looks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.pixel_unshuffle(x, 2) * (1.0 if float(x.detach().sum()) > -1 else 0.0)

    scene = on_device(worlds.split_model(Looks()))
    attack = attacks.create("optimize", steps=100, restarts=1, tv=0.0)
    made = attack.run(View(scene, attack.threat_model))
    assert worlds.mean_error(made.images.cpu(), scene.targets.to("cpu")) < 1e-3
    assert len(slower(caplog)) == 1
