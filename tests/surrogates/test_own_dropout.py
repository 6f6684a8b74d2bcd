"""Dropout of the attention surrogates: what it does, and where SPEC 2.2, 2.3 and 5 put it."""

from __future__ import annotations

import pytest
import torch
from tests.surrogates.cases import build, make_case

from splitveil.functional.attention import own_dropout
from splitveil.surrogates import enhanced_blocks, token_slots

SHAPE = (4, 2, 1)
B, C, S, T, H, W, N = 12, 2, 3, 2, 2, 8, 2


def test_it_drops_the_share_and_scales_the_rest():
    x = torch.ones(40_000)
    out = own_dropout(x, 0.25, True, torch.Generator().manual_seed(0))
    assert sorted(out.unique().tolist()) == pytest.approx([0.0, 4 / 3])
    assert float((out == 0).float().mean()) == pytest.approx(0.25, abs=0.01)
    assert float(out.mean()) == pytest.approx(1.0, abs=0.02)  # the mean is kept
    assert torch.equal(own_dropout(x, 0.25, False, None), x)


@pytest.fixture
def drawn(monkeypatch):
    """Shapes and rates of every dropout in train mode."""
    calls = []

    def spy(x, rate, training, generator):
        calls.append((tuple(x.shape), rate, training))
        return x

    monkeypatch.setattr(token_slots, "own_dropout", spy)
    monkeypatch.setattr(enhanced_blocks, "own_dropout", spy)
    return calls


def test_slot_cross_drops_attention_weights_in_every_round_and_the_hidden_layer_of_the_head(drawn):
    case = make_case(1, B, C, 8)
    options = {"mode": "faithful", "feature_shape": SHAPE, "num_slots": S, "num_iterations": T, "num_heads": H}
    s = build("slot_cross", case, **options, hidden=5, dropout=0.1)
    z = case.x.reshape(-1, *SHAPE)
    s(z, case.y)
    assert drawn == [((B, H, S, N), 0.1, True)] * T
    drawn.clear()
    s.classify(z)
    assert drawn == [((B, H, S, N), 0.1, True)] * T  # the linear head has none
    drawn.clear()
    build("slot_cross", case, **options, hidden=5, dropout=0.1, pool="slots").eval().classify(z)
    assert drawn == [((B, H, S, N), 0.1, False)] * T + [((B, 5), 0.1, False)]


def test_enhanced_drops_in_the_slots_mlp_the_cross_attention_the_ffn_and_the_reconstruction(drawn):
    case = make_case(1, B, C, W)
    s = build("enhanced", case, mode="faithful", num_slots=S, num_iterations=T, num_heads=H, dropout=0.1)
    s.refresh([(case.x, case.y)])
    assert not any(training for _, _, training in drawn)  # the bank is fitted in eval mode
    drawn.clear()
    s(case.x, case.y)
    slots, weights = [((C, S, 2 * W), 0.1, True)] * T, ((B, H, 1, S), 0.1, True)
    assert drawn == [*slots, weights, ((B, 4 * W), 0.1, True), ((B, 2 * W), 0.1, True)]
