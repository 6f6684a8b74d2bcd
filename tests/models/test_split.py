"""sv.split: any traceable module, cut at a named layer, composes to the original."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

import splitveil as sv
from splitveil.core.errors import InputError


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.stem(x)) * self.scale
        y = self.block(x)
        x = torch.relu(x + y) * self.scale
        return self.head(x.mean(dim=(2, 3)))


class Products(nn.Module):
    """Fails in its own code, not in that of a layer, where the pictures are no 4 x 4."""

    def __init__(self) -> None:
        super().__init__()
        self.flat = nn.Flatten()

    def forward(self, x: Tensor) -> Tensor:
        return self.flat(x @ torch.ones(4, 1)) @ torch.ones(4, 2)


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


@pytest.fixture
def x() -> Tensor:
    return torch.rand(3, 3, 6, 6)


@pytest.mark.parametrize("at", ["stem", "norm"])
def test_halves_compose_to_the_whole(at: str, x: Tensor) -> None:
    module = Residual().eval()
    model = sv.split(module, at=at, example=x)
    assert torch.equal(model(x), module(x))
    assert model.feature_shape == (4, 6, 6)


@pytest.mark.parametrize("part", ["edge", "cloud"])
@pytest.mark.parametrize("copied", [False, True])
def test_a_half_that_fails_raises_and_prints_nothing(
    part: str, copied: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    model = sv.split(Products(), at="flat", example=torch.rand(2, 1, 4, 4))
    half = (deepcopy(model) if copied else model).get_submodule(part)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        half(torch.rand(2, 1, 5, 5) if part == "edge" else torch.rand(2, 5))
    assert capfd.readouterr().err == ""


def test_a_container_can_be_the_cut() -> None:
    module = nn.Sequential(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), nn.Linear(3, 2)).eval()
    model = sv.split(module, at="0", example=torch.rand(2, 4))
    assert model.edge(torch.rand(2, 4)).min() >= 0
    assert [p.shape for p in model.cloud.parameters()] == [(2, 3), (2,)]


def test_parameters_are_shared_with_the_original_and_mode_is_kept(x: Tensor) -> None:
    module = Residual().train()
    model = sv.split(module, at="norm", example=x)
    assert model.training
    assert module.training
    assert {id(p) for p in model.parameters()} == {id(p) for p in module.parameters()}
    assert module.norm.num_batches_tracked == 0  # the check ran in eval mode


def test_own_networks_can_be_split_again() -> None:
    whole = sv.models.create("vgg11", image_shape=(3, 32, 32), num_classes=10).eval()
    picture = torch.rand(2, 3, 32, 32)
    model = sv.split(whole.cloud, at="layers.3", example=torch.rand(2, 128, 8, 8))
    z = whole.edge(picture)
    assert torch.allclose(model(z), whole.cloud(z))


@pytest.mark.parametrize(
    ("at", "words"),
    [("blok", "Did you mean 'block'"), ("block", "skip connection"), ("block.0", "skip connection")],
)
def test_a_bad_cut_says_why(at: str, words: str, x: Tensor) -> None:
    with pytest.raises(InputError, match=words):
        sv.split(Residual(), at=at, example=x)


def test_what_cannot_be_traced_says_what_to_do_instead() -> None:
    module = nn.Sequential(nn.Linear(2, 2), Branching())
    with pytest.raises(InputError, match="SplitModel"):
        sv.split(module, at="0")


def test_a_layer_given_by_its_number_is_told_to_be_a_name() -> None:
    with pytest.raises(InputError, match=r"by its name, a string, not by 1\. Did you mean '1'\?"):
        sv.split(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), at=1)  # type: ignore[arg-type]


def test_a_layer_called_twice_is_refused() -> None:
    layer = nn.Linear(4, 4)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.layer(x))

    with pytest.raises(InputError, match="2 times"):
        sv.split(Twice(), at="layer")


def test_noise_acts_on_a_third_party_model_too() -> None:
    model = sv.split(nn.Sequential(nn.Linear(4, 64), nn.Linear(64, 2)), at="0", example=torch.rand(1, 4)).eval()
    x = torch.rand(50, 4)
    clean = model.send(x)
    model.defences["noise"] = sv.defences.create("noise", sigma=0.5)
    assert (model.send(x) - clean).std().item() == pytest.approx(0.5, rel=0.1)


def test_a_frozen_layer_stays_frozen(x: Tensor) -> None:
    net = Residual().train()
    net.norm.eval()
    model = sv.split(net, at="norm", example=x)
    assert not net.norm.training
    assert model.training
    before = net.norm.running_mean.clone()
    model(x)
    assert torch.equal(net.norm.running_mean, before)


def test_a_function_across_the_cut_is_named_without_its_address(x: Tensor) -> None:
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.relu(self.first(x))
            return x + self.second(x)

    with pytest.raises(InputError, match=r"the value of relu also crosses"):
        sv.split(Skip(), at="second")


def test_a_function_cannot_be_split_nor_a_plain_module_defend() -> None:
    with pytest.raises(InputError, match=r"not a function\. .*SplitModel"):
        sv.split(lambda x: x, at="1")  # type: ignore[arg-type]
    model = sv.SplitModel(nn.Identity(), nn.Identity())
    model.defences["mine"] = nn.ReLU()
    with pytest.raises(InputError, match=r"ReLU has no transmit\(z, generator\)\. Derive it"):
        model.send(torch.zeros(1, 2))


def test_an_example_that_the_module_does_not_take_is_told_in_one_sentence() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 2))
    with pytest.raises(InputError, match=r"^Sequential does not accept inputs of shape \[1, 8, 8\]: ") as refused:
        sv.split(net, at="1", example=torch.rand(2, 1, 8, 8))
    assert "channels" in str(refused.value)
    with pytest.raises(InputError, match=r"weights are torch.float16 and the example is .*32: use module.float"):
        sv.split(net.half(), at="1", example=torch.rand(2, 3, 8, 8))
    assert sv.split(net.half(), at="1", example=torch.rand(2, 3, 8, 8).half()).image_shape == (3, 8, 8)


def test_a_module_that_gives_no_tensor_says_so() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"logits": self.second(self.first(x))}

    with pytest.raises(InputError, match="Named gives a dict, not a tensor"):
        sv.split(Named(), at="first", example=torch.rand(2, 4))


def test_a_layer_that_gives_several_values_is_no_cut() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.last = nn.GRU(4, 3, batch_first=True), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.layer(x)[0][:, -1])

    with pytest.raises(InputError, match=r"The layer 'layer' gives a tuple, and only a tensor can be sent\. Cut after"):
        sv.split(Recurrent(), at="layer", example=torch.rand(2, 5, 4))
    model = sv.split(Recurrent(), at="layer")
    model.image_shape = (5, 4)
    with pytest.raises(InputError, match="The edge half gives a tuple"):
        _ = model.feature_shape


def test_a_module_with_several_inputs_says_what_to_do() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 3)

        def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> Tensor:
            return self.first(pixel_values)

    with pytest.raises(InputError, match=r"takes 2 inputs; .*Wrap it in a module whose forward takes the pictures"):
        sv.split(Named(), at="first", example=torch.rand(2, 4))


def test_an_example_of_another_format_says_so() -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    with pytest.raises(InputError, match=r"example is torch.int64: give it float32"):
        sv.split(net, at="0", example=torch.ones(2, 4, dtype=torch.int64))
    with pytest.raises(InputError, match=r"^The example is a list, not a tensor"):
        sv.split(net, at="0", example=[[1.0] * 4])  # type: ignore[arg-type]


def test_stored_pictures_are_not_taken_for_floats() -> None:
    model = sv.SplitModel(nn.Conv2d(1, 2, 3), nn.Flatten())
    with pytest.raises(InputError, match="uint8") as refused:
        model(torch.zeros(1, 1, 8, 8, dtype=torch.uint8))
    assert "/ 255" in str(refused.value)
