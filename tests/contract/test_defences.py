"""What holds for every defence of the catalogue, alone and with every surrogate."""

from __future__ import annotations

import inspect
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.defences.building import build, pictures, step_of

import splitveil as sv
from splitveil import data
from splitveil.attacks import view
from splitveil.audit.freezing import frozen
from splitveil.core.catalogue import ATTACKS, DEFENCES, SURROGATES
from splitveil.core.errors import ConfigError
from splitveil.core.run_folder import RunFolder
from splitveil.training import evaluate
from splitveil.training.build import build_model, total_sigma
from splitveil.training.engine import Engine

NAMES = DEFENCES.names()
FIELDS = ("Paper", "Formula", "Defaults", "Cost", "Bytes", "Counter-attack")
DOCS = Path(__file__).parents[2] / "docs" / "defences.md"


def small(name):
    """Options that keep a defence with an adversary small."""
    fields = DEFENCES.load(name).Options.model_fields
    return {"adversary_blocks": 0, "adversary_width": 4} if "adversary_blocks" in fields else {}


def recipe(name):
    """The defence between a bottleneck and noise, as a user would combine them."""
    return {"bottleneck": {}} | {name: small(name)} | {"noise": {"sigma": 0.05}}


@pytest.fixture(scope="module")
def tiny_parts(tmp_path_factory):
    """16 training pictures: two steps of eight."""
    random = np.random.default_rng(7)
    path = tmp_path_factory.mktemp("data") / "tiny.npz"

    def draw(count):
        return random.integers(0, 256, (count, 8, 8, 1), dtype=np.uint8)

    np.savez(path, train_x=draw(16), train_y=np.arange(16) % 2, test_x=draw(4), test_y=np.arange(4) % 2)
    config = sv.load_config(data={"name": str(path), "protocol": "published"})
    return config.data, data.load(config.data, config.seed)


def config_for(tiny_data, defence, surrogate=None, **train):
    return sv.load_config(
        data=tiny_data.model_dump() | {"augment": False},
        defence=defence,
        train={"epochs": 2, "batch_size": 8, "lr": 0.01, "warmup_epochs": 0} | train,
        **({} if surrogate is None else {"surrogate": {"name": surrogate}}),
    )


@pytest.mark.parametrize("surrogate", SURROGATES.names())
@pytest.mark.parametrize("name", NAMES)
def test_every_defence_trains_with_every_surrogate(name, surrogate, tiny_parts, tmp_path):
    """Two epochs of two steps; the surrogate acts in the second."""
    tiny_data, parts = tiny_parts
    config = config_for(tiny_data, recipe(name), surrogate)
    folder = RunFolder(tmp_path / "run")
    engine = Engine(config, parts, folder, torch.device("cpu"))
    before = {key: value.clone() for key, value in engine.model.edge.state_dict().items()}
    engine.run()
    rows = folder.metrics()
    assert len(rows) == 2
    assert all(math.isfinite(row["task_loss"]) and row["skipped"] == 0 for row in rows)
    assert math.isfinite(rows[1]["rob_loss"])
    assert rows[1]["rob_loss"] != 0
    assert rows[1]["nonfinite_rob"] == 0
    assert engine.surrogate.sigma == total_sigma(engine.model) or DEFENCES.load(name).learns_noise
    assert any(not torch.equal(value, before[key]) for key, value in engine.model.edge.state_dict().items())
    assert all(bool(torch.isfinite(value).all()) for value in engine.model.state_dict().values())


@pytest.mark.parametrize("name", NAMES)
def test_every_defence_names_a_counter_attack(name):
    attacks = DEFENCES.load(name).counter_attacks
    assert attacks
    assert set(attacks) <= set(ATTACKS.names())


def test_a_defence_without_counter_attack_would_be_found():
    from splitveil.defences.base import Defence

    assert not Defence.counter_attacks


@pytest.mark.parametrize("name", NAMES)
def test_every_option_is_described(name):
    fields = DEFENCES.load(name).Options.model_fields
    assert fields
    assert all(field.description for field in fields.values()), name


def facts(name):
    """The block of a defence: its module's docstring, field by field."""
    module = sys.modules[DEFENCES.load(name).__module__]
    text = inspect.getdoc(module)
    parts = re.split(rf"^({'|'.join(FIELDS)}): ", text, flags=re.MULTILINE)[1:]
    return {key: " ".join(value.split()) for key, value in zip(parts[::2], parts[1::2], strict=True)}


@pytest.mark.parametrize("name", NAMES)
def test_every_file_says_the_same_things_and_so_does_the_manual(name):
    told = facts(name)
    assert tuple(told) == FIELDS
    page = " ".join(DOCS.read_text(encoding="utf-8").split())
    assert f"## `{name}`" in page
    for field, value in told.items():
        assert f"**{field}.** {value}" in page, field


@pytest.mark.parametrize("name", NAMES)
def test_config_round_trip(name, tmp_path):
    config = sv.load_config(defence={"bottleneck": {}, name: {}, "noise": {}})
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml(), encoding="utf-8")
    again = sv.load_config(path)
    assert again == config
    assert list(again.defence) == list(config.defence)


@pytest.mark.parametrize("name", NAMES)
def test_unknown_options_are_refused(name):
    with pytest.raises(ConfigError, match="stregnth"):
        sv.defences.create(name, stregnth=1)


@pytest.mark.parametrize("name", NAMES)
def test_state_round_trip_sends_the_same(name):
    """After training steps, the state alone carries everything that `send` depends on."""
    net = build(recipe(name), seed=1)
    optimiser = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.05)
    x, y = pictures()
    for epoch in (1, 2):
        for defence in net.defences.values():
            defence.on_epoch(epoch, 2)
        step = step_of(net, x, y, epoch=epoch)
        terms = [term for d in net.defences.values() if (term := d.loss(step)) is not None]
        optimiser.zero_grad()
        (torch.nn.functional.cross_entropy(step.logits, y) + sum(terms)).backward()
        optimiser.step()
    other = build(recipe(name), seed=2)
    other.load_state_dict(net.state_dict())
    sent = [n.eval().send(x, torch.Generator().manual_seed(3)) for n in (net, other)]
    assert torch.equal(*sent)
    assert [d.noise_power() for d in net.defences.values()] == [d.noise_power() for d in other.defences.values()]


@pytest.mark.parametrize("name", NAMES)
def test_transmission_never_switches_off(name):
    """Accuracy and attack are scored under the transmission of training: modes change nothing."""
    net = build(recipe(name))
    for defence in net.defences.values():
        defence.on_epoch(2, 2)
    z = torch.rand(4, *net.feature_shape)
    train = net.train().transmit(z, torch.Generator().manual_seed(1))
    with torch.no_grad():
        evaluated = net.eval().transmit(z, torch.Generator().manual_seed(1))
    assert torch.equal(train, evaluated)
    assert evaluated.shape == z.shape


@pytest.mark.parametrize("name", NAMES)
def test_noise_power_is_that_of_the_transmission(name):
    """Spread of many transmissions of one feature, by the defence alone, is its declared power (masks declare 0)."""
    net = build({name: small(name)})
    for defence in net.defences.values():
        defence.on_epoch(2, 2)
    z = torch.rand(1, *net.feature_shape).expand(3000, *net.feature_shape)
    with torch.no_grad():
        spread = net.eval().transmit(z, torch.Generator().manual_seed(1)).var(dim=0).mean()
    declared = net.defences[name].noise_power()
    if name == "dropout":  # its masks are no additive noise, and say so
        assert declared == 0.0
    else:
        assert float(spread) == pytest.approx(declared, rel=0.05, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_accuracy_and_attack_see_the_same_transmission(name, tiny_parts, tmp_path, monkeypatch):
    """After training, and with the same draws, what the cloud classifies is what the attacker gets."""
    tiny_data, parts = tiny_parts
    engine = Engine(config_for(tiny_data, recipe(name)), parts, RunFolder(tmp_path), torch.device("cpu"))
    engine.run()
    arrived = []
    engine.model.cloud.register_forward_pre_hook(lambda _, args: arrived.append(args[0]))
    monkeypatch.setattr(evaluate, "stream", lambda *_, device: torch.Generator(device).manual_seed(5))
    engine.evaluator.accuracy(parts.test, 1)
    monkeypatch.setattr(view.seeding, "generator", lambda *_, device: torch.Generator(device).manual_seed(5))
    with frozen(engine.model):
        sent = view.View(view.Scene(engine.model, parts.aux, parts.test), view.ThreatModel()).sent
    (classified,) = arrived
    assert classified.dtype == sent.dtype == torch.float32
    assert torch.allclose(classified, sent, rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------ order and composition


def test_transmission_follows_the_order_written():
    z = torch.rand(5, 32, 2, 2) + 0.5
    first = build({"noise": {"sigma": 0.1}, "topk": {"p": 0.5}}).transmit(z, torch.Generator().manual_seed(1))
    second = build({"topk": {"p": 0.5}, "noise": {"sigma": 0.1}}).transmit(z, torch.Generator().manual_seed(1))
    assert int((first == 0).sum()) == z.numel() // 2
    assert int((second == 0).sum()) == 0


def test_installation_follows_the_order_written():
    narrow = build({"bottleneck": {"channels": 4}, "sca": {}}).edge.narrow
    wide = build({"sca": {}, "bottleneck": {"channels": 4}}).edge.narrow
    assert [type(layer).__name__ for layer in narrow] == ["Conv2d", "SparseCoding"]
    assert [type(layer).__name__ for layer in wide] == ["SparseCoding", "Conv2d"]
    assert narrow[1].dictionary.shape == (16, 16)
    assert wide[0].dictionary.shape == (128, 128)


def test_terms_of_all_defences_add_up(tiny_parts, tmp_path):
    """The trainer's task loss is the cross-entropy plus the term of each defence."""
    tiny_data, parts = tiny_parts
    tables = {"nopeek": {"weight": 0.4}, "label_smoothing": {"alpha": 0.2}, "bido": {}}
    engine = Engine(config_for(tiny_data, tables), parts, RunFolder(tmp_path), torch.device("cpu"))
    net, batch = engine.model, (parts.train.images[:8], parts.train.labels[:8])
    out = engine.step.parts(*batch, kappa=torch.zeros(()), stage="joint", active=False, epoch=1, noise=None)
    step = step_of(net, batch[0].float() / 255, batch[1])
    terms = sum(float(d.loss(step).detach()) for d in net.defences.values())
    expected = float(torch.nn.functional.cross_entropy(step.logits, step.y).detach()) + terms
    assert float(out["task"].detach()) == pytest.approx(expected, rel=1e-5)


def test_sigma_of_composed_noise(tiny_parts):
    tiny_data, parts = tiny_parts
    tables = {"noise": {"sigma": 0.3}, "cloak": {"sigma": 0.4}, "dropout": {}}
    model = build_model(config_for(tiny_data, tables), parts.info)
    assert total_sigma(model) == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_weight_decay_spares_what_defences_learn(name, tiny_parts, tmp_path):
    """No formula has it: it would wear shredder's noise off, and pull cloak's scales to half their limit."""
    tiny_data, parts = tiny_parts
    own = {"noise": {"scale": "learned"}, "cloak": {"suppress": 0.5}}.get(name, small(name))
    config = config_for(tiny_data, {"bottleneck": {}} | {name: own}, lr=1.0)
    engine = Engine(config, parts, RunFolder(tmp_path), torch.device("cpu"))
    before = {key: p.detach().clone() for key, p in engine.model.named_parameters()}
    for parameter in engine.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    engine.optimiser.step()
    for key, parameter in engine.model.named_parameters():
        # a dictionary of sparse coding is part of the edge, and decays like any weight (SPEC 7.3)
        decays = not key.startswith("defences.") and bool((before[key] != 0).any())
        assert torch.equal(parameter, before[key]) != decays, key


@pytest.mark.parametrize("name", SURROGATES.names())
def test_surrogates_follow_learned_noise(name):
    """After `set_sigma` a surrogate gives what one made with that sigma gives, and keeps its parameters."""

    def create(sigma):
        return sv.surrogates.create(name, feature_shape=(8, 2, 2), num_classes=2, sigma=sigma)

    torch.manual_seed(0)
    moved, fresh, old = create(0.1), create(0.7), create(0.1)
    z = torch.randn(16, 8, 2, 2, generator=torch.Generator().manual_seed(1))
    y = torch.arange(16) % 2
    if moved.refresh_needed:
        moved.refresh([(z + 0.1, y)])
    identity = [id(p) for p in moved.parameters()]
    moved.set_sigma(0.7)
    for copy in (fresh, old):
        copy.load_state_dict(moved.state_dict())
    few = z[:6], y[:6]  # so few that a mixture has components without a member, which count with stored costs
    losses = [float(s.eval()(*few, epoch=5).loss.detach()) for s in (moved, fresh, old)]
    assert losses[0] == losses[1] != losses[2]
    assert moved.sigma == 0.7
    assert [id(p) for p in moved.parameters()] == identity
