"""The one frozen tree that describes a run: data, model, defence, surrogate, train, audit, seed.

A recipe is a TOML file. Precedence: defaults < recipe < `--set section.key=value`. Options of a surrogate or of a
defence belong to that component (its `Options` class); they are looked up through the registry, never by import path.
`resolved` fills in what depends on the chosen surrogate, so that the `config.toml` of a run is complete.
"""

from __future__ import annotations

import os
from copy import copy
from pathlib import Path
from typing import Any

from pydantic import Field, SerializeAsAny, model_validator

from splitveil.core.catalogue import DATASETS, DEFENCES, MODELS, SURROGATES
from splitveil.core.dotted import put
from splitveil.core.errors import ConfigError, NoPicturesError, SplitveilError, nearest
from splitveil.core.listed import listed
from splitveil.core.nearest_folder import folder_hint
from splitveil.core.options import Options
from splitveil.core.places import looks_like_path
from splitveil.core.recipes import find_recipe
from splitveil.core.sections import Audit, Data, Model, Train, as_table
from splitveil.core.toml import dump_toml, parse_value, read_toml


class Config(Options):
    """A whole run."""

    seed: int = Field(125, ge=0, description="fixes weights, parts, order, noise and augmentation")
    data: Data = Data()
    model: Model = Model()
    defence: dict[str, SerializeAsAny[Options]] = Field(default_factory=dict)
    surrogate: SerializeAsAny[Options] | None = None
    train: Train = Train()
    audit: Audit = Audit()

    @model_validator(mode="before")
    @classmethod
    def _component_options(cls, tree: Any) -> Any:
        """Let each named component parse its own table."""
        if not isinstance(tree, dict):
            return tree
        tree = dict(tree)
        if isinstance(tree.get("defence"), dict):
            named = {name: _defence_options(name, table) for name, table in tree["defence"].items()}
            tree["defence"] = {name: options for name, options in named.items() if options is not None}
        if isinstance(tree.get("surrogate"), dict):
            tree["surrogate"] = _surrogate_options(tree["surrogate"])
        return tree

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise declared in `defence.noise` (0 without noise)."""
        noise = self.defence.get("noise")
        return float(getattr(noise, "sigma", 0.0))

    def to_toml(self) -> str:
        """Complete TOML text that parses back to an equal tree."""
        return dump_toml(self.model_dump(mode="json"))


def _defence_options(name: str, table: Any) -> Options | None:
    """The options of one defence; None where `NAME = false` takes it away."""
    if isinstance(table, Options):
        return table
    if table is False:
        DEFENCES.entry(name)  # a slip would leave the defence that was meant
        return None
    options: type[Options] = DEFENCES.load(name).Options
    return options.parse(as_table(table, f"defence.{name}"), f"defence.{name}")


def _surrogate_options(table: dict[str, Any]) -> Options | None:
    name = table.get("name")
    if name is None:
        raise ConfigError("[surrogate] needs a name.", f"Choose one of {', '.join(SURROGATES.names())}, or 'none'.")
    if name == "none":
        return None
    rest = {key: value for key, value in table.items() if key != "name"}
    return SURROGATES.load(name).resolve(where="surrogate", **rest)


def load_config(recipe: str | Path | None = None, overrides: list[str] | None = None, **tree: Any) -> Config:
    """A config from a recipe (its path or name), a tree given as keywords, and `section.key=value` overrides.

    Where several are given, the later one of these three counts, key by key.
    """
    if not isinstance(recipe, str | Path | None):
        raise ConfigError(f"A recipe is a path or a name, not a {type(recipe).__name__}.", "Try load_config(**tree).")
    if isinstance(recipe, str):
        recipe = find_recipe(recipe)
    written = read_toml(recipe) if recipe is not None else {}
    stated = copy(written.get("surrogate"))
    values = _merged(written, tree)
    for text in overrides or []:
        set_key(values, text)
    if "sweep" in values:
        raise ConfigError(
            f"{recipe or 'This recipe'} describes many runs: it has a [sweep] table.",
            "Run it with: splitveil sweep RECIPE",
        )
    for section in ("data", "model", "defence", "surrogate", "train", "audit"):
        if section in values and not isinstance(values[section], Options):
            as_table(values[section], section)
    unknown = set(values) - set(Config.model_fields)
    if unknown:
        key = sorted(unknown)[0]
        raise ConfigError(f"Unknown key '{key}'.", nearest(key, Config.model_fields))
    check_that_names_act(stated, values.get("surrogate"))
    return resolved(Config.parse(values, ""))


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Both trees, table by table; where both have a value, that of `above`."""
    both = {key: (below[key], value) for key, value in above.items() if key in below}
    tables = {key: _merged(*pair) for key, pair in both.items() if all(isinstance(table, dict) for table in pair)}
    return below | above | tables


def set_key(tree: dict[str, Any], text: str) -> None:
    """Apply one `section.key=value` to a nested dictionary."""
    path, equals, raw = text.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise ConfigError(f"'{text}' is not of the form section.key=value.")
    put(tree, keys, parse_value(raw.strip()), where=f"'{text}'")


def check_that_names_act(before: Any, after: Any) -> None:
    """Refuse another mode or preset for a [surrogate] that states all options itself, as the config.toml of a run does:
    only the name would change, and the run would be called what it is not. Another surrogate must know its options."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return
    if before.get("name") != after.get("name"):
        _check_options_left(before, after)
        return
    names = ("name", "mode", "preset")
    changed = [key for key in names[1:] if key in after and before.get(key) != after[key]]
    if not changed:
        return
    try:
        stated = _options(before)
    except SplitveilError:  # a slip in the recipe, which this may mend
        return
    named = ({key: table[key] for key in names if key in table} for table in (before, after))
    if stated == _options(after) and len({str(_options(table)) for table in named}) == 2:
        key = changed[0]
        raise ConfigError(
            f"surrogate.{key}={after[key]} would be a mere name: the recipe states all that it stands for.",
            "Delete the other options in its [surrogate], or take the recipe that the run was made with.",
        )


def _check_options_left(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Refuse another surrogate beside options that only the one before knows: 'unknown key' would name no way out."""
    name = after.get("name")
    if name is None or name == "none":
        return
    known = SURROGATES.load(name).Options.model_fields
    left = [key for key in before if key in after and key != "name" and key not in known]
    if left:
        raise ConfigError(
            f"surrogate.name={name} leaves options in [surrogate] that it does not know: {listed(left, between=', ')}.",
            f"Replace them all: --set 'surrogate={{name = \"{name}\"}}', or take the recipe of the run.",
        )


def _options(table: dict[str, Any]) -> dict[str, Any]:
    """What a surrogate does, whatever it is called."""
    options = _surrogate_options(table)
    return {} if options is None else options.model_dump(exclude={"mode", "preset"})


def names_a_path(name: str) -> bool:
    """Whether `data.name` is the path of something, and not a name; what is neither is an error."""
    if name in DATASETS.names():
        return False
    choices = "Name one of: " + ", ".join(DATASETS.names()) + "; or a file or folder."
    try:
        os.stat(name)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a null byte
        near = folder_hint(name, choices, files=True) if name else choices
        if looks_like_path(name, ".npz"):
            raise NoPicturesError(f"There is no file or folder {name}.", near) from None
        alike = nearest(name, DATASETS.names())
        hint = alike if alike.startswith("Did") else near
        raise NoPicturesError(f"There is no data set, file or folder called '{name}'.", hint) from None
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ConfigError(f"'data.name' is no data set, and as a path it cannot be read: {reason}.", choices) from None
    return True


def resolved(config: Config) -> Config:
    """Check names; fill every `None` of [train] with what the surrogate's mode recommends, and the cut by the model."""
    names_a_path(config.data.name)
    cut = getattr(MODELS.load(config.model.name), "default_cut", None) if config.model.cut is None else config.model.cut
    defaults: dict[str, Any] = {"compose": "single", "wlr": "capped", "warmup_epochs": 0, "privacy_every": 1}
    if config.surrogate is not None:
        defaults |= getattr(config.surrogate, "training_defaults", {})
    if config.train.init_from is not None:
        defaults["wlr"] = "off"  # SPEC 6.4: w_lr = 1 when fine-tuning
    update = {key: value for key, value in defaults.items() if getattr(config.train, key) is None}
    model = config.model.model_copy(update={"cut": cut})
    return config.model_copy(update={"model": model, "train": config.train.model_copy(update=update)})
