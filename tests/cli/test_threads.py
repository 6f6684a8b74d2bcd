"""Threads that wait give their core away, unless somebody has decided otherwise."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

NAMES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
SAYS = """
import json, os, sys
from splitveil.cli import main
try:
    main(["list", "surrogates"])
except SystemExit:
    pass
print(json.dumps({name: os.environ.get(name) for name in sys.argv[1:]}))
"""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ["1000", None]),
        ({"GOMP_SPINCOUNT": "7"}, ["7", None]),
        ({"OMP_WAIT_POLICY": "active"}, [None, "active"]),
    ],
)
def test_the_command_lets_threads_give_way_unless_told_otherwise(
    given: dict[str, str], expected: list[str | None]
) -> None:
    env = {name: value for name, value in os.environ.items() if name not in NAMES} | given
    done = subprocess.run([sys.executable, "-c", SAYS, *NAMES], env=env, capture_output=True, text=True, check=True)
    assert list(json.loads(done.stdout.splitlines()[-1]).values()) == expected
