"""The yardsticks of the benchmark compute what the fast code computes."""

from __future__ import annotations

import math

import pytest
import torch

from splitveil.experiments import bench
from splitveil.experiments.class_loops import gmm_loop, rate_loop


@pytest.mark.parametrize(
    ("name", "loop", "options"),
    [
        ("gmm", gmm_loop, {}),
        ("rate", rate_loop, {"mode": "faithful"}),
    ],
)
def test_the_loops_equal_the_fast_code(name, loop, options):
    surrogate, z, y = bench._fitted(name, 12, (8, 2, 2), **options)
    fast, slow = surrogate(z, y).loss, loop(surrogate, z, y)
    assert fast.item() == pytest.approx(slow.item(), rel=1e-5)
    ours, theirs = torch.autograd.grad(fast, z)[0], torch.autograd.grad(slow, z)[0]
    assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-5 * theirs.abs().max().item())


def test_measure_reports_every_ratio(monkeypatch):
    monkeypatch.setattr(bench, "SHAPE", (8, 2, 2))
    monkeypatch.setattr(bench, "BATCH", 16)
    monkeypatch.setattr(bench, "training_step", lambda: lambda: None)
    row = bench.measure(["rate"], rounds=2, memory=False)["surrogates"]["rate"]
    assert all(row[key] > 0 for key in ("seconds", "to_step", "c100_to_c10", "loop_to_fast"))
    assert math.isnan(row["peak_mib"])


def test_ratios_are_medians_of_the_rounds():
    assert bench._ratio([1.0, 2.0, 9.0], [1.0, 1.0, 1.0]) == 2.0


def test_every_round_counts_but_the_one_that_warms_up():
    calls: list[str] = []
    times = bench._seconds([lambda: calls.append("first"), lambda: calls.append("second")], 3)
    assert [len(seconds) for seconds in times] == [3, 3]
    assert calls == ["first", "second"] * 4


@pytest.mark.slow
def test_wide_features_need_little_memory():
    assert bench.peak_memory("gmm", 100, (128, 4, 4)) < 512
