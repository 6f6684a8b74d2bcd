"""`enhanced` against its loop oracle and the acceptance list S5 (SPEC 10)."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given, settings
from tests.oracles import enhanced as oracle
from tests.surrogates.cases import SIGMA, Flat, assert_close, build, cases, compare, compare_float32, make_case

import splitveil as sv
from splitveil.core.errors import ConfigError
from splitveil.functional.assignment import combined_distance
from splitveil.surrogates.enhanced_blocks import temperature

F64 = torch.float64
SHAPE = (4, 2, 1)
BASE = {"feature_shape": SHAPE, "num_slots": 3, "num_iterations": 2, "num_heads": 2, "num_clusters": 2}
FAITHFUL = BASE | {"mode": "faithful", "slot_noise": "fixed", "dropout": 0.0}
CORRECTED = BASE | {"mode": "corrected", "memory": 0}
VARIANTS = {
    "faithful": FAITHFUL,
    "gate off": FAITHFUL | {"complexity_gate": "off", "distance": "corrected", "cos_relative": True},
    "prototype": FAITHFUL | {"complexity_axis": "samples", "competition": "every_iteration", "bank_space": "raw"},
    "sample tokens": FAITHFUL | {"tokens": "sample"},
    "spatial tokens": FAITHFUL | {"tokens": "spatial", "complexity_axis": "samples"},
    "batch means": FAITHFUL | {"bank_space": "batch", "log_entropy": False},
    "threshold": FAITHFUL | {"base": "threshold", "class_weight": "share", "scale_factors": (1.0, 3.0)},
    "gated space": FAITHFUL | {"space": "gated", "base": "rate", "unbiased": True},
    "pooled": FAITHFUL | {"pooled": True, "slot_axis": "slots"},
    "sums": FAITHFUL | {"slot_axis": "slots", "token_norm": "none", "slot_init": "per_slot", "slot_noise": "mean"},
    "parallel": FAITHFUL | {"architecture": "parallel"},
    "parallel, raw": FAITHFUL | {"architecture": "parallel", "space": "raw"},
    "parallel, gate": FAITHFUL | {"architecture": "parallel", "parallel_alpha": "gate"},
    "frozen": FAITHFUL | {"surrogate_update": "frozen"},
    "ascend": FAITHFUL | {"surrogate_update": "ascend"},
    "likelihood, flow": FAITHFUL | {"surrogate_update": "likelihood"},
    "corrected": CORRECTED,
    "corrected, projected": CORRECTED | {"proj_dim": 4},
}


def flat(case, **options):
    """A surrogate with a fitted bank that takes flattened features, for the shared comparisons."""
    surrogate = build("enhanced", case, **options)
    other = make_case(99, 60, case.num_classes, case.x.shape[1])
    surrogate.refresh([(other.x.reshape(-1, *SHAPE) * case.scale, other.y)])
    return Flat(surrogate, SHAPE)


def reference(s, x, y, p, past=None):
    projection = None if s.projection is None else s.projection.double()
    noise = s.encoder.slots.start.noise.double()
    bank = (s.bank.mean.double(), s.bank.fitted)
    return oracle.evaluate(x, y, p, s.options, s.sigma, s.num_classes, s.feature_shape, noise, bank, past, projection)


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=4, deadline=None)
@given(case=cases(max_batch=20, max_classes=8, dims=(8,)))
def test_equals_the_loop_oracle_in_float64(variant, case):
    # spread over the samples of a class: its standard deviation has no gradient at 0, and extremes no unique one
    assume(VARIANTS[variant].get("complexity_axis") != "samples" or case.kind in ("spread", "tight"))
    compare(flat(case, **VARIANTS[variant]), case, reference)


@pytest.mark.parametrize("variant", ["faithful", "corrected"])
@settings(max_examples=3, deadline=None)
@given(case=cases(dims=(8,)))
def test_equals_the_loop_oracle_on_large_batches(variant, case):
    compare(flat(case, **VARIANTS[variant]), case, reference)


@pytest.mark.parametrize("variant", ["faithful", "corrected"])
@settings(max_examples=4, deadline=None)
@given(case=cases(max_batch=40, dims=(8,)))
def test_float32_is_close_where_there_is_spread_and_finite_elsewhere(variant, case):
    compare_float32(flat(case, **VARIANTS[variant]), case, reference, smallest=1e-2)


@pytest.mark.parametrize("variant", [CORRECTED, CORRECTED | {"proj_dim": 4}, FAITHFUL, FAITHFUL | {"space": "gated"}])
def test_memory_joins_past_samples_as_constants(variant):
    case = make_case(3, 24, 5, 8)
    s = flat(case, **variant | {"memory": 5})
    past = {c: [] for c in range(5)}
    p = {name: value.detach() for name, value in s.named_parameters()}
    noise = s.encoder.slots.start.noise.double()
    projection = None if s.projection is None else s.projection.double()
    for step in range(3):
        other = make_case(10 + step, 12, 5, 8)
        _, gated, enhanced, _, _ = oracle.encode(other.x, other.y, p, s.options, SHAPE, noise, past, projection)
        s(other.x, other.y)
        for i, c in enumerate(other.y.tolist()):
            stored = tuple(v.float().double() for v in (other.x[i], gated[i], enhanced[i]))
            past[c] = [*past[c], stored][-5:]
    compare(s, case, reference, tolerance=5e-6, past=past)  # the memory is float32


def fitted(case=None, **options):
    case = case or make_case(1, 14, 2, 8)
    return case, flat(case, **FAITHFUL | options)


def test_s5_1_temperature_gate_and_competition_ranges():
    expected = [1, 0.8, 0.6, 0.4, 0.2, 0.1, 0.1]
    assert [temperature(t, 0.2) for t in range(7)] == pytest.approx(expected)
    for scale in (1e-6, 1.0, 1e6):
        case, s = fitted(make_case(1, 14, 2, 8, scale=scale))
        s.encoder.complexity.dynamic_weight.data.fill_(50.0)
        for bias in (-100.0, 100.0):
            s.encoder.complexity.third.bias.data.fill_(bias)
            gate = s(case.x, case.y).diagnostics["complexity_gate"].item()
            assert gate == pytest.approx(0.1 if bias < 0 else 0.9)
    rival = s.encoder.slots.rivalry(torch.randn(5, 3, 8, dtype=F64))
    assert ((rival > 0) & (rival < 1)).all()


def test_s5_2_sign_of_the_cosine_distance():
    x = torch.tensor([1.0, 0.0], dtype=F64)
    centroids = torch.tensor([[1.0, 1.0], [2.0, 0.0]], dtype=F64)
    notes = combined_distance(x, centroids, -0.1)
    assert notes.tolist() == pytest.approx([0.9707, 1.0], abs=1e-4)
    assert notes.argmin() == 0
    assert combined_distance(x, centroids, 0.1).argmin() == 1
    # and through the surrogate: the same two centroids, X_e on the x axis
    for distance, choice in (("notes", 0), ("corrected", 1)):
        case, s = fitted(distance=distance)
        s.bank.mean.zero_()
        s.bank.mean[:, :, :2] = centroids
        view = s.view(s._enter(case.x.reshape(-1, *SHAPE), case.y, None, None))
        vectors = torch.zeros(14, 8, dtype=F64)
        vectors[:, 0] = 1.0
        assert (s._cluster(view, vectors, None).chosen.argmax(1) == choice).all()


def test_the_cosine_distance_is_guarded_by_1e_8():
    """d_cos = 1 − x·c/(‖x‖‖c‖ + 1e-8) (SPEC 5.7): ½ where the product of the norms is 1e-8, 1 for a zero vector."""
    x = torch.tensor([1e-4, 0.0], dtype=F64)
    centroids = torch.stack([x, torch.zeros(2, dtype=F64)])
    assert combined_distance(x, centroids, 1.0).tolist() == pytest.approx([0.5, 1.0 + 1e-8], rel=1e-9)


def test_s5_3_scale_before_the_last_norm_does_not_matter():
    case, s = fitted()
    before = s(case.x, case.y).loss
    assert before > 0
    s.encoder.hierarchy.rebuild_out.weight.data *= 3.0
    s.encoder.hierarchy.rebuild_out.bias.data *= 3.0
    assert_close(s(case.x, case.y).loss, before, 1e-3)


def test_s5_4_features_on_their_centroid():
    case, s = fitted()
    s.encoder.hierarchy.norm_out.weight.data.zero_()  # X_e is the bias, whatever the input
    s.bank.mean.copy_(s.encoder.hierarchy.norm_out.bias.data)
    assert s(case.x, case.y).loss.item() == pytest.approx(math.log(1.0001), rel=1e-6)


def test_s5_5_one_token_per_sample_ignores_the_temperature():
    losses = {}
    for tokens in ("sample", "class"):
        for decay in (0.0, 0.2):
            case, s = fitted(tokens=tokens, temperature_decay=decay)
            s.bank.mean.zero_()
            losses[tokens, decay] = s(case.x, case.y).loss.item()
            assert losses[tokens, decay] > 0
    assert losses["sample", 0.0] == pytest.approx(losses["sample", 0.2], rel=1e-9)
    assert losses["class", 0.0] != pytest.approx(losses["class", 0.2], rel=1e-6)


def test_parameter_counts():
    s = sv.surrogates.create("enhanced", feature_shape=(8, 8, 8), num_classes=10, sigma=SIGMA, mode="faithful")
    assert sum(p.numel() for p in s.encoder.complexity.parameters()) == 164_866
    assert sum(p.numel() for p in s.parameters()) == 8_207_361 + 164_866


def test_without_a_bank_the_loss_is_a_connected_zero_with_one_warning():
    case = make_case(1, 14, 2, 8)
    s = build("enhanced", case, **FAITHFUL)
    z = case.x.reshape(-1, *SHAPE).requires_grad_()
    with pytest.warns(RuntimeWarning, match="no bank"):
        out = s(z, case.y)
    out = s(z, case.y)
    out.loss.backward()
    assert out.loss == 0
    assert out.diagnostics["no_bank"]
    assert torch.equal(z.grad, torch.zeros_like(z))


def test_refresh_fits_enhanced_features_in_evaluation_mode_and_survives_a_checkpoint():
    case = make_case(1, 40, 2, 8)
    s = build("enhanced", case, **FAITHFUL | {"dropout": 0.5, "num_clusters": 1})
    z = case.x.reshape(-1, *SHAPE)
    s.refresh([(z, case.y)])
    assert s.training
    view = s.view(s._enter(z, case.y, None, None))
    enhanced = s.eval()._assign(view, live=True).enhanced
    for c in range(2):
        torch.testing.assert_close(s.bank.mean[c, 0], enhanced[case.y == c].mean(0))
    copy = build("enhanced", case, **FAITHFUL | {"dropout": 0.5, "num_clusters": 1}).eval()
    copy.load_state_dict(s.state_dict())
    assert copy(z, case.y).loss == s(z, case.y).loss > 0  # and no warning: warnings are errors
    with pytest.warns(RuntimeWarning, match="not usable"):
        s.refresh([(z, case.y), (torch.full_like(z, torch.nan), case.y)])


def test_refresh_runs_k_means_to_its_end():
    """SPEC 1.2, 5.7: Lloyd steps until assignments repeat, so every centroid is the mean of the X_e nearest to it."""
    case = make_case(1, 60, 1, 8)
    s = build("enhanced", case, **FAITHFUL | {"num_clusters": 4}).eval()
    z = case.x.reshape(-1, *SHAPE)
    s.refresh([(z, case.y)])
    enhanced = s._assign(s.view(s._enter(z, case.y, None, None)), live=True).enhanced.detach()
    centroids = s.bank.mean[0]
    nearest = torch.tensor([int(((v - centroids) ** 2).sum(1).argmin()) for v in enhanced])
    assert len(nearest.unique()) == 4
    for k in range(4):
        torch.testing.assert_close(centroids[k], enhanced[nearest == k].mean(0))


def test_persistent_and_automatic_slots():
    case, s = fitted(slot_persist=True, slot_init="per_slot", num_slots="auto")
    z = case.x.reshape(-1, *SHAPE)
    losses = [s.surrogate(z, case.y, epoch=epoch).loss.item() for epoch in (1, 1, 2)]
    assert s.encoder.slots.start.has_persisted.all()
    assert s.census.epoch == 2
    assert losses[0] != losses[1]
    s.census.active[2] = False
    z = z.clone().requires_grad_()
    s.surrogate(z, case.y, epoch=2).loss.backward()
    assert torch.isfinite(z.grad).all()


@pytest.mark.parametrize("tokens", ["class", "sample", "spatial"])
@pytest.mark.parametrize("masked", ["label", "overflow"])
def test_the_census_leaves_masked_samples_out(tokens, masked, monkeypatch):
    """SPEC 0.3: a label out of range counts nowhere, nor does a class whose squares overflow."""
    options = {"tokens": tokens, "num_slots": "auto", "slot_init": "per_slot", "complexity_gate": "off"}
    peaks = []
    for absent in (False, True):
        case, s = fitted(**options)
        z, y = case.x.reshape(-1, *SHAPE).clone(), case.y.clone()
        bad = y == 0
        if masked == "label":
            monkeypatch.setattr(type(s.surrogate), "_check", lambda *_: None)
            y[bad] = -1
        else:
            z[bad] = 1e100
        z, y = (z[~bad], y[~bad]) if absent else (z, y)
        s.surrogate(z, y, epoch=1)
        peaks.append(s.census.peak)
    torch.testing.assert_close(peaks[0], peaks[1])
    assert peaks[0].sum().item() == pytest.approx(1)


def test_settings_that_cannot_work_are_refused():
    refused = (
        {"num_heads": 3},
        {"bank_space": "raw", "proj_dim": 4},
        {"architecture": "parallel", "parallel_alpha": "gate", "complexity_gate": "off"},
        {"tokens": "spatial", "num_heads": 8},
    )
    for options in refused:
        with pytest.raises(ConfigError):
            build("enhanced", make_case(1, 14, 2, 8), **FAITHFUL | options)


def test_the_dynamic_weight_starts_where_the_option_says():
    settings = {"feature_shape": (16,), "num_classes": 2, "sigma": 0.1, "mode": "faithful"}
    assert sv.surrogates.create("enhanced", **settings).encoder.complexity.dynamic_weight.item() == 0.5
    s = sv.surrogates.create("enhanced", dynamic_weight=-1.0, **settings)
    assert s.encoder.complexity.dynamic_weight.item() == -1.0


def test_float64_features_have_a_float64_bank():
    """SPEC 0.4: float64 input stays float64 throughout, though a surrogate is made in float32."""
    s = sv.surrogates.create("enhanced", feature_shape=(4, 2, 2), num_classes=2, sigma=SIGMA)
    z, y = torch.rand(8, 4, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64), torch.arange(8) % 2
    s.refresh([(z, y)])
    assert s.bank.mean.dtype is torch.float64
    assert s(z, y).loss.dtype is torch.float64


def test_the_bank_is_fitted_with_autocast_disabled():
    """SPEC 0.4; centroids of X_e in half the digits would be those of another space."""
    s = sv.surrogates.create("enhanced", feature_shape=(4, 2, 2), num_classes=2, sigma=SIGMA)
    seen: list[bool] = []
    s.encoder.register_forward_hook(lambda *_: seen.append(torch.is_autocast_enabled("cpu")))
    z, y = torch.rand(8, 4, 2, 2, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2
    with torch.autocast("cpu", torch.bfloat16):
        s.refresh([(z, y)])
    assert seen == [False]
