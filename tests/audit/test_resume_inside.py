"""An attack that was interrupted goes on inside itself, and gives the numbers it would have given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import worlds

import splitveil as sv
from splitveil.attacks.base import ThreatModel
from splitveil.attacks.fitting import Fit, FitOptions
from splitveil.attacks.membership import train_classifier
from splitveil.attacks.networks import build
from splitveil.attacks.prior import PriorAttack
from splitveil.attacks.resuming import fit, fit_once
from splitveil.audit.partial import PartialResults, StepMemory
from splitveil.audit.subjects import AuditData

NETWORK = {"blocks": 0, "width": 4, "epochs": 2, "batch_size": 25}
STRONG = {**NETWORK, "kinds": ("residual", "dense"), "growths": 1, "seeds": 2, "losses": ("mse",), "augment": False}
PLANS: dict[str, dict[str, Any]] = {
    "decoder": {**NETWORK, "kind": "shuffle", "best_epoch": "second"},
    "decoder_strong": STRONG,
    "gan": {**NETWORK, "gan_epochs": 1, "critic_steps": 2, "critic_width": 4},
    "membership": {"shadows": 4, "epochs": 1, "pool": 40},
    "substitute": {**NETWORK, "kind": "shuffle", "substitute_epochs": 2, "substitute_width": 4},
    "prior": {"width": 8, "epochs": 1, "steps": 2, "inner": 1, "samples": 1, "num_images": 8},
}


def source() -> AuditData:
    return AuditData(
        aux=worlds.pictures(80, seed=1), test=worlds.pictures(20, seed=2), train=worlds.pictures(60, seed=3)
    )


def conv_model() -> sv.SplitModel:
    torch.manual_seed(5)
    edge = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3, stride=2, padding=1), torch.nn.Sigmoid())
    return sv.SplitModel(edge, torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(32, 3)), num_classes=3)


def after(calls: int, work: Callable[..., Any]) -> Callable[..., Any]:
    """`work`, which is interrupted when it is called once more."""
    count = 0

    def limited(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        if count > calls:
            raise KeyboardInterrupt
        return work(*args, **kwargs)

    return limited


# attack, what it calls for each of its steps, how many such calls there are in all
STEPS = [
    ("decoder", "splitveil.attacks.resuming.fit", fit, 2),
    ("decoder_strong", "splitveil.attacks.resuming.fit", fit, 4),
    ("membership", "splitveil.attacks.membership.train_classifier", train_classifier, 4),
]


def run(name: str, out: Path | None) -> dict[str, Any]:
    plan = {name: PLANS[name]} if name != "membership" else {"retrieval": {}, name: PLANS[name]}
    tree = sv.audit(conv_model(), source(), attacks=plan, out=out, check_sanity=False).tree
    entries = {**tree["attacks"], **tree["inference"]}
    return {key: value for key, value in entries[name].items() if key != "seconds"}


@pytest.mark.parametrize(("name", "place", "work", "steps"), STEPS)
def test_killed_and_resumed_equals_uninterrupted(
    name: str, place: str, work: Callable[..., Any], steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(name, None)
    half = steps // 2
    monkeypatch.setattr(place, after(half, work))
    with pytest.raises(KeyboardInterrupt):
        run(name, tmp_path)
    assert list((tmp_path / "partial").glob("*.steps/*.safetensors"))
    monkeypatch.setattr(place, after(steps - half, work))  # no finished step is done again
    assert run(name, tmp_path) == whole
    assert not (tmp_path / "partial").exists()


@pytest.mark.parametrize(("name", "owner", "method"), [("prior", PriorAttack, "_errors")])
def test_what_follows_the_training_draws_the_same_numbers(
    name: str, owner: type, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(name, None)
    original = getattr(owner, method)
    monkeypatch.setattr(owner, method, after(0, original))
    with pytest.raises(KeyboardInterrupt):
        run(name, tmp_path)
    monkeypatch.setattr(owner, method, original)
    monkeypatch.setattr(owner, "_train", after(0, owner._train))  # type: ignore[attr-defined]
    assert run(name, tmp_path) == whole


def test_the_gan_starts_from_the_remembered_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run("gan", None)
    monkeypatch.setattr("splitveil.attacks.gan.Critic", after(0, object))
    with pytest.raises(KeyboardInterrupt):
        run("gan", tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr("splitveil.attacks.resuming.fit", after(0, fit))
    assert run("gan", tmp_path) == whole


def test_the_decoder_of_the_substitute_inverts_the_remembered_imitation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run("substitute", None)
    monkeypatch.setattr("splitveil.attacks.resuming.fit", after(0, fit))
    with pytest.raises(KeyboardInterrupt):
        run("substitute", tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr("splitveil.attacks.substitute.run_epochs", after(0, object))  # it is not trained again
    assert run("substitute", tmp_path) == whole


def test_a_step_cut_short_on_disk_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run("decoder", None)
    monkeypatch.setattr("splitveil.attacks.resuming.fit", after(1, fit))
    with pytest.raises(KeyboardInterrupt):
        run("decoder", tmp_path)
    (step,) = (tmp_path / "partial").glob("*.steps/*.safetensors")
    step.write_bytes(step.read_bytes()[:100])
    monkeypatch.setattr("splitveil.attacks.resuming.fit", after(2, fit))
    assert run("decoder", tmp_path) == whole


def test_other_options_or_another_model_remember_nothing(tmp_path: Path) -> None:
    device = torch.device("cpu")
    partial = PartialResults(tmp_path, "model:a")
    partial.memory("decoder", {"epochs": 1}, device).remember("step", {"x": torch.ones(1)})
    assert partial.memory("decoder", {"epochs": 1}, device).recall("step") is not None
    assert partial.memory("decoder", {"epochs": 1}, device).recall("other") is None
    assert partial.memory("decoder", {"epochs": 2}, device).recall("step") is None
    assert PartialResults(tmp_path, "model:b").memory("decoder", {"epochs": 1}, device).recall("step") is None


def test_a_finished_audit_leaves_nothing_of_itself_and_all_that_others_can_go_on_with(tmp_path: Path) -> None:
    device = torch.device("cpu")

    def keep(signature: str, attack: str = "decoder", epochs: int = 1, number: int = 0) -> Path:
        options = {"epochs": epochs, "number": number}
        memory = PartialResults(tmp_path, signature).memory(attack, options, device)
        memory.remember("step", {"x": torch.ones(1)})
        assert memory.folder is not None
        return memory.folder

    older = keep("splitveil:0.1.0|config:a|torch:2.8.0|python:3.11|audit|model:a|plug_ins:1")
    unnamed = tmp_path / "decoder-0123456789abcdef.steps"  # of code that gave other names
    unnamed.mkdir()
    unread = tmp_path / "linear-0123456789abcdef-0123456789abcdef.safetensors"
    unread.touch()
    others = {keep("splitveil:0.1.0|config:b|audit|model:a"), keep("splitveil:0.1.0|config:a|audit|model:b")}
    now = "splitveil:0.2.0|config:a|torch:2.9.0|python:3.12|audit|model:a|plug_ins:2"
    options = {"epochs": 1, "number": 0}
    assert PartialResults(tmp_path, now).memory("decoder", options, device).recall("step") is None
    mine = {keep(now), keep(now, number=1)}
    others.add(keep(now, "gan"))  # of an audit of the same thing with more attacks
    others.add(keep(now, epochs=50))  # of a longer one
    assert {older, unnamed, unread, *mine, *others} == set(tmp_path.iterdir())
    PartialResults(tmp_path, now).clear({"decoder": {"epochs": 1}, "linear": {}}, repeats=2)
    assert set(tmp_path.iterdir()) == others


def test_a_shorter_audit_in_between_loses_nothing_of_the_one_that_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run("decoder", None)
    monkeypatch.setattr("splitveil.attacks.resuming.fit", after(1, fit))
    with pytest.raises(KeyboardInterrupt):
        run("decoder", tmp_path)
    monkeypatch.setattr("splitveil.attacks.resuming.fit", fit)
    sv.audit(conv_model(), source(), attacks={"decoder": PLANS["decoder"]}, epochs=1, out=tmp_path, check_sanity=False)
    monkeypatch.setattr("splitveil.attacks.resuming.fit", after(1, fit))
    assert run("decoder", tmp_path) == whole
    assert not (tmp_path / "partial").exists()


def test_without_a_folder_nothing_is_kept() -> None:
    memory = StepMemory(None, torch.device("cpu"))
    memory.remember("step", {"x": torch.ones(1)})
    assert memory.recall("step") is None


def test_the_last_and_the_best_epoch_are_both_remembered(tmp_path: Path) -> None:
    memory = StepMemory(tmp_path, torch.device("cpu"))
    view = worlds.view(worlds.identity(0.5), ThreatModel(queries=True, auxiliary=True))
    queries = view.query(view.auxiliary)
    options = FitOptions(epochs=6, batch_size=25, lr=1.0, lr_min=1.0)  # so fast that it does not end at its best

    def train() -> tuple[Fit, dict[str, torch.Tensor]]:
        generator = view.generator("test")
        decoder = build("shuffle", view.feature_shape, view.image_shape, blocks=0, width=4, generator=generator)
        fitted = fit_once(memory, "step", decoder, queries, options, generator, lambda done, total: None)
        return fitted, {name: value.clone() for name, value in fitted.decoder.state_dict().items()}

    first, last = train()
    assert first.best_epoch < 6
    again, restored = train()
    assert (again.best_epoch, again.curve) == (first.best_epoch, first.curve)
    for name, value in last.items():
        assert torch.equal(restored[name], value)
        assert torch.equal(again.best_state[name], first.best_state[name])
    assert any(not torch.equal(last[name], first.best_state[name]) for name in last)


def test_what_builds_on_another_attack_is_not_taken_from_an_audit_where_that_made_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`refine` starts where the decoder ended: with another decoder it is another attack, whatever its own options."""
    refine = {"steps": 2, "num_images": 8}

    def attack(epochs: int, out: Path | None, **more: dict[str, Any]) -> dict[str, Any]:
        plan = {"decoder": {**PLANS["decoder"], "epochs": epochs}, "refine": refine, **more}
        tree = sv.audit(conv_model(), source(), attacks=plan, out=out, check_sanity=False).tree
        return {key: value for key, value in tree["attacks"]["refine"].items() if key != "seconds"}

    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    def keep_one_of_a_short_decoder() -> None:
        with monkeypatch.context() as stopped:
            stopped.setattr("splitveil.attacks.retrieval.RetrievalAttack.run", interrupted)
            with pytest.raises(KeyboardInterrupt):
                attack(1, tmp_path, retrieval={})

    alone = attack(2, None)
    keep_one_of_a_short_decoder()
    assert attack(2, tmp_path) == alone
    keep_one_of_a_short_decoder()
    monkeypatch.setattr("splitveil.attacks.refine.RefineAttack.run", interrupted)  # where it is the same, it is taken
    attack(1, tmp_path)
