"""Defences with an adversary on a GPU: the step is recorded, and trains as the eager one does."""

from __future__ import annotations

import pytest
import torch

from splitveil.core.config import load_config
from splitveil.core.run_folder import RunFolder
from splitveil.training.capture import CapturedStep
from splitveil.training.engine import Engine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def rows_of(name, capture, small_data, small_parts, folder):
    config = load_config(
        data={"name": str(small_data), "augment": False},
        model={"name": "tiny"},
        defence={name: {"adversary_blocks": 1, "adversary_width": 8}, "noise": {"sigma": 0.02}},
        train={"epochs": 3, "batch_size": 8, "precision": "float32", "capture": capture},
    )
    engine = Engine(config, small_parts, RunFolder(folder), torch.device("cuda"))
    rows = []
    engine.run(rows.append)
    return engine, rows


@pytest.mark.parametrize("name", ["adversarial", "patrol", "disco", "infoscissors"])
@pytest.mark.parametrize("capture", ["graph", "compile"])
def test_recorded_and_eager_training_agree(name, capture, small_data, small_parts, tmp_path):
    eager, plain = rows_of(name, "off", small_data, small_parts, tmp_path / "off")
    engine, rows = rows_of(name, capture, small_data, small_parts, tmp_path / capture)
    assert isinstance(engine.run_step, CapturedStep)
    assert engine.run_step.graphs
    assert not engine.run_step.failed
    for before, now in zip(plain, rows, strict=True):
        # the order of float32 sums differs between kernels; three epochs let it grow
        assert now["task_loss"] == pytest.approx(before["task_loss"], rel=0.02)
    # replayed steps train the adversary, too
    counts = [float(next(iter(e.model.defences[name].optimiser.state.values()))["step"]) for e in (eager, engine)]
    assert counts[0] == counts[1] == 3 * engine.steps


def test_the_adversary_resumes_on_a_gpu(small_data, small_parts, tmp_path):
    def engine(epochs):
        config = load_config(
            data={"name": str(small_data), "augment": False},
            model={"name": "tiny"},
            defence={"adversarial": {"adversary_blocks": 1, "adversary_width": 8}},
            train={"epochs": epochs, "batch_size": 8, "checkpoint_every": 1},
        )
        return Engine(config, small_parts, RunFolder(tmp_path / "run"), torch.device("cuda"))

    engine(2).run()
    again = engine(4)
    again.run(resume=True)
    assert again.epoch == 4
    assert not again.run_step.failed
