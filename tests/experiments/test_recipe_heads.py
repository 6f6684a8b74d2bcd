"""What the head comment of a shipped recipe says: claim, command, expectation and time, and they must be true."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from splitveil.cli import app
from splitveil.core.recipes import recipe_names, recipe_summary
from splitveil.experiments.compare.reference import find_reference
from splitveil.experiments.sweep.cells import expand
from splitveil.experiments.sweep.recipe import load_sweep

ROOT = Path(__file__).resolve().parents[2]
HEADS = ("Claim", "Command", "Expected", "Time")
LOCAL = ("demo-fashion-mini", "sweep-demo")  # these say how long they take beside what to expect


def head(name: str) -> dict[str, str]:
    """The comment above the first setting, by its leading words; continuation lines are joined."""
    found: dict[str, str] = {}
    last = ""
    for line in (ROOT / "recipes" / f"{name}.toml").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        word, _, rest = line.removeprefix("# ").partition(" ")
        last = word if word in HEADS else last
        found[last] = (
            f"{found.get(last, '')} {rest.strip() if word in HEADS else line.removeprefix('#').strip()}".strip()
        )
    return found


@pytest.mark.parametrize("name", recipe_names())
def test_the_head_is_complete_and_its_commands_can_be_given(name: str) -> None:
    parts = head(name)
    assert [word for word in HEADS if not parts.get(word)] == (["Time"] if name in LOCAL else [])
    assert recipe_summary(name) == parts["Claim"]  # the catalogue shows one line
    verbs = get_command(app).commands  # type: ignore[attr-defined]
    first, *later = parts["Command"].replace("\\ ", "").split(" && ")
    assert shlex.split(first)[2] == name
    for command in (first, *later):
        program, verb, *words = shlex.split(command)
        assert program == "splitveil"
        options = {option for parameter in verbs[verb].params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options
        if "--reference" in words:
            assert find_reference(words[words.index("--reference") + 1]).is_file()
    made = [words[words.index("--out") + 1] for words in [shlex.split(first)] if "--out" in words]
    assert [shlex.split(command)[2] for command in later] == made * len(later)  # what is compared is what was made


@pytest.mark.parametrize("name", recipe_names())
def test_a_sweep_has_as_many_cells_of_as_many_epochs_as_its_head_says(name: str) -> None:
    if not head(name)["Command"].startswith("splitveil sweep") or name.startswith("notes/"):
        assert len(expand(load_sweep(name))) == 1
        return
    cells = expand(load_sweep(name))
    text = " ".join(head(name).values())
    told = re.search(r"\b(\d+) cells(?: of (\d+) epochs)?", text)
    assert told, text
    assert int(told[1]) == len(cells)
    assert told[2] in (None, *{str(cell.config.train.epochs) for cell in cells})


@pytest.mark.parametrize("name", recipe_names())
def test_the_command_gives_what_the_head_says_to_expect(name: str) -> None:
    command, expected = head(name)["Command"], head(name)["Expected"]
    words = shlex.split(command)
    if "MSE" in expected and words[1] == "train":
        assert "&& splitveil audit " in command  # training alone attacks nothing
    if words[1] == "sweep":
        seeds = {str(cell.seed) for cell in expand(load_sweep(name))}
        seeds |= set(words[words.index("--seeds") + 1].split(",")) if "--seeds" in words else set()
        for told in re.findall(r"with seeds ([\d, and]+)", expected):
            assert set(re.findall(r"\d+", told)) <= seeds
    at = {float(words[place + 1]) for place, word in enumerate(words) if word == "--at"}
    assert {float(told) / 100 for told in re.findall(r"at ([\d.]+) % accuracy", expected)} <= at


@pytest.mark.parametrize(
    ("name", "method"),
    [("cifar10-bottleneck", "bottleneck, noise .01"), ("cifar10-gmm-released", "gmm.released 8, noise .025")],
)
def test_a_recipe_that_quotes_a_row_of_a_table_trains_as_the_row_did(name: str, method: str) -> None:
    (row,) = [cell.config for cell in expand(load_sweep("defences-cifar10")) if cell.method == method]
    (own,) = [cell.config for cell in expand(load_sweep(name))]
    assert own.train.model_copy(update={"eval_every": row.train.eval_every}) == row.train
    assert (own.seed, own.data, own.model, own.defence, own.surrogate) == (
        row.seed,
        row.data,
        row.model,
        row.defence,
        row.surrogate,
    )
