"""One run as a report sees it: what its files say, and what follows from them where they are silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from splitveil.experiments.compare.labels import STRUCTURAL
from splitveil.experiments.loose import items, number, table, text
from splitveil.report.audit_file import Audit
from splitveil.report.explain_file import Explained
from splitveil.report.gallery_file import Shot
from splitveil.report.markup import Phrase

Lack = Literal["failed", "unfinished", "unattacked"]
LACKS: tuple[Lack, ...] = get_args(Lack)


@dataclass(frozen=True)
class Run:
    """Everything the page shows about one run."""

    path: Path
    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    manifest: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    sweep_method: str | None = None  # what the sweep calls the method, where the run is a sweep's cell
    changed: bool = False  # files are not those that the signatures and the card pin
    audit_only: bool = False  # of an artefact, an endpoint or a model of one's own: nothing was trained here
    unfinished: bool = False  # training has not ended, so an accuracy is that of the last epoch so far
    error: str | None = None  # why the sweep gave this cell up, after training or before
    metrics: tuple[Mapping[str, Any], ...] = ()
    audit: Audit = field(default_factory=Audit)
    about: dict[str, Any] = field(default_factory=dict)  # an artefact or endpoint, where only its audit is here
    family: int | None = None  # this and the next: see `one_model`
    weaker: bool = False
    shots: tuple[Shot, ...] = ()
    explained: Explained = field(default_factory=Explained)  # this and the next: see `with_details`
    other_audits: Mapping[str, Audit] = field(default_factory=dict)  # by mode
    notes: tuple[Phrase, ...] = ()
    damage: tuple[Phrase, ...] = ()  # those of the notes that speak of files which cannot be read, or were changed

    @property
    def accuracy(self) -> float | None:
        """Test accuracy as a fraction: the late mean, else the last epoch's, the last of the curve, or the audit's."""
        for key in ("accuracy_late", "accuracy_last"):
            value = number(self.result.get(key))
            if value is not None:
                return value
        for key in ("test_accuracy", "accuracy"):
            value = next((v for row in reversed(self.metrics) if (v := number(row.get(key))) is not None), None)
            if value is not None:
                return value
        return self.audit.accuracy  # only an audit is here

    @property
    def lacks(self) -> Lack | None:
        """What it did not come to: the sweep gave its training up, that has not ended, or no attack has a score."""
        if self.unfinished:
            return "unfinished" if self.error is None else "failed"
        return None if self.audit.attacked else "unattacked"

    @property
    def idle(self) -> bool:
        """Whether it is said that the model is no better than always naming the most frequent class."""
        return self.result.get("works") is False or self.audit.works is False

    @property
    def auditors_accuracy(self) -> bool:
        """Whether `accuracy` is that of a classifier of the auditor's own, because the model's is hidden."""
        return self.audit.auditors_accuracy and not self.result and not self.metrics

    @property
    def progress(self) -> tuple[int, int] | None:
        """The last epoch in the metrics and the number asked for; None when either is not known."""
        last = next((v for row in reversed(self.metrics) if (v := number(row.get("epoch"))) is not None), None)
        wanted = number(table(self.config.get("train")).get("epochs"))
        return None if last is None or wanted is None else (int(last), int(wanted))

    @property
    def surrogate(self) -> str | None:
        """Name of the surrogate that acted in training; None without one or with weight 0."""
        stated = self.result.get("surrogate", self.about.get("surrogate"))
        chosen = table(self.config.get("surrogate")).get("name", stated)
        name = text(table(chosen).get("name")) if isinstance(chosen, dict) else text(chosen)
        return None if name in (None, "none") or self.weight == 0 else name

    @property
    def weight(self) -> float | None:
        return number(table(self.config.get("train")).get("privacy_weight"))

    @property
    def defences(self) -> dict[str, Any]:
        """The [defence.*] tables in their order, or those of an artefact's manifest; else names out of the result."""
        declared = table(self.config.get("defence"))
        if declared or self.config:
            return declared
        if self.states_defences:
            stated = [table(item) for item in items(self.about["defences"])]
            return {name: table(one.get("options")) for one in stated if (name := text(one.get("name")))}
        return {name: {} for item in items(self.result.get("defences")) if (name := text(item))}

    @property
    def states_defences(self) -> bool:
        """Whether this is an artefact that says how it is defended, if at all."""
        return isinstance(self.about.get("defences"), list)

    @property
    def says_how_defended(self) -> bool:
        """Whether anything does: a run without a word about it is not taken for undefended."""
        return bool(self.config or self.result or self.states_defences)

    @property
    def protected(self) -> bool:
        """Whether a surrogate or a defence acts besides bottleneck and noise."""
        return self.surrogate is not None or bool(set(self.defences) - set(STRUCTURAL))

    @property
    def sigma(self) -> float | None:
        """Noise level; None when it is not known, 0 without noise."""
        if "noise" not in self.defences:
            return 0.0 if self.config or self.states_defences else None
        return number(table(self.defences["noise"]).get("sigma"))

    @property
    def network(self) -> str | None:
        return text(table(self.config.get("model")).get("name")) or text(self.about.get("model"))

    @property
    def seed(self) -> str | None:
        return text(self.config.get("seed")) or text(self.manifest.get("seed"))

    @property
    def data_name(self) -> str | None:
        own = text(table(self.manifest.get("data")).get("name")) or text(table(self.config.get("data")).get("name"))
        # an artefact may be audited with other pictures than those it was trained with
        return (self.audit.data or own) if self.about else (own or self.audit.data)

    @property
    def protocol(self) -> str | None:
        return self.audit.protocol or text(table(self.config.get("data")).get("protocol"))
