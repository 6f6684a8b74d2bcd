"""Every defence, one by one: the graph sends what torch sends, draw by draw, and what it sends has the same law.

The oracle of a draw is the model itself: `model.send(x, generator)`, and the same generator asked again for the random
inputs, in their order.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from scipy import stats
from tests.defences.building import build
from torch import Tensor, nn

from splitveil.core.catalogue import DEFENCES
from splitveil.serving.graphs import EdgeGraph, export_edge, random_inputs
from splitveil.serving.manifest import Feature, Pictures, RandomInput
from splitveil.serving.random_inputs import SeededSource, draw
from splitveil.serving.two_steps import TwoSteps, find_cut

IMAGE = (1, 8, 8)
SMALL = {"adversary_blocks": 0, "adversary_width": 4}  # adversaries are not exported, but they are built
CASES: dict[str, tuple[dict[str, dict[str, Any]], list[str]]] = {
    "noise": ({"noise": {"sigma": 0.3}}, ["normal"]),
    "noise-laplace": ({"noise": {"sigma": 0.3, "law": "laplace"}}, ["uniform"]),
    "noise-learned": ({"noise": {"sigma": 0.3, "scale": "learned"}}, ["normal"]),
    "dropout": ({"dropout": {"p": 0.3}}, ["uniform"]),
    "shredder": ({"shredder": {"start": 0.0, "members": 5}}, ["integers"]),
    "cloak": ({"cloak": {}}, ["normal"]),
    "cloak-suppress": ({"cloak": {"suppress": 0.5}}, ["normal"]),
    "vib": ({"vib": {}}, ["normal"]),
    "fisher": ({"fisher": {}}, ["normal"]),
    "topk": ({"noise": {"sigma": 0.0}, "topk": {"p": 0.4}}, []),  # and noise that is none
    "disco": ({"disco": {"ratio": 0.4, **SMALL}}, []),
    "sca": ({"bottleneck": {"channels": 2, "stride": 2}, "sca": {"iterations": 2}}, []),
    "training alone": (  # these send what the edge half gives
        {"adversarial": SMALL, "infoscissors": SMALL, "patrol": SMALL, "nopeek": {}, "bido": {}, "label_smoothing": {}},
        [],
    ),
    "three": (
        {"shredder": {"start": 0.0}, "dropout": {}, "noise": {"law": "laplace"}},
        ["integers", "uniform", "uniform"],
    ),
}


def test_no_defence_is_forgotten() -> None:
    assert {name for tables, _ in CASES.values() for name in tables} == set(DEFENCES.names())


def shaken(model: nn.Module) -> None:
    """Weights as after training: nothing is zero or one by chance of the start."""
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.add_(0.2 * torch.randn(module.running_mean.shape, generator=generator))
                module.running_var.mul_(1 + torch.rand(module.running_var.shape, generator=generator))


@cache
def exported(case: str) -> tuple[Any, tuple[RandomInput, ...], onnxruntime.InferenceSession, bytes]:
    model = build(CASES[case][0], image=IMAGE, cut=2)
    shaken(model)
    model.eval()
    inputs = random_inputs(model, IMAGE)
    content = export_edge(EdgeGraph(model, inputs), Pictures(shape=IMAGE), Feature(shape=model.feature_shape))
    return model, inputs, onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]), content


def same_draws(inputs: tuple[RandomInput, ...], batch: int, generator: torch.Generator) -> dict[str, np.ndarray]:
    """What torch draws from the generator for these inputs, in this order."""
    drawn: dict[str, Tensor] = {}
    for one in inputs:
        shape = (batch, *one.shape)
        if one.law == "integers":
            drawn[one.name] = torch.randint(one.high, shape, generator=generator)
        elif one.law == "normal":
            drawn[one.name] = torch.empty(shape).normal_(generator=generator)
        else:
            drawn[one.name] = torch.empty(shape).uniform_(generator=generator)
    return {name: value.numpy() for name, value in drawn.items()}


@pytest.mark.parametrize("case", CASES)
def test_the_graph_sends_what_torch_sends(case: str) -> None:
    model, inputs, session, _ = exported(case)
    assert [one.law for one in inputs] == CASES[case][1]
    for batch in (1, 7):  # neither is the batch that was traced
        x = torch.rand(batch, *IMAGE, generator=torch.Generator().manual_seed(batch))
        with torch.no_grad():
            expected = model.send(x, torch.Generator().manual_seed(5)).numpy()
        feed = {"pictures": x.numpy(), **same_draws(inputs, batch, torch.Generator().manual_seed(5))}
        (sent,) = session.run(None, feed)
        assert sent.dtype == np.float32
        np.testing.assert_allclose(sent, expected, rtol=1e-5, atol=1e-5)


RANDOM = [case for case, (_, laws) in CASES.items() if laws]


@pytest.mark.parametrize("case", RANDOM)
def test_two_steps_are_the_graph(case: str) -> None:
    """An audit runs the part before the first draw once; with the rest it gives what the whole graph gives."""
    model, inputs, session, content = exported(case)
    manifest = SimpleNamespace(input=Pictures(shape=IMAGE), random=inputs, feature=Feature(shape=model.feature_shape))
    artefact: Any = SimpleNamespace(manifest=manifest, load=lambda name: content)
    at = find_cut(artefact)
    assert at is not None
    steps = TwoSteps(artefact, at)
    x = np.random.default_rng(0).random((300, *IMAGE), dtype=np.float32)  # more than go through a graph at once
    clean = steps.before(x)
    np.testing.assert_array_equal(steps.before(x), clean)
    np.testing.assert_allclose(steps.before(x[7:8]), clean[7:8], rtol=1e-5, atol=1e-6)  # whatever stands beside it
    sent = steps.after(clean[:9], SeededSource(3))
    feed = {"pictures": x[:9], **draw(inputs, 9, SeededSource(3))}
    np.testing.assert_allclose(sent, session.run(None, feed)[0], rtol=1e-5, atol=1e-5)
    assert not np.array_equal(steps.after(clean[:9], SeededSource(4)), sent), "every transmission is fresh"
    assert steps.after(clean).shape == (300, *model.feature_shape)


@pytest.mark.parametrize("case", RANDOM)
def test_what_the_client_draws_has_the_law_that_was_audited(case: str) -> None:
    """One picture, sent many times by either way: every value has the same mean, spread and distribution."""
    model, inputs, session, _ = exported(case)
    many = 3_000
    x = torch.rand(1, *IMAGE, generator=torch.Generator().manual_seed(1)).expand(many, *IMAGE).contiguous()
    with torch.no_grad():
        audited = model.send(x, torch.Generator().manual_seed(2)).flatten(1).double().numpy()
    (sent,) = session.run(None, {"pictures": x.numpy(), **draw(inputs, many, SeededSource(3))})
    served = sent.reshape(many, -1).astype(np.float64)
    spread = np.sqrt((audited.var(0) + served.var(0)) / many)
    assert (np.abs(audited.mean(0) - served.mean(0)) <= 5 * spread + 1e-6).all()
    fourth = ((served - served.mean(0)) ** 4).mean(0)  # the variance of a variance, whatever the law
    error = np.sqrt(2 * np.maximum(fourth - served.var(0) ** 2, 0) / many)
    assert (np.abs(audited.var(0) - served.var(0)) <= 6 * error + 1e-6).all()
    places = np.linspace(0, served.shape[1] - 1, 8).astype(int)
    # rounded: the two ways differ in the last digits, which would tell atoms of a discrete law apart
    values = [stats.ks_2samp(audited[:, k].round(4), served[:, k].round(4), method="asymp").pvalue for k in places]
    assert min(values) > 1e-3 / len(places)
    assert served.std(0).max() > 1e-3  # and it is random at all


@pytest.mark.parametrize(("case", "different"), [("dropout", 40), ("noise", 40), ("shredder", 5)])
def test_pictures_of_one_batch_get_draws_of_their_own(case: str, different: int) -> None:
    _, inputs, session, _ = exported(case)
    (sent,) = session.run(
        None, {"pictures": np.full((40, *IMAGE), 0.5, np.float32), **draw(inputs, 40, SeededSource(1))}
    )
    assert len(np.unique(sent.reshape(40, -1).round(3), axis=0)) == different
