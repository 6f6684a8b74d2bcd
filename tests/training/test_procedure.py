"""Rules of the training procedure that no loss shows: SPEC 6.7 (stages, records, convergence), 6.8 (log), 1.2 (K)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from splitveil.data.augment import to_float
from splitveil.training import keeping
from splitveil.training.build import build_surrogate
from splitveil.training.engine import Engine
from splitveil.training.evaluate import accuracy
from splitveil.training.gates import GateLog

MakeEngine = Callable[..., Engine]
GATED = {"name": "gated", "mode": "faithful"}


def state(module: torch.nn.Module | None) -> dict[str, torch.Tensor]:
    assert module is not None
    return {name: value.clone() for name, value in module.state_dict().items()}


def moved(before: dict[str, torch.Tensor], module: torch.nn.Module | None) -> bool:
    return any(not torch.equal(value, before[name]) for name, value in state(module).items())


def test_progressive_stages_train_the_network_then_phi_then_both(make_engine: MakeEngine) -> None:
    """Stage 1: L_task only. Stage 2: the surrogate on sg[z], only phi trains; batch statistics stay as well."""
    stages = ("train.progressive=true", "train.base_epochs=2", "train.adapt_epochs=1", "train.warmup_epochs=0")
    engine = make_engine("train.epochs=4", *stages, surrogate=GATED)
    found = []
    for engine.epoch in (1, 2, 3, 4):
        network, phi = state(engine.model), state(engine.surrogate)
        row = engine._train_epoch()
        found.append((moved(network, engine.model), moved(phi, engine.surrogate), row["rob_loss"] is not None))
    assert found == [(True, False, False), (True, False, False), (False, True, True), (True, True, True)]


def test_stage_two_shows_the_surrogate_features_of_train_mode(make_engine: MakeEngine) -> None:
    """SPEC 0.1: surrogates always see train-mode x; 6.7 makes no exception, it only leaves the network as it is."""
    stages = ("train.progressive=true", "train.base_epochs=1", "train.adapt_epochs=1", "train.warmup_epochs=0")
    engine = make_engine("train.epochs=2", *stages, surrogate=GATED)
    engine.epoch = 1
    engine._train_epoch()
    seen: list[torch.Tensor] = []
    assert engine.surrogate is not None
    engine.surrogate.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    engine.epoch = 2
    engine._train_epoch()
    images, _ = next(engine._batches(2))
    edge = engine.model.edge  # it has batch normalisation, and in this stage its weights have stayed
    torch.testing.assert_close(seen[0], edge.train()(to_float(images)))
    assert not torch.allclose(seen[0], edge.eval()(to_float(images)), rtol=0.01)


@pytest.mark.parametrize(("compose", "factor"), [("single", 0.02), ("two_pass", 0.02), ("direct", 1.0)])
def test_the_effective_weight_is_what_multiplies_the_gradient_on_the_encoder(
    compose: str, factor: float, make_engine: MakeEngine
) -> None:
    """λ·w_lr·s, and λ·s where w_lr takes no part (SPEC 6.3, 6.8); s = 0.1, lr = 0.05."""
    engine = make_engine(
        f"train.compose={compose}", "train.warmup_epochs=0", "train.wlr=released", "train.milestones=[]",
        surrogate=GATED,
    )  # fmt: skip
    engine.epoch = 2
    assert engine._train_epoch()["effective_weight"] == pytest.approx(16.0 * factor * 0.1)


def test_the_record_of_test_accuracy_is_forgotten_after_epochs_40_100_and_200(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []
    keeper = make_engine("train.select=test_best").keeper
    epoch = 0
    monkeypatch.setattr(keeping, "save_weights", lambda *_: kept.append(epoch))
    for epoch in range(1, 241):  # it falls all the time, so only a forgotten record can be beaten; that of others rises
        keeper.keep_best(epoch, {"test_accuracy": 1.0 - epoch / 1000, "accuracy": epoch / 1000})
    assert kept == [1, 41, 101, 201]


def rows(accuracies: list[float], losses: list[float]) -> list[dict[str, Any]]:
    return [{"accuracy": a, "task_loss": loss} for a, loss in zip(accuracies, losses, strict=True)]


FLAT = [0.5] * 12
CONVERGENCE = {
    "nothing has changed for ten epochs": (FLAT, [1.0] * 12, True),
    "too early to tell": (FLAT[:10], [1.0] * 10, False),
    "accuracy gained within ten epochs": ([0.5] * 8 + [0.51] + [0.5] * 3, [1.0] * 12, False),
    "accuracy gained before them": ([0.4, 0.51] + [0.5] * 10, [1.0] * 12, True),
    "the loss still falls by 2 in a thousand": (FLAT, [1.0] * 11 + [0.998], False),
    "the loss rises by 2 in a thousand": (FLAT, [1.0] * 11 + [1.002], False),
    "the loss moves by half a thousandth": (FLAT, [1.0] * 11 + [0.9995], True),
}


@pytest.mark.parametrize("case", CONVERGENCE)
def test_convergence_is_no_gain_and_no_change_over_ten_epochs(
    case: str, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracies, losses, expected = CONVERGENCE[case]
    keeper = make_engine().keeper
    monkeypatch.setattr(type(keeper.folder), "metrics", lambda _: rows(accuracies, losses))
    assert keeper.converged() == expected


def test_gate_lines_come_for_the_first_five_calls_and_every_200th(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "splitveil.training")
    names = ("rob_loss", "shut", "classes", "gate_soft_mean", "gate_hard_mean", "base_mean")
    log = GateLog()
    for call in range(1, 601):
        shut = float(call == 400)
        newest = torch.tensor([0.25, shut, 10.0, 0.5, 0.4, 2.0])
        log.look(SimpleNamespace(acting=True, names=names, newest=newest))  # type: ignore[arg-type]
    log.look(SimpleNamespace(acting=False, names=names, newest=newest))  # type: ignore[arg-type]
    log.write(7)
    assert [int(line.split("step=")[1].split()[0]) for line in caplog.messages] == [1, 2, 3, 4, 5, 200, 400, 600]
    told = "classes=10 gate_d=0.5 hard_gate=0.4 base=2"
    assert caplog.messages[5] == f"[CEM-GATE][OK] epoch=7 step=200 {told} rob_loss=0.25"
    assert caplog.messages[6] == f"[CEM-GATE][SHUTOFF] epoch=7 step=400 {told}"


@pytest.mark.parametrize(("output", "clusters"), [("sigmoid", 5), ("none", 15), ("batchnorm", 15)])
def test_the_released_mixture_has_more_components_where_no_sigmoid_bounds_the_feature(
    output: str, clusters: int, make_engine: MakeEngine
) -> None:
    """SPEC 1.2: K = 5, or 15 if the architecture has no final sigmoid."""
    surrogate = {"name": "gmm", "preset": "gmm.released"}
    engine = make_engine(f"model.output={output}", surrogate=surrogate)
    made = build_surrogate(engine.config, engine.model)
    assert made is not None
    assert made.bank.mean.shape[1] == clusters  # type: ignore[union-attr,index]


def test_accuracy_is_measured_in_eval_mode_with_the_noise_of_the_transmission(make_engine: MakeEngine) -> None:
    """SPEC 8.2: accuracy with noise σ at test; statistics of the batch under test play no part and do not move."""
    engine = make_engine("defence.noise.sigma=1.0", "train.epochs=1")
    engine.run()
    model, test = engine.model, engine.parts.test
    model.train()
    before = state(model)
    found = accuracy(model, test, torch.Generator().manual_seed(3))
    assert not moved(before, model)
    assert model.training
    model.eval()
    with torch.no_grad():
        z = model.edge(test.images.float() / 255)
        sent = z + torch.empty_like(z).normal_(generator=torch.Generator().manual_seed(3))
        noisy, clean = model.cloud(sent).argmax(1), model.cloud(z).argmax(1)
    assert float(found) == pytest.approx(float((noisy == test.labels).float().mean()))
    assert not torch.equal(noisy, clean)
    others = {float(accuracy(model, test, torch.Generator().manual_seed(seed))) for seed in range(6)}
    assert len(others) > 1  # the noise decides some answers
