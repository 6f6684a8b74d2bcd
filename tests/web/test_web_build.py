"""The committed page is the one that the sources give; its own unit tests pass. The second half needs Node."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "web"
STATIC = ROOT / "src" / "splitveil" / "web" / "static"
SOURCES = ("index.html", "package-lock.json", "package.json", "public", "src", "tsconfig.json", "vite.config.ts")
NPM = shutil.which("npm")
with_node = pytest.mark.skipif(
    NPM is None or not (WEB / "node_modules").is_dir(),
    reason="the front end's tools are not installed (install Node, then: npm install --no-save --prefix web)",
)


def source_files() -> list[Path]:
    found = []
    for name in SOURCES:
        path = WEB / name
        found += [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return found


def test_built_page_matches_its_sources():
    digest = hashlib.sha256()
    for path in sorted(source_files(), key=lambda path: path.relative_to(WEB).as_posix()):
        digest.update(path.relative_to(WEB).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    recorded = json.loads((STATIC / "build.json").read_text(encoding="utf-8"))["sources"]
    assert recorded == digest.hexdigest(), "web/ has changed since the page was built: npm run build --prefix web"


def test_every_text_of_the_page_is_used():
    pages = "".join(path.read_text(encoding="utf-8") for path in (WEB / "src").glob("*.ts*") if path.stem != "texts")
    keys = re.findall(r'^  "([\w.]+)": \[', (WEB / "src" / "texts.ts").read_text(encoding="utf-8"), re.MULTILINE)
    built = tuple(re.findall(r"`([\w.]+\.)\$\{", pages))  # such as `status.${run.status}`
    assert len(keys) > 100
    assert [key for key in keys if f'"{key}"' not in pages and not key.startswith(built)] == []


def test_built_files_are_those_that_the_build_wrote():
    """Without Node as well: nobody has edited, added or lost one of them since."""
    recorded = json.loads((STATIC / "build.json").read_text(encoding="utf-8"))["files"]
    found = {path.relative_to(STATIC).as_posix(): path for path in STATIC.rglob("*") if path.is_file()}
    del found["build.json"]
    digests = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()}
    assert digests == recorded, "the built page has been changed by hand: npm run build --prefix web"


def test_page_names_no_other_place():
    """Nothing in the page leads elsewhere: no CDN, no fonts, no registry."""
    allowed = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml", "http://www.w3.org/1998/Math/MathML"}
    for path in [*STATIC.rglob("*.js"), *STATIC.rglob("*.css"), *STATIC.rglob("*.html"), *STATIC.rglob("*.svg")]:
        found = set(re.findall(r"https?://[^\s\"'`)<>\\]+", path.read_text(encoding="utf-8")))
        assert found <= allowed, path.name
    assert "resolved" not in (WEB / "package-lock.json").read_text(encoding="utf-8")


def test_the_lock_names_every_package_on_every_platform():
    """`npm ci` refuses a lock that lacks one, were it for another operating system only."""
    packages = json.loads((WEB / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    locked = {path.rpartition("node_modules/")[2] for path in packages}
    wanted = {
        name
        for package in packages.values()
        for kind in ("dependencies", "devDependencies", "optionalDependencies")
        for name in package.get(kind, {})
    }
    assert wanted <= locked


def test_page_never_writes_markup():
    """Names of runs reach the page as text only; preact escapes them unless one of these is used."""
    for path in (WEB / "src").iterdir():
        source = path.read_text(encoding="utf-8")
        for danger in (
            "dangerouslySetInnerHTML",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ):
            assert danger not in source, f"{path.name}: {danger}"


def test_wheel_ships_the_page():
    """Every built file is named by the package data of pyproject.toml."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["splitveil"]
    package = ROOT / "src" / "splitveil"
    shipped = {path for pattern in patterns for path in package.glob(pattern)}
    assert {path for path in STATIC.rglob("*") if path.is_file()} <= shipped


@with_node
@pytest.mark.slow
def test_unit_tests_of_the_front_end():
    done = subprocess.run([NPM, "test", "--silent"], cwd=WEB, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Tests .*[1-9]\d* passed", re.sub(r"\x1b\[\d*m", "", done.stdout))


@with_node
@pytest.mark.slow
def test_building_again_gives_the_same_bytes(tmp_path):
    environment = os.environ | {"SPLITVEIL_WEB_OUT": str(tmp_path / "static")}
    done = subprocess.run(
        [NPM, "run", "build", "--silent"], cwd=WEB, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    files = {path.relative_to(STATIC) for path in STATIC.rglob("*") if path.is_file()}
    assert {
        path.relative_to(tmp_path / "static") for path in (tmp_path / "static").rglob("*") if path.is_file()
    } == files
    for name in files:
        assert (tmp_path / "static" / name).read_bytes() == (STATIC / name).read_bytes(), name
