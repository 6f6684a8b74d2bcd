"""The command that asks for a sweep, also where Python did: tables and reports say how to make the same cells again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from splitveil.core.errors import ConfigError
from splitveil.core.shell import shown_path
from splitveil.core.toml import dump_value, parse_value


def call_of(recipe: str | Path, grid: Mapping[str, list[Any]], **options: Sequence[Any] | None) -> tuple[str, ...]:
    """Its words after `splitveil sweep`; each of several values is an option of its own.

    >>> call_of("sweep-demo", {"train.lr": [0.1, 0.2]}, method=["gmm", "none"], seeds=["1,2"], data=None)
    ('sweep-demo', '--method', 'gmm', '--method', 'none', '--seeds', '1,2', '--grid', 'train.lr=0.1,0.2')
    """
    words = [shown_path(Path(recipe)) if Path(recipe).is_file() else str(recipe)]
    for name, values in {**options, "grid": [axis_text(key, values) for key, values in grid.items()]}.items():
        words += [word for value in values or () for word in (f"--{name}", str(value))]
    return tuple(words)


def parse_axis(text: str) -> tuple[str, list[Any]]:
    """`train.privacy_weight=8,16` as a key and its values; brackets and quotes hold commas together.

    >>> parse_axis("train.privacy_weight=8,16"), parse_axis("surrogate.name=gmm,gated")
    (('train.privacy_weight', [8, 16]), ('surrogate.name', ['gmm', 'gated']))
    """
    key, equals, values = text.partition("=")
    if not equals or not values.strip():
        raise ConfigError(f"'{text}' is not of the form section.key=a,b,c.")
    whole = parse_value(f"[{values}]")
    return key.strip(), whole if isinstance(whole, list) else [
        parse_value(value.strip()) for value in values.split(",")
    ]


def axis_text(key: str, values: list[Any]) -> str:
    """The other way round, with quotes only where something else would be read without them.

    >>> axis_text("train.privacy_weight", [8, 16]), axis_text("data.name", ["cifar10", "a,b"])
    ('train.privacy_weight=8,16', 'data.name="cifar10","a,b"')
    """
    for write in (str, dump_value):
        with suppress(ConfigError):
            text = f"{key}={','.join(map(write, values))}"
            if parse_axis(text) == (key, [*values]):
                return text
    return f"{key}={','.join(map(str, values))}"  # None, say, which Python can ask for and no command can
