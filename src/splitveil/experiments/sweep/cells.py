"""From a sweep recipe to its cells: method x data x grid x seed, each one ordinary run under a content address."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from splitveil.audit.tiers import TIERS
from splitveil.core.config import Config, check_that_names_act, load_config, names_a_path
from splitveil.core.dotted import put
from splitveil.core.errors import ConfigError, NoPicturesError, SplitveilError
from splitveil.core.listed import listed
from splitveil.core.sections import Train
from splitveil.experiments.compare.measures import LEAKS
from splitveil.experiments.sweep.recipe import Compare, Grid, Method, SweepRecipe, attack_of

log = logging.getLogger("splitveil.sweep")

MOST_TOLD = 8  # mistakes that one error tells


@dataclass(frozen=True)
class Cell:
    """One run of a sweep. `also` holds the labels of further cells that turned out to be the same run."""

    id: str
    method: str
    coordinates: Mapping[str, Any]  # the grid's keys and this cell's values
    seed: int
    data: str
    modes: tuple[str, ...]  # one audit each
    config: Config
    also: tuple[str, ...] = field(default=())

    @property
    def label(self) -> str:
        """What a person calls this cell: `gmm cifar10 privacy_weight=16 seed 1`."""
        return f"{self.place} seed {self.seed}"

    @property
    def place(self) -> str:
        """The same for all its seeds: `gmm cifar10 privacy_weight=16`."""
        return " ".join([self.method, Path(self.data).name, *strengths(self.coordinates)])

    def description(self) -> dict[str, Any]:
        """What cell.json and sweep.json say about it."""
        return {
            "id": self.id,
            "method": self.method,
            "coordinates": dict(self.coordinates),
            "seed": self.seed,
            "data": self.data,
            "modes": list(self.modes),
            "also": list(self.also),
        }


def strengths(coordinates: Mapping[str, Any]) -> list[str]:
    """A cell's place in the grid, each axis by its last word.

    >>> strengths({"train.privacy_weight": 16, "defence.noise.sigma": 0.1})
    ['privacy_weight=16', 'sigma=0.1']
    """
    return [f"{key.rpartition('.')[2]}={value}" for key, value in coordinates.items()]


class CellError(ConfigError):
    """A mistake in the settings of one cell."""

    def __init__(self, place: str, error: SplitveilError) -> None:
        super().__init__(_in_cells([place], error.message), error.hint)
        self.place, self.reason = place, error.message


def expand(recipe: SweepRecipe) -> list[Cell]:
    """All cells in the order of the recipe, seeds innermost; equal cells stand only once, the later ones in `also`.

    Mistakes in settings are one error that names all cells that have some.
    """
    cells: dict[str, Cell] = {}
    mistakes: dict[str, CellError] = {}
    made = []
    for settings in _all(recipe):
        try:
            made.append(make_cell(recipe, *settings))
        except CellError as error:
            mistakes[error.message] = error
    if mistakes:
        raise _together(list(mistakes.values()))
    check_comparison(recipe, made)
    for cell in made:
        first = cells.get(cell.id)
        cells[cell.id] = cell if first is None else replace(first, also=(*first.also, cell.label))
    return list(cells.values())


def check_comparison(recipe: SweepRecipe, cells: list[Cell]) -> None:
    """What the cells are to be compared by must be taken of some of them: only another audit would bring it later.

    An attack that none makes is named, not refused: cells of earlier calls may have it, and the table needs none.
    """
    wanted = recipe.sweep.compare or Compare()
    name, audits = wanted.measure, [cell.config.audit for cell in cells]
    if name not in LEAKS and not any(name in audit.measures for audit in audits):
        raise ConfigError(
            f"'sweep.compare.measure' is '{name}', which no audit of the sweep takes.",
            f'Write measures = ["{name}"] in [audit].',
        )
    made = {attack for audit in audits for attack in audit.attacks or TIERS[audit.tier].attacks}
    missing = [name for name in wanted.attacks if (attack := attack_of(name)) and attack not in made]
    if missing:
        log.warning(
            "'sweep.compare.attacks' names %s, which no audit of the sweep makes: nothing will be compared, "
            "unless cells of earlier calls have it (attacks are named in [audit])",
            listed([f"'{name}'" for name in missing], between=", "),
        )


def seed_by_seed(cells: list[Cell]) -> list[Cell]:
    """The order to run cells in: a whole table of the first seed, then the next, so that a sweep that is cut short has
    every method; and a worker often meets the same method again, for which it has the compiled code."""
    seeds = list(dict.fromkeys(cell.seed for cell in cells))
    return sorted(cells, key=lambda cell: seeds.index(cell.seed))


def make_cell(
    recipe: SweepRecipe, method: Method, data: Mapping[str, Any], coordinates: Mapping[str, Any], seed: int | None
) -> Cell:
    """One cell; a mistake in its settings is an error that names the cell."""
    tree = _merged(recipe.shared, method, data)
    stated = copy.copy(tree.get("surrogate"))
    modes = list(recipe.sweep.modes)
    for key, value in coordinates.items():
        put(tree, key.split("."), value, where=f"the grid's '{key}'")
    if seed is not None:
        tree["seed"] = seed
    own = tree.setdefault("audit", {}).get("mode")
    if modes and own not in modes:
        tree["audit"]["mode"] = modes[0]
    try:
        check_that_names_act(stated, tree.get("surrogate"))
        config = load_config(None, **tree)
    except SplitveilError as error:
        place = " ".join([method.name, *(f"{key}={value}" for key, value in coordinates.items())])
        raise CellError(place, error) from None
    config = _without_idle_weight(config)
    modes = modes or [config.audit.mode]
    modes.sort(key=lambda mode: mode != config.audit.mode)  # the recipe's own mode first: it is in audit/
    return Cell(
        id=address(config),
        method=method.name,
        coordinates=dict(coordinates),
        seed=config.seed,
        data=config.data.name,
        modes=tuple(dict.fromkeys(modes)),
        config=config,
    )


def _without_idle_weight(config: Config) -> Config:
    """Without a surrogate its weight does nothing: whatever it is, the run is the same and has one address.

    Weight 0 still means something to `progressive`: there are no stages to wait for.
    """
    if config.surrogate is not None or (config.train.progressive and config.train.privacy_weight == 0):
        return config
    usual = Train.model_fields["privacy_weight"].default
    return config.model_copy(update={"train": config.train.model_copy(update={"privacy_weight": usual})})


def still_made(recipe: SweepRecipe, tree: Mapping[str, Any]) -> bool:
    """Whether the recipe still makes the cell that cell.json describes; a method that it does not know is let be, and a
    cell whose pictures are gone: its settings cannot be looked at."""
    known = {method.name: method for method in (*recipe.methods, *methods_of(recipe))}
    method = known.get(str(tree.get("method")))
    if method is None:
        return True
    try:
        names_a_path(tree["data"])
    except NoPicturesError:
        return True
    variants = [data for data in data_of(recipe) if data.get("name") == tree["data"]] or [{"name": tree["data"]}]
    try:
        made = [make_cell(recipe, method, data, tree["coordinates"], tree["seed"]).id for data in variants]
    except ConfigError:
        return False
    return tree["id"] in made


def address(config: Config) -> str:
    """Content address of a run: a checksum of its complete configuration, seed and audit settings included."""
    text = json.dumps(config.model_dump(mode="json"))  # as written: the order of defences and attacks has a meaning
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def methods_of(recipe: SweepRecipe) -> list[Method]:
    """The methods of a sweep; the recipe as it stands counts as one when it names none."""
    if recipe.sweep.method:
        return recipe.sweep.method
    surrogate = recipe.shared.get("surrogate")
    name = surrogate.get("name") if isinstance(surrogate, dict) else None
    return [Method(name=str(name or "none"))]


def data_of(recipe: SweepRecipe) -> list[dict[str, Any]]:
    """What each data set of the sweep puts over [data]."""
    return [{"name": item} if isinstance(item, str) else item for item in recipe.sweep.data] or [{}]


def points(grid: Grid) -> Iterator[dict[str, Any]]:
    """Every combination of the axes, the last one moving fastest."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _all(recipe: SweepRecipe) -> Iterator[tuple[Method, Mapping[str, Any], Mapping[str, Any], int | None]]:
    """Method, data, point of the grid and seed of every cell."""
    seeds: list[int | None] = [*recipe.sweep.seeds] or [None]
    for method in methods_of(recipe):
        for data in data_of(recipe):
            for point in points({**recipe.sweep.grid, **method.grid}):
                for seed in seeds:
                    yield method, data, point, seed


def _together(mistakes: list[CellError]) -> ConfigError:
    """One error for the mistakes of several cells, each told once; the hint is that of the first."""
    first, *others = mistakes
    if not others:
        return first
    places: dict[str, list[str]] = {}
    for mistake in mistakes:
        places.setdefault(mistake.reason, []).append(mistake.place)
    told = [_in_cells(found, reason) for reason, found in [*places.items()][:MOST_TOLD]]
    untold = sum(map(len, [*places.values()][MOST_TOLD:]))
    more = [f"So have {untold} more."] if untold else []
    return ConfigError(" ".join([f"{len(mistakes)} cells have mistakes in their settings.", *told, *more]), first.hint)


def _in_cells(places: list[str], reason: str) -> str:
    return f"In the cell{'' if len(places) == 1 else 's'} {listed(places)}: {reason}"


def _merged(shared: Mapping[str, Any], method: Method, data: Mapping[str, Any]) -> dict[str, Any]:
    """The shared tree with a method's tables over it. A defence of both keeps its place; new ones come after."""
    tree = copy.deepcopy(dict(shared))
    for section in ("model", "train", "audit"):
        tree[section] = {**tree.get(section, {}), **getattr(method, section)}
    tree["data"] = {**tree.get("data", {}), **data, **method.data}
    defences: dict[str, Any] = tree.setdefault("defence", {})
    for name, table in method.defence.items():
        if table is False:
            defences.pop(name, None)
        else:
            defences[name] = {**(defences.get(name) or {}), **table}  # false in the shared part: absent
    if method.surrogate is not None:
        tree["surrogate"] = {"name": "none"} if method.surrogate == "none" else dict(method.surrogate)
    return tree
