"""Shredder: the phases, the draw, and that the noise really trains."""

from __future__ import annotations

import math
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from tests.defences.building import build, gradients, pictures, step_of, task
from torch import nn

from splitveil.core.config import load_config
from splitveil.core.errors import ConfigError
from splitveil.core.run_folder import RunFolder
from splitveil.training.engine import Engine


def defended(**options):
    return build({"shredder": {"members": 3} | options})


def started(**options):
    net = defended(**options)
    net.defences["shredder"].on_epoch(10, 10)
    return net


def test_amplitude_and_variance_rewards_by_hand():
    """Members ±1 and 0 on D values: mean over members of Σ|n| = 2D/3; variance over members 2/3."""
    for reward, per_weight in (("amplitude", lambda d: -2 * d / 3), ("variance", lambda d: 1.5)):
        net = started(reward=reward, weight=0.2)
        defence = net.defences["shredder"]
        for member, value in enumerate((1.0, -1.0, 0.0)):
            nn.init.constant_(defence.noise.data[member], value)
        dim = defence.noise[0].numel()
        value = float(defence.loss(step_of(net, *pictures())).detach())
        assert value == pytest.approx(0.2 * per_weight(dim), rel=1e-5)
        assert defence.noise_power() == pytest.approx(2 / 3, rel=1e-5)


def test_the_tensors_start_as_laplace_noise_of_the_given_deviation():
    """P(|n| > 2σ) = e^(-2√2) = .0591 for a Laplace, .0455 for a normal of the same variance."""
    noise = build({"shredder": {"members": 4000, "sigma": 0.3}}).defences["shredder"].noise.detach()
    assert float(noise.std()) == pytest.approx(0.3, rel=5 * (5 / 4 / noise.numel()) ** 0.5)
    share = float((noise.abs() > 0.6).double().mean())
    assert share == pytest.approx(math.exp(-2 * math.sqrt(2)), abs=5 * (0.06 / noise.numel()) ** 0.5)


def test_a_shift_that_all_members_share_is_no_noise():
    defence = started().defences["shredder"]
    nn.init.constant_(defence.noise, 4.0)
    assert defence.noise_power() == pytest.approx(0.0, abs=1e-9)


def test_each_picture_draws_a_member():
    net = started()
    defence = net.defences["shredder"]
    z = torch.rand(300, *net.feature_shape)
    added = net.transmit(z, torch.Generator().manual_seed(1)).detach() - z
    which = (added[:, None] - defence.noise.detach()[None]).flatten(2).abs().amax(dim=2).argmin(dim=1)
    assert torch.allclose(added, defence.noise.detach()[which], atol=1e-6)
    counts = torch.bincount(which, minlength=3)
    assert bool((counts > 60).all())  # 100 expected each; 60 is five standard deviations below


def test_nothing_is_sent_but_the_feature_until_the_noise_starts():
    net = defended()
    z = torch.rand(2, *net.feature_shape)
    net.defences["shredder"].on_epoch(5, 10)
    assert torch.equal(net.transmit(z), z)
    assert net.defences["shredder"].noise_power() == 0.0
    assert net.defences["shredder"].on_epoch(6, 10)  # the step changes: record it anew
    assert not torch.equal(net.transmit(z), z)
    assert not net.defences["shredder"].on_epoch(7, 10)


def test_the_noise_trains_and_the_frozen_network_does_not():
    net = started()
    defence = net.defences["shredder"]
    step = step_of(net, *pictures(24))
    assert gradients(net, task(step) + defence.loss(step)) == {"defences.shredder.noise"}
    alone = gradients(net, task(step_of(net, *pictures(24))))
    assert alone == {"defences.shredder.noise"}  # the task itself shapes it, not only the reward


def test_joint_training_on_request():
    net = started(freeze=False)
    reached = gradients(net, task(step_of(net, *pictures())))
    assert "defences.shredder.noise" in reached
    assert any(name.startswith("edge.") for name in reached)


def test_state_carries_the_phase():
    net, other = started(), defended()
    other.load_state_dict(net.state_dict())
    z = torch.rand(2, *net.feature_shape)
    draws = [n.eval().transmit(z, torch.Generator().manual_seed(3)) for n in (net, other)]
    assert torch.equal(*draws)
    assert not torch.equal(draws[0], z)


@pytest.mark.parametrize("compose", ["single", "two_pass", "direct", "project"])
def test_in_the_trainer_the_noise_moves_and_the_network_rests(small_data, small_parts, tmp_path, compose):
    config = load_config(
        data={"name": str(small_data), "augment": False},
        defence={"shredder": {"members": 2}},
        surrogate={"name": "gmm"},
        train={"epochs": 4, "batch_size": 8, "checkpoint_every": 1, "compose": compose, "warmup_epochs": 0},
    )
    engine = Engine(config, small_parts, RunFolder(tmp_path / "run"), torch.device("cpu"))
    snapshots = {}

    def keep(row):
        snapshots[row["epoch"]] = {name: p.detach().clone() for name, p in engine.model.named_parameters()}

    engine.run(keep)

    def moved(a, b):
        return {n for n in snapshots[a] if not torch.equal(snapshots[a][n], snapshots[b][n])}

    assert "defences.shredder.noise" not in moved(1, 2)
    assert any(name.startswith("edge.") for name in moved(1, 2))
    assert moved(2, 4) == {"defences.shredder.noise"}
    assert engine.surrogate.sigma > 0  # follows the learned noise (SPEC 0.1)
    resumed = Engine(config, small_parts, RunFolder(tmp_path / "again"), torch.device("cpu"))

    def leave(row):
        if row["epoch"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resumed.run(leave)
    resumed = Engine(config, small_parts, RunFolder(tmp_path / "again"), torch.device("cpu"))
    resumed.run(resume=True)
    for name, value in engine.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


@pytest.mark.parametrize(
    ("world", "options", "refused"),
    [
        (2, {"start": 0.5, "freeze": False}, True),
        (2, {"start": 0.0, "freeze": True}, True),
        (2, {"start": 0.0, "freeze": False}, False),
        (1, {"start": 0.5, "freeze": True}, False),  # a process group of one is no reason to refuse
    ],
)
def test_what_trains_must_not_change_between_several_processes(monkeypatch, world, options, refused):
    net = defended(**options)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: world)
    with pytest.raises(ConfigError, match="single process") if refused else nullcontext():
        net.defences["shredder"].on_epoch(10, 10)
