"""The artefact: a folder with the two halves of a trained model, which says of itself what was promised and checked.

    manifest.json      what this is, where it comes from, and the SHA-256 of every other file
    edge.onnx          pictures and random inputs -> the feature as it is sent, all defences inside
    cloud.onnx         feature -> logits
    model.safetensors  the weights, and
    config.toml        the recipe: with these two torch loads the model again

Reading needs neither torch nor any training code. The device needs `edge.onnx` beside the manifest, the server
`cloud.onnx`: a folder in which other files are left out is read where nobody asks for them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from pydantic import ValidationError

from splitveil.core.errors import ArtefactError, InputError, NotAnArtefactError
from splitveil.core.nearest_folder import folder_hint
from splitveil.core.shell import command
from splitveil.serving.claims import check_claims
from splitveil.serving.manifest import CLOUD, CONFIG, EDGE, FORMAT, VERSION, Manifest

MANIFEST = "manifest.json"
MAX_MANIFEST = 4 << 20  # bytes: a manifest has a few thousand, and what is none should not fill the memory
AGAIN = "Copy the folder again, or export the run again: splitveil export RUN --out NEW_DIR"


@dataclass(frozen=True)
class Artefact:
    """An artefact that was read and found whole. `digest`, `Manifest.identity`, pins its files and their use."""

    path: Path
    manifest: Manifest
    digest: bytes  # 32

    def load(self, name: str) -> bytes:
        """The content of one file, checked as it is read: nothing changed since the artefact was written."""
        path = self.path / name
        if name not in self.manifest.files:
            raise ArtefactError(f"{self.path} was exported without {name}.")
        try:
            content = path.read_bytes()
        except OSError as error:
            raise _absent(self.path, name, error) from None
        if hashlib.sha256(content).hexdigest() != self.manifest.files[name]:
            raise _damaged(path)
        return content

    def has(self, name: str) -> bool:
        """Whether this copy of the artefact holds the file."""
        return (self.path / name).is_file()


def read(path: str | Path, *, need: Iterable[str] | None = None) -> Artefact:
    """The artefact in the folder `path`.

    The files in `need` (all that the manifest names, unless told) must be there, and whatever is there must be what the
    manifest says; what the manifest states must agree with them. Errors are one sentence:
    NotAnArtefactError where the path is no artefact, ArtefactError where it is damaged or of another version.
    """
    folder = Path(path)
    if not (folder / MANIFEST).is_file():
        raise _no_artefact(folder)
    manifest = _manifest(folder / MANIFEST, _manifest_bytes(folder / MANIFEST))
    artefact = Artefact(folder, manifest, manifest.identity())
    named = artefact.manifest.files
    for name in dict.fromkeys([*(named if need is None else need), *filter(artefact.has, named)]):
        artefact.load(name)
    recipe = artefact.load(CONFIG) if CONFIG in named and artefact.has(CONFIG) else None
    check_claims(manifest, recipe, str(folder / MANIFEST))
    return artefact


def opened(artefact: Artefact | str | PathLike[str], *, need: Iterable[str]) -> Artefact:
    """An artefact as it is, or the one in a folder, of which the files in `need` are asked for."""
    if isinstance(artefact, Artefact):
        return artefact
    if not isinstance(artefact, str | PathLike):
        raise InputError(f"This takes an artefact or its folder, not a {type(artefact).__name__}.")
    return read(Path(artefact), need=need)


def is_artefact(path: str | Path) -> bool:
    """Whether a folder is an artefact, in whatever state: it holds a graph, or its manifest says so."""
    folder = Path(path)
    if (folder / EDGE).is_file() or (folder / CLOUD).is_file():
        return True
    try:
        tree = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(tree, dict) and tree.get("format") == FORMAT


def _no_artefact(folder: Path) -> NotAnArtefactError:
    make = "Make one with: splitveil export RUN --out DIR"
    if not folder.exists():
        return NotAnArtefactError(f"There is no artefact {folder}.", folder_hint(folder, make))
    if not folder.is_dir():
        return NotAnArtefactError(f"{folder} is a file, not the folder of an artefact.", make)
    return NotAnArtefactError(
        f"{folder} is not an artefact: it has no {MANIFEST}.", AGAIN if is_artefact(folder) else make
    )


def _manifest_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(MAX_MANIFEST + 1)
    if len(content) > MAX_MANIFEST:
        raise ArtefactError(f"{path} is far too long for a manifest.", AGAIN)
    return content


def _manifest(path: Path, content: bytes) -> Manifest:
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        raise ArtefactError(f"{path} is damaged: it is no JSON.", AGAIN) from None
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        folder = path.parent
        if is_artefact(folder):  # it holds a graph
            raise ArtefactError(f"{path} is damaged: it does not call itself that of an artefact.", AGAIN)
        hint = (
            f"This is a run; export it first: {command('export', folder, '--out', 'DIR')}"
            if (folder / CONFIG).is_file()
            else "Make one with: splitveil export RUN --out DIR"
        )
        raise NotAnArtefactError(f"{folder} is not an artefact: its manifest does not call itself one.", hint)
    if tree.get("version") != VERSION:
        raise ArtefactError(
            f"{path} is of version {tree.get('version')!r}; this Splitveil reads version {VERSION}.",
            "Use the Splitveil that made it, or export the run again with this one.",
        )
    try:
        return Manifest.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the manifest"
        said = first["msg"].removeprefix("Value error, ").rstrip(".")
        raise ArtefactError(f"{path} is damaged: {where}: {said[:1].lower()}{said[1:]}.", AGAIN) from None


def _absent(folder: Path, name: str, error: OSError) -> ArtefactError:
    if isinstance(error, FileNotFoundError):
        return ArtefactError(f"The artefact {folder} has no {name}.", AGAIN)
    return ArtefactError(f"{folder / name} cannot be read ({error.strerror or error}).", AGAIN)


def _damaged(path: Path) -> ArtefactError:
    return ArtefactError(f"{path} is damaged: it is not the file that the manifest names.", AGAIN)
