"""Scripts in processes of their own that start with torch loaded, for tests in which the start is not the point.

torch and its compiler, which an optimiser imports, take four seconds of a processor. Here they are loaded once: by a
process that does nothing else, whose children the scripts are.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

PATIENCE = 500.0  # seconds until a script that hangs is killed; never reached when all is well


def run_script(script: Path, *arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What `python script arguments` does, said and answered; where nothing can be forked, that is called."""
    words, folder = [str(script), *map(str, arguments)], str(cwd or Path.cwd())
    if not hasattr(os, "fork"):
        return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._dynamo"])
    with TemporaryDirectory() as said:
        process = context.Process(target=_live, args=(words, folder, dict(os.environ), said))
        process.start()
        process.join(PATIENCE)
        process.kill()
        process.join()
        out, errors = (Path(said, name).read_text(encoding="utf-8") for name in ("1", "2"))
    assert process.exitcode is not None
    return subprocess.CompletedProcess(words, process.exitcode, out, errors)


def _live(words: list[str], folder: str, environment: dict[str, str], said: str) -> None:
    for stream in (1, 2):
        os.dup2(os.open(Path(said, str(stream)), os.O_WRONLY | os.O_CREAT), stream)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = words
    sys.path.insert(0, str(Path(words[0]).parent))
    runpy.run_path(words[0], run_name="__main__")
