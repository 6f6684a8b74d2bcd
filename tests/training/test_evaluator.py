"""Which pictures an epoch is judged on (DESIGN 5): nothing is chosen by test pictures unless the recipe asks for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from splitveil import data
from splitveil.core.config import Config
from splitveil.data.dataset import ImageSet
from splitveil.training.build import build_model
from splitveil.training.evaluate import Evaluator


def rows(config: Config, monkeypatch: pytest.MonkeyPatch) -> list[tuple[float | None, float | None]]:
    """(accuracy, test_accuracy) of 16 epochs, where validation pictures always give .25 and test pictures .75."""
    parts = data.load(config.data, config.seed)
    evaluator = Evaluator(build_model(config, parts.info), None, parts, config, torch.float32)

    def accuracy(self: Evaluator, part: ImageSet, epoch: int) -> float:
        return {id(parts.val): 0.25, id(parts.test): 0.75}[id(part)]

    monkeypatch.setattr(Evaluator, "accuracy", accuracy)
    found = [evaluator.epoch(epoch) for epoch in range(1, 17)]
    return [(row.get("accuracy"), row.get("test_accuracy")) for row in found]


@pytest.mark.parametrize(
    ("overrides", "early", "late"),
    [
        ([], (0.25, None), (0.25, 0.75)),  # also late, `accuracy` is what searches and guards go by
        (["train.select=test_best"], (0.25, 0.75), (0.25, 0.75)),
        (["data.protocol=published"], (0.75, 0.75), (0.75, 0.75)),  # as in the paper
    ],
)
def test_accuracy_is_that_of_validation_pictures_and_test_pictures_come_in_the_last_eighth(
    make_config: Callable[..., Config],
    monkeypatch: pytest.MonkeyPatch,
    overrides: list[str],
    early: tuple[float | None, float | None],
    late: tuple[float | None, float | None],
) -> None:
    found = rows(make_config("train.epochs=16", "train.eval_every=1", *overrides), monkeypatch)
    assert found == [early] * 14 + [late] * 2
