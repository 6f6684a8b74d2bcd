"""Lightning and Hugging Face over two processes: the surrogate sees the global batch, and the processes agree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = {"lightning": "lightning.pytorch", "huggingface": "transformers"}


@pytest.mark.slow
@pytest.mark.parametrize("host", PACKAGES)
def test_two_processes_take_the_step_of_one(host: str, tmp_path: Path) -> None:
    pytest.importorskip(PACKAGES[host])
    script = Path(__file__).with_name("integration_processes.py")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*launch, str(script), host, str(tmp_path)], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
