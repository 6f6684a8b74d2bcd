"""Adversarial training: who trains on what, the threshold, the schedule, and the adversary's state."""

from __future__ import annotations

import copy

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.defences.building import build, gradients, pictures, step_of, task
from torch import nn

from splitveil.core.config import load_config
from splitveil.core.errors import RunFolderError
from splitveil.core.run_folder import RunFolder
from splitveil.defences.adversarial import Adversarial
from splitveil.functional.ssim import ssim
from splitveil.models.cost import parameters
from splitveil.models.digest import weights_digest
from splitveil.training.build import build_model
from splitveil.training.checkpoint import load_weights
from splitveil.training.engine import Engine

SMALL = {"adversary_blocks": 0, "adversary_width": 8}


class Constant(nn.Module):
    """An adversary that always answers with pictures of its own, plus nothing of z."""

    def __init__(self, answer):
        super().__init__()
        self.answer = nn.Parameter(answer.clone())

    def forward(self, z):
        return self.answer + 0 * z.flatten(1).sum(dim=1)[:, None, None, None]


def defended(**options):
    return build({"adversarial": SMALL | options})


def test_the_published_adversary():
    net = build({"bottleneck": {"channels": 8}, "adversarial": {}}, image=(3, 32, 32), classes=10, model="vgg11")
    assert parameters(net.defences["adversarial"].adversary) == 415_091


@pytest.mark.parametrize(("threshold", "expected"), [(0.5, 0.3 * 0.5), (0.9, 0.3 * 0.1), (1.0, 0.0)])
def test_ssim_term_by_hand(threshold, expected):
    """A perfect reconstruction has SSIM 1: the term is weight·(1 - threshold)."""
    net = defended(threshold=threshold)
    x, y = pictures()
    net.defences["adversarial"].adversary = Constant(x)
    assert float(net.defences["adversarial"].loss(step_of(net, x, y)).detach()) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("offset", "expected"), [(0.1, 0.3 * 0.01), (0.2, 0.0)])
def test_mse_term_by_hand(offset, expected):
    """An offset of .1 has MSE .01, under the threshold .02 by .01; an offset of .2 (.04) costs nothing."""
    net = defended(criterion="mse")
    x, y = pictures()
    net.defences["adversarial"].adversary = Constant(x + offset)
    assert float(net.defences["adversarial"].loss(step_of(net, x, y)).detach()) == pytest.approx(expected, abs=1e-6)


def test_encoder_term_trains_the_edge_alone():
    net = defended(threshold=-1.0)
    reached = gradients(net, net.defences["adversarial"].loss(step_of(net, *pictures())))
    assert reached
    assert all(name.startswith("edge.") for name in reached)


def test_the_adversary_step_trains_the_adversary_alone():
    net = defended()
    before = copy.deepcopy(net.state_dict())
    net.defences["adversarial"].train_adversary(detached(step_of(net, *pictures())))
    changed = {name for name, value in net.state_dict().items() if not torch.equal(value, before[name])}
    trained = {name for name in changed if "running" not in name and "num_batches" not in name}
    assert trained
    assert all(name.startswith("defences.adversarial.adversary.") for name in trained)
    assert all(p.grad is None for p in net.parameters())
    assert not any(p.requires_grad for p in net.defences["adversarial"].adversary.parameters())


def detached(step):
    return type(step)(step.x, step.y, step.z.detach(), step.sent.detach(), None, step.epoch)


@pytest.mark.parametrize("criterion", ["ssim", "mse"])
def test_the_adversary_learns_to_reconstruct(criterion):
    net = defended(criterion=criterion, steps=3)
    step = detached(step_of(net, *pictures()))
    defence = net.defences["adversarial"]

    def error():
        answer = defence.adversary(defence.watch(step)).detach()
        return float(1 - ssim(answer, step.x).mean() if criterion == "ssim" else (answer - step.x).square().mean())

    before = error()
    for _ in range(20):
        defence.train_adversary(step)
    assert error() < 0.9 * before


def test_the_encoder_descends_what_the_adversary_ascends():
    net = defended(threshold=-1.0, weight=1.0)
    x, y = pictures()
    defence = net.defences["adversarial"]
    for _ in range(20):
        defence.train_adversary(detached(step_of(net, x, y)))

    def similarity():
        return float(ssim(defence.adversary(net.edge(x)), x).mean().detach())

    before = similarity()
    optimiser = torch.optim.SGD(net.edge.parameters(), lr=0.5)
    for _ in range(20):
        optimiser.zero_grad()
        defence.loss(step_of(net, x, y)).backward()
        optimiser.step()
    assert similarity() < before


def test_steps_are_counted():
    net = defended(steps=3)
    defence = net.defences["adversarial"]
    defence.train_adversary(detached(step_of(net, *pictures())))
    state = next(iter(defence.optimiser.state.values()))
    assert float(state["step"]) == 3


def test_rate_schedule():
    defence = defended().defences["adversarial"]
    rates = {}
    for epoch in (1, 59, 60, 149, 150, 239, 240):
        defence.on_epoch(epoch, 240)
        rates[epoch] = defence.optimiser.param_groups[0]["lr"]
    expected = {1: 1e-3, 59: 1e-3, 60: 2e-4, 149: 2e-4, 150: 4e-5, 239: 4e-5, 240: 8e-6}
    assert rates == pytest.approx(expected)
    defence.on_epoch(30, 120)
    assert defence.optimiser.param_groups[0]["lr"] == pytest.approx(2e-4)


@pytest.mark.parametrize("sees", ["eval", "clean", "sent"])
def test_what_the_adversary_sees(sees):
    net = build({"adversarial": SMALL | {"sees": sees}, "noise": {"sigma": 1.0}})
    step = detached(step_of(net, *pictures()))
    settled = settled_features(net, step.x)
    assert not torch.allclose(settled, step.z, atol=1e-3)  # batch and running statistics differ
    seen = []
    defence = net.defences["adversarial"]
    defence.adversary.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    defence.train_adversary(step)
    assert torch.equal(seen[0], {"eval": settled, "sent": step.sent, "clean": step.z}[sees])
    defence.loss(step_of(net, *pictures()))
    assert torch.equal(seen[1].detach(), step.z)  # the encoder's term is on clean z of this step either way


@torch.no_grad()
def settled_features(net, x):
    """z of the edge in evaluation mode."""
    edge = copy.deepcopy(net.edge).eval()
    return edge(x)


def test_the_edge_is_run_once_for_all_steps_and_left_as_it_was():
    net = defended(steps=3)
    step = detached(step_of(net, *pictures()))
    before = copy.deepcopy(net.edge.state_dict())
    modes = []
    net.edge.register_forward_hook(lambda module, *_: modes.append(module.training))
    net.defences["adversarial"].train_adversary(step)
    assert modes == [False]
    assert all(module.training for module in net.edge.modules())
    assert all(torch.equal(value, before[name]) for name, value in net.edge.state_dict().items())


def test_the_adversary_is_a_fixed_function_where_it_judges():
    """As released: statistics of the batch while it trains, running ones in the encoder's term."""
    net = defended(threshold=-1.0, weight=1.0)
    defence, modes = net.defences["adversarial"], []
    defence.adversary.register_forward_hook(lambda module, *_: modes.append(module.training))
    net.train()
    step = step_of(net, *pictures())
    defence.train_adversary(detached(step))
    before = copy.deepcopy(defence.adversary.state_dict())
    value = float(defence.loss(step).detach())
    assert modes == [True, False]
    assert all(torch.equal(v, before[name]) for name, v in defence.adversary.state_dict().items())
    judge = copy.deepcopy(defence.adversary).eval()
    assert value == pytest.approx(float(ssim(judge(step.z), step.x).mean().detach()) + 1.0, rel=1e-5)


def test_the_adversary_starts_as_the_released_one():
    """Xavier-uniform: within ±√(6/(fan in + fan out)) and filling it; biases zero."""
    net = build({"bottleneck": {"channels": 8}, "adversarial": {}}, image=(3, 32, 32), classes=10, model="vgg11")
    adversary = net.defences["adversarial"].adversary
    layers = [m for m in adversary.modules() if isinstance(m, nn.Conv2d | nn.ConvTranspose2d)]
    assert len(layers) == 16
    for layer in layers:
        taps = layer.kernel_size[0] * layer.kernel_size[1]
        bound = (6 / (taps * (layer.in_channels + layer.out_channels))) ** 0.5
        largest = float(layer.weight.detach().abs().max())
        assert 0.9 * bound < largest <= bound
        assert layer.bias is None or not layer.bias.any()


def test_a_bad_batch_does_not_end_the_adversary():
    net = defended()
    step = detached(step_of(net, *pictures()))
    broken = type(step)(step.x, step.y, step.z * float("nan"), step.sent * float("inf"), None, 1)
    net.defences["adversarial"].train_adversary(broken)
    assert all(bool(torch.isfinite(p).all()) for p in net.defences["adversarial"].adversary.parameters())


def test_weight_zero_adds_no_term():
    net = defended(weight=0.0)
    assert net.defences["adversarial"].loss(step_of(net, *pictures())) is None


def test_task_gradient_never_reaches_the_adversary():
    net = defended(threshold=-1.0)
    step = step_of(net, *pictures())
    reached = gradients(net, task(step) + net.defences["adversarial"].loss(step))
    assert not any("adversary" in name for name in reached)


# ------------------------------------------------------------------ in the real trainer


def config(small_data, epochs=4, **options):
    return load_config(
        data={"name": str(small_data), "augment": False},
        model={"name": "tiny"},
        defence={"adversarial": SMALL | {"threshold": 0.0} | options, "noise": {"sigma": 0.02}},
        train={"epochs": epochs, "batch_size": 8, "checkpoint_every": 1},
    )


def trained(settings, parts, folder, resume=False, stop=None):
    torch.manual_seed(0)
    engine = Engine(settings, parts, RunFolder(folder), torch.device("cpu"))
    if stop is not None:

        def leave(row):
            if row["epoch"] == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            engine.run(leave)
        return engine
    engine.run(resume=resume)
    return engine


def test_a_stopped_run_continues_bit_for_bit(small_data, small_parts, tmp_path):
    """Fails when the adversary's Adam state is left out of the checkpoint."""
    settings = config(small_data)
    whole = trained(settings, small_parts, tmp_path / "whole")
    trained(settings, small_parts, tmp_path / "stopped", stop=2)
    resumed = trained(settings, small_parts, tmp_path / "stopped", resume=True)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


def test_neither_adversary_nor_pretraining_sees_pictures_of_anybody_else(
    small_data, small_parts, tmp_path, monkeypatch
):
    seen = []
    original = Adversarial.train_adversary

    def spy(self, step):
        seen.append(step.x.clone())
        original(self, step)

    monkeypatch.setattr(Adversarial, "train_adversary", spy)
    trained(config(small_data, epochs=1, pretrain_epochs=2), small_parts, tmp_path / "run")
    steps = -(-len(small_parts.train) // 8)
    assert len(seen) == 3 * steps  # two epochs alone, one with the model

    def keys(images):
        return {bytes(picture.numpy().tobytes()) for picture in images}

    pictures_seen = keys((torch.cat(seen) * 255).round().to(torch.uint8).contiguous())
    assert pictures_seen == keys(small_parts.train.images)
    for hidden in (small_parts.val, small_parts.aux, small_parts.test):
        assert len(hidden)
        assert not pictures_seen & keys(hidden.images)


def test_pretraining_leaves_the_weights_of_the_model_alone(small_data, small_parts, tmp_path):
    engine = Engine(config(small_data, pretrain_epochs=1), small_parts, RunFolder(tmp_path), torch.device("cpu"))
    before = {name: p.detach().clone() for name, p in engine.model.named_parameters()}
    engine._pretrain()
    changed = {name for name, p in engine.model.named_parameters() if not torch.equal(p, before[name])}
    assert changed
    assert all(name.startswith("defences.adversarial.adversary.") for name in changed)


def test_the_finished_model_is_stored_without_its_adversary(small_data, small_parts, tmp_path):
    """No device and no server needs it; the checkpoints that a run is resumed from have it."""
    engine = trained(config(small_data, epochs=1), small_parts, tmp_path / "run")
    kept = load_file(tmp_path / "run" / "checkpoints" / "model.safetensors")
    assert kept.keys() == {f"model.{name}" for name in engine.model.state_dict() if ".adversary." not in name}
    resumable = load_file(tmp_path / "run" / "checkpoints" / "state-000001.safetensors")
    assert any(".adversary." in name for name in resumable)


def test_a_finished_model_is_loaded_and_its_digest_does_not_depend_on_the_adversary(small_data, small_parts, tmp_path):
    settings = config(small_data, epochs=1)
    engine = trained(settings, small_parts, tmp_path / "run")
    digests = set()
    for seed in (1, 2):
        torch.manual_seed(seed)  # the adversary starts anew
        other = build_model(settings, small_parts.info)
        load_weights(tmp_path / "run" / "checkpoints" / "model.safetensors", {"model": other})
        for name, value in engine.model.deployed_state().items():
            assert torch.equal(other.state_dict()[name], value), name
        digests.add(weights_digest(other))
    assert len(digests) == 1


def test_files_of_earlier_versions_hold_the_adversary_and_still_load(small_data, small_parts, tmp_path):
    engine = trained(config(small_data, epochs=1), small_parts, tmp_path / "run")
    state = {f"model.{name}": value.contiguous() for name, value in engine.model.state_dict().items()}
    save_file(state, tmp_path / "earlier.safetensors")
    other = build_model(config(small_data, epochs=1), small_parts.info)
    load_weights(tmp_path / "earlier.safetensors", {"model": other})
    assert all(torch.equal(value, engine.model.state_dict()[name]) for name, value in other.state_dict().items())


def test_a_file_that_lacks_anything_else_is_refused(small_data, small_parts, tmp_path):
    engine = trained(config(small_data, epochs=1), small_parts, tmp_path / "run")
    state = load_file(tmp_path / "run" / "checkpoints" / "model.safetensors")
    del state[next(name for name in state if name.startswith("model.edge.") and name.endswith(".weight"))]
    save_file(state, tmp_path / "torn.safetensors")
    with pytest.raises(RunFolderError, match="Missing key"):
        load_weights(tmp_path / "torn.safetensors", {"model": engine.model})
