"""The checksum of the code must not depend on the version of Python that computes it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from splitveil.core.code_version import _meaning, checksum


def test_the_text_of_a_tree_is_spelled_out() -> None:
    """Python 3.11 writes `decorator_list=[]` into it, Python 3.12 `type_params=[]` as well, Python 3.13 neither."""
    assert _meaning(b"def f(x):\n    return x\n") == (
        b"Module(body=[FunctionDef(name='f', args=arguments(args=[arg(arg='x')]), "
        b"body=[Return(value=Name(id='x', ctx=Load()))])])"
    )


def test_a_field_that_a_later_python_adds_empty_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _meaning(b"def f(x):\n    return x\n")

    class Later(ast.FunctionDef):
        _fields = (*ast.FunctionDef._fields, "added_later")

    Later.__name__ = "FunctionDef"
    parse = ast.parse

    def later(source: bytes) -> ast.Module:
        tree = parse(source)
        old = tree.body[0]
        new = Later(**dict(ast.iter_fields(old)), added_later=[])
        tree.body[0] = ast.copy_location(new, old)
        return tree

    monkeypatch.setattr(ast, "parse", later)
    assert _meaning(b"def f(x):\n    return x\n") == before


@pytest.mark.parametrize(
    ("one", "other"),
    [("return", "return None"), ("x[:1]", "x[0:1]"), ("f()", "f(None)"), ("{}", "[]"), ("x = True", "x = 1")],
)
def test_what_differs_in_meaning_differs_in_text(one: str, other: str) -> None:
    wrap = "def f(x):\n    {}\n"
    assert _meaning(wrap.format(one).encode()) != _meaning(wrap.format(other).encode())


@pytest.mark.parametrize(
    "source", ["{}x = 1", "class A:\n    {}x = 1", "def f():\n    {}return 1", "async def f():\n    {}return 1"]
)
def test_docstrings_do_not_count(source: str) -> None:
    words = '"""Words."""\n' + " " * 4 * source.count("    ")
    assert _meaning(source.format(words).encode()) == _meaning(source.format("").encode())


@pytest.mark.parametrize(
    "folder",
    ["core", "functional", "surrogates", "defences", "models", "data", "training", "attacks", "audit"],
)
def test_an_edit_of_whatever_bears_on_results_is_another_version(folder: str, tmp_path: Path) -> None:
    found = []
    for content in ("x = 1", "x = 2"):
        (tmp_path / folder / "inside").mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "inside" / "file.py").write_text(content)
        found.append(checksum(tmp_path))
    assert found[0] != found[1]


def test_a_file_under_another_name_is_another_version(tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "one.py").write_text("x = 1")
    before = checksum(tmp_path)
    (tmp_path / "core" / "one.py").rename(tmp_path / "core" / "other.py")
    assert checksum(tmp_path) != before


def test_the_order_in_which_a_disk_lists_files_does_not_count(tmp_path: Path) -> None:
    names = ("a.py", "b.py", "c.py")
    for place, order in (("one", names), ("other", names[::-1])):
        (tmp_path / place / "core").mkdir(parents=True)
        for name in order:
            (tmp_path / place / "core" / name).write_text(f"x = {name!r}")
    assert checksum(tmp_path / "one") == checksum(tmp_path / "other")
