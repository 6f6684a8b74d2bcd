"""`slot_cross` against its loop oracle and the acceptance list S2 (SPEC 10)."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from tests.oracles import slot_cross as oracle
from tests.surrogates.cases import SIGMA, Case, Flat, assert_close, build, cases, compare, compare_float32, make_case

from splitveil.core.errors import ConfigError, UsageError

F64 = torch.float64
SHAPE = (4, 2, 1)
BASE = {"feature_shape": SHAPE, "num_slots": 3, "num_heads": 2, "hidden": 8}
FAITHFUL = BASE | {"mode": "faithful", "slot_noise": "fixed", "dropout": 0.0}
CORRECTED = BASE | {"mode": "corrected", "memory": 0}
VARIANTS = {
    "faithful": FAITHFUL,
    "soft": FAITHFUL | {"assign": "soft"},
    "soft, detached": FAITHFUL | {"assign": "soft", "centroid_grad": "detach"},
    "features": FAITHFUL | {"match": "project_features", "assign": "soft", "norm": "sum"},
    "token mean": FAITHFUL | {"match": "token_mean", "form": "linear"},
    "pad": FAITHFUL | {"match": "pad", "form": "rate", "unbiased": True},
    "hinge": FAITHFUL | {"hinge": True, "class_weight": "share", "ln_affine": False},
    "competition": FAITHFUL | {"slot_axis": "slots", "slot_temp": "quarter", "attn_logit_scale": 3.0},
    "competition, sums": FAITHFUL
    | {"slot_axis": "slots", "token_norm": "none", "slot_init": "per_slot", "slot_noise": "mean"},
    "raw": FAITHFUL | {"space": "raw", "pooled": True},
    "frozen": FAITHFUL | {"surrogate_update": "frozen", "assign": "soft"},
    "ascend": FAITHFUL | {"surrogate_update": "ascend", "assign": "soft"},
    "likelihood, flow": FAITHFUL | {"surrogate_update": "likelihood", "assign": "soft"},
    "likelihood, hard": FAITHFUL | {"surrogate_update": "likelihood", "match": "token_mean"},
    "corrected": CORRECTED,
    "corrected, projected": CORRECTED | {"proj_dim": 5},
}


def reference(s, x, y, p, past=None):
    projection = None if s.projection is None else s.projection.double()
    noise = s.slots.start.noise.double()
    return oracle.evaluate(x, y, p, s.options, s.sigma, s.num_classes, s.feature_shape, noise, past, projection)


def small(**options):
    case = make_case(1, 12, 2, 8)
    return shaped(case), build("slot_cross", case, **FAITHFUL | options)


def shaped(case):
    """The same case with features as maps."""
    return Case(case.x.reshape(-1, *SHAPE), case.y, case.num_classes, case.kind, case.scale, case.recipe)


def flat(case, **options):
    """A surrogate that takes flattened features, for the shared comparisons."""
    return Flat(build("slot_cross", case, **options), SHAPE)


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=4, deadline=None)
@given(case=cases(max_batch=24, max_classes=12, dims=(8,)))
def test_equals_the_loop_oracle_in_float64(variant, case):
    compare(flat(case, **VARIANTS[variant]), case, reference)


@pytest.mark.parametrize("variant", ["faithful", "corrected"])
@settings(max_examples=3, deadline=None)
@given(case=cases(dims=(8,)))
def test_equals_the_loop_oracle_on_large_batches(variant, case):
    compare(flat(case, **VARIANTS[variant]), case, reference)


@pytest.mark.parametrize("variant", ["soft", "corrected"])
@settings(max_examples=5, deadline=None)
@given(case=cases(max_batch=60, dims=(8,)))
def test_float32_is_close_where_there_is_spread_and_finite_elsewhere(variant, case):
    compare_float32(flat(case, **VARIANTS[variant]), case, reference)


@pytest.mark.parametrize(
    "variant",
    [CORRECTED, CORRECTED | {"proj_dim": 5}, FAITHFUL, FAITHFUL | {"assign": "soft", "match": "project_features"}],
)
def test_memory_joins_past_samples_as_constants(variant):
    case = make_case(3, 30, 6, 8)
    s = flat(case, **variant | {"memory": 5})
    past = {c: [] for c in range(6)}
    p = {name: value.detach() for name, value in s.named_parameters()}
    for step in range(3):
        other = make_case(10 + step, 12, 6, 8)
        s(other.x, other.y)
        for v, c in zip(other.x, other.y.tolist(), strict=True):
            slots = oracle.slots_of(oracle.tokens(v, SHAPE), p, s.options, s.slots.start.noise.double())
            past[c] = [*past[c], (v.float().double(), [k.float().double() for k in slots])][-5:]
    compare(s, case, reference, tolerance=2e-6, past=past)  # the memory is float32


def test_s2_1_token_view():
    z = torch.arange(2 * 3 * 2 * 5, dtype=torch.float32).reshape(2, 3, 2, 5)
    s = build("slot_cross", Case(z.flatten(1), None, 2, "", 1.0), mode="faithful", feature_shape=(3, 2, 5), num_heads=3)
    t = s.tokens(z.flatten(1))
    for b in range(2):
        for h in range(2):
            for w in range(5):
                for c in range(3):
                    assert t[b, h * 5 + w, c] == z[b, c, h, w]


def test_s2_2_features_on_their_centroid():
    x = torch.randn(1, 8, dtype=F64).expand(6, 8)
    case = Case(x, torch.zeros(6, dtype=torch.long), 3, "point", 1.0)
    s = flat(case, **FAITHFUL | {"num_slots": 1})
    s.to_features.weight.data.zero_()
    s.to_features.bias.data.copy_(x[0])
    out = s(x, case.y)
    assert out.loss.item() == pytest.approx(math.log(SIGMA**2), rel=1e-9)
    assert out.loss.item() == pytest.approx(-7.37776, abs=1e-5)


def test_s2_3_soft_assignment_limits_and_linear_form():
    case, soft = small(assign="soft", assign_temp=1e-9)
    hard = build("slot_cross", make_case(1, 12, 2, 8), **FAITHFUL)
    assert_close(soft(case.x, case.y).loss, hard(case.x, case.y).loss, 1e-6)
    assert hard(case.x, case.y).loss != 0
    _, equal = small(assign="soft", form="linear")
    equal.to_features.weight.data.zero_()  # all centroids equal, so all distances are
    out = equal(case.x, case.y)
    torch.testing.assert_close(out.diagnostics["resp"], torch.full((12, 3), 1 / 3, dtype=F64))
    count = torch.bincount(case.y, minlength=2).double()
    torch.testing.assert_close(out.diagnostics["slot_mass"] / count[:, None], torch.full((2, 3), 1 / 3, dtype=F64))
    square = (case.x.flatten(1) - equal.to_features.bias).square().mean(1)
    expected = torch.stack([square[case.y == c].mean() for c in range(2)]) + SIGMA**2
    torch.testing.assert_close(out.diagnostics["per_class_loss"], expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("axis", ["tokens", "slots"])
def test_s2_4_attention_sums_to_one_on_its_axis(axis):
    case, s = small(slot_axis=axis, token_norm="none")
    _, attention = s.slots(s.tokens(case.x.flatten(1)), None, None, None)  # [B, H, S, N]
    total = attention.sum(dim=-1 if axis == "tokens" else -2)
    torch.testing.assert_close(total, torch.ones_like(total))
    result = s.classify(case.x)
    torch.testing.assert_close(result.attention.sum(-1), torch.ones(12, 2, 2, dtype=F64))


def test_s2_4_one_token_does_not_depend_on_the_query():
    case = make_case(1, 12, 2, 8)
    x = case.x
    s = build("slot_cross", case, **FAITHFUL | {"feature_shape": (8, 1, 1)})
    before = s(x.reshape(12, 8, 1, 1), case.y).loss
    s.slots.query.weight.data.normal_()
    assert_close(s(x.reshape(12, 8, 1, 1), case.y).loss, before, 1e-12)
    s = build("slot_cross", case, **FAITHFUL | {"feature_shape": (8, 1, 1), "slot_axis": "slots", "token_norm": "none"})
    before = s(x.reshape(12, 8, 1, 1), case.y).loss
    s.slots.query.weight.data.normal_()
    assert s(x.reshape(12, 8, 1, 1), case.y).loss != before


def test_s2_5_closed_output_map_is_a_linear_classifier_on_pooled_features():
    case, s = small()
    assert not torch.equal(s.classify(case.x).tokens, s.tokens(case.x.flatten(1)))
    s.head.out.weight.data.zero_(), s.head.out.bias.data.zero_()
    result = s.classify(case.x)
    assert torch.equal(result.tokens, s.tokens(case.x.flatten(1)))
    pooled = case.x.flatten(2).mean(2)
    torch.testing.assert_close(result.logits, pooled @ s.head.classifier.weight.T + s.head.classifier.bias)
    assert result.slots.shape == (12, 3, 4)


def test_classify_answers_in_the_order_of_the_specification():
    case, s = small()
    result = s.classify(case.x)
    logits, tokens, slots, attention = result
    assert logits is result.logits
    assert tokens is result.tokens
    assert slots is result.slots
    assert attention is result.attention
    logits = s.float().classify(case.x.double()).logits
    assert logits.dtype is F64


def test_classifier_variants():
    case, s = small(pool="slots", post_norm=True)
    result = s.classify(case.x)
    hidden = torch.relu(s.head.hidden(result.slots.mean(1)))
    torch.testing.assert_close(result.logits, s.head.classifier(hidden))
    result.logits.sum().backward()
    assert s.slots.query.weight.grad is not None
    _, s = small(classifier="cloud")
    with pytest.raises(UsageError, match="classifier"):
        s.classify(case.x)


def test_matching_makes_the_order_of_slots_irrelevant():
    from splitveil.functional.assignment import match_slots
    from splitveil.functional.segments import class_segments

    generator = torch.Generator().manual_seed(0)
    base = torch.randn(1, 4, 6, generator=generator, dtype=F64)
    slots = base + 0.01 * torch.randn(5, 4, 6, generator=generator, dtype=F64)
    order = torch.stack([torch.arange(4)] * 3 + [torch.randperm(4, generator=generator) for _ in range(2)])
    shuffled = slots.gather(1, order[..., None].expand_as(slots))
    y = torch.zeros(5, dtype=torch.long)
    segments = class_segments(y, y >= 0, torch.tensor([5.0], dtype=F64), 1)
    torch.testing.assert_close(match_slots(shuffled, segments), slots)


def test_persist_match_and_auto_run_together():
    case, s = small(slot_persist=True, slot_init="per_slot", num_slots="auto", slot_match=True)
    losses = [s(case.x, case.y, epoch=epoch).loss.item() for epoch in (1, 1, 2)]
    assert s.slots.start.has_persisted.all()
    assert s.census.epoch == 2
    assert losses[0] != losses[1]
    z = case.x.clone().requires_grad_()
    s(z, case.y, epoch=2).loss.backward()
    assert torch.isfinite(z.grad).all()


def test_settings_that_cannot_work_are_refused():
    for options in ({"num_heads": 3}, {"surrogate_update": "likelihood", "match": "project_features"}):
        with pytest.raises(ConfigError):
            small(**options)
