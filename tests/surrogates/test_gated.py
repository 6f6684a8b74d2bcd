"""`gated` against its loop oracle and the acceptance list S3 (SPEC 10)."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from tests.oracles import gated as oracle
from tests.surrogates.cases import (
    SIGMA,
    Case,
    assert_close,
    build,
    cases,
    compare,
    compare_float32,
    filled_memory,
    make_case,
)

import splitveil as sv
from splitveil.core.errors import ConfigError
from splitveil.functional.hinge import log_threshold

F64 = torch.float64
VARIANTS = {
    "faithful": {"mode": "faithful"},
    "prototype": {"mode": "faithful", "gates": "none", "hinge": "relu", "normalise": True},
    "raw": {"mode": "faithful", "space": "raw"},
    "preset": {"preset": "gated.raw"},
    "rate": {"mode": "faithful", "base": "rate", "snr": "signal"},
    "gates detached": {"mode": "faithful", "gate_grad": "detach", "class_gate": "off"},
    "learned scalars": {"mode": "faithful", "learnable_scalars": True},
    "learned scalars behind detached gates": {"mode": "faithful", "learnable_scalars": True, "gate_grad": "detach"},
    "floor under tau": {"mode": "faithful", "space": "raw", "eps_var": "tau", "var_threshold": 4.0},
    "constrained": {"mode": "faithful", "learnable_scalars": True, "constrain": "positive"},
    "equal classes": {"mode": "faithful", "class_weight": "equal"},
    "pool power": {"mode": "faithful", "pool_power": 2.0},
    "pooled": {"mode": "faithful", "pooled": True, "unbiased": True},
    "plain norm": {"mode": "faithful", "ln_affine": False, "alpha_grad": "detach", "eps_var": "tau"},
    "frozen": {"mode": "faithful", "surrogate_update": "frozen"},
    "ascend": {"mode": "faithful", "surrogate_update": "ascend"},
    "likelihood, flow": {"mode": "faithful", "surrogate_update": "likelihood", "ln_affine": False},
    "projected": {"mode": "faithful", "proj_dim": 3},
    "corrected": {"mode": "corrected", "memory": 0},
    "corrected, projected": {"mode": "corrected", "memory": 0, "proj_dim": 3},
    "corrected, threshold": {"mode": "corrected", "memory": 0, "base": "threshold", "gates": "all"},
}


def reference(s, x, y, p, past=None):
    projection = None if s.projection is None else s.projection.double()
    return oracle.evaluate(x, y, p, s.options, s.sigma, s.num_classes, past, projection)


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=8, deadline=None)
@given(case=cases(max_batch=40))
def test_equals_the_loop_oracle_in_float64(variant, case):
    compare(build("gated", case, **VARIANTS[variant]), case, reference)


@pytest.mark.parametrize("variant", ["faithful", "corrected", "raw"])
@settings(max_examples=8, deadline=None)
@given(case=cases())
def test_equals_the_loop_oracle_on_large_batches(variant, case):
    compare(build("gated", case, **VARIANTS[variant]), case, reference)


@pytest.mark.parametrize("variant", ["faithful", "corrected", "raw"])
@settings(max_examples=10, deadline=None)
@given(case=cases())
def test_float32_is_close_where_there_is_spread_and_finite_elsewhere(variant, case):
    compare_float32(build("gated", case, **VARIANTS[variant]), case, reference)


@pytest.mark.parametrize(
    "variant",
    [
        {"mode": "corrected"},
        {"mode": "faithful", "memory": 5},
        {"mode": "corrected", "proj_dim": 3},
        {"mode": "corrected", "unbiased": True, "pooled": True},
    ],
)
def test_memory_joins_past_samples_as_constants(variant):
    case = make_case(3, 40, 6, 8)
    s = build("gated", case, **variant | {"memory": 5})
    past = filled_memory(s, num_classes=6, size=5, dim=8)
    compare(s, case, reference, tolerance=1e-6, past=past)  # the memory is float32


@pytest.mark.parametrize("sigma", [0.0, 1e-4])
@pytest.mark.parametrize("variant", ["faithful", "corrected"])
def test_sigma_enters_as_a_thousandth_at_least(variant, sigma):
    """SPEC 0.1: everywhere max(σ, 1e-3)."""
    case = make_case(3, 20, 4, 8, scale=1e-3)
    s = build("gated", case, **VARIANTS[variant], sigma=sigma)
    assert s.sigma == sigma
    compare(s, case, reference)
    assert_close(s(case.x, case.y).loss, build("gated", case, **VARIANTS[variant], sigma=1e-3)(case.x, case.y).loss, 0)


def test_the_threshold_never_falls_below_1e_8():
    """τ = max(θσ², 1e-8) + γ: with θ = 0 it is 1.01e-6."""
    assert log_threshold(0.025, 0.0, 1e-6) == pytest.approx(math.log(1.01e-6), rel=1e-12)
    assert log_threshold(0.025, 0.0, 0.0) == pytest.approx(math.log(1e-8), rel=1e-12)
    assert log_threshold(0.0, 0.125, 0.0) == pytest.approx(math.log(1.25e-7), rel=1e-12)


def test_past_samples_count_toward_the_minimum_of_two():
    """SPEC 0.5: a class with one sample in the batch and one in the memory has a spread."""
    case = make_case(3, 4, 2, 8)
    s = build("gated", case, mode="corrected", memory=5)
    one = (case.x[:1], torch.tensor([1]))
    assert s(*one).loss == 0  # nothing remembered yet
    out = s(case.x[1:2], torch.tensor([1]))
    assert out.diagnostics["class_used"].tolist() == [False, True]
    assert out.loss > 0
    assert out.diagnostics["per_class_count"].tolist() == [0, 1]  # the memory does not count toward p_c
    past = {1: [case.x[0].float().double()]}
    s = build("gated", case, mode="corrected", memory=5)
    s(*one)
    assert_close(out.loss, reference(s, case.x[1:2], torch.tensor([1]), dict(s.named_parameters()), past)["loss"], 1e-6)


def test_memory_is_not_touched_by_evaluation_or_bad_calls():
    case = make_case(3, 20, 4, 8)
    s = build("gated", case, mode="corrected", memory=5)
    s.eval()(case.x, case.y)
    s.train()(torch.full_like(case.x, torch.nan), case.y)
    with pytest.raises(ValueError, match="Labels run"):
        s(case.x, case.y + 100)
    assert s.memory.appended.sum() == 0
    s(case.x, case.y)
    assert s.memory.appended.sum() == 20


def test_s3_1_zero_score_gives_uniform_weights_mean_and_biased_variance():
    case = make_case(1, 12, 3, 8)
    s = build("gated", case, mode="faithful", space="raw", gates="none", hinge="relu")
    s.pooling.score.weight.data.zero_()
    out = s(case.x, case.y)
    count = torch.bincount(case.y, minlength=3)
    used = (count >= 2)[case.y]
    torch.testing.assert_close(out.diagnostics["attn"][used], (1 / count[case.y].double())[used])
    for c in range(3):
        mine = case.x[case.y == c]
        if len(mine) >= 2:
            var = mine.var(dim=0, unbiased=False).clamp(min=1e-6)
            expected = torch.relu((var + 1e-6).log() + 9.44448).mean()
            assert_close(out.diagnostics["per_class_loss"][c], expected, 1e-5)
    assert out.loss > 0


def test_s3_2_closed_form():
    tau = 0.125 * SIGMA**2 + 1e-6
    a = math.sqrt(math.exp(math.log(tau) + 0.1) - 1e-6)
    x = torch.stack([torch.full((8,), a, dtype=F64), torch.full((8,), -a, dtype=F64)])
    case = Case(x, torch.zeros(2, dtype=torch.long), 1, "closed", 1.0)
    s = build("gated", case, mode="faithful", space="raw")
    last = s.penalty.dimension_gate.mlp[2]
    last.weight.data.zero_(), last.bias.data.zero_()
    assert s(x, case.y).loss.item() == pytest.approx(0.346548, abs=1e-6)
    assert s(x, case.y).loss.item() == pytest.approx(0.5 * math.log(2) / (1 + math.exp(-9.5)), rel=1e-7)


def test_s3_3_class_gate():
    x = torch.randn(128, 8, dtype=F64)
    y = torch.cat([torch.zeros(2), torch.ones(126)]).long()
    s = build("gated", Case(x, y, 2, "gate", 1.0), mode="faithful")
    assert s(x, y).diagnostics["gate_class"][0].item() == pytest.approx(0.414899, abs=1e-6)
    y = torch.arange(10).repeat(2)
    s = build("gated", Case(x[:20], y, 10, "gate", 1.0), mode="faithful")
    torch.testing.assert_close(
        s(x[:20], y).diagnostics["gate_class"], torch.full((10,), 0.622459, dtype=F64), atol=1e-6, rtol=0
    )


def test_s3_4_norm_space_ignores_scale_and_raw_space_does_not():
    case = make_case(5, 40, 4, 64)
    s = build("gated", case, mode="faithful")
    z = case.x.clone().requires_grad_()
    loss = s(z, case.y).loss
    loss.backward()
    for i in range(40):
        bound = 1e-3 * z.grad[i].norm() * z[i].norm()
        assert (z.grad[i] * z[i]).sum().abs() < bound
        assert z.grad[i].sum().abs() < bound
    assert loss > 0
    for factor in (0.5, 2.0, 10.0):
        assert s(factor * case.x, case.y).loss.item() == pytest.approx(loss.item(), rel=1e-3)
    raw = build("gated", case, mode="faithful", space="raw", gates="none")
    values = [raw(factor * case.x, case.y).loss.item() for factor in (0.5, 1.0, 2.0, 10.0)]
    assert values == sorted(values)
    assert values[0] < values[1] < values[2] < values[3]


def test_s3_5_prototype_form():
    case = make_case(6, 30, 8, 8)
    s = build("gated", case, mode="faithful", gates="none", hinge="relu", normalise=True)
    out = s(case.x, case.y)
    count = torch.bincount(case.y, minlength=8).double()
    weight = torch.where(count >= 2, count, 0.0)
    assert_close(out.loss, (weight * out.diagnostics["per_class_loss"]).sum() / weight.sum(), 1e-9)
    p = dict(s.named_parameters())
    mine = case.x[case.y == int(count.argmax())]
    h = torch.nn.functional.layer_norm(mine, (8,), p["pooling.norm.weight"], p["pooling.norm.bias"])
    alpha = torch.softmax(s.pooling(mine), dim=0)
    var = (alpha * (h - (alpha * h).sum(0)) ** 2).sum(0).clamp(min=1e-6)
    expected = torch.relu((var + 1e-6).log() - math.log(0.125 * SIGMA**2 + 1e-6)).mean()
    assert_close(out.diagnostics["per_class_loss"][int(count.argmax())], expected, 1e-9)


def test_s3_6_gradcheck_and_detached_mean():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 6, generator=generator, dtype=F64, requires_grad=True)
    y = torch.zeros(5, dtype=torch.long)
    s = build("gated", Case(x.detach(), y, 1, "check", 1.0), mode="faithful", learnable_scalars=True)
    names = [name for name, _ in s.named_parameters()]

    def loss(x, *values):
        return torch.func.functional_call(s, dict(zip(names, values, strict=True)), (x, y)).loss

    parameters = [value.detach().clone().requires_grad_() for value in s.parameters()]
    assert loss(x, *parameters) > 0
    assert torch.autograd.gradcheck(lambda x: loss(x, *parameters), (x,))
    assert torch.autograd.gradcheck(loss, (x, *parameters), fast_mode=True)
    # envelope: with constant weights that sum to one, Σ α (x−μ) = 0, so the path through μ carries no gradient
    s = build("gated", Case(x.detach(), y, 1, "check", 1.0), preset="gated.raw")
    (grad,) = torch.autograd.grad(s(x, y).loss, x)
    alpha = torch.softmax(s.pooling(x.detach()), dim=0).detach()
    mean = (alpha * x).sum(0).detach()
    var = (alpha * (x - mean) ** 2).sum(0)
    (expected,) = torch.autograd.grad((0.5 * torch.log1p(var / SIGMA**2)).mean(), x)
    assert_close(grad, expected, 1e-9)


def test_s3_7_concentrated_weights_reach_the_floor():
    x = torch.randn(6, 8, dtype=F64)
    y = torch.zeros(6, dtype=torch.long)
    s = build("gated", Case(x, y, 1, "floor", 1.0), mode="faithful")
    s.pooling.score.weight.data *= 1e6
    out = s(x, y)
    assert out.diagnostics["attn"].max() > 1 - 1e-9
    assert out.diagnostics["var_mean"].item() == pytest.approx(1e-6, rel=1e-9)
    assert out.loss > 0


def test_s4_10_parameter_count_of_gated():
    s = sv.surrogates.create("gated", feature_shape=(8, 8, 8), num_classes=10, sigma=SIGMA, mode="faithful")
    assert sum(p.numel() for p in s.parameters()) == 199_617


def test_likelihood_refuses_a_trainable_norm():
    with pytest.raises(ConfigError, match="ln_affine"):
        sv.surrogates.create(
            "gated", feature_shape=(8,), num_classes=2, sigma=0.1, mode="faithful", surrogate_update="likelihood"
        )
