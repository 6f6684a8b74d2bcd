"""Every item of the acceptance list (SPEC 10) has a test that carries its number."""

from __future__ import annotations

import re
from pathlib import Path

ITEMS = {
    0: 6,  # contract
    1: 8,  # gmm
    2: 5,  # slot_cross
    3: 7,  # gated
    4: 10,  # slot_gated
    5: 5,  # enhanced
    6: 7,  # training
    7: 1,  # models
    8: 5,  # evaluation
}


def test_no_item_of_the_acceptance_list_is_missing() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].rglob("test_*.py"))
    found = {(int(a), int(b)) for a, b in re.findall(r"def test_s(\d)_(\d+)_", text)}
    expected = {(section, item) for section, count in ITEMS.items() for item in range(1, count + 1)}
    assert expected - found == set()
    assert found - expected == set()
