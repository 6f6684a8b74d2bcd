"""What a split costs: everything that runs on a device counts, and nothing that stays with the defender."""

from __future__ import annotations

import pytest
import torch
from tests.defences.building import build

from splitveil.core.config import load_config
from splitveil.models.cost import cost, parameters
from splitveil.training.api import train
from splitveil.training.loaded_run import load_run

REFERENCE = {"image": (3, 32, 32), "classes": 10, "model": "vgg11"}


def reference(**tables):
    return cost(build({"bottleneck": {"channels": 8}} | tables, **REFERENCE))


def test_reference_network():
    """SPEC 7.1: 85,256 parameters and 21.23M MACs on the device, 9,689,738 and 133.24M in the cloud."""
    counted = reference()
    assert (counted.edge_params, counted.cloud_params) == (85_256, 9_159_296 + 530_442)
    assert counted.edge_macs == pytest.approx(21.23e6, abs=5e3)
    assert counted.cloud_macs == pytest.approx(132.71e6 + 0.53e6, abs=1e4)
    assert counted.bytes_per_image == 4 * 512


@pytest.mark.parametrize(
    ("tables", "params", "macs"),
    [
        ({"sca": {}}, 512 * 512, 2 * 512 * 512),
        ({"noise": {"scale": "learned"}}, 512, 0),
        ({"noise": {}}, 0, 0),
        ({"cloak": {}}, 512, 0),
        ({"vib": {}}, 8 * 8 + 8, 64 * 8 * 8),  # one product per place of the map
        ({"disco": {"hidden": 64}}, 2 * 8 * 64 + 64 + 8, 2 * 8 * 64),
        ({"shredder": {"members": 8}}, 8 * 512, 0),
        ({"adversarial": {}}, 0, 0),  # its decoder never leaves the defender
    ],
)
def test_what_defences_add_on_the_device(tables, params, macs):
    plain, counted = reference(), reference(**tables)
    assert counted.edge_params - plain.edge_params == params
    assert counted.edge_macs - plain.edge_macs == macs
    assert (counted.cloud_params, counted.cloud_macs) == (plain.cloud_params, plain.cloud_macs)


def test_counting_changes_nothing():
    net = build({"noise": {}, "vib": {}, "dropout": {}})
    net.train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    draws = torch.get_rng_state()
    cost(net)
    assert torch.equal(torch.get_rng_state(), draws)
    assert all(module.training for module in net.modules())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


@pytest.mark.parametrize(("classifier", "cloud"), [("cloud", True), ("attention", False)])
def test_a_run_counts_the_classifier_that_answers(classifier, cloud, small_data, tmp_path):
    """SPEC 2.3: with `attention` the surrogate classifies, and nothing runs through the cloud half."""
    surrogate = {"name": "slot_cross", "classifier": classifier}
    config = load_config(
        data={"name": str(small_data)}, model={"name": "tiny"}, defence={"noise": {}}, surrogate=surrogate,
        overrides=["train.epochs=1", "train.batch_size=32"],
    )  # fmt: skip
    run = train(config, out=tmp_path / "run")
    stated = run.read_json("result.json")["cost"]
    loaded = load_run(run.path)
    answering = loaded.model.cloud if cloud else loaded.surrogate
    assert stated["cloud_params"] == parameters(answering)
    assert (stated["cloud_macs"] == cost(loaded.model).cloud_macs) is cloud
