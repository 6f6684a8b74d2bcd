"""Where to cut: leakage, accuracy, bytes and edge work at every cut of a recipe's network."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from splitveil.attacks.base import Progress, silent
from splitveil.audit.api import audit
from splitveil.audit.tiers import CPU_DECODER
from splitveil.core.catalogue import MODELS
from splitveil.core.config import Config
from splitveil.core.errors import ConfigError
from splitveil.core.manifest import signature
from splitveil.functional.guessing import beats_guessing
from splitveil.models.cost import cost
from splitveil.training.api import train
from splitveil.training.loaded_run import load_run

PICTURES = 500  # test pictures attacked at each cut: enough to rank cuts


@dataclass(frozen=True)
class CutAdvice:
    """What one cut costs and what it leaks. `pareto`: no other cut is at least as good in everything. `works`: the
    model names the class more often than somebody who always names the most frequent one."""

    cut: int
    feature_shape: tuple[int, ...]
    accuracy: float
    mse: float
    ssim: float
    floor_mse: float
    bytes_per_image: int
    edge_macs: int
    edge_params: int
    works: bool = True
    pareto: bool = False

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def goods(self) -> tuple[float, ...]:
        """What one wants more of: privacy, accuracy, few bytes, little work on the device."""
        return (self.mse, self.accuracy, -self.bytes_per_image, -self.edge_macs)


def all_cuts(config: Config) -> list[int]:
    """Every cut the network of a recipe allows."""
    architecture = MODELS.load(config.model.name)()
    return list(range(1, len(architecture.layers(1))))  # the number of layers does not depend on the channels


def advise(
    config: Config,
    out: Path,
    *,
    epochs: int | None = None,
    cuts: Sequence[int] | None = None,
    device: str = "auto",
    progress: Progress = silent,
) -> list[CutAdvice]:
    """Train and attack the recipe once for each cut, in folders below `out`; call it again to go on.

    A quick decoder, least squares and, with `epochs`, a short training: the numbers rank cuts, they certify none.
    """
    possible = all_cuts(config)
    chosen = possible if cuts is None else list(cuts)
    for cut in chosen:
        if cut not in possible:
            raise ConfigError(f"{config.model.name} has no cut {cut}.", f"Choose from 1 to {possible[-1]}.")
    found = []
    with _told_once():
        for number, cut in enumerate(chosen):
            progress(f"cut {cut}", number, len(chosen))
            tell = _teller(progress, number, len(chosen))
            found.append(_one_cut(_at(config, cut, epochs), cut, out / f"cut-{cut:02d}", device, tell))
    progress("done", len(chosen), len(chosen))
    return mark_pareto(found)


@contextmanager
def _told_once() -> Iterator[None]:
    """What training warns of holds for every cut alike (a warm-up longer than the training, say): a reader hears it
    once. Each cut's own train.log, which is opened later, still has it.
    """
    training = logging.getLogger("splitveil.training")
    handlers = [handler for one in (training, training.parent, logging.root) if one for handler in one.handlers]
    filters = [(handler, _Once()) for handler in handlers]  # each handler has its own reader
    for handler, once in filters:
        handler.addFilter(once)
    try:
        yield
    finally:
        for handler, once in filters:
            handler.removeFilter(once)


class _Once(logging.Filter):
    """Lets a warning through once."""

    def __init__(self) -> None:
        super().__init__()
        self.told: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        repeated = record.levelno >= logging.WARNING and record.getMessage() in self.told
        self.told.add(record.getMessage())
        return not repeated


def _teller(progress: Progress, done: int, total: int) -> Callable[[str], None]:
    """Reports what is being done at the cut after the `done` ones of `total`."""
    return lambda what: progress(what, done, total)


def _at(config: Config, cut: int, epochs: int | None) -> Config:
    update: dict[str, Any] = {"model": config.model.model_copy(update={"cut": cut})}
    if epochs is not None:
        update["train"] = config.train.model_copy(update={"epochs": epochs})
    return config.model_copy(update=update)


def _one_cut(config: Config, cut: int, folder: Path, device: str, tell: Callable[[str], None]) -> CutAdvice:
    def on_epoch(row: dict[str, Any]) -> None:
        tell(f"cut {cut}: epoch {row['epoch']}/{config.train.epochs}")

    train(config, out=folder, device=device, resume=(folder / "config.toml").exists(), on_epoch=on_epoch)
    run = load_run(folder, device)
    result = run.folder.read_json("result.json") or {}
    tell(f"cut {cut}: attack")
    tree = audit(
        run.deployed,
        run.parts,
        # with few pictures a decoder learns less than least squares
        attacks={"decoder": CPU_DECODER, "linear": {}},
        num_images=PICTURES,
        seed=config.seed,
        out=run.folder.audit,
        signature=signature(run.config, data=run.parts.checksum[:8]),
        check_sanity=False,
        reuse=True,  # an audit of another kind in its place would rank this cut by other attacks
        progress=lambda what, done, total: tell(f"cut {cut}: {what} {done}/{total}"),
    ).tree
    counted = cost(run.model)
    return CutAdvice(
        cut=cut,
        feature_shape=counted.feature_shape,
        accuracy=result["accuracy_late"],
        mse=tree["worst_case"]["mse"],
        ssim=tree["worst_case"]["ssim"],
        floor_mse=tree["floors"]["mean_image"]["mse"],
        bytes_per_image=counted.bytes_per_image,
        edge_macs=counted.edge_macs,
        edge_params=counted.edge_params,
        works=beats_guessing(result["accuracy_late"], run.parts.test.labels),
    )


def mark_pareto(found: list[CutAdvice]) -> list[CutAdvice]:
    """The same list with `pareto` set; a cut at which nothing was learned beats no other and is no advice."""

    def beaten(one: CutAdvice) -> bool:
        return any(
            other.goods != one.goods and all(a >= b for a, b in zip(other.goods, one.goods, strict=True))
            for other in found
            if other.works
        )

    return [CutAdvice(**{**one.to_dict(), "pareto": one.works and not beaten(one)}) for one in found]
