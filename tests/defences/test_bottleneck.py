"""Bottleneck (SPEC 7.1): counts at the reference cut, strides, order of several."""

from __future__ import annotations

import pytest
import torch
from tests.defences.building import build, gradients, pictures, step_of, task
from torch import nn

from splitveil import defences
from splitveil.core.errors import ConfigError, InputError
from splitveil.models.cost import parameters
from splitveil.models.split import SplitModel


def test_reference_counts():
    net = build({"bottleneck": {"channels": 8}}, image=(3, 32, 32), classes=10, model="vgg11")
    assert parameters(net.edge) == 85_256
    assert parameters(net.cloud) == 9_159_296 + 530_442
    assert net.feature_shape == (8, 8, 8)


@pytest.mark.parametrize(("stride", "side"), [(1, 2), (2, 1)])
def test_stride_narrows_the_map_and_the_cloud_undoes_it(stride, side):
    net = build({"bottleneck": {"channels": 4, "stride": stride}})
    assert net.feature_shape == (4, side, side)
    x, _ = pictures()
    assert net.cloud.widen(net.edge(x)).shape[1:] == (32, 2, 2)


@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("side", [20, 24, 28, 32])
def test_the_cloud_gets_back_a_map_of_the_size_before(stride, side):
    """Sides 5 to 8 at the cut: also where the stride does not divide them."""
    image = (1, side, side + 4)
    net = build({"bottleneck": {"channels": 2, "stride": stride}}, image=image)
    plain = build({}, image=image)
    x = torch.rand(2, *image)
    assert net.edge(x).shape[2:] == tuple(-(-size // stride) for size in plain.feature_shape[1:])
    assert net.cloud.widen(net.edge(x)).shape == plain.edge(x).shape
    assert net(x).shape == (2, 3)


def test_both_convolutions_are_linear_and_train():
    net = build({"bottleneck": {"channels": 4}})
    assert isinstance(net.edge.narrow[0], nn.Conv2d)
    reached = gradients(net, task(step_of(net, *pictures())))
    assert {"edge.narrow.0.weight", "edge.narrow.0.bias", "cloud.widen.0.weight"} <= reached


def test_batch_norm_output_covers_the_narrow_channels():
    net = build({"bottleneck": {"channels": 4}}, output="batchnorm")
    assert isinstance(net.edge.output, nn.BatchNorm2d)
    assert net.edge.output.num_features == 4


def test_the_edge_side_starts_like_the_encoder():
    """SPEC 7.1: Xavier-uniform, within ±√(6/(fan in + fan out)) and filling it, zero bias."""
    narrow = build({"bottleneck": {"channels": 4}}).edge.narrow[0]
    bound = (6 / (9 * (32 + 4))) ** 0.5
    assert 0.9 * bound < float(narrow.weight.detach().abs().max()) <= bound
    assert not narrow.bias.any()


def test_the_last_narrowing_is_undone_first():
    net = build({"bottleneck": {"channels": 4}})
    defences.create("bottleneck", channels=2).install(net)
    assert [layer.out_channels for layer in net.edge.narrow] == [4, 2]
    assert [layer.in_channels for layer in net.cloud.widen] == [2, 4]
    assert net(pictures()[0]).shape == (8, 3)


def test_even_kernels_and_foreign_modules_are_refused():
    with pytest.raises(ConfigError, match="odd"):
        defences.create("bottleneck", kernel=2)
    with pytest.raises(InputError, match="own networks"):
        defences.create("bottleneck").install(SplitModel(nn.Flatten(), nn.Linear(4, 2)))


def test_it_sends_what_the_edge_computes():
    net = build({"bottleneck": {}}).eval()
    x, _ = pictures()
    assert torch.equal(net.send(x), net.edge(x))
