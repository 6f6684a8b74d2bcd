"""Recipes: TOML files found by path or by name. Splitveil's own lie in the package's `recipes` folder."""

from __future__ import annotations

from pathlib import Path

from splitveil.core.errors import UnknownNameError, UsageError, nearest
from splitveil.core.places import looks_like_path

FOLDER = Path(__file__).resolve().parents[1] / "recipes"
PUBLISHED = FOLDER / "published"  # numbers of others to set beside ours; no recipes


def recipe_names() -> list[str]:
    """Names of the recipes that come with Splitveil, such as `demo-fashion-mini` or `notes/n3-gated`."""
    files = [path for path in FOLDER.rglob("*.toml") if path.parent != PUBLISHED]
    return sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in files)


def find_recipe(name: str) -> Path:
    """The file of a recipe, given its path or its name."""
    path = Path(name)
    if path.is_file():
        return path
    if path.is_dir() and (path / "config.toml").is_file():
        raise UsageError(f"{name} is a run folder, not a recipe.", f"Its settings as a recipe: {path / 'config.toml'}")
    if name in recipe_names():
        return FOLDER / f"{name}.toml"
    folders = tuple({f"{known.split('/')[0]}/" for known in recipe_names() if "/" in known})
    if path.is_dir() and name not in {folder.rstrip("/") for folder in folders}:
        raise UsageError(f"{name} is a folder, not a recipe.", "Recipes that have a name: splitveil list recipes")
    if looks_like_path(name, ".toml") and not name.startswith(folders):
        raise UsageError(f"There is no file {name}.", "Recipes that have a name: splitveil list recipes")
    raise UnknownNameError(
        f"There is no recipe '{name}', neither as a file nor by name.", nearest(name, recipe_names())
    )


def recipe_summary(name: str) -> str:
    """The claim in a recipe's head comment."""
    for line in find_recipe(name).read_text(encoding="utf-8").splitlines():
        if line.startswith("# Claim"):
            return line.removeprefix("# Claim").strip()
    return ""
