"""`gmm` and `rate` on a CUDA device: no host synchronisation, graph capture, one compiled graph."""

from __future__ import annotations

import pytest
import torch

from splitveil import surrogates

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
SETTINGS = [
    ("gmm", {}),
    ("gmm", {"persist": "on"}),
    ("gmm", {"mode": "faithful"}),
    ("gmm", {"preset": "gmm.paper", "persist": "off"}),
    ("rate", {}),
]


def prepared(name, options, classes=10):
    generator = torch.Generator().manual_seed(0)
    surrogate = surrogates.create(name, feature_shape=(8, 4, 4), num_classes=classes, sigma=0.025, **options).cuda()
    z = torch.rand(640, 8, 4, 4, generator=generator).cuda()
    y = torch.randint(0, classes, (640,), generator=generator).cuda()
    surrogate.refresh([(z[i : i + 128], y[i : i + 128]) for i in range(0, 640, 128)])
    return surrogate, z[:128].clone().requires_grad_(), y[:128]


@pytest.mark.parametrize(("name", "options"), SETTINGS)
def test_s8_5_forward_and_backward_do_not_synchronise(name, options):
    surrogate, z, y = prepared(name, options)
    surrogate(z, y).loss.backward()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        surrogate(z, y).loss.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.isfinite(z.grad).all()


@pytest.mark.parametrize(("name", "options"), SETTINGS)
def test_a_captured_graph_replays_the_eager_result(name, options):
    surrogate, z, y = prepared(name, options)
    surrogate.eval()
    expected = surrogate(z, y).loss
    (reference,) = torch.autograd.grad(expected, z)
    expected = expected.detach()  # a graph kept alive would tie z's gradient to the default stream
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            torch.autograd.grad(surrogate(z, y).loss, z)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = surrogate(z, y).loss
        (gradient,) = torch.autograd.grad(loss, z)
    with torch.no_grad():
        z.mul_(1.0)
    graph.replay()
    assert torch.allclose(loss, expected, rtol=1e-5)
    assert torch.allclose(gradient, reference, rtol=1e-4, atol=1e-5 * reference.abs().max().item())


@pytest.mark.parametrize(("name", "options"), SETTINGS)
def test_cuda_agrees_with_the_processor(name, options):
    surrogate, z, y = prepared(name, options)
    surrogate.eval()
    loss = surrogate(z, y).loss.item()
    assert surrogate.cpu()(z.cpu(), y.cpu()).loss.item() == pytest.approx(loss, rel=1e-4)
