"""Names of methods: which ones a name stands for (`gmm [model.cut=2]` is a variant of `gmm`)."""

from __future__ import annotations

from collections.abc import Iterable


def variants(name: str, methods: Iterable[str]) -> list[str]:
    """The method of this very name; where there is none, those with something in brackets behind it.

    >>> variants("gmm", ["gmm [cut=2]", "gmm [cut=4]", "gmm_k [cut=2]"])
    ['gmm [cut=2]', 'gmm [cut=4]']
    """
    methods = list(methods)
    return [name] if name in methods else [method for method in methods if method.startswith(f"{name} [")]


def meant(first: str, second: str, methods: Iterable[str]) -> list[tuple[str, str]]:
    """The pairs that two names stand for: the two methods of these very names, or variants that contradict each other
    in nothing.

    >>> meant("gmm", "none", ["gmm [cut=2]", "gmm [cut=4]", "none [cut=2]", "none [cut=4]"])
    [('gmm [cut=2]', 'none [cut=2]'), ('gmm [cut=4]', 'none [cut=4]')]
    """
    methods = list(methods)
    if first in methods and second in methods:
        return [(first, second)]
    return [
        (one, other) for one in variants(first, methods) for other in variants(second, methods) if agree(one, other)
    ]


def agree(one: str, other: str) -> bool:
    """Whether what stands in brackets behind two names is equal where both say it."""
    mine, its = _told(one), _told(other)
    return all(mine[key] == its[key] for key in mine.keys() & its.keys())


def _told(method: str) -> dict[str, str]:
    inside = method.rpartition(" [")[2].removesuffix("]") if method.endswith("]") else ""
    return {key: value for key, _, value in (item.partition("=") for item in inside.split(", ")) if value}
