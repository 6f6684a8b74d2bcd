"""Explicit, lazy tables of plug-ins.

A registry maps a name to a target "package.module:attribute" and one sentence. Nothing is imported before it is asked
for, and nothing registers itself: a plug-in is one file plus one line in `catalogue.py`. Other packages add entries
through the entry-point group `splitveil.FAMILY`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from typing import Any

from splitveil.core.errors import PlugInError, UnknownNameError, UsageError, nearest, reason


@dataclass(frozen=True)
class Entry:
    """Where a plug-in lives and what it does, in one sentence."""

    target: str
    summary: str
    source: str = "splitveil"


class Registry:
    """One family of plug-ins: `names()`, `describe(name)`, `load(name)`."""

    def __init__(
        self,
        family: str,
        table: Mapping[str, tuple[str, str]],
        *,
        needs: tuple[str, ...] = (),
        instances: bool = False,
        own_name: Callable[[Any], Any] | None = None,
    ) -> None:
        """`needs` are the attributes that a plug-in must have; with `instances` it is an object, else a class.

        `own_name` tells what a plug-in calls itself: results are kept under it, so it must be the name of its entry.
        """
        self.family = family
        self.needs = needs
        self.instances = instances
        self.own_name = own_name
        self._own = {name: Entry(target, summary) for name, (target, summary) in table.items()}

    @cached_property
    def _entries(self) -> dict[str, Entry]:
        entries = dict(self._own)
        for point in metadata.entry_points(group=f"splitveil.{self.family}"):
            if point.name in self._own:
                raise UsageError(
                    f"{point.value} offers the {self.family} entry '{point.name}', which is a name of Splitveil's own.",
                    "Give it another name in the entry points of its package, or uninstall that.",
                )
            if point.name in entries:
                raise UsageError(
                    f"Two packages offer the {self.family} entry '{point.name}'.",
                    f"Uninstall one of them; the second is {point.value}.",
                )
            entries[point.name] = Entry(point.value, f"from {point.value.split(':')[0]}", source=point.value)
        return entries

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._entries)

    def entry(self, name: str) -> Entry:
        """The table row of `name`; an unknown name is an error that suggests the nearest."""
        if not isinstance(name, str) or name not in self._entries:  # a recipe may hold anything where a name belongs
            owner = str(name).partition(".")[0]
            hint = nearest(str(name), self._entries)
            if owner in self._entries:  # gmm.released and its like
                hint = f"A preset is not a name: write name = '{owner}' and preset = '{name}'."
            raise UnknownNameError(f"There is no {self.family.rstrip('s')} called '{name}'.", hint)
        return self._entries[name]

    def describe(self, name: str) -> str:
        """What `name` does, in one sentence; a plug-in of another package says it first in its docstring."""
        entry = self.entry(name)
        if entry.source == "splitveil":
            return entry.summary
        try:
            target = self.load(name)
        except PlugInError:
            return f"{entry.summary}, which is of no use here."
        documented = target if isinstance(target, type) or inspect.isroutine(target) else type(target)
        told = (documented.__doc__ or "").strip().split("\n\n")[0]
        return f"{' '.join(told.split()).rstrip('.') or 'A plug-in'} ({entry.summary})."

    def package(self, name: str) -> str:
        """The package that offers `name`."""
        return self.entry(name).target.partition(":")[0].partition(".")[0]

    def load(self, name: str) -> Any:
        """Import and return what `name` stands for; a plug-in that is of no use here is an error that names it."""
        entry = self.entry(name)
        module, _, attribute = entry.target.partition(":")
        if entry.source == "splitveil":  # a fault of ours is to be seen as it is
            return getattr(importlib.import_module(module), attribute)
        try:
            target = getattr(importlib.import_module(module), attribute)
        except Exception as error:
            raise self._useless(name, entry, f"cannot be imported: {reason(error).rstrip('.')}") from error
        if self.needs and isinstance(target, type) == self.instances:
            raise self._useless(name, entry, "is a class: name an object of it" if self.instances else "is no class")
        abstract = getattr(target, "__abstractmethods__", ())
        lacking = [need for need in self.needs if need in abstract or not hasattr(target, need)]
        if lacking:
            raise self._useless(name, entry, f"has no {', '.join(lacking)}")
        if self.own_name is not None and (called := self.own_name(target)) != name:
            raise self._useless(name, entry, f"calls itself {called!r}, not '{name}'")
        return target

    def _useless(self, name: str, entry: Entry, why: str) -> PlugInError:
        return PlugInError(
            f"The {self.family.rstrip('s')} '{name}' comes from {entry.source}, which {why}.",
            "Mend or uninstall the package that offers it.",
        )
