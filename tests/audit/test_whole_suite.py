"""Every attack of the deep tier in one audit, as short as it gets."""

from __future__ import annotations

import pytest
import torch
from tests import worlds

import splitveil as sv
from splitveil.audit.subjects import AuditData
from splitveil.audit.tiers import TIERS
from splitveil.data.augment import Augmentation

CUDA = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
SMALL = {"kind": "residual", "blocks": 1, "width": 16, "epochs": 2, "batch_size": 25, "lr": 5e-3}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=CUDA)])
def test_all_attacks_run_together(device: str) -> None:
    quick: dict[str, dict[str, object]] = {
        "decoder": SMALL,
        "linear": {},
        "average": SMALL | {"repeats": 4},
        "retrieval": {},
        "decoder_strong": {"blocks": 0, "width": 16, "epochs": 2, "growths": 0, "batch_size": 25},
        "optimize": {"steps": 5, "restarts": 1},
        "refine": {"steps": 5},
        "attribute": {"epochs": 2},
        "membership": {"shadows": 2, "epochs": 1},
        "substitute": SMALL | {"substitute_epochs": 2},
        "gan": SMALL | {"gan_epochs": 2, "gan_batch_size": 25, "critic_width": 4},
        "prior": {"width": 16, "epochs": 2, "steps": 3, "inner": 2, "samples": 1, "batch_size": 25},
    }
    data = AuditData(
        aux=worlds.pictures(100, seed=1),
        test=worlds.pictures(40, seed=2),
        train=worlds.pictures(60, seed=3),
        augmentation=Augmentation(crop=1, flip=True),
    )
    tree = sv.audit(worlds.identity(0.05), data, attacks=quick, device=device).tree
    assert tree["failures"] == {}
    assert set(tree["attacks"]) | set(tree["inference"]) == set(quick) == set(TIERS["deep"].attacks)
    assert tree["sanity"]["passed"]
