"""Which attacks an audit runs, with which options: the tier's choice, or the caller's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from splitveil import attacks as attack_family
from splitveil.audit.tiers import TIERS
from splitveil.core.errors import InputError, UnknownNameError, nearest

Plan = dict[str, dict[str, Any]]
"""The options of each attack by its name, in the order in which they run."""


def make_plan(
    tier: str, attacks: Mapping[str, Mapping[str, Any]] | Sequence[str] | str | None, epochs: int | None
) -> Plan:
    """Attack names (one alone may stand without a list) with their options, checked before anything runs."""
    if tier not in TIERS:
        raise UnknownNameError(f"There is no tier called '{tier}'.", nearest(tier, TIERS))
    own = TIERS[tier].attacks
    if attacks is None:
        plan = {name: dict(options) for name, options in own.items()}
    elif isinstance(attacks, str):
        plan = {attacks: dict(own.get(attacks, {}))}
    elif isinstance(attacks, Mapping):
        plan = {name: {**own.get(name, {}), **options} for name, options in attacks.items()}
    else:
        plan = {name: dict(own.get(name, {})) for name in attacks}
    if not plan:
        raise InputError("No attack was asked for.", "Name at least one, or leave `attacks` out.")
    for name, options in plan.items():
        if not isinstance(name, str):
            raise InputError(
                f"Attacks are asked for by name, not as {name!r}.",
                "Give yours a name with an entry point (docs/extending.md), or run it on a View as that page shows.",
            )
        attack = attack_family.create(name, **options)
        if epochs is not None and "epochs" in type(attack.options).model_fields:
            options["epochs"] = epochs
    return plan


def departures(tier: str, plan: Plan) -> list[str]:
    """Where a plan is not what its tier runs: an audit with fewer or shorter attacks must not pass for the tier's."""
    own = TIERS[tier].attacks
    missing = [name for name in own if name not in plan]
    changed = []
    for name, options in own.items():
        if name in plan:
            usual = attack_family.create(name, **options).options.model_dump()
            asked = attack_family.create(name, **plan[name]).options.model_dump()
            changed += [f"{name}.{key} {asked[key]} ({usual[key]})" for key in usual if asked[key] != usual[key]]
    found = []
    if missing:
        found.append(f"Attacks of the tier '{tier}' that were not asked for: {', '.join(missing)}.")
    if changed:
        found.append(f"Options other than those of the tier '{tier}', which are in brackets: {', '.join(changed)}.")
    return found


def own_options(tier: str, plan: Plan) -> Plan:
    """What the caller asked of attacks beside the tier's own options for them: only names fit on a command line."""
    known = TIERS[tier].attacks
    found = {
        name: {key: value for key, value in options.items() if (key, value) not in known.get(name, {}).items()}
        for name, options in plan.items()
    }
    return {name: options for name, options in found.items() if options}


def digest(plan: Plan) -> str:
    """Pins the attacks and their options in a signature."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()[:8]
