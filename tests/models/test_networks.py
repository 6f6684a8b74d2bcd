"""S7.1 and SPEC 7: shapes, parameter and MAC counts, cuts, odd sizes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import splitveil as sv
from splitveil.core.errors import ConfigError, InputError
from splitveil.models.cost import cost, parameters
from splitveil.models.decoders import ResidualDecoder
from splitveil.models.layers import LayeredEdge


def narrow_vgg(cut: int = 4, output: str = "sigmoid", **options: int) -> sv.SplitModel:
    model = sv.models.create("vgg11", image_shape=(3, 32, 32), num_classes=10, cut=cut, output=output)
    sv.defences.create("bottleneck", channels=8, **options).install(model)
    return model


def test_s7_1_vgg11_cut_4_counts() -> None:
    counts = cost(narrow_vgg())
    model = narrow_vgg()
    assert counts.feature_shape == (8, 8, 8)
    assert counts.edge_params == 85_256
    assert parameters(model.cloud.classifier) == 530_442
    assert counts.cloud_params - parameters(model.cloud.classifier) == 9_159_296
    assert round(counts.edge_macs / 1e6, 2) == 21.23
    assert round(counts.cloud_macs / 1e6, 2) == round(132.71 + 0.53, 2)
    assert counts.bytes_per_image == 512 * 4


@pytest.mark.parametrize(
    ("cut", "dimension"),
    [(1, 8192), (2, 2048), (3, 2048), (4, 512), (5, 512), (6, 512), (7, 128), (8, 128), (9, 128), (10, 32)],
)
def test_s7_1_feature_dimension_at_every_cut(cut: int, dimension: int) -> None:
    model = narrow_vgg(cut)
    assert torch.tensor(model.feature_shape).prod() == dimension
    model.eval()
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize("cut", [1, 4, 7, 12])
def test_cutting_elsewhere_does_not_change_the_function(cut: int) -> None:
    def build(at: int) -> sv.SplitModel:
        torch.manual_seed(3)
        model = sv.models.create("vgg11", image_shape=(3, 32, 32), num_classes=10, cut=at, output="none")
        torch.manual_seed(4)  # the edge is re-initialised by its own rule, so fill all weights alike
        for parameter in [*model.edge.parameters(), *model.cloud.parameters()]:
            nn.init.normal_(parameter, 0, 0.05)
        return model.eval()

    x = torch.rand(2, 3, 32, 32)
    assert torch.allclose(build(cut)(x), build(4)(x), atol=1e-6)


def test_faces_at_48_and_64_pixels_give_the_published_dimensions() -> None:
    for side, dimension in ((48, 1152), (64, 2048)):
        model = sv.models.create("vgg11", image_shape=(3, side, side), num_classes=530)
        sv.defences.create("bottleneck", channels=8).install(model)
        assert torch.tensor(model.feature_shape).prod() == dimension
    first = next(m for m in model.cloud.classifier if isinstance(m, nn.Linear))
    assert first.in_features == 2048


def test_resnet20_shapes_and_start() -> None:
    model = sv.models.create("resnet20", image_shape=(3, 64, 64), num_classes=10, cut=5)
    assert model.feature_shape == (64, 16, 16)
    assert sv.models.create("resnet20", image_shape=(3, 64, 64), num_classes=10, cut=4).feature_shape == (32, 32, 32)
    conv = model.cloud.layers[-1].body[3]
    assert conv.weight.std().item() == pytest.approx((2 / (9 * 128)) ** 0.5, rel=0.05)
    with torch.no_grad():
        z = model.eval().edge(torch.rand(2, 3, 64, 64))
    assert 0 < z.min() < z.max() < 1


def test_resnet_shortcut_is_subsampling_and_zero_channels() -> None:
    block = sv.models.create("resnet20", image_shape=(3, 8, 8), num_classes=2, cut=1).cloud.layers[0].eval()
    for parameter in block.parameters():
        nn.init.zeros_(parameter)
    x = torch.rand(1, 16, 8, 8)
    out = block(x)
    assert torch.equal(out[:, :16], x[:, :, ::2, ::2])
    assert out[:, 16:].abs().sum() == 0


@pytest.mark.parametrize("name", sv.models.names())
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 17, 23), (5, 8, 8), (1, 1, 1)])
def test_any_channel_count_and_size(name: str, shape: tuple[int, int, int]) -> None:
    model = sv.models.create(name, image_shape=shape, num_classes=4).eval()
    assert model(torch.rand(2, *shape)).shape == (2, 4)
    assert cost(model).feature_shape == model.feature_shape


@pytest.mark.parametrize(
    ("output", "kind"), [("sigmoid", nn.Sigmoid), ("batchnorm", nn.BatchNorm2d), ("none", nn.Identity)]
)
def test_output_of_the_edge(output: str, kind: type) -> None:
    model = narrow_vgg(output=output)
    assert isinstance(model.edge, LayeredEdge)
    assert isinstance(model.edge.output, kind)


def test_strided_bottleneck_halves_the_map_and_restores_it() -> None:
    model = narrow_vgg(stride=2).eval()
    assert model.feature_shape == (8, 4, 4)
    assert model.cloud.widen(torch.rand(1, 8, 4, 4)).shape == (1, 128, 8, 8)


def test_the_edge_starts_xavier_uniform_with_zero_bias() -> None:
    torch.manual_seed(0)
    conv = narrow_vgg().edge.layers[2][0]
    bound = (6 / (64 * 9 + 128 * 9)) ** 0.5
    assert conv.bias.abs().max() == 0
    assert 0.95 * bound < conv.weight.abs().max() <= bound


@pytest.mark.parametrize("cut", [0, 13, 99])
def test_a_cut_outside_the_network_names_the_range(cut: int) -> None:
    with pytest.raises(ConfigError, match="from 1 to 12"):
        sv.models.create("vgg11", image_shape=(3, 32, 32), num_classes=10, cut=cut)


def test_decoder_counts_of_spec_8_1() -> None:
    assert parameters(ResidualDecoder((8, 8, 8), (3, 32, 32))) == 711_539
    assert parameters(ResidualDecoder((8, 8, 8), (3, 32, 32), blocks=4)) == 415_091


@pytest.mark.parametrize("feature", [(8, 16, 16), (8, 32, 32), (4, 7, 7), (8, 4, 4)])
def test_decoder_reaches_the_picture_from_every_cut(feature: tuple[int, int, int]) -> None:
    side = 28 if feature[1] == 7 else 32
    decoder = ResidualDecoder(feature, (3, side, side), blocks=1, width=8)
    picture = decoder(torch.rand(2, *feature))
    assert picture.shape == (2, 3, side, side)
    assert 0 < picture.min() < picture.max() < 1


def test_a_flat_feature_is_no_food_for_a_convolutional_decoder() -> None:
    with pytest.raises(InputError, match="ch, h, w"):
        ResidualDecoder((512,), (3, 32, 32))


def test_counting_leaves_modes_and_statistics_alone() -> None:
    model = narrow_vgg().train()
    model.edge.layers[0].eval()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    cost(model)
    assert model.training
    assert not model.edge.layers[0].training
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
