"""The checksum of the code must not depend on the version of Python that computes it."""

from __future__ import annotations

import ast

import pytest

from splitveil.core.code_version import _meaning


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
