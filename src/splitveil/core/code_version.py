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
    """The syntax tree as text, without docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            del node.body[0]
    return _text(tree).encode()


def _text(node: object) -> str:
    """Like ast.dump, without empty fields: newer versions of Python add some to every node."""
    if isinstance(node, ast.AST):
        filled = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
        return f"{type(node).__name__}({', '.join(f'{name}={_text(value)}' for name, value in filled)})"
    if isinstance(node, list):
        return f"[{', '.join(_text(item) for item in node)}]"
    return repr(node)
