"""`sv.audit` is a package that can be called: it shows the function's signature and explains wrong arguments."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import worlds

import splitveil as sv
from splitveil.audit.api import audit
from splitveil.audit.subjects import AuditData
from splitveil.core.errors import UsageError
from splitveil.core.run_folder import RunFolder

DATA = AuditData(aux=worlds.pictures(40, seed=1), test=worlds.pictures(12, seed=2))


def test_signature_and_docstring_are_the_functions() -> None:
    assert inspect.signature(sv.audit) == inspect.signature(audit)
    text = inspect.getdoc(sv.audit) or ""
    assert "num_images" in text
    assert (inspect.getdoc(audit) or "?") in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("num_image", "Did you mean 'num_images'"),
        ("budget", "check_budget"),
        ("train", r"AuditData\(train="),
        ("attributes", r"AuditData\(attributes="),
        ("sanity", "check_sanity"),
    ],
)
def test_an_unknown_argument_is_explained(name: str, words: str) -> None:
    wrong: dict[str, Any] = {name: 1}
    with pytest.raises(UsageError, match=f"no argument '{name}'.*{words}"):
        sv.audit(worlds.identity(), DATA, **wrong)


@pytest.mark.parametrize(
    ("given", "words"), [({"model": worlds.identity()}, "needs data=: "), ({}, "needs model= and data=: ")]
)
def test_a_missing_argument_is_told_with_an_example(given: dict[str, Any], words: str) -> None:
    for call in (lambda: sv.audit(**given), lambda: sv.audit(*given.values())):
        with pytest.raises(UsageError, match=words) as caught:
            call()
        assert "'fashion-mini'" in caught.value.hint


def test_importing_the_package_loads_no_torch() -> None:
    code = "import sys, splitveil.audit; splitveil.audit.__name__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("given", ["artefacts/mine", Path("artefacts/mine"), RunFolder(Path("artefacts/mine"))])
def test_a_folder_is_no_model(given: object) -> None:
    """`splitveil audit` attacks folders: `sv.audit` says so, with and without pictures."""
    said = r"not the folder artefacts/mine\. Attack it with: splitveil audit artefacts/mine"
    with pytest.raises(UsageError, match=said) as error:
        sv.audit(given)
    assert "audit_artefact" in error.value.hint
    with pytest.raises(UsageError, match=said):
        sv.audit(model=given, data=DATA)
