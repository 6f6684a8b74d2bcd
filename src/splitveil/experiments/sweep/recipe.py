"""A sweep recipe: an ordinary recipe, which is what all cells share, and one [sweep] table, which is what differs."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from splitveil.core.catalogue import ATTACKS, MEASURES
from splitveil.core.config import Config, check_that_names_act, set_key
from splitveil.core.errors import ConfigError, UnknownNameError, nearest
from splitveil.core.options import Options
from splitveil.core.recipes import PUBLISHED, find_recipe
from splitveil.core.toml import read_toml
from splitveil.experiments.compare.measures import LEAKS, WORST, WORST_ONCE
from splitveil.experiments.compare.reference import find_reference
from splitveil.experiments.compare.view import View
from splitveil.experiments.sweep.call import call_of

Mode = Literal["training_time", "inference_time"]
Grid = dict[str, list[Any]]


def attack_of(name: str) -> str:
    """The attack that must be made for what is compared under a name; none in particular for a worst case.

    >>> attack_of("decoder.best_epoch"), attack_of("membership"), attack_of("worst_case")
    ('decoder', 'membership', '')
    """
    return "" if name in (WORST, WORST_ONCE) else name.partition(".")[0]


class Method(Options):
    """One row of the table that the sweep makes: what it puts over the shared recipe."""

    name: str = Field(description="label in tables")
    surrogate: dict[str, Any] | Literal["none"] | None = Field(None, description="replaces the shared [surrogate]")
    defence: dict[str, dict[str, Any] | Literal[False]] = Field({}, description="merged; false takes one away")
    data: dict[str, Any] = Field({}, description="merged over the shared [data]")
    model: dict[str, Any] = Field({}, description="merged over the shared [model]")
    train: dict[str, Any] = Field({}, description="merged over the shared [train]")
    audit: dict[str, Any] = Field({}, description="merged over the shared [audit]")
    grid: Grid = Field({}, description="this method's own strengths")

    @field_validator("grid")
    @classmethod
    def _axes(cls, grid: Grid) -> Grid:
        return checked_grid(grid)


class Compare(Options):
    """How the cells are compared when the sweep is done, and by `splitveil compare OUT` if not told otherwise."""

    attacks: list[str] = Field([], description="attacks to score; the worst case over all when absent")
    measure: str = Field("mse", description="what is compared")
    at: list[float] = Field([], description="accuracies at which to interpolate")
    accuracy: str = Field("late", description="late: of the last epochs; kept: of the attacked weights")
    baseline: str = Field("", description="test every method against this one only")
    pairs: list[tuple[str, str]] = Field([], description="test these pairs of methods only")
    reference: str = Field("", description="published numbers to set beside ours: a name, or a file beside the recipe")

    @field_validator("measure")
    @classmethod
    def _known_measure(cls, measure: str) -> str:
        known = [*LEAKS, *MEASURES.names()]
        if measure not in known:
            raise UnknownNameError(f"There is no measure called '{measure}'.", nearest(measure, known))
        return measure

    @field_validator("attacks")
    @classmethod
    def _known_attacks(cls, attacks: list[str]) -> list[str]:
        for name in attacks:
            if attack := attack_of(name):
                ATTACKS.entry(attack)
        return attacks

    @field_validator("pairs", mode="before")
    @classmethod
    def _two_names(cls, pairs: Any) -> Any:
        for pair in pairs if isinstance(pairs, list) else [pairs]:
            if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(name, str) for name in pair):
                raise ConfigError(
                    "'sweep.compare.pairs' has an entry that is not two names of methods.",
                    'For example: pairs = [["gmm", "noise only"], ["gated", "noise only"]]',
                )
        return pairs


class Sweep(Options):
    """The [sweep] table: method x data x grid x seed."""

    seeds: list[int] = Field([], description="one run per seed; the recipe's own seed when absent")
    data: list[str | dict[str, Any]] = Field([], description="data sets: names, or tables over [data]")
    modes: list[Mode] = Field([], description="audits of every cell; [audit].mode when absent")
    grid: Grid = Field({}, description="axes that all methods share")
    method: list[Method] = Field([], description="the methods; the recipe as it stands when absent")
    compare: Compare | None = Field(None, description="how to compare the cells in the end")

    @field_validator("grid")
    @classmethod
    def _axes(cls, grid: Grid) -> Grid:
        return checked_grid(grid)


@dataclass(frozen=True)
class SweepRecipe:
    """`shared` is the tree of an ordinary recipe; `sweep` says what differs between cells.

    `methods` are all methods of the recipe, `sweep.method` those of them that were chosen. `call` are the words of the
    command that asks for it, without --out.
    """

    name: str
    shared: Mapping[str, Any]
    sweep: Sweep
    methods: tuple[Method, ...]
    call: tuple[str, ...]


def load_sweep(
    recipe: str | Path,
    *,
    overrides: list[str] | None = None,
    methods: list[str] | None = None,
    seeds: list[int] | None = None,
    data: list[str] | None = None,
    modes: list[str] | None = None,
    grid: Grid | None = None,
) -> SweepRecipe:
    """A sweep from a recipe with or without a [sweep] table, and from what a caller sets in its place.

    `overrides` change the shared part (`section.key=value`); a method's own tables still stand over it. `methods`
    chooses among the recipe's methods or, where it has none, names surrogates: `gmm`, `gmm.released`,
    `gated:faithful`, `none`. An axis of `grid` stands in the place of the recipe's and of a method's own.
    """
    path = find_recipe(str(recipe))
    tree = read_toml(path)
    stated = copy(tree.get("surrogate"))
    for text in overrides or []:
        set_key(tree, text)
    table = tree.pop("sweep", {})
    if not isinstance(table, dict):
        raise ConfigError("'sweep' must be a table.", "Write [sweep] and its keys below it.")
    for section, value in tree.items():
        if section not in Config.model_fields:
            raise ConfigError(f"Unknown key '{section}'.", nearest(section, [*Config.model_fields, "sweep"]))
        if section != "seed" and not isinstance(value, dict):
            raise ConfigError(f"'{section}' must be a table.", f"Write [{section}] and its keys below it.")
    check_that_names_act(stated, tree.get("surrogate"))
    given = {"seeds": seeds, "data": data, "modes": modes}
    table = {**table, **{key: value for key, value in given.items() if value}}
    if grid:
        table["grid"] = {**table.get("grid", {}), **grid}
    table["method"] = [_method(one, place) for place, one in enumerate(_as_list(table.get("method", [])), 1)]
    if "compare" in table:
        table["compare"] = _compare(table["compare"], path)
    sweep = Sweep.parse(table, "sweep")
    if grid:
        sweep = sweep.model_copy(update={"method": [_without_axes(method, grid) for method in sweep.method]})
    _check_names(sweep)
    everything = tuple(sweep.method)
    if methods:
        sweep = sweep.model_copy(update={"method": _chosen(sweep.method, methods)})
    call = call_of(
        recipe,
        grid or {},
        set=overrides,
        method=methods,
        seeds=[",".join(map(str, seeds))] if seeds else None,
        data=[",".join(data)] if data else None,
        mode=modes,
    )
    return SweepRecipe(path.stem, tree, sweep, everything, call)


def _without_axes(method: Method, grid: Grid) -> Method:
    """The method without those of its own axes that a caller gave."""
    return method.model_copy(update={"grid": {key: axis for key, axis in method.grid.items() if key not in grid}})


def checked_grid(grid: Grid) -> Grid:
    """Axes are `section.key` with at least one value each."""
    for key, values in grid.items():
        if "." not in key:
            hint = "Write sweep.seeds = [...]." if key == "seed" else 'For example "train.privacy_weight" = [8, 16].'
            raise ConfigError(f"'{key}' cannot be an axis of a grid: it is not of the form section.key.", hint)
        if key.startswith("sweep."):
            hint = f"For other {key.removeprefix('sweep.')}, change [sweep] itself."
            raise ConfigError(f"'{key}' cannot be an axis of a grid: it is no setting of a single run.", hint)
        if not values:
            raise ConfigError(f"The axis '{key}' of the grid has no values.")
    return grid


def _as_list(value: Any) -> list[Any]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ConfigError("'sweep.method' must be a list of tables.", "Write [[sweep.method]] with two brackets.")
    return value


def _method(table: dict[str, Any], place: int) -> Method:
    return Method.parse(table, f"sweep.method.{table.get('name', place)}")


def _compare(table: Any, recipe: Path) -> Compare:
    if not isinstance(table, dict):
        raise ConfigError("'sweep.compare' must be a table.", "Write [sweep.compare] and its keys below it.")
    found = Compare.parse(table, "sweep.compare")
    View.of(found.model_dump())  # refuses what compare would refuse, before hours of work
    if not found.reference:
        return found
    place = find_reference(found.reference, recipe.parent)
    own = place.parent == PUBLISHED
    return found.model_copy(update={"reference": found.reference if own else str(place.resolve())})


def _check_names(sweep: Sweep) -> None:
    """No two methods of one name, and no other name in [sweep.compare]."""
    names = [method.name for method in sweep.method]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"Two methods of the sweep are called '{name}'.", "Give each its own name.")
    if names and sweep.compare is not None:
        for name in [sweep.compare.baseline or names[0], *(one for pair in sweep.compare.pairs for one in pair)]:
            if name not in names:
                raise UnknownNameError(f"'sweep.compare' names '{name}', no method of the sweep.", nearest(name, names))


def _chosen(own: list[Method], names: list[str]) -> list[Method]:
    if not own:
        return [Method(name=name, surrogate=_surrogate(name)) for name in dict.fromkeys(names)]
    known = {method.name: method for method in own}
    for name in names:
        if name not in known:
            raise UnknownNameError(f"The sweep has no method called '{name}'.", nearest(name, known))
    return [known[name] for name in dict.fromkeys(names)]


def _surrogate(text: str) -> dict[str, Any]:
    name, _, mode = text.partition(":")
    table: dict[str, Any] = {"name": name.partition(".")[0]}
    if "." in name:
        table["preset"] = name
    if mode:
        table["mode"] = mode
    return table
