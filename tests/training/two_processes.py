"""Started from tests as two_processes.py PACKAGE SCRIPT ARGUMENTS...: a script in two processes, as torchrun runs it.

Both are children of this process, which never runs the script itself, so that Python and the package are loaded once.
torchrun itself is in the test of the command (test_distributed.py).
"""

from __future__ import annotations

import importlib
import os
import runpy
import signal
import sys
from pathlib import Path

import torch._dynamo  # noqa: F401 # optimisers import it in their first step: once here, not in every child
from torch.distributed import TCPStore

package, script, *arguments = sys.argv[1:]
importlib.import_module(package)
children, (told, tell) = [], os.pipe()
for rank in ("0", "1"):
    children.append(os.fork())
    if children[-1] == 0:
        port = os.read(told, 5).decode()
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": "True"}
        os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        os.environ["TORCHELASTIC_RUN_ID"] = "two"
        sys.argv = [script, *arguments]
        sys.path.insert(0, str(Path(script).parent))
        runpy.run_path(script, run_name="__main__")
        sys.exit()
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # its threads would not survive a fork
os.write(tell, f"{store.port:05d}".encode() * len(children))
while children:
    ended, status = os.wait()
    children.remove(ended)
    if status:  # the other would wait for it
        for child in children:
            os.kill(child, signal.SIGKILL)
        sys.exit(1)
