"""Started by two_processes.py from test_distributed.py: epochs of every surrogate on two processes, and on one.

Each process first trains half of them alone on the global batches, then all with the other; parameters, statistics,
memories and banks must move by the same amounts, and end with the same bits in both.
Usage: step_processes.py DATA.npz FOLDER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from surrogate_cases import CASES
from torch import Tensor

from splitveil import data
from splitveil.core.config import load_config
from splitveil.core.run_folder import RunFolder
from splitveil.training import distributed
from splitveil.training.engine import Engine

# What cannot agree: dropout masks, and slots drawn afresh where the classifier sees a process's own samples only.
STILL = {
    "slot_cross faithful": {"dropout": 0.0, "slot_noise": "fixed"},
    "enhanced faithful": {"dropout": 0.0},
    "slot_gated faithful": {"early_shut_steps": 1},
}
STAGED = ("gmm corrected", "gated faithful", "slot_gated corrected", "enhanced corrected")


def jobs() -> dict[str, tuple[dict[str, Any], bool]]:
    every = {name: (options | STILL.get(name, {}), False) for name, options in CASES.items()}
    return every | {f"{name}, progressive": (CASES[name], True) for name in STAGED}


def train(options: dict[str, Any], staged: bool, source: str, folder: Path) -> tuple[dict[str, Tensor], ...]:
    """State before and after the active epochs; staged: one epoch in which only φ learns, then one of everything."""
    config = load_config(
        seed=3,
        data={"name": source},
        model={"name": "tiny"},
        defence={"bottleneck": {"channels": 4}, "noise": {"sigma": 0.0}},  # noise belongs to a process
        surrogate=options,
        train={
            "epochs": 3,
            "batch_size": 84,  # of 168 pictures: two steps per epoch
            "warmup_epochs": 1,
            "lr": 0.01,
            "wlr": "off",
            "privacy_weight": 0.3,
            "privacy_every": 2 if staged else None,  # one step of the last epoch has the surrogate, the other has not
            "progressive": staged,
            "base_epochs": 1,
            "adapt_epochs": 1,
        },
    )
    engine = Engine(config, data.load(config.data, config.seed), RunFolder(folder), torch.device("cpu"))
    engine.epoch = 1
    engine._refresh()
    before = state(engine)
    for epoch in (2, 3) if staged else (2,):
        engine.epoch = epoch
        row = engine._train_epoch()
        assert row["skipped"] == 0, row
        engine._refresh()
    assert row["rob_loss"] != 0, row  # a surrogate that is shut or without a bank would compare 0 with 0
    return before, state(engine)


def state(engine: Engine) -> dict[str, Tensor]:
    assert engine.surrogate is not None
    named = [
        *engine.model.state_dict().items(),
        *((f"surrogate.{k}", v) for k, v in engine.surrogate.state_dict().items()),
    ]
    return {name: value.detach().clone() for name, value in named}


def compare(name: str, alone: tuple[dict[str, Tensor], ...], together: tuple[dict[str, Tensor], ...]) -> list[str]:
    """Names of tensors that do not move alike."""
    (before, after), (same, found) = alone, together
    assert all(torch.equal(before[key], same[key]) for key in before), name
    wrong = []
    for key, value in after.items():
        if not value.is_floating_point():
            if not torch.equal(value, found[key]):
                wrong.append(f"{name}: {key} is {found[key]}, not {value}")
            continue
        moved, off = (value - before[key]).abs().max(), (found[key] - value).abs().max()
        # float32: sums in another order differ by 1e-6 of the values; what hardly moves is compared with its size
        if off > 2e-3 * moved + 2e-6 * value.abs().max() + 1e-7:
            wrong.append(f"{name}: {key} moves by {moved:.3g} alone and ends {off:.3g} away")
    if not any((after[key] - before[key]).abs().max() > 1e-5 for key in after if key.startswith("edge.")):
        wrong.append(f"{name}: nothing moved")
    return wrong


def apart(name: str, found: dict[str, Tensor]) -> list[str]:
    """The processes must hold the same bits: what one of them compares with its work alone then holds for both."""
    own = torch.cat([value.double().flatten() for value in found.values()])
    everyone = [torch.empty_like(own) for _ in range(2)]
    dist.all_gather(everyone, own)
    return [] if torch.equal(*everyone) else [f"{name}: the processes differ"]


if __name__ == "__main__":
    torch.set_num_threads(1)
    source, folder = sys.argv[1], Path(sys.argv[2])
    mine = list(jobs())[int(os.environ["RANK"]) :: 2]  # every job is done alone by one of the two
    alone = {name: train(*jobs()[name], source, folder) for name in mine}
    distributed.start(torch.device("cpu"))
    assert distributed.world()[1] == 2
    wrong: list[str] = []
    for name, job in jobs().items():
        together = train(*job, source, folder)
        wrong += apart(name, together[1])
        if name in alone:
            wrong += compare(name, alone[name], together)
    distributed.barrier()
    dist.destroy_process_group()
    sys.exit("\n".join(wrong) or 0)
