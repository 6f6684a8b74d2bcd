"""`audit/audit.json` as typed values (layout in DESIGN 2); foreign parts are None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from splitveil.experiments.loose import interval, items, number, table, text
from splitveil.report.extra import Extra, means_of, parse_extra


@dataclass(frozen=True)
class Scores:
    """How close a reconstruction is: MSE, SSIM and PSNR on pictures in [0, 1], with 95 % intervals where given."""

    mse: float | None = None
    ssim: float | None = None
    psnr: float | None = None
    mse_ci: tuple[float, float] | None = None
    ssim_ci: tuple[float, float] | None = None

    @property
    def known(self) -> bool:
        return self.mse is not None or self.ssim is not None


@dataclass(frozen=True)
class Attack:
    """One attack's result."""

    name: str
    scores: Scores
    seconds: float | None
    threat_model: tuple[str, ...]
    summary: str | None
    curve: tuple[tuple[float, float], ...]
    tried: tuple[tuple[str, float, float], ...]  # decoders of growing size: name, parameters, held-out error
    recon_acc: float | None
    extra: Mapping[str, float] = field(default_factory=dict)  # by the measures beside MSE, SSIM and PSNR
    repeats: int | None = None  # transmissions of each picture that it saw, where it asked for more than one


@dataclass(frozen=True)
class Group:
    """The pictures with one value of an attribute: their scores, and the MSE of guessing the mean picture."""

    scores: Scores
    guess: float | None
    count: float | None


@dataclass(frozen=True)
class Audit:
    """What one audit found."""

    tier: str | None = None
    altered: bool = False  # other attacks, or other options, than those of the tier
    mode: str | None = None
    protocol: str | None = None
    data: str | None = None
    accuracy: float | None = None  # of the model on the pictures under attack, with its defences acting
    auditors_accuracy: bool = False  # no: of a classifier of the auditor's own, because the model's is hidden
    works: bool | None = None  # whether that accuracy beats always naming the most frequent class; None: not said
    num_images: int | None = None
    floors: Mapping[str, Scores] = field(default_factory=dict)
    attacks: Mapping[str, Attack] = field(default_factory=dict)
    worst_case: Scores = Scores()
    worst_once: Scores = Scores()  # the same over the attacks that saw each picture sent once
    per_class: Mapping[str, Scores] = field(default_factory=dict)
    per_group: Mapping[str, Group] = field(default_factory=dict)  # "attribute = value" -> ...
    worst_decile: Scores = Scores()
    bound: Mapping[str, Any] = field(default_factory=dict)
    signature: str | None = None
    ended: str | None = None
    plan: tuple[str, ...] = ()  # the attacks that were asked for
    own_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of attacks, beside the tier's
    measures: Mapping[str, Extra] = field(default_factory=dict)
    epochs: int | None = None  # of every trained attack, where they were asked for
    about: dict[str, Any] = field(default_factory=dict)  # what an artefact or endpoint says of itself
    winners: Mapping[str, float] = field(default_factory=dict)  # share of the pictures that each attack came closest to
    inference: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # attacks that look for something else
    failures: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)  # attacks that were asked for and had not what they need
    sane: bool | None = None  # did the attacks break a model without protection in the same run? None: not tested
    doubted: bool = False  # the attacks work, and still the audit gave no verdict; its first warning says why
    warnings: tuple[str, ...] = ()

    @property
    def strongest(self) -> Attack | None:
        """The attack with the lowest MSE (highest SSIM where no MSE is known); of equals, the one that needs least."""
        return min(
            (attack for attack in self.attacks.values() if attack.scores.known),
            key=lambda a: (
                a.scores.mse if a.scores.mse is not None else 1e9,
                -(a.scores.ssim or 0.0),
                len(a.threat_model),
                a.name,
            ),
            default=None,
        )

    @property
    def seed(self) -> str | None:
        """Of the attacks, as the signature pins it."""
        parts = (self.signature or "").split("|")
        return next((part.partition(":")[2] for part in parts if part.startswith("attack_seed:")), None)

    @property
    def alarms(self) -> list[str]:
        """Attacks that went below a bound which holds for every attacker: then something is broken."""
        return [found for item in items(self.bound.get("alarm")) if (found := text(item))]

    @property
    def leak(self) -> Scores:
        """The number that counts: the per-picture worst case over the attacks, or the strongest attack without it."""
        if self.worst_case.known:
            return self.worst_case
        return self.strongest.scores if self.strongest else Scores()

    @property
    def attacked(self) -> bool:
        """Whether an attack has a score, of pictures or of something else."""
        return self.leak.known or bool(self.inference)


def parse_scores(value: Any) -> Scores:
    entry = table(value)
    return Scores(
        number(entry.get("mse")),
        number(entry.get("ssim")),
        number(entry.get("psnr")),
        interval(entry.get("mse_ci95")),
        interval(entry.get("ssim_ci95")),
    )


def parse_audit(tree: dict[str, Any]) -> Audit:
    images, signature = number(tree.get("num_images")), text(tree.get("signature")) or ""
    extra = table(tree.get("extra"))
    return Audit(
        tier=text(tree.get("tier")),
        altered=bool(items(tree.get("departures"))),
        mode=text(tree.get("mode")),
        protocol=text(tree.get("protocol")),
        data=text(tree.get("data")),
        accuracy=number(tree.get("accuracy")),
        # audits of earlier versions do not say it, but name the endpoint in their signature
        auditors_accuracy=tree.get("accuracy_of", "auditor" if "|endpoint:" in signature else None) == "auditor",
        works=works if isinstance(works := tree.get("works", _warned_of_no_use(tree)), bool) else None,
        num_images=int(images) if images is not None else None,
        floors=_known(tree.get("floors")),
        attacks={name: _attack(name, table(value), extra) for name, value in table(tree.get("attacks")).items()},
        worst_case=parse_scores(tree.get("worst_case")),
        worst_once=parse_scores(tree.get("worst_case_once")),
        per_class=_known(tree.get("per_class")),
        per_group=_groups(tree.get("per_group")),
        worst_decile=parse_scores(tree.get("worst_decile")),
        bound=table(tree.get("bound")),
        signature=signature or None,
        ended=text(tree.get("ended")),
        plan=tuple(table(tree.get("plan"))),
        own_options={name: table(value) for name, value in table(tree.get("own_options")).items()},
        measures={name: parse_extra(value) for name, value in extra.items()},
        epochs=None if (epochs := number(tree.get("epochs"))) is None else int(epochs),
        about=table(tree.get("about")),
        winners={n: share for n, v in _winners(tree).items() if (share := number(v)) is not None},
        inference={name: table(value) for name, value in table(tree.get("inference")).items() if table(value)},
        sane=sane if isinstance(sane := table(tree.get("sanity")).get("passed"), bool) else None,
        doubted=sane is True and not tree.get("failures") and "verdict" in tree and tree["verdict"] is None,
        failures={name: text(value) or "?" for name, value in table(tree.get("failures")).items()},
        skipped={name: text(value) or "?" for name, value in table(tree.get("skipped")).items()},
        warnings=tuple(found for item in items(tree.get("warnings")) if (found := text(item))),
    )


def _warned_of_no_use(tree: dict[str, Any]) -> bool | None:
    """False where an audit of an earlier version, which has no `works`, says it among its warnings."""
    return False if any("naming the most frequent one" in str(item) for item in items(tree.get("warnings"))) else None


def _winners(tree: dict[str, Any]) -> dict[str, Any]:
    return table(table(tree.get("worst_case")).get("winners"))


def _known(value: Any) -> dict[str, Scores]:
    scores = {name: parse_scores(entry) for name, entry in table(value).items()}
    return {name: entry for name, entry in scores.items() if entry.known}


def _groups(value: Any) -> dict[str, Group]:
    found = {}
    for attribute, values in table(value).items():
        for name, entry in table(values).items():
            scores, numbers = parse_scores(entry), table(entry)
            if scores.known:
                found[f"{attribute} = {name}"] = Group(
                    scores, number(numbers.get("guess_mse")), number(numbers.get("num_images"))
                )
    return found


def _attack(name: str, entry: dict[str, Any], extra: dict[str, Any]) -> Attack:
    pairs = [(number(pair[0]), number(pair[1])) for pair in map(items, items(entry.get("curve"))) if len(pair) == 2]
    curve = [(x, y) for x, y in pairs if x is not None and y is not None]
    return Attack(
        name=name,
        scores=parse_scores(entry),
        seconds=number(entry.get("seconds")),
        threat_model=tuple(found for item in items(entry.get("threat_model")) if (found := text(item))),
        summary=text(entry.get("summary")),
        curve=tuple(curve),
        tried=_tried(table(entry.get("tried")), curve),
        recon_acc=number(entry.get("recon_acc")),
        extra=means_of(name, extra),
        repeats=int(repeats) if (repeats := number(entry.get("repeats")) or 1) > 1 else None,
    )


def _tried(errors: dict[str, Any], curve: list[tuple[float, float]]) -> tuple[tuple[str, float, float], ...]:
    """`tried` names the decoders in the order of the curve, whose last point is their vote; else nothing is known."""
    found = [(label, size, error) for (label, value), (size, _) in zip(errors.items(), curve, strict=False)
             if (error := number(value)) is not None]  # fmt: skip
    return tuple(found) if len(found) == len(errors) == len(curve) - 1 else ()
