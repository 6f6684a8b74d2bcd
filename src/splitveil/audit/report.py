"""The result of an audit: printed, saved and read again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splitveil import __version__
from splitveil.audit.card import card
from splitveil.audit.earlier import set_aside
from splitveil.audit.gallery import Gallery
from splitveil.audit.table import table
from splitveil.core.errors import RunFolderError
from splitveil.core.files import write_json
from splitveil.core.manifest import torch_version

AUDIT, CARD = "audit.json", "card.json"


@dataclass(frozen=True)
class AuditReport:
    """What an audit found. `tree` is audit.json; printed, it is the table of `splitveil audit`."""

    tree: dict[str, Any]
    gallery: Gallery
    folder: Path | None = None  # where it lies, if it was written

    def __str__(self) -> str:
        return table(self.tree)

    def __repr__(self) -> str:
        return str(self)  # a notebook shows this: the numbers, not thousands of lines of pictures

    @property
    def worst_case(self) -> dict[str, Any]:
        return self.tree["worst_case"]

    @property
    def attacks(self) -> dict[str, Any]:
        return self.tree["attacks"]

    @property
    def floors(self) -> dict[str, Any]:
        return self.tree["floors"]

    @property
    def inference(self) -> dict[str, Any]:
        return self.tree["inference"]

    @property
    def verdict(self) -> dict[str, Any] | None:
        """How much leaked, `{"leak": 0 to 1, ...}`; None where the suite is not to be trusted (see `warnings`)."""
        return self.tree["verdict"]

    @property
    def warnings(self) -> list[str]:
        return self.tree["warnings"]

    @classmethod
    def load(cls, folder: str | Path) -> AuditReport:
        """The report that was saved in `folder`; one that is not complete, or was changed since, is an error."""
        place = Path(folder)
        try:
            tree, written = (json.loads((place / name).read_text(encoding="utf-8")) for name in (AUDIT, CARD))
            if card(tree) == written:
                return cls(tree, Gallery.load(place), place)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass  # missing, damaged, or of another version
        raise RunFolderError(f"{folder} holds no complete audit.", "Make it again with: splitveil audit RUN")

    def save(self, folder: str | Path) -> None:
        """Write audit.json last: where it is, everything it speaks of is there too.

        A finished audit with other settings that lies there already is moved to `folder/earlier/NUMBER`.
        """
        folder = Path(folder)
        set_aside(folder, self.tree)
        (folder / AUDIT).unlink(missing_ok=True)
        self.gallery.save(folder)
        write_json(folder / CARD, card(self.tree))
        write_json(folder / AUDIT, self.tree)


def full_signature(pins: dict[str, Any], run_signature: str | None) -> str:
    """One line that pins what produced the numbers."""
    parts = "|".join(f"{key}:{value}" for key, value in pins.items())
    start = run_signature or f"splitveil:{__version__}|torch:{torch_version()}"
    return f"{start}|audit|{parts}"
