"""What would leak: the attackers do what their formulas say, and the page's answers follow the slider."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.serving.exporting import ATTENTION, train_small
from tests.web.conftest import OURS, wait
from torch import nn

from splitveil import defences
from splitveil.core.errors import InputError, RunFolderError
from splitveil.core.run_folder import RunFolder
from splitveil.core.seeding import generator
from splitveil.models.split import SplitModel
from splitveil.training.build import build_model
from splitveil.training.checkpoint import save_weights
from splitveil.training.loaded_run import load_run
from splitveil.web.leak import decoder as decoder_module
from splitveil.web.leak.channel import Channel
from splitveil.web.leak.decoder import FILE, load_decoder, train_decoder
from splitveil.web.leak.linear import HOLDOUT, fit_linear, levels
from splitveil.web.leak.victim import DataSets, load_victim, version


def pairs(count: int, values: int, side: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Features that are a fixed linear map of pictures."""
    random = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 1, side, side, generator=random)
    mixing = torch.randn(side * side, values, generator=random) / side
    return x.flatten(1) @ mixing, x


@pytest.mark.parametrize("values", [6, 40], ids=["narrow", "wider than pictures"])
@pytest.mark.parametrize("sigma", [0.0, 0.3])
def test_linear_attacker_solves_the_noisy_normal_equations(values, sigma):
    """Against the formula of its docstring, solved directly in float64."""
    z, x = pairs(30, values)
    attacker = fit_linear(z, x, [sigma])
    held = int(30 * HOLDOUT)
    train_z, train_x = z[held:].double().numpy(), x[held:].flatten(1).double().numpy()
    centre_z, centre_x = train_z.mean(0), train_x.mean(0)
    covariance = (train_z - centre_z).T @ (train_z - centre_z) / len(train_z)
    cross = (train_z - centre_z).T @ (train_x - centre_x) / len(train_z)
    ridge = attacker.ridges[0][1]
    weights = np.linalg.solve(covariance + (sigma**2 + ridge) * np.eye(values), cross)
    sent = z[:3] + 0.1
    expected = (sent.double().numpy() - centre_z) @ weights + centre_x
    found = attacker.reconstruct(sent, sigma).flatten(1).numpy()
    np.testing.assert_allclose(found, expected.clip(0, 1), atol=2e-4)


def test_held_out_error_is_that_of_many_noisy_draws():
    """The closed form counts the noise exactly: compare it with a simulation."""
    z, x = pairs(200, 6)
    sigma = 0.4
    attacker = fit_linear(z, x, [sigma])
    held = int(200 * HOLDOUT)
    ridge = attacker.ridges[0][1]
    shrink = 1 / (attacker.values + sigma**2 + ridge)
    random = torch.Generator().manual_seed(5)
    total = 0.0
    for _ in range(400):
        noisy = z[:held] + sigma * torch.randn(z[:held].shape, generator=random)
        answer = ((noisy - attacker.centre_z) @ attacker.vectors * shrink) @ attacker.coefficients + attacker.centre_x
        total += float((answer - x[:held].flatten(1)).square().mean())
    assert attacker.errors[0][1] == pytest.approx(total / 400, rel=0.02)


def test_invertible_features_give_the_picture_back_and_noise_hides_it():
    z, x = pairs(400, 16)
    attacker = fit_linear(z, x, levels(1.0))
    assert float((attacker.reconstruct(z[:20], 0.0) - x[:20]).square().mean()) < 1e-4
    errors = [error for _, error in attacker.errors]
    assert errors == sorted(errors)
    assert errors[-1] > 20 * errors[0]


def test_noise_of_another_shape_is_whitened():
    """Noise that leaves one value untouched: whoever knows it reads that value, others do less well."""
    random = torch.Generator().manual_seed(0)
    x = torch.rand(600, 1, 1, 2, generator=random)
    z = x.flatten(1)
    shape = torch.tensor([0.02, 1.414])
    told, untold = fit_linear(z, x, [0.5], shape), fit_linear(z, x, [0.5])
    sent = z + 0.5 * shape * torch.randn(z.shape, generator=random)
    error = [float((a.reconstruct(sent, 0.5) - x).square()[..., 0].mean()) for a in (told, untold)]
    assert error[0] < 0.2 * error[1]


def test_constant_features_give_the_mean_picture():
    _, x = pairs(50, 4)
    attacker = fit_linear(torch.ones(50, 4), x, [0.0, 0.5])
    held = int(50 * HOLDOUT)
    torch.testing.assert_close(attacker.reconstruct(torch.ones(1, 4), 0.5)[0], x[held:].mean(0), atol=1e-4, rtol=0)


def test_large_pictures_are_attacked_small_and_enlarged():
    x = torch.rand(12, 3, 128, 96)
    answer = fit_linear(torch.rand(12, 5), x, [0.0]).reconstruct(torch.rand(2, 5), 0.0)
    assert answer.shape == (2, 3, 128, 96)


def model_with(**options) -> SplitModel:
    model = SplitModel(nn.Identity(), nn.Flatten(), image_shape=(1, 2, 2), num_classes=4)
    for name, values in options.items():
        model.defences[name] = defences.create(name, **values)
        model.defences[name].attach(model)
    return model.eval()


class TestChannel:
    def test_slider_replaces_the_runs_own_noise(self):
        channel = Channel(model_with(noise={"sigma": 0.5}))
        z = torch.zeros(4000, 1, 2, 2)
        assert channel.sigma == 0.5
        assert torch.equal(channel.send(z, 0.0, generator(0)), z)
        assert float(channel.send(z, 0.2, generator(0)).std()) == pytest.approx(0.2, rel=0.05)

    def test_noise_is_added_where_the_run_has_none(self):
        channel = Channel(model_with())
        assert channel.sigma == 0.0
        assert float(channel.send(torch.zeros(4000, 1, 2, 2), 0.2, generator(0)).std()) == pytest.approx(0.2, rel=0.05)

    def test_other_defences_act(self):
        channel = Channel(model_with(topk={"p": 0.75}))
        sent = channel.send(torch.tensor([[[[0.1, 0.4], [0.3, 0.2]]]]), 0.0, generator(0))
        assert int((sent != 0).sum()) == 1

    def test_learned_noise_keeps_its_shape(self):
        model = model_with(noise={"sigma": 0.5, "scale": "learned"})
        noise = model.defences["noise"]
        with torch.no_grad():
            noise.rho.copy_(torch.tensor([[[0.0, -1.0], [1.0, 0.0]]]))
        shape = Channel(model).shape()
        assert float(shape.square().mean()) == pytest.approx(1.0)
        expected = torch.tensor([[[0.0, -1.0], [1.0, 0.0]]]).exp()
        torch.testing.assert_close(shape / shape[0, 0, 0], expected / expected[0, 0, 0])

    def test_values_that_are_not_finite_are_told(self):
        with pytest.raises(InputError, match="not finite"):
            Channel(model_with()).send(torch.full((1, 1, 2, 2), math.nan), 0.0, generator(0))


class TestVictim:
    def test_newest_checkpoint_of_a_run_that_goes_on(self, trained, tmp_path):
        run = tmp_path / "run"
        shutil.copytree(trained / "small", run)
        finished = load_victim(run, DataSets())
        assert finished.epoch == 3
        (run / "checkpoints" / "model.safetensors").unlink()
        going_on = load_victim(run, DataSets())
        assert going_on.epoch == 3
        for name, value in finished.model.state_dict().items():
            assert torch.equal(value, going_on.model.state_dict()[name]), name
        assert not any(parameter.requires_grad for parameter in going_on.model.parameters())

    def test_a_surrogate_that_brings_the_classifier_answers(self, tmp_path):
        run = train_small(tmp_path / "run", surrogate=ATTENTION, train={"epochs": 1}).path
        loaded = load_run(run, "cpu")
        sent = torch.rand(6, *loaded.model.feature_shape)
        with torch.no_grad():
            expected = loaded.surrogate.classify(sent).logits.softmax(1)
            other = loaded.model.cloud(sent).softmax(1)
        for finished in (True, False):
            if not finished:
                (run / "checkpoints" / "model.safetensors").unlink()
            answer = Channel(load_victim(run, DataSets()).model).answer(sent)
            torch.testing.assert_close(answer, expected)
            assert (answer - other).abs().max() > 1e-3

    def test_weights_without_the_adversary_of_a_defence_are_those_of_the_model(self, trained, tmp_path):
        run = tmp_path / "run"
        shutil.copytree(trained / "small", run)
        with (run / "config.toml").open("a") as file:
            file.write("\n[defence.adversarial]\nweight = 0.3\n")
        config = RunFolder.open(run).config()
        model = build_model(config, DataSets().get(config.data, config.seed).info)
        assert model.adversaries()
        save_weights(run / "checkpoints" / "model.safetensors", {"model": model})
        found = load_victim(run, DataSets()).model.deployed_state()
        assert found.keys() == model.deployed_state().keys() < model.state_dict().keys()
        for name, value in model.deployed_state().items():
            assert torch.equal(value, found[name]), name

    def test_damaged_newest_checkpoint_falls_back(self, trained, tmp_path):
        run = tmp_path / "run"
        shutil.copytree(trained / "small", run)
        stored = run / "checkpoints"
        good = next(iter(stored.glob("state-*.safetensors")))
        (stored / "model.safetensors").unlink()
        shutil.copy(good, stored / "state-000001.safetensors")
        (stored / "state-000009.safetensors").write_bytes(b"torn")
        assert load_victim(run, DataSets()).epoch == 3

    def test_metrics_that_are_strange_or_huge_are_in_nobodys_way(self, trained, tmp_path, monkeypatch):
        run = tmp_path / "run"
        shutil.copytree(trained / "small", run)
        with (run / "metrics.jsonl").open("a") as file:
            file.write('{"epoch": null}\n{"epoch": "x"}\n{}\n')
        assert load_victim(run, DataSets()).epoch == 3
        monkeypatch.setattr("splitveil.experiments.loose.MAX_BYTES", 10)
        assert load_victim(run, DataSets()).epoch is None

    def test_nothing_to_load_is_a_sentence(self, trained, tmp_path):
        run = tmp_path / "run"
        shutil.copytree(trained / "small", run)
        for path in (run / "checkpoints").iterdir():
            path.unlink()
        assert version(run) is None
        with pytest.raises(RunFolderError, match="no checkpoint yet"):
            load_victim(run, DataSets())
        (run / "checkpoints" / "model.safetensors").write_bytes(b"torn")
        with pytest.raises(RunFolderError, match="cannot be read"):
            load_victim(run, DataSets())


def test_decoder_learns_is_kept_and_is_found_again(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(
        decoder_module, "OPTIONS", decoder_module.OPTIONS.model_copy(update={"epochs": 40, "batch_size": 16})
    )
    victim = load_victim(trained / "small", DataSets())
    channel = Channel(victim.model)
    steps = []
    attacker = train_decoder(channel, victim.parts.aux.images, 0, 0.5, lambda done, total: steps.append((done, total)))
    assert steps == [(n, 40) for n in range(1, 41)]
    pictures = victim.parts.test.images[:20].float() / 255
    z = channel.features(pictures)
    floor = float((pictures - pictures.mean(0)).square().mean())
    error = {
        sigma: float((attacker.reconstruct(channel.send(z, sigma, generator(1)), sigma) - pictures).square().mean())
        for sigma in (0.0, 0.5)
    }
    assert error[0.0] < 0.7 * floor, "it must break what is not protected before its failure means anything"
    assert error[0.5] > error[0.0]
    decoder_module.save_decoder(attacker, tmp_path, "v1")
    found = load_decoder(tmp_path, "v1", channel.feature_shape, tuple(pictures.shape[1:]))
    assert found is not None
    assert torch.equal(found.reconstruct(z, 0.1), attacker.reconstruct(z, 0.1))
    assert load_decoder(tmp_path, "v2", channel.feature_shape, tuple(pictures.shape[1:])) is None
    (tmp_path / FILE).write_bytes(b"torn")
    assert load_decoder(tmp_path, "v1", channel.feature_shape, tuple(pictures.shape[1:])) is None


@pytest.fixture
def table(client, trained, tmp_path, monkeypatch):
    """The app over a copy of the trained run, with the model open and a decoder that trains for one epoch."""
    monkeypatch.setattr(decoder_module, "OPTIONS", decoder_module.OPTIONS.model_copy(update={"epochs": 1}))
    shutil.copytree(trained, tmp_path / "runs")
    app = client(tmp_path / "runs")

    def ready():
        facts = app.get("/api/leak/subject", params={"id": "small"}).json()
        assert facts["state"] != "failed", facts
        return facts if facts["state"] == "ready" and facts["decoder"]["state"] == "ready" else None

    app.facts = wait(ready)
    return app


def look(app, **body):
    answer = app.post("/api/leak/look", json={"id": "small", "test": 0, "sigma": 0.05, **body}, headers=OURS)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_slider_changes_what_is_sent_and_what_is_rebuilt(table):
    quiet, same, loud = look(table, sigma=0.0), look(table, sigma=0.0), look(table, sigma=table.facts["highest"])
    for part in ("original", "feature"):
        assert quiet[part] == same[part], "the same level gives the same picture"
    assert quiet["original"] == loud["original"]
    assert quiet["feature"] != loud["feature"]
    before, after = ({answer["attacker"]: answer for answer in one["answers"]} for one in (quiet, loud))
    assert set(before) == {"linear", "decoder"}
    assert before["linear"]["mse"] < after["linear"]["mse"]
    assert before["linear"]["picture"] != after["linear"]["picture"]
    assert sum(share for _, share in quiet["classes"]) == pytest.approx(1.0, abs=1e-5)  # three classes, all shown


def test_sending_again_draws_new_noise(table):
    assert look(table, draw=0)["feature"] != look(table, draw=1)["feature"]


def test_facts_of_the_model(table):
    facts = table.get("/api/leak/subject", params={"id": "small"}).json()
    assert (facts["sigma"], facts["own_noise"], facts["image_shape"]) == (0.05, True, [1, 8, 8])
    assert facts["highest"] >= 0.1
    assert facts["errors"][0][1] < facts["errors"][-1][1] <= 1.1 * facts["floor"]
    wait(lambda: len(table.get("/api/leak/subject", params={"id": "small"}).json()["accuracy"]) == len(facts["errors"]))
    choices = table.get("/api/leak/choices", params={"id": "small"}).json()
    assert len({choice["label"] for choice in choices[:3]}) == 3, "every class in turn"


@pytest.mark.parametrize(
    "body", [{"sigma": -1}, {"sigma": 1e9}, {"test": 10**6}, {"test": -1}, {"test": None}, {"upload": "x"}]
)
def test_impossible_looks_are_one_sentence(table, body):
    answer = table.post("/api/leak/look", json={"id": "small", "test": 0, "sigma": 0.05, **body}, headers=OURS)
    assert answer.status_code == 400
    assert answer.json()["error"].endswith(".")


def test_new_checkpoint_is_opened_anew(table):
    folder = Path(table.app.state.services.root) / "small"
    subject = table.app.state.services.desk.open(folder)
    path = folder / "checkpoints" / "model.safetensors"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    assert table.app.state.services.desk.open(folder) is not subject


def test_run_without_a_model_is_one_sentence(client, tmp_path):
    from tests.web.conftest import write_run

    write_run(tmp_path / "plain")
    answer = client(tmp_path).get("/api/leak/subject", params={"id": "plain"})
    assert (answer.status_code, answer.json()["error"]) == (400, "This run has no model yet.")


def test_model_that_cannot_be_opened_says_why(client, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs")
    (tmp_path / "runs" / "small" / "checkpoints" / "model.safetensors").write_bytes(b"torn")
    app = client(tmp_path / "runs")

    def failed():
        facts = app.get("/api/leak/subject", params={"id": "small"}).json()
        return facts if facts["state"] == "failed" else None

    assert "cannot be read" in wait(failed)["error"]


def test_live_reconstruction_follows_the_checkpoints(client, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs")
    stored = tmp_path / "runs" / "small" / "checkpoints"
    (stored / "model.safetensors").unlink()
    app = client(tmp_path / "runs")

    def after(epoch):
        found = app.get("/api/live", params={"id": "small"}).json()
        assert found["error"] == ""
        return found if found["epoch"] == epoch and not found["busy"] else None

    first = wait(lambda: after(3))
    assert len(first["pairs"]) == 6
    assert first["own"] == len(load_run(trained / "small").parts.aux)
    assert first["mse"] < first["floor"]
    newest = next(iter(stored.glob("state-*.safetensors")))
    shutil.copy(newest, stored / "state-000005.safetensors")
    assert [epoch for epoch, _ in wait(lambda: after(5))["history"]] == [3, 5]
