"""The finished cells of a sweep in one small file: what another machine needs to go on, and `compare` to make tables.

Weights and pictures stay behind: a cell is then some tens of kilobytes. Unpacked into a folder (`tar xzf FILE -C DIR`),
the cells are finished there too, and `splitveil sweep RECIPE --out DIR` runs only the others.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

from splitveil.core.files import write_atomic
from splitveil.experiments.sweep.folder import SweepFolder

KEPT = (
    "cell.json",
    "config.toml",
    "manifest.json",
    "metrics.jsonl",
    "result.json",
    "audit*/audit.json",
    "audit*/card.json",
)
BESIDE = ("sweep.json", "search.json")  # the names of the methods, and the history of a search


def write_archive(path: Path, sweep: Path) -> None:
    """Write all finished cells of the folder `sweep` into a .tar.gz."""
    folder = SweepFolder(sweep)
    done = [one["id"] for one in folder.descriptions() if folder.status(one["id"], one["modes"]) == "done"]
    files = [sweep / name for name in BESIDE if (sweep / name).exists()]
    files += [file for cell in done for name in KEPT for file in sorted(folder.run(cell).path.glob(name))]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for file in files:
            content = file.read_bytes()
            entry = tarfile.TarInfo(file.relative_to(sweep).as_posix())
            entry.size, entry.mtime = len(content), int(file.stat().st_mtime)
            archive.addfile(entry, io.BytesIO(content))
    write_atomic(path, gzip.compress(packed.getvalue()))
