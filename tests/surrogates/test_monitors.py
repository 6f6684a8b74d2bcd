"""Monitors that train nothing (SPEC 0.2, 9 m), against loops: nobody would notice if they were wrong."""

from __future__ import annotations

import math

import pytest
import torch
from tests.surrogates.cases import SIGMA, Case, assert_close, build, make_case

import splitveil as sv

F64 = torch.float64
MINIMUM = {"gmm": 1, "slot_cross": 1, "gated": 2, "slot_gated": 3, "enhanced": 1}


@pytest.mark.parametrize("mode", ["faithful", "corrected"])
@pytest.mark.parametrize("name", MINIMUM)
def test_intra_mse_raw_is_the_spread_of_x_around_the_class_means_of_used_classes(name, mode):
    """Σ_c p_c·(1/(M_c·D)) Σ ‖x − mean‖², p_c = M_c/B with skipped classes in B."""
    y = torch.tensor([0] * 6 + [1] * 3 + [2] * 2 + [3])
    x = torch.randn(12, 8, dtype=F64, generator=torch.Generator().manual_seed(0)) + 5.0
    options = {"num_heads": 2} if name in ("slot_cross", "slot_gated", "enhanced") else {}
    options |= {"memory": 0} if name != "gmm" else {}
    shape = {"feature_shape": (4, 2, 1)} if name == "slot_cross" else {}
    s = build(name, Case(x, y, 5, "monitor", 1.0), mode=mode, **shape, **options)
    z = x.reshape(-1, *s.feature_shape)
    if s.refresh_needed:
        s.refresh([(z.repeat(3, *[1] * (z.ndim - 1)), y.repeat(3))])
    expected = 0.0
    for c in range(5):
        mine = [x[i] for i in range(12) if y[i] == c]
        if len(mine) >= MINIMUM[name]:
            mean = sum(mine) / len(mine)
            expected += len(mine) / 12 * sum(float(((v - mean) ** 2).mean()) for v in mine) / len(mine)
    assert_close(s(z, y).diagnostics["intra_mse_raw"], torch.tensor(expected, dtype=F64), 1e-9)


@pytest.mark.parametrize("name", ["gated", "slot_gated", "slot_cross"])
def test_the_share_of_dimensions_under_the_threshold(name):
    """SPEC 9 m: var < τ = max(θσ², 1e-8) + γ, before any floor, averaged over used classes."""
    tau = 0.125 * SIGMA**2 + 1e-6
    x = torch.randn(12, 8, dtype=F64, generator=torch.Generator().manual_seed(0))
    # classes 0, 1 and 2: three quarters, none and all of the dimensions under τ
    y = torch.arange(3).repeat(4)
    x[y == 0, :6] *= 0.1 * math.sqrt(tau)
    x[y == 2] *= 0.1 * math.sqrt(tau)
    extra = {"gated": {}, "slot_gated": {"num_slots": 1, "early_shut": "off"}, "slot_cross": {"num_slots": 1}}[name]
    extra |= {"feature_shape": (4, 2, 1), "num_heads": 2, "dropout": 0.0} if name == "slot_cross" else {}
    s = build(name, Case(x, y, 4, "monitor", 1.0), mode="faithful", space="raw", **extra)
    found = s(x.reshape(-1, *s.feature_shape), y).diagnostics["share_below_threshold"]
    # slot_cross has one variance per slot and class: that of class 0 is its two wide dimensions'
    assert found.item() == pytest.approx(1 / 3 if name == "slot_cross" else 1.75 / 3)


def test_gate_means_are_those_of_the_dimension_and_the_snr_gate():
    case = make_case(1, 12, 2, 8)
    s = build("gated", case, mode="faithful", snr_sharp=0.0)  # the SNR gate is ½ everywhere
    last = s.penalty.dimension_gate.mlp[2]
    last.weight.data.zero_(), last.bias.data.fill_(math.log(0.2 / 0.8))
    found = s(case.x, case.y).diagnostics
    assert found["gate_soft_mean"].item() == pytest.approx(0.2)
    assert found["gate_hard_mean"].item() == pytest.approx(0.5)


@pytest.mark.parametrize("name", ["gated", "slot_cross", "slot_gated", "enhanced"])
def test_the_projection_is_orthogonal(name):
    """SPEC 9.1, proj_dim: a fixed random orthogonal map, so that distances shrink by chance only, never by scale."""
    heads = {} if name == "gated" else {"num_heads": 4}
    shape = (4, 2, 4) if name == "slot_cross" else (32,)
    s = sv.surrogates.create(name, feature_shape=shape, num_classes=3, sigma=0.1, proj_dim=8, **heads)
    assert s.projection.shape == (32, 8)
    torch.testing.assert_close(s.projection.T @ s.projection, torch.eye(8), atol=1e-6, rtol=0)
