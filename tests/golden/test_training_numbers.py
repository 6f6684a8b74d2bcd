"""A seed gives in a later version the numbers that it gave in an earlier one: the same parts, weights, batches, noise.

Who changes that on purpose writes the numbers anew and says so in the CHANGELOG: a seed of published results then
makes others.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import splitveil as sv

TASK_LOSS = [1.05981, 0.574804, 0.507722]
ROB_LOSS = [0.312365, 0.324297]  # from the second epoch on


def test_a_seed_gives_the_numbers_of_an_earlier_version(small_data: Path, tmp_path: Path) -> None:
    config = sv.load_config(
        seed=7,
        data={"name": str(small_data)},
        model={"name": "tiny"},
        defence={"bottleneck": {"channels": 4}, "noise": {"sigma": 0.1}},
        surrogate={"name": "gated"},
        train={"epochs": 3, "batch_size": 32, "privacy_weight": 4},
    )
    found = sv.train(config, out=tmp_path / "run", device="cpu").metrics()
    # 1e-3: float32 adds up otherwise on other processors
    assert [row["task_loss"] for row in found] == pytest.approx(TASK_LOSS, rel=1e-3)
    assert [row["rob_loss"] for row in found[1:]] == pytest.approx(ROB_LOSS, rel=1e-3)
