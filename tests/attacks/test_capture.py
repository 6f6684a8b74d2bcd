"""Ways to run an adversary's training step: what is tried, what happens where it fails, and that answers stay equal."""

from __future__ import annotations

import logging
import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests import worlds
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from splitveil import attacks
from splitveil.attacks import capture
from splitveil.attacks.base import Reconstruction, ThreatModel
from splitveil.attacks.view import View
from splitveil.functional.tower import Block
from splitveil.models.decoders import ResidualDecoder, in_turn

COMPILE = torch.compile
QUICK = {"kind": "residual", "blocks": 0, "width": 4, "epochs": 2, "batch_size": 25}
pytestmark = [  # of torch's own compiler, as it is imported and as it looks at tensors
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),
]


def test_a_cpu_runs_the_step_itself_and_short_work_is_not_compiled() -> None:
    enough = capture.COMPILE_STEPS
    assert capture.ways(torch.device("cpu"), enough) == ["eager"]
    assert capture.ways(torch.device("cuda"), enough) == ["compile", "fused", "graph", "eager"]
    assert capture.ways(torch.device("cuda"), enough - 1) == ["fused", "graph", "eager"]


def test_what_fails_is_logged_undone_and_replaced_by_the_next_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = []

    def recorded(step: capture.Step, index: Tensor, generator: torch.Generator) -> capture.Step:
        tried.append("compiled" if "run_region" in vars(decoder) else "plain")
        raise RuntimeError("no compiler here\nand more")

    monkeypatch.setattr(capture, "ways", lambda device, steps: ["compile", "graph", "eager"])
    monkeypatch.setattr(capture, "recorded", recorded)
    decoder, undone = ResidualDecoder((4, 4, 4), (1, 8, 8), blocks=1, width=4), []

    def step(index: Tensor) -> None:
        """Never called here."""

    with caplog.at_level(logging.WARNING):
        found = capture.accelerated(
            decoder, step, torch.arange(2), torch.Generator(), lambda: undone.append(1), steps=9
        )
    assert found is step
    assert tried == ["compiled", "plain"]
    assert len(undone) == 2
    assert [record.message.endswith("RuntimeError: no compiler here") for record in caplog.records] == [True, True]


def test_nothing_of_a_failed_recording_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[weakref.ref[nn.Module]] = []

    def recorded(step: capture.Step, index: Tensor, generator: torch.Generator) -> capture.Step:
        graph = nn.Identity()
        graph.owner = [graph]  # a cycle, as between a traceback and its frames
        kept.append(weakref.ref(graph))
        raise RuntimeError("operation not permitted while recording")

    monkeypatch.setattr(capture, "ways", lambda device, steps: ["graph", "eager"])
    monkeypatch.setattr(capture, "recorded", recorded)
    capture.accelerated(None, lambda index: None, torch.arange(2), torch.Generator(), lambda: None, steps=9)
    assert [reference() for reference in kept] == [None]


def test_a_warning_of_the_compiler_about_itself_is_not_shown() -> None:
    inner = torch.ones(1, requires_grad=True) * 2
    with pytest.warns(UserWarning, match="not a leaf"):
        assert inner.grad is None
    with capture.compiled(nn.Identity()):
        assert inner.grad is None  # a warning would be an error here


def _gradients(decoder: nn.Module, z: Tensor) -> tuple[Tensor, list[Tensor | None]]:
    decoder.zero_grad(set_to_none=True)
    answer = decoder(z)
    answer.square().mean().backward()
    return answer.detach(), [parameter.grad for parameter in decoder.parameters()]


@pytest.mark.parametrize("blocks", [1, 4])
def test_compiled_regions_change_nothing_and_equal_blocks_share_one(
    blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")  # the compiler's front end without its slow code generator

    def compiler(function: Any, **options: Any) -> Any:
        return COMPILE(function, backend=counter, **options)

    monkeypatch.setattr(torch, "compile", compiler)
    torch.manual_seed(0)
    decoder = ResidualDecoder((2, 4, 4), (1, 8, 8), blocks=blocks, width=8).double()
    z = torch.rand(3, 2, 4, 4, dtype=torch.float64)
    plain, slopes = _gradients(decoder, z)
    with capture.compiled(decoder):
        fast, same = _gradients(decoder, z)
    assert counter.frame_count == 3  # the first block, all others, the enlarging tail
    torch.testing.assert_close(fast, plain)
    torch.testing.assert_close(same, slopes)
    assert decoder.run_region is in_turn
    torch._dynamo.reset()


TRAINED: dict[str, tuple[str, dict[str, Any]]] = {  # where each attack takes `accelerated` from, and a quick form of it
    "attribute": ("epochs", {"epochs": 2, "hidden": 4, "batch_size": 48}),
    "decoder": ("fitting", {**QUICK, "best_epoch": "off"}),
    "gan": ("gan", {**QUICK, "gan_epochs": 2, "gan_batch_size": 25, "critic_width": 4, "critic_steps": 3}),
    "membership": ("epochs", {"shadows": 2, "epochs": 2, "batch_size": 25}),
    "optimize": ("optimize", {"steps": 5, "restarts": 2}),
    "prior": ("epochs", {"width": 8, "epochs": 2, "steps": 2, "inner": 1, "samples": 1, "batch_size": 48}),
    "refine": ("optimize", {"steps": 5}),
    "substitute": ("epochs", {**QUICK, "substitute_epochs": 2, "substitute_width": 4}),
}


@pytest.mark.parametrize("name", sorted(TRAINED))
def test_warming_up_leaves_no_trace(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that only warm up are undone: weights, statistics and the optimiser's memory start where they were."""
    module, options = TRAINED[name]
    seen: list[int] = []

    def run(extra: int) -> dict[str, Tensor]:
        def accelerated(
            decoder: nn.Module | None, step: Any, index: Tensor, generator: torch.Generator, rewind: Any, *, steps: int
        ) -> Any:
            state = generator.get_state()
            for _ in range(extra):
                step(index)
            if extra:
                rewind()
            generator.set_state(state)  # a recorded step draws its own numbers; here they must agree
            seen.append(steps)
            return step

        monkeypatch.setattr(f"splitveil.attacks.{module}.accelerated", accelerated)
        attack = attacks.create(name, **options)
        here = worlds.scene(worlds.identity(0.1), targets=20, candidates=worlds.pictures(30, seed=4), num_classes=3)
        earlier = Reconstruction(torch.full((20, 1, 8, 8), 0.5), curve=[(1.0, 0.05)])
        here = replace(here, attributes={"class": here.auxiliary.labels}, earlier={"decoder": (ThreatModel(), earlier)})
        made = attack.run(View(here, attack.threat_model))
        return {"images": made.images} if isinstance(made, Reconstruction) else {**made.scores, **made.predictions}

    plain, warmed = run(extra=0), run(extra=3)
    assert min(seen) > 0
    for key, value in plain.items():
        assert torch.equal(warmed[key], value), key


def test_a_search_without_a_decoder_is_recorded_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """There is nothing to fuse or to compile; a failure is logged once and the step itself is used."""
    tried: list[Tensor] = []

    def recorded(step: capture.Step, index: Tensor, generator: torch.Generator) -> capture.Step:
        tried.append(index)
        raise RuntimeError("it looks at the host")

    monkeypatch.setattr(capture, "ways", lambda device, steps: ["compile", "fused", "graph", "eager"])
    monkeypatch.setattr(capture, "recorded", recorded)
    attack = attacks.create("optimize", steps=40, restarts=1, tv=0.0)
    with caplog.at_level(logging.WARNING):
        found = attack.run(worlds.view(worlds.identity(), attack.threat_model, targets=20))
    assert len(tried) == 1
    assert ["'graph'" in record.message for record in caplog.records] == [True]
    monkeypatch.undo()
    assert torch.equal(found.images, attack.run(worlds.view(worlds.identity(), attack.threat_model, targets=20)).images)


@pytest.mark.parametrize("channels", [1, 3])
def test_fused_layers_replace_training_only(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for the kernels (CUDA only; tests/functional/test_norm_relu.py) with torch's own functions."""
    calls: list[tuple[int, bool]] = []

    def norm_relu(
        x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, *, eps: float, relu: bool, shift: Any
    ) -> Tensor:
        calls.append((x.shape[1], relu))
        spare = x.shape[1] - len(weight)
        assert not x[:, len(weight) :].any()
        x = x[:, : len(weight)] if shift is None else x[:, : len(weight)] + shift.detach()[:, None, None]
        y = F.batch_norm(x, mean, var, weight, bias, training=True, momentum=0.1, eps=eps)
        return F.pad(F.relu(y) if relu else y, (0, 0, 0, 0, 0, spare))

    def tower(blocks: list[Block], x: Tensor, side: Any) -> Tensor:
        calls.append((-len(blocks), True))
        for block in blocks:
            y = block.first(F.relu(block.first_norm(x)))
            x = F.relu(x + block.second(F.relu(block.second_norm(y))))
        return x

    monkeypatch.setattr("splitveil.models.decoders.norm_relu", norm_relu)
    monkeypatch.setattr("splitveil.models.decoders.tower", tower)
    torch.manual_seed(0)
    decoder = ResidualDecoder((2, 4, 4), (channels, 8, 8), blocks=2, width=16).double()
    fresh = {name: value.clone() for name, value in decoder.state_dict().items()}
    z = torch.rand(3, 2, 4, 4, dtype=torch.float64)
    plain, slopes = _gradients(decoder, z)
    after = {name: value.clone() for name, value in decoder.state_dict().items() if "tracked" not in name}
    assert calls == []
    decoder.load_state_dict(fresh)
    with capture.fused(decoder):
        fast, same = _gradients(decoder, z)
        # the picture's few channels are filled up to eight, which changes no number
        assert calls == [(16, True), (-2, True), (16, True), (16, True), (8, True), (8, False)]
        decoder.eval()
        decoder(z)
    assert all("beside" not in vars(part) and "fused" not in vars(part) for part in decoder.modules())
    torch.testing.assert_close(fast, plain)
    for slope, other in zip(slopes, same, strict=True):
        assert slope is not None
        torch.testing.assert_close(torch.zeros_like(slope) if other is None else other, slope)
    for name, value in after.items():  # the running statistics have moved in the same way
        torch.testing.assert_close(decoder.state_dict()[name], value)
    decoder.train()
    decoder(z)
    assert len(calls) == 6


def test_a_duel_that_can_be_recorded_by_half_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the second recording fails, the generator's state is no longer the one that the first one draws from."""
    module, options = TRAINED["gan"]
    asked: list[Any] = []

    def accelerated(decoder: nn.Module | None, step: Any, *rest: Any, **more: Any) -> Any:
        asked.append(step)
        if len(asked) > 1:
            return step

        def replay(index: Tensor) -> None:
            pytest.fail("replays a step whose generator has another state now")

        return replay

    monkeypatch.setattr(f"splitveil.attacks.{module}.accelerated", accelerated)
    attack = attacks.create("gan", **options)
    made = attack.run(worlds.view(worlds.identity(0.1), attack.threat_model, targets=20))
    assert len(asked) == 2
    assert isinstance(made, Reconstruction)
    assert bool(made.images.isfinite().all())
