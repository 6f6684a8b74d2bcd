"""Build src/splitveil/data/embedded/fashion-mini.png from the full Fashion-MNIST.

    python scripts/make_fashion_mini.py FOLDER_WITH_THE_FOUR_IDX_FILES [OUT.png]

The folder is what `apt install dataset-fashion-mnist` puts under /usr/share/datasets/fashion-mnist, or the four
downloads of Zalando Research. Taken are the first 1,000 training and the first 200 test pictures of every class, in
their original order. They lie in one grey PNG of 120 rows with 100 pictures each: rows 0-99 are training pictures, ten
rows for each class, rows 100-119 test pictures, two rows for each class. The place of a picture is its label.
The sha256 that this script prints belongs in src/splitveil/data/fashion_mini.py.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import sys
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "src" / "splitveil" / "data" / "embedded" / "fashion-mini.png"


def read_idx(folder: Path, name: str, header: int) -> np.ndarray:
    """The bytes after the header of one idx file."""
    return np.frombuffer(gzip.decompress((folder / f"{name}-ubyte.gz").read_bytes()), np.uint8)[header:]


def first_of_each_class(folder: Path, part: str, count: int) -> np.ndarray:
    """The first `count` pictures of each of the ten classes, class after class: [10 * count, 28, 28]."""
    images = read_idx(folder, f"{part}-images-idx3", 16).reshape(-1, 28, 28)
    labels = read_idx(folder, f"{part}-labels-idx1", 8)
    return np.concatenate([images[labels == label][:count] for label in range(10)])


def main(arguments: list[str]) -> None:
    """Write the mosaic and print its checksum."""
    if len(arguments) not in (1, 2):
        sys.exit(__doc__)
    folder, out = Path(arguments[0]), Path(arguments[1]) if len(arguments) == 2 else OUT
    pictures = np.concatenate([first_of_each_class(folder, "train", 1000), first_of_each_class(folder, "t10k", 200)])
    mosaic = pictures.reshape(120, 100, 28, 28).swapaxes(1, 2).reshape(120 * 28, 100 * 28)
    buffer = io.BytesIO()
    Image.fromarray(mosaic).save(buffer, "PNG", optimize=True)
    out.write_bytes(buffer.getvalue())
    checksum = hashlib.sha256(buffer.getvalue()).hexdigest()
    sys.stdout.write(f"{out.name}: {len(buffer.getvalue()):,} bytes, sha256 {checksum}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
