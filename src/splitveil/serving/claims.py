"""Does a manifest agree with what it pins? It is not signed: whoever edits it can also edit all else, but not by slip.

No torch: devices and servers look at it, too.
"""

from __future__ import annotations

import math
import tomllib
from typing import Any

from splitveil.core.errors import ArtefactError
from splitveil.serving.manifest import CONFIG, Manifest

SPREADS = 5  # standard errors between two accuracies under other noise


def explained(found: float, count: int, stated: float) -> bool:
    """Whether other noise on (some of) the same pictures explains that `count` of them gave another accuracy."""
    middle = (found + stated) / 2
    error = math.sqrt(2 * middle * (1 - middle) / count)
    return abs(found - stated) <= SPREADS * error + 2 / count


def check_claims(manifest: Manifest, recipe: bytes | None, where: str) -> None:
    """Refuse a manifest that states another accuracy than its own checks found, or other defences than its recipe.

    `recipe` is the content of config.toml, where this copy has it.
    """
    checks, stated = manifest.checks, manifest.accuracy
    if checks is not None and stated is not None and not explained(checks.accuracy, checks.accuracy_pictures, stated):
        raise _edited(f"it states an accuracy of {stated:.1%} where its export measured {checks.accuracy:.1%}", where)
    if recipe is None:
        return
    try:
        real = tomllib.loads(recipe.decode()).get("defence", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise ArtefactError(f"{where}: {CONFIG} is no recipe.", HINT) from None
    said = {one.name: _written(one.options) for one in manifest.defences}
    if list(said) != list(real):
        raise _edited(f"it names the defences {_names(said)} where {CONFIG} has {_names(real)}", where)
    for name, options in real.items():
        for key in {**options, **said[name]}:
            mine, its = said[name].get(key), options.get(key)
            if mine != its:
                raise _edited(f"it states {name}.{key} = {mine} where {CONFIG} has {its}", where)


HINT = "Somebody has edited it; export the run again: splitveil export RUN --out NEW_DIR"


def _written(options: dict[str, Any]) -> dict[str, Any]:
    """Options as TOML has them: what is None is left out."""
    return {key: value for key, value in options.items() if value is not None}


def _names(defences: dict[str, Any]) -> str:
    return ", ".join(defences) or "none"


def _edited(why: str, where: str) -> ArtefactError:
    return ArtefactError(f"{where} contradicts itself: {why}.", HINT)
