"""Which cells can never train, found out before the first one starts: what data, model, defences and surrogate refuse.

A cell that is named here still takes its turn and is recorded as failed, without stopping the others; but whoever
started the sweep hears of all such cells in its first seconds, not hours later one by one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from splitveil import data
from splitveil.core.config import Config
from splitveil.core.errors import sentence
from splitveil.core.listed import listed
from splitveil.core.plug_ins import plug_in_failure
from splitveil.experiments.sweep.cells import Cell

if TYPE_CHECKING:
    from splitveil.data.dataset import DataParts

log = logging.getLogger("splitveil.sweep")

NAMED = 12  # settings that are named for one reason
NETWORK = {"model", "defence", "surrogate"}  # what is built anew where one of these differs


def tell_untrainable(cells: Iterable[Cell]) -> None:
    """Warn of the cells that cannot train, with every reason once."""
    reasons: dict[str, list[Cell]] = {}
    for cell, why in untrainable(cells):
        reasons.setdefault(why, []).append(cell)
    for why, found in reasons.items():
        places = list(dict.fromkeys(cell.place for cell in found))
        count = "1 cell" if len(found) == 1 else f"{len(found)} cells"
        log.warning("%s cannot train: %s: %s", count, listed(places, NAMED, ", "), why)
    if reasons:
        log.warning(
            "the sweep records such cells as failed and runs the others: to have them all, mend its recipe first"
        )


def untrainable(cells: Iterable[Cell]) -> list[tuple[Cell, str]]:
    """The cells that cannot train, each with the reason. Pictures are read once for cells that share them, and a
    network is built once for cells that differ in the seed, the weight or the like."""
    by_data: dict[str, list[Cell]] = {}
    for cell in cells:
        by_data.setdefault(_key(cell.config, {"data"}), []).append(cell)
    found = []
    for sharing in by_data.values():
        parts, why = _parts(sharing[0].config)
        built: dict[str, str | None] = {}
        for cell in sharing:
            if parts is not None:
                network = f"{_key(cell.config, NETWORK)} {cell.config.train.init_from}"
                if network not in built:
                    built[network] = _refusal(cell.config, parts, whole=True)
                why = built[network] or _refusal(cell.config, parts, whole=False)
            if why is not None:
                found.append((cell, why))
    return found


def _parts(config: Config) -> tuple[DataParts | None, str | None]:
    """The parts, or why there are none; how many pictures each has does not depend on the seed."""
    try:
        return data.load(config.data, config.seed), None
    except Exception as error:  # whatever it is, the cell itself will say it, too
        return None, _told(error)


def _refusal(config: Config, parts: DataParts, *, whole: bool) -> str | None:
    """Why a run would be refused before its first step; `whole`: for what is built, else for what it trains with."""
    import torch

    from splitveil.training.setup import check_network, check_recipe

    try:
        with torch.random.fork_rng([]):
            check_network(config, parts.info) if whole else check_recipe(config, parts, world=1)
    except Exception as error:
        return _told(error)
    return None


def _told(error: Exception) -> str:
    return sentence(plug_in_failure(error) or error)


def _key(config: Config, sections: set[str]) -> str:
    return json.dumps(config.model_dump(mode="json", include=sections))
