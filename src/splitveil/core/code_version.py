"""Which code made a number: a checksum of the sources that bear on results.

A git revision changes with every word in a document and is absent from an installed package; this checksum changes only
when the meaning of the code does. Comments, docstrings and formatting do not count.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]
BEARING = ("core", "functional", "surrogates", "defences", "models", "data", "training", "attacks", "audit")

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def code_version() -> str:
    """Short checksum of the running package; the same wherever the sources are the same, whatever the Python."""
    return checksum(PACKAGE)


def checksum(package: Path) -> str:
    """Short checksum of the meaning of all Python files below the folders that bear on results."""
    return checksum_of(package, [path for folder in BEARING for path in sorted((package / folder).rglob("*.py"))])


def checksum_of(root: Path, files: Iterable[Path]) -> str:
    """Short checksum of the meaning of Python files and of their places below `root`, in the order given."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(_meaning(path.read_bytes()) + b"\0")
    return digest.hexdigest()[:12]


def _meaning(source: bytes) -> bytes:
    """The syntax tree as text. Every process that trains needs it of all files, so that it is written in one pass."""
    return _text(ast.parse(source)).encode()


def _text(node: object) -> str:
    """Like ast.dump, without docstrings and without empty fields: newer versions of Python add some to every node."""
    if isinstance(node, list):
        return f"[{', '.join([_text(item) for item in node])}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    filled = []
    for name in node._fields:
        value: Any = getattr(node, name, None)
        if name == "body" and isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            value = value[1:]
        if value is not None and value != []:
            filled.append(f"{name}={_text(value)}")
    return f"{type(node).__name__}({', '.join(filled)})"
