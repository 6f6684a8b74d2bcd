"""Lightning and Hugging Face over two processes: the surrogate sees the global batch, and the processes agree."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.loaded_process import run_script

PACKAGES = {"lightning": "lightning.pytorch", "huggingface": "transformers.trainer"}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be forked")
@pytest.mark.parametrize("host", PACKAGES)
def test_two_processes_take_the_step_of_one(host: str, tmp_path: Path) -> None:
    pytest.importorskip(PACKAGES[host].split(".")[0])
    two, script = (Path(__file__).with_name(f"{name}_processes.py") for name in ("two", "integration"))
    done = run_script(two, PACKAGES[host], script, host, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
