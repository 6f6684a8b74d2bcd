"""Random draws become inputs: each of torch's calls that is known, and a sentence for whatever is not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from splitveil import models
from splitveil.core.errors import ArtefactError
from splitveil.models.split import SplitModel
from splitveil.serving.draws import drawn_by, replaying
from splitveil.serving.graphs import CloudGraph, EdgeGraph, export_cloud, export_edge, random_inputs
from splitveil.serving.manifest import Feature, Pictures, RandomInput

SHAPE = (1, 2, 3)
NORMAL = RandomInput(name="n", law="normal", shape=SHAPE)
UNIFORM = RandomInput(name="u", law="uniform", shape=SHAPE)


class Sends(nn.Module):
    """A defence made of one function."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def transmit(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self.function(z)


def model_of(function: Callable[[Tensor], Tensor]) -> SplitModel:
    model = SplitModel(nn.Identity(), nn.Sequential(nn.Flatten(), nn.Linear(6, 2)), image_shape=SHAPE, num_classes=2)
    model.defences["own"] = Sends(function)
    return model.eval()


CALLS: dict[str, tuple[Callable[[Tensor], Tensor], str, Callable[[float], float]]] = {
    "normal_": (lambda z: torch.empty_like(z).normal_(), "normal", lambda r: r),
    "normal_ moved": (lambda z: torch.empty_like(z).normal_(2.0, 3.0), "normal", lambda r: 2 + 3 * r),
    "normal_ named": (lambda z: torch.empty_like(z).normal_(mean=2.0, std=3.0), "normal", lambda r: 2 + 3 * r),
    "uniform_": (lambda z: torch.empty_like(z).uniform_(), "uniform", lambda r: r),
    "uniform_ moved": (lambda z: torch.empty_like(z).uniform_(-2.0, 3.0), "uniform", lambda r: -2 + 5 * r),
    "uniform_ to": (lambda z: torch.empty_like(z).uniform_(to=3.0), "uniform", lambda r: 3 * r),
    "randn": (lambda z: torch.randn(z.shape), "normal", lambda r: r),
    "randn sides": (lambda z: torch.randn(z.shape[0], *SHAPE), "normal", lambda r: r),
    "rand": (lambda z: torch.rand(z.shape, dtype=torch.float32), "uniform", lambda r: r),
    "randn_like": (lambda z: torch.randn_like(z), "normal", lambda r: r),
    "rand_like": (lambda z: torch.rand_like(z), "uniform", lambda r: r),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_takes_the_input_in_place_of_a_draw(call: str) -> None:
    function, law, expected = CALLS[call]
    (found,) = drawn_by(lambda batch: function(torch.zeros(batch, *SHAPE)))
    assert (found.law, found.shape, found.high, found.name) == (law, SHAPE, None, f"{law}_0")
    given = torch.randn(2, *SHAPE)  # of both signs
    with replaying([found], [given]):
        made = function(torch.zeros(2, *SHAPE))
    for value, source in zip(made.flatten().tolist(), given.flatten().tolist(), strict=True):
        assert value == pytest.approx(expected(source), abs=1e-6)


@pytest.mark.parametrize(
    ("function", "high", "expected"),
    [
        (lambda z: torch.randint(5, z.shape[:1]), 5, [0, 4]),
        (lambda z: torch.randint(high=5, size=z.shape[:1]), 5, [0, 4]),
        (lambda z: torch.randint(2, 5, (z.shape[0],)), 3, [2, 6]),
        (lambda z: torch.randint(low=2, high=5, size=(z.shape[0],), dtype=torch.int64), 3, [2, 6]),
    ],
)
def test_whole_numbers(function: Callable[[Tensor], Tensor], high: int, expected: list[int]) -> None:
    (found,) = drawn_by(lambda batch: function(torch.zeros(batch, *SHAPE)))
    assert (found.law, found.shape, found.high) == ("integers", (), high)
    with replaying([found], [torch.tensor([0, 4])]):
        assert function(torch.zeros(2, *SHAPE)).tolist() == expected


def test_inputs_come_in_the_order_of_the_draws() -> None:
    def chain(z: Tensor) -> Tensor:
        z = z + torch.empty_like(z).normal_()
        z = z * (torch.rand_like(z) >= 0.5)
        return z + torch.randint(3, z.shape[:1]).float()[:, None, None, None]

    inputs = drawn_by(lambda batch: chain(torch.ones(batch, *SHAPE)))
    assert [one.name for one in inputs] == ["normal_0", "uniform_1", "integers_2"]


def test_outside_the_block_torch_draws_again() -> None:
    with replaying([NORMAL], [torch.zeros(2, *SHAPE)]):
        assert torch.randn(2, *SHAPE).eq(0).all()
    assert torch.randn(2, *SHAPE).ne(0).any()


@pytest.mark.parametrize(
    "function",
    [
        lambda z: z + torch.randn(SHAPE),  # one draw for the whole batch
        lambda z: z + torch.randn(1, *SHAPE),
        lambda z: z * torch.rand(()),
    ],
)
def test_one_draw_for_a_whole_batch_is_refused(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(ArtefactError, match="for a batch of 3 pictures"):
        random_inputs(model_of(function), SHAPE)


def test_draws_that_depend_on_the_number_of_pictures_are_refused() -> None:
    with pytest.raises(ArtefactError, match="depends on how many pictures"):
        random_inputs(model_of(lambda z: z + torch.randn_like(z) if len(z) > 2 else z), SHAPE)


@pytest.mark.parametrize("inputs", [[], [UNIFORM], [NORMAL, UNIFORM]])
def test_other_draws_than_those_that_were_written_down_are_refused(inputs: list[RandomInput]) -> None:
    with (
        pytest.raises(ArtefactError, match="other random numbers each time"),
        replaying(inputs, [torch.zeros(2, *SHAPE)] * len(inputs)),
    ):
        torch.randn(2, *SHAPE)


@pytest.mark.parametrize(
    "function",
    [
        lambda z: z * torch.bernoulli(torch.full_like(z, 0.5)),
        lambda z: F.dropout(z, 0.5, training=True),
        lambda z: z + torch.poisson(torch.ones_like(z)),
        lambda z: z + torch.normal(torch.zeros_like(z), 1.0),
    ],
)
def test_a_draw_that_no_input_stands_for_is_refused(function: Callable[[Tensor], Tensor]) -> None:
    model = model_of(function)
    graph = EdgeGraph(model, random_inputs(model, SHAPE))
    with pytest.raises(ArtefactError, match="draws random numbers with aten") as error:
        export_edge(graph, Pictures(shape=SHAPE), Feature(shape=SHAPE))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "image"), [("vgg11", (3, 32, 32)), ("resnet20", (3, 8, 8))])
def test_large_networks_export(name: str, image: tuple[int, int, int]) -> None:
    """Both halves in one graph, also of networks with dropout layers, which sleep in evaluation mode."""
    torch.manual_seed(0)
    halves = models.create(name, image_shape=image, num_classes=4).eval()
    whole, x = SplitModel(nn.Sequential(halves.edge, halves.cloud), nn.Identity()), torch.rand(2, *image)
    content = export_edge(EdgeGraph(whole, ()), Pictures(shape=image), Feature(shape=(4,)))
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    with torch.no_grad():
        expected = whole.edge(x).numpy()
    np.testing.assert_allclose(session.run(None, {"pictures": x.numpy()})[0], expected, rtol=1e-4, atol=1e-5)


class Attends(nn.Module):
    """Layers that draw only in training: dropouts, and attention with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, dropout=0.5, batch_first=True)
        self.drop, self.channels, self.alpha = nn.Dropout(0.5), nn.Dropout2d(0.5), nn.AlphaDropout(0.5)
        self.last = nn.Linear(6, 2)

    def forward(self, z: Tensor) -> Tensor:
        rows = self.alpha(self.drop(self.channels(z))).flatten(2)  # [B, 1, 6]
        return self.last(self.attention(rows, rows, rows, need_weights=False)[0].flatten(1))


def test_layers_that_draw_only_in_training_export() -> None:
    torch.manual_seed(0)
    model = SplitModel(nn.Identity(), Attends()).eval()
    session = onnxruntime.InferenceSession(
        export_cloud(CloudGraph(model, None), Feature(shape=SHAPE)), providers=["CPUExecutionProvider"]
    )
    sent = torch.rand(5, *SHAPE)
    with torch.no_grad():
        expected = model.cloud(sent)
    np.testing.assert_allclose(session.run(None, {"feature": sent.numpy()})[0], expected.numpy(), rtol=1e-4, atol=1e-5)


def test_a_model_that_cannot_be_traced_is_one_sentence() -> None:
    model = model_of(lambda z: z * len(z))
    with pytest.raises(ArtefactError, match="The edge half cannot be exported") as error:
        export_edge(EdgeGraph(model, ()), Pictures(shape=SHAPE), Feature(shape=SHAPE))
    assert "\n" not in str(error.value)
    assert "number of pictures" in error.value.hint


def test_a_random_cloud_is_refused() -> None:
    class Random(nn.Module):
        def forward(self, z: Tensor) -> Tensor:
            return z.flatten(1) + torch.randn_like(z.flatten(1))

    model = SplitModel(nn.Identity(), Random())
    with pytest.raises(ArtefactError, match="cloud half draws random numbers"):
        export_cloud(CloudGraph(model, None), Feature(shape=SHAPE))


def test_nothing_of_the_exporters_machine_is_in_a_graph() -> None:
    model = model_of(lambda z: z + torch.randn_like(z))
    graph = EdgeGraph(model, random_inputs(model, SHAPE))
    content = export_edge(graph, Pictures(shape=SHAPE), Feature(shape=SHAPE))
    for trace in (b"/", b"site-packages", b".py", b"stack_trace"):
        assert trace not in content
    assert content == export_edge(graph, Pictures(shape=SHAPE), Feature(shape=SHAPE))  # and it is the same each time
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    assert {one.name: one.shape for one in session.get_inputs()} == {
        "pictures": ["batch", *SHAPE],
        "normal_0": ["batch", *SHAPE],
    }
    assert [(one.name, one.shape) for one in session.get_outputs()] == [("feature", ["batch", *SHAPE])]
    x, noise = np.ones((4, *SHAPE), np.float32), np.full((4, *SHAPE), 2, np.float32)
    assert (session.run(None, {"pictures": x, "normal_0": noise})[0] == 3).all()
