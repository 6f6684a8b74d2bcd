"""What a reader must know of the undefended model that stands beside the headline."""

from __future__ import annotations

from splitveil.experiments.compare.estimate import estimate
from splitveil.experiments.compare.labels import acting, comparable
from splitveil.report.audit_file import Scores
from splitveil.report.markup import Phrase, phrase
from splitveil.report.method import Method

BROKEN = 0.5  # an attack has broken the undefended model when its MSE is below this share of the mean picture's
NAMED = 5  # so many other models without a defence are named


def baseline(methods: list[Method], headline: Method, undefended: Method | None, floor: Scores) -> list[Phrase]:
    """Whether the undefended model shows that the attacks work, and differs from the headline in its defence alone."""
    if undefended is None:
        proved = all(run.audit.sane is True for run in headline.counted)
        return [phrase("caveat.no_undefended_sane" if proved else "caveat.no_undefended")]
    found = _several(methods, undefended)
    if undefended.leak.mse is not None and floor.mse is not None and undefended.leak.mse > BROKEN * floor.mse:
        found.append(phrase("caveat.not_broken"))
    if undefended is headline:
        return found
    if noise := undefended.runs[0].sigma:
        found.append(phrase("caveat.noisy_baseline", sigma=f"{noise:g}"))
    networks = [method.runs[0].network for method in (undefended, headline)]
    if None not in networks and networks[0] != networks[1]:
        found.append(phrase("caveat.other_network", name=networks[0] or "", other=networks[1] or ""))
    if _larger(headline, undefended) is False:
        found.append(phrase("caveat.no_gain", name=undefended.short))
    return found


def _larger(method: Method, other: Method) -> bool | None:
    """Whether the error behind `method` is shown to be larger: over the seeds that both have, or over the pictures of
    one run each. None where there is no interval to tell."""
    own, others = (
        {run.seed: mse for run in one.counted if (mse := run.audit.leak.mse) is not None} for one in (method, other)
    )
    gains = [own[seed] - others[seed] for seed in own.keys() & others.keys()]
    if len(gains) > 1:
        interval = estimate(gains).interval
        return None if interval is None else interval[0] > 0
    mine, theirs = (one.leak.mse_ci for one in (method, other))
    return None if mine is None or theirs is None else mine[0] > theirs[1]


def _several(methods: list[Method], undefended: Method) -> list[Phrase]:
    """Methods that nothing but noise defends and that differ otherwise: which of them is held against the headline."""
    known = [method for method in methods if method.unprotected and method.leak.known and method.runs[0].config]
    others = [method for method in known if _apart_from_noise(method) != _apart_from_noise(undefended)]
    if not others or not undefended.runs[0].config:
        return []
    shown, more = [method.label for method in others[:NAMED]], "; ..." if len(others) > NAMED else ""
    names = Phrase("; ".join(one.en for one in shown) + more, "；".join(one.zh for one in shown) + more)  # noqa: RUF001
    return [phrase("caveat.baselines", name=undefended.label, others=names)]


def _apart_from_noise(method: Method) -> dict[str, object]:
    settings = acting(comparable(dict(method.runs[0].config)))
    return {key: value for key, value in settings.items() if not key.startswith("defence.noise")}
