"""Where slots begin (SPEC 2.2, 4.1, 5.3, 9 d), and when they persist, go or split (9 d, 9.1)."""

from __future__ import annotations

import math

import pytest
import torch
from tests.surrogates.cases import build, make_case

import splitveil as sv
from splitveil.surrogates.slots import SlotCensus

WIDE = 4096


def start_of(name, width=WIDE, **options):
    shape = (width, 1, 1) if name == "slot_cross" else (width,)
    heads = {"num_heads": 1, "match": "token_mean"} if name == "slot_cross" else {"num_heads": 1}
    torch.manual_seed(0)
    options = {"feature_shape": shape, "num_classes": 2, "sigma": 0.1, "mode": "faithful"} | heads | options
    s = sv.surrogates.create(name, **options)
    return s.encoder.slots.start if name == "enhanced" else s.slots.start


@pytest.mark.parametrize("parameter", ["slot_mu", "slot_log_sigma"])
def test_slot_gated_starts_xavier_uniform(parameter):
    """U(±√(3/D)), so that σ_s ≈ 1."""
    width = 512
    value = getattr(start_of("slot_gated", width), parameter).detach()
    bound = math.sqrt(3 / width)
    assert value.abs().max() <= bound
    assert value.abs().max() > 0.95 * bound
    assert float(value.std()) == pytest.approx(bound / math.sqrt(3), rel=0.1)


def test_slot_cross_starts_standard_normal():
    start = start_of("slot_cross", 512, hidden=4)
    for value in (start.slot_mu.detach(), start.slot_log_sigma.detach()):
        assert float(value.mean()) == pytest.approx(0.0, abs=0.15)
        assert float(value.std()) == pytest.approx(1.0, rel=0.1)


def test_enhanced_starts_at_a_fiftieth_and_keeps_the_spread_between_a_thousandth_and_a_tenth():
    start = start_of("enhanced", 512)
    assert float(start.slot_mu.detach().std()) == pytest.approx(0.02, rel=0.1)
    assert (start.slot_log_sigma == 0).all()
    start.train(False)  # the stored draw
    for log_sigma, sigma in ((0.0, 0.1), (math.log(0.03), 0.03), (-20.0, 0.001)):
        start.slot_log_sigma.data.fill_(log_sigma)
        torch.testing.assert_close(start(1, None, None)[0], start.slot_mu + sigma * start.noise)


@pytest.mark.parametrize("name", ["slot_cross", "slot_gated", "enhanced"])
def test_slots_with_means_of_their_own_have_a_spread_of_a_tenth_at_most(name):
    start = start_of(name, 64, slot_init="per_slot").train(False)
    start.slot_log_sigma.data.fill_(3.0)
    torch.testing.assert_close(start(1, None, None)[0], start.slot_mu + 0.1 * start.noise)


@pytest.mark.parametrize("name", ["slot_cross", "slot_gated", "enhanced"])
def test_sampled_noise_is_new_for_every_row_and_call_and_never_in_evaluation(name):
    start = start_of(name, 64)
    draws = torch.Generator().manual_seed(0)
    first, second = start(2, draws, None), start(2, draws, None)
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first, second)
    start.eval()
    assert torch.equal(start(2, draws, None), start(2, draws, None))
    assert torch.equal(start(2, draws, None)[0], start(2, draws, None)[1])


def test_only_classes_that_were_seen_move_their_persistent_slots():
    case = make_case(1, 12, 3, 8)
    options = {"mode": "faithful", "slot_noise": "fixed", "early_shut": "off", "num_slots": 4, "slot_persist": True}
    s = build("slot_gated", case, **options, slot_init="per_slot")
    s(case.x, case.y)
    before = s.slots.start.persisted.clone()
    absent = case.y != 0
    s(case.x[absent], case.y[absent])
    assert torch.equal(s.slots.start.persisted[0], before[0])
    assert not torch.equal(s.slots.start.persisted[1], before[1])


def test_a_slot_goes_under_one_per_cent_of_the_mass_and_every_epoch_is_judged_by_itself():
    start = start_of("slot_gated", 8, slot_init="per_slot", num_slots=4)
    census, good = SlotCensus(4), torch.tensor(True)
    shares = torch.tensor([0.97, 0.0101, 0.0099, 0.0098])
    census.observe(shares, good, 1, start)
    census.observe(torch.full((4,), 0.25), torch.tensor(False), 1, start)  # a failed call says nothing
    census.observe(torch.full((4,), 0.25), good, 2, start)
    # 2 was free and took half of the heaviest; 1 has just enough; 3 waits for its turn
    assert census.active.tolist() == [True, True, True, False]
    census.observe(shares, good, 3, start)  # settles epoch 2, in which all had a quarter
    assert census.active.tolist() == [True, True, True, True]
    census.observe(shares, good, 4, start)  # settles epoch 3: the quarter of epoch 2 is forgotten
    assert census.active.tolist() == [True, True, True, False]
