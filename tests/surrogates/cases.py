"""Batches for oracle comparisons, and the comparison itself."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from hypothesis import strategies as st

import splitveil as sv

SIGMA = 0.025


@dataclass(frozen=True)
class Case:
    """One batch in float64."""

    x: torch.Tensor = field(repr=False)
    y: torch.Tensor = field(repr=False)
    num_classes: int
    kind: str
    scale: float
    recipe: tuple[object, ...] = ()  # arguments of make_case, for the report of a failure


@st.composite
def cases(
    draw, max_batch=200, max_classes=100, dims=(4, 8, 16), kinds=("spread", "spread", "constant", "flat", "tight")
):
    """B 1-200, C 1-100, absent classes, single-sample classes, constant features, scales 1e-6 to 1e6."""
    seed = draw(st.integers(0, 2**31))
    size = draw(st.one_of(st.integers(1, 12), st.integers(1, max_batch)))
    num_classes = draw(st.one_of(st.integers(1, 6), st.integers(1, max_classes)))
    dim = draw(st.sampled_from(dims))
    kind = draw(st.sampled_from(kinds))
    # the layer norm of a flat vector of size 1e6 is rounding noise of size 1e-8 in float64: nothing to compare
    scale = draw(st.sampled_from([1e-6, 1e-2, 1.0, 1.0, 30.0] + [1e6] * (kind != "flat")))
    present = draw(st.integers(1, num_classes))
    return make_case(seed, size, num_classes, dim, kind, scale, present)


def make_case(seed, size, num_classes, dim, kind="spread", scale=1.0, present=None):
    """A batch: features around class centres; `constant`: no spread in a class, `flat`: all dimensions equal."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randperm(num_classes, generator=generator)[: present or num_classes]
    y = labels[torch.randint(len(labels), (size,), generator=generator)]
    centre = torch.randn(num_classes, dim, generator=generator, dtype=torch.float64)
    spread = {"spread": 1.0, "constant": 0.0, "flat": 1.0, "tight": 1e-2}[kind]
    x = centre[y] + spread * torch.randn(size, dim, generator=generator, dtype=torch.float64)
    if kind == "flat":
        x = x[:, :1].expand(size, dim).contiguous()
    return Case(x * scale, y, num_classes, kind, scale, (seed, size, num_classes, dim, kind, scale, present))


def build(name, case, **options):
    """A surrogate in float64 for a case."""
    shape = options.pop("feature_shape", (case.x.shape[1],))
    with torch.random.fork_rng():
        torch.manual_seed(7)
        surrogate = sv.surrogates.create(
            name, feature_shape=shape, num_classes=case.num_classes, sigma=options.pop("sigma", SIGMA), **options
        )
        jiggle(surrogate)
    return surrogate.double()


def jiggle(surrogate):
    """Move every parameter off its initial value, so that gains of 1 and biases of 0 hide nothing."""
    for parameter in surrogate.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)


def leaves(surrogate, case):
    """Fresh leaves for the oracle: features and parameters by name."""
    x = case.x.clone().requires_grad_()
    parameters = {name: value.detach().clone().requires_grad_() for name, value in surrogate.named_parameters()}
    return x, parameters


def gradients(loss, x, parameters):
    """Gradients of a loss, zeros where there is none."""
    inputs = [x, *parameters.values()]
    grads = (
        torch.autograd.grad(loss, inputs, allow_unused=True, retain_graph=True)
        if loss.requires_grad
        else [None] * len(inputs)
    )
    grads = [torch.zeros_like(v) if g is None else g for v, g in zip(inputs, grads, strict=True)]
    return grads[0], dict(zip(parameters, grads[1:], strict=True))


def assert_close(actual, expected, tolerance, what="value", floor=1e-12):
    """|a − e| <= tolerance·(scale of the quantity, at least `floor`), and finite."""
    actual, expected = torch.as_tensor(actual).double(), torch.as_tensor(expected).double()
    assert torch.isfinite(actual).all(), f"{what} is not finite"
    scale = max(expected.abs().max().item() if expected.numel() else 0.0, floor)
    error = (actual - expected).abs().max().item() if expected.numel() else 0.0
    assert error <= tolerance * scale, f"{what}: off by {error:.3g} on a scale of {scale:.3g}"


def natural_gradient(loss, case):
    """Size of a gradient that is not zero by cancellation: loss over feature.

    Without spread the gradient is zero but for rounding, which goes with terms of order 1 instead of with the loss.
    """
    least = 1e-3 if case.kind in ("spread", "tight") else 1.0
    return max(abs(float(loss.detach())), least) / max(case.x.abs().max().item(), 1e-30)


def assert_same_gradients(actual, reference, tolerance, unit):
    """Compare (grad x, {name: grad φ}) pairs on the scale of the largest entry; the rest is rounding."""
    assert_close(actual[0], reference[0], tolerance, "gradient of x", floor=1e-6 * unit)
    largest = max([g.abs().max().item() for g in reference[1].values()], default=0.0)
    for name in reference[1]:
        error = (actual[1][name] - reference[1][name]).abs().max().item()
        scale = max(largest, 0.1)  # of losses between 1 and 10: smaller gradients are differences of such terms
        assert error <= tolerance * scale, f"gradient of {name}: off by {error:.3g} of {scale:.3g}"


def compare(s, case, reference, tolerance=1e-9, past=None):
    """Value and gradients of loss and fit loss, monitor and per-class losses, against `reference(s, x, y, p, past)`."""
    x, p = leaves(s, case)
    ref = reference(s, x, case.y, p, past)
    z = case.x.clone().requires_grad_()
    out = s(z, case.y)
    update = s.options.surrogate_update
    own = dict(s.named_parameters())
    # without spread (a single sample, equal samples) a rate is (rounding of x)²/σ²: that much is not comparable
    rounding = (1e-15 * case.x.abs().max().item() / SIGMA) ** 2
    rest = max(1e-12 if case.kind in ("spread", "tight") else 1e-6, rounding / tolerance)
    assert_close(out.loss, ref["loss"], tolerance, "loss", floor=rest)
    assert_close(
        out.intra_mse, ref["intra"], tolerance, "intra_mse", floor=1e-12 * (1 + case.x.abs().max().item() ** 2)
    )
    assert_close(out.per_class.sum(), out.loss, tolerance, "per_class", floor=rest)
    losses = torch.stack(
        [torch.as_tensor(ref["per_class_loss"].get(c, 0.0), dtype=torch.float64) for c in range(case.num_classes)]
    )
    assert_close(out.diagnostics["per_class_loss"], losses, tolerance, "per_class_loss", floor=rest)
    expected = gradients(ref["loss"], x, p)
    if update != "minimise":
        expected = (expected[0], {name: torch.zeros_like(g) for name, g in expected[1].items()})
    assert_same_gradients(gradients(out.loss, z, own), expected, tolerance, natural_gradient(out.loss, case))
    if update in ("likelihood", "ascend"):
        fit = ref["fit"] if update == "likelihood" else -ref["loss"]
        assert_close(out.fit_loss, fit, tolerance, "fit_loss")
        expected = gradients(fit, x, p)
        expected = (torch.zeros_like(expected[0]), expected[1])
        assert_same_gradients(gradients(out.fit_loss, z, own), expected, tolerance, natural_gradient(fit, case))
    else:
        assert out.fit_loss == 0


def compare_float32(s, case, reference, smallest=0.0):
    """float32 against the float64 oracle: close where the classes have spread, finite everywhere.

    `smallest`: scale of x under which the representation whose variance is taken has no spread left.
    """
    x, p = leaves(s, case)
    x = x.detach().float().double().requires_grad_()
    z = x.detach().float().requires_grad_()
    out = s.float()(z, case.y)
    (grad,) = torch.autograd.grad(out.loss + out.fit_loss, z)
    assert torch.isfinite(out.loss)
    assert torch.isfinite(out.fit_loss)
    assert torch.isfinite(grad).all()
    if case.kind in ("spread", "tight") and case.scale >= smallest:
        ref = reference(s, x, case.y, {k: v.float().double() for k, v in p.items()})
        assert_close(out.loss, ref["loss"], 1e-5, "loss")
        floor = 0.1 * natural_gradient(out.loss, case)
        assert_close(grad, gradients(ref["loss"], x, {})[0], 1e-4, "gradient", floor=floor)


class Flat:
    """A surrogate for features of `shape` that takes them flattened, as the shared comparisons give them."""

    def __init__(self, surrogate, shape):
        self.surrogate, self.shape = surrogate, shape

    def __getattr__(self, name):
        return getattr(self.surrogate, name)

    def float(self):
        self.surrogate.float()
        return self

    def __call__(self, z, y):
        return self.surrogate(z.reshape(-1, *self.shape), y)


def filled_memory(s, num_classes, size, dim):
    """Call `s` on three batches; the last `size` x of each class, in the float32 of the memory."""
    past = {c: [] for c in range(num_classes)}
    for step in range(3):
        other = make_case(10 + step, 12, num_classes, dim)
        s(other.x, other.y)
        for v, c in zip(other.x, other.y.tolist(), strict=True):
            past[c] = [*past[c], v.float().double()][-size:]
    return past
