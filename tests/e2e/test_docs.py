"""The pages do what they say: code blocks run, commands exist, links lead somewhere, generated parts are up to date."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
import yaml
from tests.worlds.scripts import load_script

import splitveil as sv
from splitveil.cli import VERBS, app
from splitveil.core.catalogue import FAMILIES, SURROGATES
from splitveil.core.recipes import find_recipe

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
WITH_CODE = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]
PLACEHOLDERS = ("RECIPE", "RUN", "PATH", "NAME")  # words that stand for something of the reader's own


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[list[str]]:
    """Every `splitveil ...` line of the shell blocks, and every one in backquotes, as words."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    lines += re.findall(r"`(splitveil [^`]+)`", page.read_text(encoding="utf-8"))
    found = [shlex.split(line, comments=True) for line in lines]
    return [words[words.index("splitveil") + 1 :] for words in found if "splitveil" in words[:4]]


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub and mkdocs make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for number, block in enumerate(blocks(page, "python"), start=1):
        exec(compile(block, f"{name_of(page)}, block {number}", "exec", dont_inherit=True), namespace)


FILES = [
    block for block in blocks(ROOT / "docs" / "extending.md", "python") if re.search(r"^class |^def edges", block, re.M)
]


@pytest.mark.parametrize("block", FILES, ids=[re.findall(r"^(?:class|def) (\w+)", block, re.M)[-1] for block in FILES])
def test_each_plug_in_on_the_page_about_extending_is_a_whole_file(block: str) -> None:
    """Somebody copies the one that he needs; nothing that stands elsewhere on the page may be missing in it."""
    exec(compile(block, "plug_in.py", "exec", dont_inherit=True), {"__name__": "plug_in"})
    names = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F", "--output-format", "concise", "-"]
    found = subprocess.run(names, input=block, capture_output=True, text=True, check=False)  # unknown and unused names
    assert found.returncode == 0, found.stdout


def extending_until(name: str) -> dict[str, Any]:
    """What the blocks of docs/extending.md define, up to the one that defines `name`."""
    namespace: dict[str, Any] = {}
    for block in blocks(ROOT / "docs" / "extending.md", "python"):
        exec(compile(block, "docs/extending.md", "exec", dont_inherit=True), namespace)
        if name in namespace:
            break
    return namespace


def test_the_defence_on_the_page_about_extending_declares_the_noise_that_it_sends() -> None:
    """Whoever copies it into the package meets the contract tests, which hold every defence to this."""
    namespace = extending_until("Quantise")
    defence = namespace["Quantise"](namespace["QuantiseOptions"](levels=16))
    random = torch.Generator().manual_seed(0)
    feature = torch.rand(1, 8, 8, 8, generator=random)
    spread = defence.transmit(feature.expand(2000, 8, 8, 8), random).var(dim=0).mean()
    assert defence.noise_power() == pytest.approx(float(spread), rel=0.05)


def test_the_data_set_on_the_page_about_extending_can_be_audited() -> None:
    """Audits refuse to attack pictures that the attacker has, too."""
    pictures = extending_until("STRIPES")["STRIPES"].open(Path())
    assert not set(pictures.train.fingerprints()) & set(pictures.test.fingerprints())


def test_every_public_name_is_on_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    missing = [name for name in sv.__all__ if not name.startswith("_") and not re.search(rf"\bsv\.{name}\b", text)]
    assert missing == []


def test_the_three_lines_of_the_readme_are_there() -> None:
    code = "\n".join(blocks(ROOT / "README.md", "python"))
    assert "sv.surrogates.create(" in code
    assert "out = surrogate(z, labels)" in code
    assert "weight * out.loss + out.fit_loss" in code


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_parse(page: Path) -> None:
    parsers = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for words in commands(page):
        verb = words[0]
        if verb == "--help":
            continue
        assert verb in VERBS, f"{name_of(page)}: there is no verb '{verb}'"
        if len(words) > 1 and words[1] != "...":
            parsers[verb].make_context(verb, words[1:])  # an unknown option or a missing argument raises
        if verb == "train" and words[1:] and words[1] not in PLACEHOLDERS and not words[1].endswith(".toml"):
            assert find_recipe(words[1]).is_file()


def test_the_readme_shows_commands() -> None:
    assert {words[0] for words in commands(ROOT / "README.md")} >= {
        "train",
        "audit",
        "report",
        "list",
        "show",
        "doctor",
    }


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = page if not path else (page.parent / path).resolve()
        assert file.exists(), f"{name_of(page)} links to {target}, which does not exist"
        if anchor:
            assert anchor in anchors(file), f"{name_of(page)} links to {target}, but there is no such heading"


def test_pages_of_the_site_stay_inside_it() -> None:
    for page in ROOT.glob("docs/**/*.md"):
        for target in re.findall(r"\]\((\.\.[^)\s]*)\)", page.read_text(encoding="utf-8")):
            inside = (page.parent / target.partition("#")[0]).resolve()
            assert inside.is_relative_to(ROOT / "docs"), f"{name_of(page)}: {target} leaves docs/"


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_readme_names_everything_there_is(family: str) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    missing = [name for name in FAMILIES[family].names() if f"`{name}`" not in text]
    assert not missing, f"README.md does not name the {family} {missing}"


def test_the_catalogue_is_up_to_date() -> None:
    written = (ROOT / "docs" / "catalogue.md").read_text(encoding="utf-8")
    assert written == load_script("scripts/make_catalogue.py").catalogue(), "run: python scripts/make_catalogue.py"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_rows_of_a_table_have_as_many_cells_as_its_head(page: Path) -> None:
    cells = None
    for line in page.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            cells = None
            continue
        count = len(re.findall(r"(?<!\\)\|", line))
        cells = cells or count
        assert count == cells, f"{name_of(page)}: {line}"


def test_the_results_are_up_to_date() -> None:
    text, figures = load_script("scripts/make_results.py").page()
    assert (ROOT / "docs" / "results.md").read_text(encoding="utf-8") == text, "run: make results"
    drawn = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs/images/results").glob("*.svg")}
    assert drawn == figures, "run: make results"


@pytest.mark.parametrize("name", SURROGATES.names())
def test_methods_names_every_correction(name: str) -> None:
    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    cls = SURROGATES.load(name)
    faithful, corrected = cls.resolve(mode="faithful"), cls.resolve(mode="corrected")
    changed = [key for key in cls.Options.model_fields if getattr(faithful, key) != getattr(corrected, key)]
    missing = [key for key in changed if key != "mode" and not re.search(rf"`(train\.)?{key}\b", text)]
    assert not missing, f"docs/methods.md does not explain {missing} of {name}"


@pytest.mark.parametrize("name", SURROGATES.names())
@pytest.mark.parametrize("mode", ["faithful", "corrected"])
def test_methods_counts_parameters_rightly(name: str, mode: str) -> None:
    made = sv.surrogates.create(name, feature_shape=(8, 8, 8), num_classes=10, sigma=0.025, mode=mode)
    count = sum(parameter.numel() for parameter in made.parameters())
    lines = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| parameters (8x8x8")]
    heads = [line for line in lines if line.startswith("| step |")]
    place = ["faithful", "corrected"].index(mode)
    columns = [re.findall(r"`(\w+)`", cell) for cell in heads[place].split("|")[2:-1]]
    counts = dict(zip([found[0] for found in columns], rows[place].split("|")[2:-1], strict=True))
    if name in counts:
        assert counts[name].strip() == f"{count:,}"
    else:
        assert (name, mode) == ("rate", "faithful")


def test_the_site_has_every_page_and_loads_nothing_from_elsewhere() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    site = yaml.safe_load(text)
    assert site["theme"]["font"] is False
    assert "http" not in text
    named = set(re.findall(r"[\w/-]+\.md", text))
    assert all((ROOT / "docs" / page).is_file() for page in named)
    assert named == {page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md")}


def test_the_first_page_leads_to_every_other() -> None:
    linked = set(re.findall(r"\]\(([\w/-]+\.md)\)", (ROOT / "docs" / "index.md").read_text(encoding="utf-8")))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md")}
    assert linked == pages - {"index.md"}


def test_the_page_about_the_code_knows_every_folder_and_file_that_it_names() -> None:
    package = ROOT / "src" / "splitveil"
    rows = [line.split("|")[1:-1] for line in (ROOT / "docs" / "code.md").read_text(encoding="utf-8").splitlines()]
    named = {row[0].strip(" `"): re.findall(r"`([\w./-]+\.(?:py|toml))`", row[2]) for row in rows if len(row) == 3}
    folders = {path.name for path in package.iterdir() if path.is_dir() and not path.name.startswith("_")}
    assert {name for name in named if name.isidentifier()} - {"folder"} == folders
    places = [package / name / file for name, files in named.items() for file in files]
    assert [place for place in places if not place.exists()] == []


def test_hooks_fetch_nothing() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [entry["repo"] for entry in hooks["repos"]] == ["local"]
    assert all(hook["language"] == "system" for hook in hooks["repos"][0]["hooks"])


def test_the_citation_names_this_version_and_the_origin_of_the_method() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == sv.__version__
    assert any("2503.00383" in str(reference) for reference in citation["references"])
