"""From a configuration to a model: what the data set says of itself reaches the network."""

from __future__ import annotations

from dataclasses import replace

import pytest

import splitveil as sv
from splitveil.core.config import load_config
from splitveil.training.build import build_model


def test_a_model_normalises_pictures_by_the_mean_and_deviation_of_its_data_set() -> None:
    info = replace(sv.data.create("fashion-mini").info, mean=(0.3,), std=(0.2,))
    normalise = build_model(load_config(), info).edge.normalise
    assert normalise.mean.item() == pytest.approx(0.3)
    assert normalise.std.item() == pytest.approx(0.2)
