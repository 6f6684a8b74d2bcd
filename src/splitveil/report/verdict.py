"""Which method the page speaks about first, and what a reader must know before believing it (DESIGN 5)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from splitveil.experiments.loose import items, number, table, text
from splitveil.experiments.training_warnings import training_warnings
from splitveil.report import numbers
from splitveil.report.audit_file import Audit, Scores
from splitveil.report.markup import Phrase, phrase
from splitveil.report.method import Method, mean
from splitveil.report.run import Run
from splitveil.report.texts_attacks import ATTACK_NAMES

ACCURACY_PRICE = 0.03  # the headline may cost at most this much accuracy, if any method is that cheap
BROKEN = 0.5  # an attack has broken the undefended model when its MSE is below this share of the mean picture's
SEEDS = 3
SETTLED = 0.01  # so far may late epochs lie from the last one, beyond the chance of drawing the pictures
NAMED = 5  # so many unfinished runs are named; the table of runs has all
LIMIT_KEYS = ("mse", "mse_lower", "mse_lower_bound", "min_mse")  # names under which a bound may carry its MSE


@dataclass(frozen=True)
class Verdict:
    """The headline method (None when nothing was attacked), the undefended one beside it, and the floor.

    `cheap` and `defended` count the attacked methods that cost little accuracy, and all defended ones.
    """

    headline: Method | None
    undefended: Method | None
    floor: Scores
    caveats: tuple[Phrase, ...]
    cheap: int
    defended: int


def judge(methods: list[Method]) -> Verdict:
    """Of the defended methods that work and cost little accuracy, the one that leaks least; else whatever there is."""
    everything = [method for method in methods if method.leak.known]
    attacked = [method for method in everything if not method.idle] or everything
    undefended = next((method for method in attacked if method.undefended), None)
    defended = [method for method in attacked if not method.undefended and not method.bare]
    cheap = [method for method in defended if _price(method, undefended) <= ACCURACY_PRICE]
    pool = cheap or defended or attacked
    headline = min(pool, key=_protection) if pool else None
    # the headline's own floor: another run may have been attacked on other pictures
    ranked = [] if headline is None else [headline, *(method for method in pool if method is not headline)]
    floor = next((found for method in ranked if (found := _floor(method)).known), Scores())
    caveats = tuple(_caveats(methods, headline, undefended, floor))
    return Verdict(headline, undefended, floor, caveats, len(cheap), len(defended))


def _floor(method: Method) -> Scores:
    """Guessing the mean picture, over the same runs as the method's own numbers: each seed has other pictures."""
    floors = [run.audit.floors["mean_image"] for run in method.counted if "mean_image" in run.audit.floors]
    return Scores(mean(one.mse for one in floors), mean(one.ssim for one in floors), mean(one.psnr for one in floors))


def _price(method: Method, undefended: Method | None) -> float:
    if undefended is None or method.accuracy is None or undefended.accuracy is None:
        return 0.0
    return undefended.accuracy - method.accuracy


def _protection(method: Method) -> tuple[float, float]:
    """Sorts best protection first: highest MSE, then lowest SSIM."""
    leak = method.leak
    return (-(leak.mse if leak.mse is not None else -1.0), leak.ssim if leak.ssim is not None else 1.0)


def _caveats(methods: list[Method], headline: Method | None, undefended: Method | None, floor: Scores) -> list[Phrase]:
    found: list[Phrase] = []
    if headline is None:
        return found
    everything = [run for method in methods for run in method.runs]
    changed = [run.name for run in everything if run.changed]
    if changed:
        found.append(phrase("caveat.changed", names=_few(changed)))
    found += _idle(methods, headline)
    found += _kin(everything)
    runs = [run for run in everything if not run.weaker]
    open_ = [run.name for run in runs if run.unfinished]
    if open_:
        key = "caveat.unfinished_one" if len(open_) == 1 else "caveat.unfinished"
        found.append(phrase(key, count=len(open_), total=len(runs), names=_few(open_)))
    if undefended is None:
        proved = all(run.audit.sane is True for run in headline.counted)
        found.append(phrase("caveat.no_undefended_sane" if proved else "caveat.no_undefended"))
    elif undefended.leak.mse is not None and floor.mse is not None and undefended.leak.mse > BROKEN * floor.mse:
        found.append(phrase("caveat.not_broken"))
    if undefended is not None and undefended is not headline and (noise := undefended.runs[0].sigma):
        found.append(phrase("caveat.noisy_baseline", sigma=f"{noise:g}"))
    if undefended is not None and undefended is not headline:
        networks = [method.runs[0].network for method in (undefended, headline)]
        if None not in networks and networks[0] != networks[1]:
            found.append(phrase("caveat.other_network", name=networks[0] or "", other=networks[1] or ""))
    guessed = [m.label for m in (headline, undefended) if m is not None and m.auditors_accuracy]
    found += [phrase("caveat.auditors_accuracy", name=label) for label in dict.fromkeys(guessed)]
    found += [stated for m in (headline, undefended) if m is not None for run in m.counted for stated in _accuracy(run)]
    if not floor.known:
        found.append(phrase("caveat.no_floor"))
    seeds = len(headline.counted)
    if seeds < SEEDS:
        found.append(phrase("caveat.seeds_one" if seeds == 1 else "caveat.seeds", count=seeds))
    tried = {name for run in headline.counted for name in (*run.audit.attacks, *run.audit.inference)}
    untried = [name for name in ATTACK_NAMES if name not in tried]
    if tried and untried:
        found.append(phrase("caveat.untried", names=", ".join(untried)))
    for name, values in (
        ("data", {run.data_name for run in runs if run.data_name}),
        ("protocol", {run.protocol for run in runs if run.protocol}),
        ("mode", {run.audit.mode for run in runs if run.audit.mode}),
        ("tier", {run.audit.tier for run in runs if run.audit.tier}),
        ("images", {f"{run.audit.num_images:,}" for run in runs if run.audit.num_images}),
        ("limit", _settings(runs, "data", "limit")),
        ("epochs", _settings(runs, "train", "epochs")),
    ):
        if len(values) > 1:
            found.append(phrase(f"caveat.mixed_{name}", values=", ".join(sorted(values, key=_by_size))))
    suites = {frozenset(run.audit.attacks) for run in runs if run.audit.attacks}
    if len(suites) > 1:
        found.append(phrase("caveat.mixed_attacks"))
    if any(run.audit.sane is False for m in (headline, undefended) if m is not None for run in m.counted):
        found.append(phrase("caveat.insane"))
    if any(run.audit.doubted for m in (headline, undefended) if m is not None for run in m.counted):
        found.append(phrase("caveat.doubted"))
    if any(run.audit.failures for run in runs):
        found.append(phrase("caveat.failed"))
    if any(run.audit.warnings for m in (headline, undefended) if m is not None for run in m.counted):
        found.append(phrase("caveat.warned"))
    counted = [run.name for method in methods for run in method.counted if training_warnings(run.result)]
    if counted:
        found.append(phrase("caveat.counted", names=_few(counted)))
    found += [phrase("caveat.bound", name=m.label) for m in methods if any(beaten_bounds(run.audit) for run in m.runs)]
    return found


def _few(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")


def _idle(methods: list[Method], headline: Method) -> list[Phrase]:
    """Methods whose accuracy needs no picture: the safest model of all is one that learned nothing."""
    if headline.idle:
        names = [run.name for run in headline.counted if run.idle]
        return [
            phrase("caveat.idle")
            if len(names) == len(headline.counted)
            else phrase("caveat.idle_seeds", names=_few(names))
        ]
    names = [run.name for method in methods for run in method.counted if run.idle]
    return [phrase("caveat.idle_others", names=_few(names))] if names else []


def _accuracy(run: Run) -> list[Phrase]:
    """Where the accuracy that a run states is not what the audit measured on the pictures under attack."""
    stated, measured, count = run.accuracy, run.audit.accuracy, run.audit.num_images
    if stated is None or measured is None or not count or run.audit.auditors_accuracy:
        return []
    middle = (stated + measured) / 2
    if abs(stated - measured) <= SETTLED + 3 * math.sqrt(max(middle * (1 - middle), 0) / count):
        return []
    values = {"stated": numbers.percent(stated), "measured": numbers.percent(measured)}
    return [phrase("caveat.other_accuracy", name=run.name, count=count, **values)]


def _kin(runs: list[Run]) -> list[Phrase]:
    """Models that were audited several times, and which audit counts."""
    found = []
    for family in dict.fromkeys(run.family for run in runs if run.family is not None):
        audited = [run for run in runs if run.family == family and run.audit.leak.known]
        if len(audited) > 1:
            names, (best,) = ", ".join(run.name for run in audited), [run.name for run in audited if not run.weaker]
            found.append(phrase("caveat.audits", count=len(audited), names=names, name=best))
    return found[:NAMED]


def _settings(runs: list[Run], section: str, key: str) -> set[str]:
    """The values that the runs' settings give a key; where a run has none, nothing limits it."""
    return {text(table(run.config.get(section)).get(key)) or "all" for run in runs if run.config}


def _by_size(value: str) -> tuple[float, str]:
    """Numbers in their order, words after them."""
    digits = value.replace(",", "")
    return (float(digits) if digits.isdecimal() else float("inf"), value)


def beaten_bounds(audit: Audit) -> list[str]:
    """Names of lower bounds on the MSE that a measured attack went below: then an assumption does not hold.

    An audit's own alarms speak of the entropy bound. Its other bounds come with the list of attacks for which they do
    not hold; only a foreign file's plain limits are compared here.
    """
    bound = table(audit.bound)
    leak = audit.leak
    beaten = ["entropy"] if items(bound.get("alarm")) else []
    for name, value in [("bound", bound), *((n, table(v)) for n, v in bound.items() if isinstance(v, dict))]:
        limit = lower_limit(value)
        if limit is not None and leak.mse is not None and leak.mse < limit:
            beaten.append(text(value.get("name")) or name)
    return beaten


def lower_limit(entry: dict[str, object]) -> float | None:
    """The MSE below which no attack should come."""
    return next((value for key in LIMIT_KEYS if (value := number(entry.get(key))) is not None), None)


def assumptions(entry: dict[str, object]) -> list[str]:
    return [found for item in items(entry.get("assumptions")) if (found := text(item))]
