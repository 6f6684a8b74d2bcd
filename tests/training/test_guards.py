"""Each guard with the fault it is there for."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import splitveil as sv
from splitveil.core.config import Config
from splitveil.core.errors import TrainingError
from splitveil.core.sections import Train
from splitveil.surrogates.base import Batch, Terms
from splitveil.surrogates.learned import LearnedSurrogate
from splitveil.training.engine import Engine
from splitveil.training.guards import NEVER_ACTED, Guards

MakeEngine = Callable[..., Engine]


def test_a_nonfinite_gradient_skips_the_step_and_is_counted(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.epoch = 1
    engine._set_rates(0.05, 0.0, 1.0)
    engine.model.train()
    poisoned = engine.model.cloud.classifier[1]
    hook = poisoned.register_full_backward_hook(
        lambda m, gi, go: tuple(None if g is None else g * torch.nan for g in gi)
    )
    before = {name: p.clone() for name, p in engine.model.named_parameters()}
    images, labels = engine.parts.train.images[:32], engine.parts.train.labels[:32]
    engine.step(images, labels)
    assert all(torch.equal(p, before[name]) for name, p in engine.model.named_parameters())
    hook.remove()
    engine.step(images, labels)
    assert engine.step.read()["skipped"] == 1
    assert not all(torch.equal(p, before[name]) for name, p in engine.model.named_parameters())


def test_too_many_nonfinite_steps_stop_the_run(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine("train.max_nonfinite=3")
    monkeypatch.setattr(torch.nn.functional, "cross_entropy", lambda logits, y: logits.sum() * torch.nan)
    with pytest.raises(TrainingError, match="non-finite loss or gradient"):
        engine.run()


def test_collapse_is_detected_and_says_what_to_lower(make_engine: MakeEngine) -> None:
    """The failure behind the notes' 10 %: the encoder becomes a constant."""
    engine = make_engine("train.epochs=9", "train.collapse_patience=2", surrogate={"name": "gmm"})

    def dead(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        return output * 0.0 + 0.5

    engine.model.edge.output.register_forward_hook(dead)
    with pytest.raises(TrainingError, match="features have collapsed") as caught:
        engine.run()
    assert "train.privacy_weight" in caught.value.hint
    assert engine.epoch < 9


@pytest.mark.slow
def test_the_collapse_of_the_notes_is_detected(make_engine: MakeEngine) -> None:
    """SPEC 9 q: the log form has no threshold, so with direct fusion it presses until nothing is left."""
    pictures = ("data.name=fashion-mini", "data.limit=600", "defence.bottleneck.channels=8", "defence.noise.sigma=0.1")
    options = ("train.epochs=9", "train.lr=0.02", "train.schedule=constant", "train.privacy_weight=1.25")
    surrogate = {"name": "slot_cross", "mode": "faithful"}
    engine = make_engine(*pictures, *options, "train.batch_size=64", surrogate=surrogate)
    with pytest.raises(TrainingError, match="features have collapsed"):
        engine.run()
    assert engine.epoch < 9  # the spread is still 4 % of the noise


def test_a_healthy_run_is_not_called_collapsed(make_engine: MakeEngine) -> None:
    engine = make_engine("train.epochs=6", surrogate={"name": "gmm"})
    engine.run()
    assert engine.guards.collapsed == 0


def _guards(guess: float = 0.1, **options: Any) -> Guards:
    return Guards(Train(**options), num_classes=10, sigma=0.025, guess=guess)


SEEN = {"epoch": 5, "rob_loss": 0.3, "classes": 10.0, "shut": 0.0, "no_bank": 0.0}


@pytest.mark.parametrize(
    ("row", "words", "ways_out"),
    [
        (
            {"shut": 0.5, "rob_loss": 0.1},
            "was shut off in 50 % of the steps",
            ["early_shut", "class_gate_a", "CEM-GATE"],
        ),
        ({"shut": 1.0, "rob_loss": 0.0}, "was shut off in 100 % of the steps", ["early_shut"]),
        ({"no_bank": 1.0, "rob_loss": 0.0}, "had no bank and did nothing", ["non-finite"]),
        ({"classes": 0.4, "rob_loss": 0.01}, "hardly any class", ["batch_size", "balanced_batches", "memory"]),
        ({"rob_loss": 0.0}, "every class lies under its threshold", ["var_threshold", "margin_m"]),
    ],
)
def test_a_surrogate_that_is_silent_is_called_so_with_a_way_out(
    row: dict[str, float], words: str, ways_out: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    guards = _guards()
    with caplog.at_level(logging.WARNING):
        guards.check(SEEN | row)
    assert words in caplog.text
    assert all(word in caplog.text for word in ways_out)
    assert sum(guards.counts.values()) == 1


def test_a_surrogate_that_acts_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    guards = _guards()
    with caplog.at_level(logging.WARNING):
        guards.check(SEEN | {"shut": 0.49})
        guards.check({"epoch": 1})  # before the surrogate acts
    assert caplog.text == ""
    assert sum(guards.counts.values()) == 0


def test_classes_under_their_threshold_are_mentioned_once_but_counted(caplog: pytest.LogCaptureFixture) -> None:
    guards = _guards()
    with caplog.at_level(logging.WARNING):
        for epoch in range(6, 9):
            guards.check(SEEN | {"epoch": epoch, "rob_loss": 0.0})
    assert caplog.text.count("lies under its threshold") == 1
    assert guards.counts["epochs in which every class lay under its threshold"] == 3


def _collapses(*rows: dict[str, float], patience: int = 2, guess: float = 0.1) -> bool:
    """Whether the guard stops after these epochs. Ten classes, sigma 0.025: chance is 0.1, constant under 0.00025."""
    guards = _guards(guess, collapse_patience=patience)
    try:
        for epoch, row in enumerate(rows, start=2):
            guards.check({"epoch": epoch, "rob_loss": 1.0, "accuracy": 0.1, "feature_spread": 0.1} | row)
    except TrainingError as error:
        return all(word in error.hint for word in ("privacy_weight", "loss_scale", "var_threshold", "wlr", "warmup"))
    return False


def test_the_two_ways_to_collapse() -> None:
    constant, near_zero, healthy = {"feature_spread": 1e-4}, {"rob_loss": 0.005}, {"accuracy": 0.6}
    assert _collapses({}, constant, constant)  # an unbounded penalty is not near zero when features are constant
    assert _collapses({}, {"feature_spread": 0.009}, {"feature_spread": 0.009})  # a tenth of what it was
    assert not _collapses({}, {"feature_spread": 0.011}, {"feature_spread": 0.011})
    assert _collapses({}, near_zero, near_zero)
    assert not _collapses({}, near_zero, {}, near_zero)  # not in a row
    assert not _collapses({}, {}, {})  # at chance, but neither: training may only have begun
    assert not _collapses({}, near_zero | healthy, near_zero | healthy)  # compact and accurate is what we want
    assert not _collapses({}, constant | {"accuracy": 0.16}, constant | {"accuracy": 0.16})
    assert not _collapses({}, near_zero, near_zero, patience=3)


def test_on_unbalanced_data_a_collapsed_model_is_right_as_often_as_the_most_frequent_class() -> None:
    collapsed = {"feature_spread": 1e-4, "accuracy": 36 / 43 + 1e-8}  # a float32 beside a float64
    assert _collapses({}, collapsed, collapsed, guess=36 / 43)
    assert not _collapses({}, collapsed, collapsed, guess=35 / 43)  # one picture more: it has learned something


def test_the_guard_of_a_real_run_knows_the_most_frequent_class(make_engine: MakeEngine, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1], [180, 20])
    x = random.integers(0, 256, (200, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / "nine-tenths.npz", train_x=x, train_y=labels, test_x=x[:40] ^ 1, test_y=labels[::5])
    engine = make_engine(f"data.name={tmp_path / 'nine-tenths.npz'}")
    assert engine.guards.guess == pytest.approx(0.9)


def test_a_penalty_that_was_shut_at_first_has_no_first_value() -> None:
    shut = {"rob_loss": 0.0, "shut": 1.0}
    assert not _collapses(shut, shut, shut)  # at chance for another reason than the penalty
    assert not _collapses({}, shut, shut)
    assert _collapses(shut, {}, {"rob_loss": 0.005}, {"rob_loss": 0.005})


@pytest.mark.parametrize("skipped", [19, 20])
def test_non_finite_steps_stop_the_run_from_the_nth_on(skipped: int) -> None:
    guards = _guards()
    row = {"epoch": 3, "skipped": skipped}
    if skipped < 20:
        guards.check_steps(row)
        assert guards.counts["steps skipped for a non-finite loss or gradient"] == 19
        return
    with pytest.raises(TrainingError, match="20 steps of epoch 3") as caught:
        guards.check_steps(row)
    assert all(word in caught.value.hint for word in ("inputs", "lr", "privacy_weight", "margin_m", "eps_var"))


def test_too_few_samples_per_class_are_noticed_in_a_real_run(
    make_engine: MakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """`gated` needs two samples of a class; batches of one never have them."""
    engine = make_engine(
        "train.batch_size=1", "data.limit=30", "train.warmup_epochs=1", surrogate={"name": "gated", "mode": "faithful"}
    )
    engine.run()
    assert "hardly any class had enough samples" in caplog.text


def test_a_shut_surrogate_is_noticed_in_a_real_run(make_engine: MakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    """The notes' slot run: shut in every logged line. Faithful slot_gated stays shut for its first 100 calls."""
    engine = make_engine(
        "train.warmup_epochs=1", surrogate={"name": "slot_gated", "mode": "faithful", "num_slots": 2, "num_heads": 2}
    )
    with caplog.at_level(logging.INFO):
        engine.run()
    assert "[CEM-GATE][SHUTOFF]" in caplog.text
    assert "mostly undefended" in caplog.text
    assert engine.guards.counts["epochs in which the surrogate was mostly shut off"] == 2


def test_gate_lines_have_the_fields_of_spec_6_8(make_engine: MakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    surrogate = {"name": "slot_gated", "mode": "faithful", "num_slots": 2, "num_heads": 2}
    shut = {"early_shut": "steps_only", "early_shut_steps": 3}
    engine = make_engine("train.epochs=2", "train.warmup_epochs=1", surrogate=surrogate | shut)
    with caplog.at_level(logging.INFO):
        engine.run()
    number = r"-?[\d.e+-]+"
    fields = rf"epoch=2 step=(\d+) classes={number} gate_d={number} hard_gate={number} base={number}"
    lines = [line for line in caplog.messages if line.startswith("[CEM-GATE]")]
    off = [re.fullmatch(rf"\[CEM-GATE\]\[SHUTOFF\] {fields}", line) for line in lines[:3]]
    on = [re.fullmatch(rf"\[CEM-GATE\]\[OK\] {fields} rob_loss={number}", line) for line in lines[3:]]
    assert [int(found[1]) for found in [*off, *on] if found is not None] == [1, 2, 3, 4, 5]


def test_learnable_scalars_are_in_the_metrics_of_every_active_epoch(make_engine: MakeEngine) -> None:
    surrogate = {"name": "slot_gated", "mode": "faithful", "num_slots": 2, "num_heads": 2, "early_shut": "off"}
    engine = make_engine("train.epochs=2", "train.warmup_epochs=1", surrogate=surrogate | {"constrain": "positive"})
    engine.run()
    first, second = engine.folder.metrics()
    assert not [key for key in first if key.startswith("scalar_")]
    names = {"assign_temp", "slot_power", "snr_thresh", "snr_sharp", "softplus_beta", "margin_m", "class_gate_a"}
    names |= {"class_gate_b", "alpha_xattn", "alpha_ffn"}
    assert {key.removeprefix("scalar_") for key in second if key.startswith("scalar_")} == names
    # near where it starts; its stored form, an inverse softplus, starts at 1.25
    assert second["scalar_softplus_beta"] == pytest.approx(1.5, abs=0.1)
    assert second["scalar_class_gate_b"] != pytest.approx(0.04, abs=1e-9)  # and it has moved


def test_gate_lines_come_for_the_first_five_calls_and_every_200th(
    make_engine: MakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine = make_engine("train.warmup_epochs=0", surrogate={"name": "gated", "mode": "faithful"})
    engine.gates.calls = 195  # as if resumed: call 200 falls into the second epoch
    with caplog.at_level(logging.INFO):
        engine.run()
    lines = [line for line in caplog.messages if line.startswith("[CEM-GATE][OK]")]
    assert any("step=200 " in line and "rob_loss=" in line and "hard_gate=" in line for line in lines)
    assert len(lines) == 1


def test_events_are_logged_once_then_every_thousand(caplog: pytest.LogCaptureFixture) -> None:
    guards = _guards()
    with caplog.at_level(logging.WARNING):
        for _ in range(30):
            guards.count("event", 70)
    assert guards.counts["event"] == 2100
    assert len(caplog.messages) == 3  # at the first, past 1000, past 2000


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.epochs=1", "leaves none of 1 epochs to the surrogate, which never acts in the first:"),
        ("train.epochs=1", "without it; train longer"),  # a shorter warm-up would not help
        ("train.warmup_epochs=3", "train.warmup_epochs = 3 leaves none of 3 epochs"),
        ("train.warmup_epochs=3", "without it; shorten the warm-up or train longer"),
        ("train.progressive=true", "first 10 belong to earlier stages"),
    ],
)
def test_a_recipe_whose_surrogate_never_acts_trains_and_warns(
    make_engine: MakeEngine, override: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    rows: list[dict[str, Any]] = []
    with caplog.at_level(logging.WARNING):
        make_engine(override, surrogate={"name": "gmm"}).run(on_epoch=rows.append)
    assert sum(words in message for message in caplog.messages) == 1
    assert rows
    assert [row["effective_weight"] for row in rows] == [0.0] * len(rows)


def test_a_trial_of_one_epoch_runs_and_says_that_it_is_undefended(
    make_config: Callable[..., Config], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        folder = sv.train(make_config("train.epochs=1", surrogate={"name": "gmm"}), out=tmp_path / "run")
    assert "leaves none of 1 epochs to the surrogate" in caplog.text
    result = folder.read_json("result.json") or {}
    assert (result["effective_weight"], result["rob_loss"], result["intra_mse"]) == (0, None, None)
    assert result["guards"][NEVER_ACTED] == 1, "for those who do not see the log: sweeps and comparisons"


def test_an_exception_inside_a_surrogate_is_an_error(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prototype swallowed it and trained without defence (SPEC 6.5)."""
    engine = make_engine(surrogate={"name": "gmm"})
    assert engine.surrogate is not None

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("broken surrogate")

    monkeypatch.setattr(engine.surrogate, "_terms", fail)
    with pytest.raises(RuntimeError, match="broken surrogate"):
        engine.run()


def test_an_epoch_in_which_every_step_is_skipped_stops_the_run() -> None:
    guards = _guards()  # max_nonfinite is 20
    guards.check_steps({"epoch": 1, "skipped": 6.0, "steps": 7})
    with pytest.raises(TrainingError, match="7 steps of epoch 2"):
        guards.check_steps({"epoch": 2, "skipped": 7.0, "steps": 7})


@pytest.mark.parametrize(
    ("key", "event"),
    [
        ("nonfinite_feature_steps", "batches with non-finite features"),
        ("nonfinite_rob", "non-finite surrogate values set to zero"),
    ],
)
def test_events_are_counted_and_logged_once(key: str, event: str, caplog: pytest.LogCaptureFixture) -> None:
    guards = _guards()
    for epoch in (1, 2, 3):
        guards.check_steps({"epoch": epoch, key: 2})
    assert guards.counts[event] == 6
    assert sum(event in record.message for record in caplog.records) == 1


def test_chance_with_a_silent_penalty_is_a_collapse() -> None:
    """Also where the penalty was 0 from its first epoch on; but not while it is shut off or has no bank."""
    row = {"epoch": 1, "rob_loss": 0.0, "accuracy": 0.1, "feature_spread": 1.0, "classes": 10.0}
    for off in ({"shut": 1.0}, {"no_bank": 1.0}):
        guards = _guards(collapse_patience=2)
        for _ in range(5):
            guards.check(row | off)
    guards = _guards(collapse_patience=2)
    guards.check(row)
    with pytest.raises(TrainingError, match="features have collapsed"):
        guards.check(row)


def test_features_that_are_not_finite_reach_the_guards(make_engine: MakeEngine) -> None:
    engine = make_engine("train.epochs=2", "train.max_nonfinite=1000", surrogate={"name": "gated"})

    def poison(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        return (
            torch.cat([output[:1] * torch.inf, output[1:]])
            if module.training and engine.epoch == 2 and engine.step.count % 3 == 0
            else output
        )

    engine.model.edge.output.register_forward_hook(poison)
    engine.run()
    assert engine.guards.counts["batches with non-finite features"] > 0


@pytest.mark.parametrize("part", ["per_class_loss", "weight"])
def test_a_surrogate_that_never_gives_a_finite_loss_ends_the_run(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """It would pass for a defended run: no term ever acted in it."""
    engine = make_engine(surrogate={"name": "gated"})
    assert engine.surrogate is not None
    whole = engine.surrogate._terms

    def broken(batch: Batch) -> Terms:
        terms = whole(batch)
        return dataclasses.replace(terms, **{part: getattr(terms, part) * torch.nan})

    monkeypatch.setattr(engine.surrogate, "_terms", broken)
    with pytest.raises(TrainingError, match=r"In (\d+) of \1 steps of epoch 2 the surrogate's loss was not finite"):
        engine.run()


def test_a_run_goes_on_where_most_classes_or_steps_have_a_finite_loss() -> None:
    guards = _guards()  # max_nonfinite is 20
    guards.check_steps(SEEN | {"nonfinite_rob": 390.0, "nonfinite_lost": 19.0, "surrogate_steps": 390})
    assert guards.counts["steps without the surrogate, whose loss was not finite"] == 19
    with pytest.raises(TrainingError, match="In 20 of 390 steps of epoch 5"):
        guards.check_steps(SEEN | {"nonfinite_lost": 20.0, "surrogate_steps": 390})


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        # set to zero with a gradient of zero: every step goes on, and nothing is ever fitted
        (lambda fit: fit + torch.inf, r"In (\d+) of \1 steps of epoch 2 the surrogate's fit_loss was not finite"),
        # 0·NaN is NaN: the gradient is not finite either
        (lambda fit: fit * torch.nan, r"were skipped\. The surrogate's fit_loss was not finite\."),
    ],
)
def test_a_surrogate_whose_parameters_are_never_fitted_ends_the_run(
    make_engine: MakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    broken: Callable[[torch.Tensor], torch.Tensor],
    words: str,
) -> None:
    engine = make_engine(surrogate={"name": "gated", "surrogate_update": "likelihood"})
    assert isinstance(engine.surrogate, LearnedSurrogate)
    whole = engine.surrogate._likelihood
    monkeypatch.setattr(engine.surrogate, "_likelihood", lambda *given: broken(whole(*given)))
    with pytest.raises(TrainingError, match=words):
        engine.run()


def test_a_run_goes_on_where_most_fits_are_finite() -> None:
    guards = _guards()  # max_nonfinite is 20
    guards.check_steps(SEEN | {"nonfinite_fit": 19.0, "fit_steps": 130, "surrogate_steps": 390})
    assert guards.counts["steps whose fit_loss was not finite and set to zero"] == 19
    with pytest.raises(TrainingError, match="In 20 of 130 steps of epoch 5"):
        guards.check_steps(SEEN | {"nonfinite_fit": 20.0, "fit_steps": 130, "surrogate_steps": 390})


def test_a_defence_whose_term_is_not_finite_is_named(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine("defence.nopeek.weight=0.1")
    monkeypatch.setattr(engine.model.defences["nopeek"], "loss", lambda step: step.z.sum() * torch.nan)
    with pytest.raises(TrainingError, match=r"were skipped\. The term of the defence 'nopeek' was not finite\."):
        engine.run()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_defence_that_sends_what_is_not_finite_is_named(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    """It is, not the ones after it, nor where the loss is finite all the same: a cloud half may forget what it gets."""
    engine = make_engine("defence.noise.sigma=0.1", "defence.topk.p=0.5", "defence.dropout.p=0.1")
    monkeypatch.setattr(type(engine.model.defences["topk"]), "transmit", lambda self, z, generator=None: z + value)
    engine.model.cloud.register_forward_pre_hook(lambda module, given: torch.zeros_like(given[0]))
    words = r"In (\d+) of \1 steps of epoch 1 the defence 'topk' sent values that are not finite\."
    with pytest.raises(TrainingError, match=words):
        engine.run()


def test_a_defence_is_not_blamed_for_what_the_encoder_gives(make_engine: MakeEngine) -> None:
    engine = make_engine("defence.noise.sigma=0.1")
    engine.model.edge.output.register_forward_hook(lambda module, given, output: output * torch.nan)
    with pytest.raises(TrainingError, match="non-finite loss or gradient"):
        engine.run()


def test_single_numbers_of_a_plug_ins_diagnostics_are_in_the_metrics(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under names of their own: no diagnostic can take the place of a column."""
    engine = make_engine("train.epochs=2", surrogate={"name": "gated"})
    assert engine.surrogate is not None
    whole = engine.surrogate._terms
    own = {"lr": torch.tensor(7), "nonfinite_of_mine": torch.tensor(0.5), "map": torch.zeros(3)}

    def telling(batch: Batch) -> Terms:
        terms = whole(batch)
        return dataclasses.replace(terms, diagnostics=terms.diagnostics | own)

    monkeypatch.setattr(engine.surrogate, "_terms", telling)
    engine.run()
    first, second = engine.folder.metrics()
    assert not [key for key in first if key.startswith("diag_")]  # before the surrogate acts
    assert (second["diag_lr"], second["diag_nonfinite_of_mine"]) == (7, 0.5)
    assert second["lr"] < 1
    told = {"diag_lr", "diag_nonfinite_of_mine", "diag_share_below_threshold"}
    assert {key for key in second if key.startswith("diag_")} == told


def test_a_resumed_run_is_guarded_as_if_it_had_not_been_interrupted() -> None:
    """What is near zero or has shrunk is so beside the first epochs, and patience goes on where it was."""
    rows = [{"epoch": 1, "rob_loss": 8.0, "accuracy": 0.9, "feature_spread": 1.0}]
    rows += [{"epoch": e, "rob_loss": 0.01, "accuracy": 0.1, "feature_spread": 0.5} for e in (2, 3)]  # rob: under 1 %
    rows += [{"epoch": e, "rob_loss": 4.0, "accuracy": 0.1, "feature_spread": 0.05} for e in (4, 5)]  # under a tenth
    train = Train(epochs=9, collapse_patience=4)
    guards = Guards(train, num_classes=10, sigma=0.025)
    for row in rows[:4]:
        guards.check(row)
        facts = json.loads(json.dumps(guards.state()))
        guards = Guards(train, num_classes=10, sigma=0.025)
        guards.restore(facts)
    with pytest.raises(TrainingError, match="for 4 epochs"):
        guards.check(rows[4])
