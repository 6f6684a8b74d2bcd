"""Lightning and Hugging Face over two processes: the surrogate sees the global batch, and the processes agree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = {"lightning": "lightning.pytorch", "huggingface": "transformers.trainer"}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be forked")
@pytest.mark.parametrize("host", PACKAGES)
def test_two_processes_take_the_step_of_one(host: str, tmp_path: Path) -> None:
    pytest.importorskip(PACKAGES[host].split(".")[0])
    two, script = (str(Path(__file__).with_name(f"{name}_processes.py")) for name in ("two", "integration"))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, two, PACKAGES[host], script, host, str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
