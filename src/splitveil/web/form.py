"""The form that starts a run, made from the typed configuration; and its check, with each error at its field."""

from __future__ import annotations

import copy
import re
from typing import Any

from splitveil.core.catalogue import DATASETS, DEFENCES, MODELS, SURROGATES
from splitveil.core.config import Config, load_config
from splitveil.core.dotted import flatten
from splitveil.core.errors import SplitveilError, UnknownNameError, nearest
from splitveil.core.options import Options
from splitveil.core.recipes import find_recipe, recipe_names, recipe_summary
from splitveil.core.sections import Audit, Data, Model, Train
from splitveil.core.toml import read_toml

SECTIONS: dict[str, type[Options]] = {"data": Data, "model": Model, "train": Train, "audit": Audit}
# What most people change; the rest is behind "more".
PLAIN = {
    "data.name", "data.limit", "model.name", "model.cut", "train.epochs", "train.batch_size", "train.lr",
    "train.privacy_weight", "train.schedule", "surrogate.mode", "surrogate.preset", "audit.tier",
}  # fmt: skip
MOST_ERRORS = 20


def recipes() -> list[dict[str, str]]:
    """Names and claims of the recipes that come with Splitveil and describe one run (not a whole sweep)."""
    single = [name for name in recipe_names() if "sweep" not in read_toml(find_recipe(name))]
    return [{"name": name, "summary": recipe_summary(name)} for name in single]


def recipe_tree(name: str) -> dict[str, Any]:
    """The settings of a recipe that comes with Splitveil. Files are not read by path: the page names no paths."""
    if name not in recipe_names():
        raise UnknownNameError(f"There is no recipe called '{name}'.", nearest(name, recipe_names()))
    return read_toml(find_recipe(name))


def form() -> dict[str, Any]:
    """Fields of every section, surrogate and defence: key, kind, default, limits, choices, description."""
    sections = {name: fields(options, name) for name, options in SECTIONS.items()}
    for key, choices in (("data", DATASETS.names()), ("model", MODELS.names())):
        next(field for field in sections[key] if field["key"] == f"{key}.name")["suggestions"] = choices
    surrogates, defences = {}, {}
    for name in SURROGATES.names():
        cls = SURROGATES.load(name)
        shown = [field for field in fields(cls.Options, "surrogate") if field["key"] != "surrogate.name"]
        for field in shown:
            if field["key"] == "surrogate.preset":
                field.update(kind="choice", choices=sorted(cls.PRESETS))
        modes = {mode: cls.resolve(name=name, mode=mode).model_dump(mode="json") for mode in ("corrected", "faithful")}
        surrogates[name] = {"summary": SURROGATES.describe(name), "fields": shown, "modes": modes}
    for name in DEFENCES.names():
        options = DEFENCES.load(name).Options
        defences[name] = {"summary": DEFENCES.describe(name), "fields": fields(options, f"defence.{name}")}
    return {"sections": sections, "surrogates": surrogates, "defences": defences}


def fields(options: type[Options], where: str) -> list[dict[str, Any]]:
    """One entry for each option of a component, read from its JSON schema; tables of tables have no place in a form."""
    entries = options.model_json_schema()["properties"].items()
    return [_field(f"{where}.{name}", entry) for name, entry in entries if not _is_table(entry)]


def _variants(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """The kinds of value that an option takes, apart from nothing."""
    return [one for one in entry.get("anyOf", [entry]) if one.get("type") != "null"]


def _is_table(entry: dict[str, Any]) -> bool:
    return any(one.get("type") == "object" for one in _variants(entry))


def _field(key: str, entry: dict[str, Any]) -> dict[str, Any]:
    variants = _variants(entry)
    kind = variants[0] if len(variants) == 1 else {"type": "string"}
    found: dict[str, Any] = {
        "key": key,
        "kind": {"integer": "whole", "number": "number", "boolean": "switch", "array": "list"}.get(
            kind.get("type", ""), "text"
        ),
        "optional": len(variants) < len(entry.get("anyOf", [entry])),
        "default": entry.get("default"),
        "description": re.sub(r" *\(SPEC [^)]*\)", "", entry.get("description", "")),  # for people, not for developers
        "plain": key in PLAIN or (key.startswith("defence.") and key.endswith((".sigma", ".channels", ".weight"))),
    }
    if "enum" in kind:
        found |= {"kind": "choice", "choices": list(kind["enum"])}
    for name, ours in (
        ("minimum", "low"),
        ("exclusiveMinimum", "low"),
        ("maximum", "high"),
        ("exclusiveMaximum", "high"),
    ):
        if name in kind:
            found[ours] = kind[name]
    return found


def check(tree: dict[str, Any]) -> list[dict[str, str]]:
    """Every error in a tree of settings, each with the key of its field ("" where no single field is to blame)."""
    left = {key: copy.deepcopy(value) for key, value in tree.items() if key in Config.model_fields}
    errors = [{"key": "", "message": f"There is no section '{key[:80]}'."} for key in tree if key not in left]
    for _ in range(MOST_ERRORS):  # each round finds one error, and takes its field out
        try:
            load_config(**left)
            return errors
        except SplitveilError as error:
            key = _blamed(str(error), left)
            errors.append({"key": key, "message": str(error)})
            # without its name a surrogate's other options mean nothing
            if not key or not _drop(left, "surrogate" if key == "surrogate.name" else key):
                return errors
        except (TypeError, ValueError, RecursionError) as error:  # values of a kind that no form sends
            return [*errors, {"key": "", "message": f"These settings cannot be read: {error}."}]
    return errors


def _blamed(message: str, tree: dict[str, Any]) -> str:
    """The key that an error names: in full where it does, else the field whose value it quotes."""
    for quoted in re.findall(r"'([\w.-]+)'", message):
        if "." in quoted and quoted.split(".")[0] in tree:
            # an element of a list is named by its place; the field is the list
            return re.sub(r"(\.\d+)+$", "", quoted)
    for name in _as_table(tree.get("defence")):
        if f"'{name}'" in message:
            return f"defence.{name}"
    for section in ("data", "model", "surrogate"):
        chosen = _as_table(tree.get(section)).get("name")
        if isinstance(chosen, str) and f"'{chosen}'" in message:
            return f"{section}.name"
    if re.search(r"\bpreset\b", message):
        return "surrogate.preset"
    keys = [key for key, value in flatten(tree).items() if value != {}]
    return next((key for key in keys if re.search(rf"\b{re.escape(key)}\b", message)), "")


def _as_table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _drop(tree: dict[str, Any], key: str) -> bool:
    *parents, name = key.split(".")
    for parent in parents:
        tree = _as_table(tree.get(parent))
    return tree.pop(name, None) is not None
