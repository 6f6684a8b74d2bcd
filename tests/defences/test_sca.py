"""Sparse coding (SPEC 7.3, S7.1)."""

from __future__ import annotations

import pytest
import torch
from tests.defences.building import build, gradients, pictures, step_of, task
from torch import nn

from splitveil import defences
from splitveil.core.errors import InputError
from splitveil.defences.sca import ScaOptions, SparseCoding
from splitveil.models.cost import parameters
from splitveil.models.split import SplitModel


def soft(value, threshold):
    return max(abs(value) - threshold, 0.0) * (1 if value > 0 else -1)


def test_identity_dictionary_is_soft_thresholding():
    layer = SparseCoding(6, ScaOptions())
    layer.dictionary.data = torch.eye(6)
    x = torch.tensor([[0.5, -0.5, 0.011, -0.009, 0.0, 2.0]])
    expected = torch.tensor([[0.49, -0.49, 0.001, 0.0, 0.0, 1.99]])
    assert torch.allclose(layer(x), expected, atol=1e-7)


@pytest.mark.parametrize("iterations", [1, 3])
def test_iteration_against_loops(iterations):
    torch.manual_seed(0)
    layer = SparseCoding(3, ScaOptions(atoms=4, threshold=0.2, decay=0.05, iterations=iterations)).double()
    x = torch.randn(2, 3, dtype=torch.float64)
    W = layer.dictionary.detach()
    for row, out in zip(x, layer(x), strict=True):
        u = [0.0] * 4
        for _ in range(iterations):
            drive = [sum(float(W[k, d] * row[d]) for d in range(3)) for k in range(4)]
            image = [sum(float(W[k, d]) * u[k] for k in range(4)) for d in range(3)]  # Wᵀ·u
            echo = [sum(float(W[k, d]) * image[d] for d in range(3)) for k in range(4)]
            u = [soft(u[k] + drive[k] - echo[k] - 0.05 * u[k], 0.2) for k in range(4)]
        expected = [sum(float(W[k, d]) * u[k] for k in range(4)) for d in range(3)]
        assert out.tolist() == pytest.approx(expected, abs=1e-12)


def test_parameters_at_the_reference_cut():
    net = build({"bottleneck": {"channels": 8}, "sca": {}}, image=(3, 32, 32), classes=10, model="vgg11")
    assert parameters(net.edge.narrow[1]) == 262_144
    assert parameters(net.edge) == 347_400
    assert net.feature_shape == (8, 8, 8)


def test_rows_have_unit_length_at_the_start_and_may_change():
    net = build({"sca": {}})
    dictionary = net.edge.narrow[0].dictionary
    assert torch.allclose(dictionary.norm(dim=1), torch.ones(len(dictionary)), atol=1e-6)
    optimiser = torch.optim.SGD(net.parameters(), lr=1.0)
    task(step_of(net, *pictures())).backward()
    optimiser.step()
    assert not torch.allclose(dictionary.norm(dim=1), torch.ones(len(dictionary)), atol=1e-6)


def test_sits_between_bottleneck_and_sigmoid():
    net = build({"bottleneck": {"channels": 2}, "sca": {}})
    assert isinstance(net.edge.narrow[0], nn.Conv2d)
    assert isinstance(net.edge.narrow[1], SparseCoding)
    x, _ = pictures()
    narrow = net.eval().edge.narrow(net.edge.layers(net.edge.normalise(x)))
    assert torch.equal(net.edge(x), narrow.sigmoid())


def test_the_task_trains_the_dictionary():
    net = build({"sca": {}})
    assert "edge.narrow.0.dictionary" in gradients(net, task(step_of(net, *pictures())))


def test_other_networks_are_refused_with_advice():
    with pytest.raises(InputError, match="own networks"):
        defences.create("sca").install(SplitModel(nn.Flatten(), nn.Linear(4, 2), image_shape=(1, 2, 2)))


def test_the_dictionary_works_in_float32_under_autocast():
    """bfloat16 has steps of 1/64 between 2 and 4: it could not take off a threshold of .01."""
    net = build({"sca": {}})
    layer = net.edge.narrow[0]
    x = 8 * torch.randn(4, *net.feature_shape)
    exact = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = layer(x)
    assert under.dtype == torch.float32
    assert torch.equal(under, exact)
