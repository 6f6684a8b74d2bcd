# ruff: noqa: RUF001 - the Chinese comma and Greek letters are meant
"""What a method is called on the page: in full, in a word or two, and apart from others of the same name."""

from __future__ import annotations

from collections import Counter

from splitveil.experiments.compare.labels import STRUCTURAL
from splitveil.experiments.loose import number, table, text
from splitveil.report.flat_config import flatten
from splitveil.report.markup import Phrase, phrase, plain
from splitveil.report.run import Run


def short_names(runs: list[Run]) -> list[str]:
    """A word or two per method, for captions; lambda and sigma are added only where they are needed to tell apart, and
    other settings where these are not enough."""

    def name(run: Run, parts: str) -> str:
        words = [*([run.surrogate] if run.surrogate else []), *(d for d in run.defences if d not in STRUCTURAL)]
        words = [run.sweep_method] if run.sweep_method else words
        if not words:
            return f"σ {run.sigma:g}" if run.sigma is not None else run.name
        strength = {"λ": run.weight if run.surrogate else None, "σ": run.sigma}  # without a surrogate λ does nothing
        return " ".join([" + ".join(words), *(f"{p}{strength[p]:g}" for p in parts if strength[p] is not None)])

    tried = [[name(run, parts) for run in runs] for parts in ("", "λ", "σ", "λσ")]
    names = max(tried, key=lambda some: len(set(some)))  # the first of those that tell most apart
    twins = [[other for other, same in zip(runs, names, strict=True) if same == name] for name in names]
    return [" · ".join([name, *apart(run, others)]) for run, name, others in zip(runs, names, twins, strict=True)]


def labels(runs: list[Run]) -> list[Phrase]:
    """A label per run, one of each method. A sweep's own name stands alone where no other method has it."""
    named = Counter(run.sweep_method for run in runs)
    return [
        plain(run.sweep_method) if run.sweep_method and named[run.sweep_method] == 1 else label(run) for run in runs
    ]


def label(run: Run) -> Phrase:
    """For example "gmm (corrected), weight 16, noise 0.025"; a sweep's own name goes before the surrogate's."""
    if not run.says_how_defended:
        return plain(run.name)
    parts: list[Phrase] = []
    if run.sweep_method:
        parts.append(plain(run.sweep_method))
    elif run.surrogate:
        options = table(run.config.get("surrogate"))
        mode = text(options.get("preset")) or text(options.get("mode"))
        parts.append(plain(f"{run.surrogate} ({mode})" if mode else run.surrogate))
    if run.surrogate and run.weight is not None:
        parts.append(phrase("label.weight", value=f"{run.weight:g}"))
    for name, options in run.defences.items():
        if name in STRUCTURAL or run.sweep_method:
            continue
        strength = next((v for key in ("weight", "strength", "rate") if (v := number(table(options).get(key)))), None)
        parts.append(plain(name if strength is None else f"{name} {strength:g}"))
    if run.sigma:
        parts.append(phrase("label.noise", value=f"{run.sigma:g}"))
    if not parts:
        return phrase("label.no_noise")
    return Phrase(", ".join(part.en for part in parts), "，".join(part.zh for part in parts))


def apart(run: Run, twins: list[Run]) -> list[str]:
    """What sets this run apart from others with the same name (it may be among them): up to two settings, more where
    another has those too, and the name of the folder where settings do not tell."""
    mine, others = flatten(run.config), [flatten(twin.config) for twin in twins if twin is not run]
    keys = [key for key in mine if key != "seed" and any(flat.get(key) != mine[key] for flat in others)]

    def shared(count: int) -> bool:
        return any(all(flat.get(key) == mine[key] for key in keys[:count]) for flat in others)

    enough = next((n for n in range(min(2, len(keys)), len(keys)) if not shared(n)), len(keys))
    told = [f"{key.removeprefix('train.')} {mine[key]}" for key in keys[:enough]]
    return [*told, _folder(run, twins)] if shared(enough) else told


def _folder(run: Run, twins: list[Run]) -> str:
    """The name of the folder, after as many of those above it as tell it from the others'."""
    mine, others = run.path.resolve().parts, [twin.path.resolve().parts for twin in twins if twin is not run]
    enough = next((n for n in range(1, len(mine)) if not any(other[-n:] == mine[-n:] for other in others)), 1)
    return "/".join(mine[-enough:])
