"""`splitveil list` and `splitveil show`: what there is, and what one thing does."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Annotated, Any

import typer


def list_(
    family: Annotated[
        str | None,
        typer.Argument(
            help="surrogates, defences, attacks, datasets, models, measures or recipes.", show_default=False
        ),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """List surrogates, defences, attacks, data sets, models, measures and recipes.

    Example: splitveil list surrogates
    """
    from splitveil.core.errors import UnknownNameError, nearest

    everything = _everything()
    if family == "data":  # as in `sv.data`
        family = "datasets"
    if family is not None and family not in everything:
        raise UnknownNameError(f"There is no family called '{family}'.", nearest(family, everything))
    chosen = {name: rows for name, rows in everything.items() if family in (None, name)}
    if json_:
        print(json.dumps(chosen, indent=2))
        return
    for name, rows in chosen.items():
        print(f"{name}:")
        for entry, summary in rows.items():
            print(f"  {entry:<22} {summary}")


def show(
    name: Annotated[str, typer.Argument(help="Any name that splitveil list prints.")],
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Show what one thing does and which options it has.

    Options of a surrogate are shown with their faithful value and, after an arrow, with the value that the corrected
    mode (the default) sets instead.

    Example: splitveil show gmm
    """
    from splitveil.core.catalogue import FAMILIES
    from splitveil.core.errors import UnknownNameError, UsageError, nearest
    from splitveil.core.recipes import find_recipe, recipe_names

    everything = _everything()
    families = [family for family, rows in everything.items() if name in rows]
    if not families:
        from splitveil.cli import VERBS

        if name in VERBS:
            raise UsageError(f"{name} is a command.", f"See: splitveil {name} --help")
        known = {entry for rows in everything.values() for entry in rows}
        raise UnknownNameError(f"There is nothing called '{name}'.", nearest(name, known))
    family = families[0]
    if family == "recipes" and name in recipe_names():
        _show_recipe(find_recipe(name), {"name": name, "family": family, "summary": everything[family][name]}, json_)
        return
    target = FAMILIES[family].load(name)
    facts: dict[str, Any] = {"name": name, "family": family, "summary": everything[family][name]}
    module = inspect.getmodule(target)
    facts["documentation"] = (
        inspect.getdoc(module) or inspect.getdoc(target) or ""
    )  # ours explain at the head of the file
    facts["options"] = _options(target)
    if hasattr(target, "PRESETS"):
        facts["presets"] = sorted(target.PRESETS)
    if json_:
        print(json.dumps(facts, indent=2))
        return
    print(f"{name} ({family}): {facts['summary']}\n\n{facts['documentation']}")
    if facts["options"]:
        print("\noptions:")
        for option, row in facts["options"].items():
            changed = f" -> {row['corrected']!r}" if row["corrected"] != row["default"] else ""
            print(f"  {option} = {row['default']!r}{changed}  {row['description']}".rstrip())
    if facts.get("presets"):
        print("\npresets: " + ", ".join(facts["presets"]))


def _show_recipe(path: Path, facts: dict[str, Any], json_: bool) -> None:
    """A recipe as it is written; as JSON its settings too."""
    from splitveil.core.toml import read_toml

    text = path.read_text(encoding="utf-8")
    if json_:
        print(json.dumps({**facts, "documentation": text, "settings": read_toml(path)}, indent=2))
    else:
        print(text, end="")


def _everything() -> dict[str, dict[str, str]]:
    from splitveil.core.catalogue import FAMILIES
    from splitveil.core.recipes import recipe_names, recipe_summary

    rows = {family: {n: registry.describe(n) for n in registry.names()} for family, registry in FAMILIES.items()}
    return rows | {"recipes": {name: recipe_summary(name) for name in recipe_names()}}


def _options(target: Any) -> dict[str, dict[str, Any]]:
    """Default and description of every option; for a surrogate also the value in the corrected mode."""
    options = getattr(target, "Options", None)
    if options is None:
        return {}
    modes = getattr(target, "MODES", {})
    rows = {}
    for name, field in options.model_fields.items():
        default = _plain(field.get_default(call_default_factory=True))
        corrected = _plain(modes.get("corrected", {}).get(name, default))
        rows[name] = {"default": default, "corrected": corrected, "description": field.description or ""}
    return rows


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | list | tuple | None) else str(value)
