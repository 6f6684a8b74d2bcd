"""Every run with its numbers, and what is wrong with it."""

from __future__ import annotations

from splitveil.experiments.compare.sweep_index import Sweep
from splitveil.experiments.discover import SWEEP
from splitveil.experiments.loose import number
from splitveil.report import numbers
from splitveil.report.markup import Content, Html, data_table, join, phrase, say, section, show
from splitveil.report.method import Method
from splitveil.report.run import Run
from splitveil.report.sections.badge import code, named

MOST_FAILURES = 20
MOST_FLOORS = 8


def runs_table(methods: list[Method], sweeps: list[Sweep]) -> Html:
    head: list[Content] = [
        say("word.run"),
        say("word.accuracy"),
        say("tile.mse"),
        say("tile.ssim"),
        "PSNR",
        say("runs.strongest"),
        say("runs.weight"),
        say("word.seed"),
        say("runs.time"),
    ]
    rows: list[list[Content]] = []
    for method in methods:
        if len(method.runs) > 1:
            rows.append(_summary(method))
        rows += [_row(method, run) for run in method.runs]
    numbers_ = data_table(phrase("runs.title"), head, rows, css="numbers")
    body = join([numbers_, _other_modes(methods), _floors(methods), _sweeps(sweeps), _notes(methods)])
    several = any(len(method.runs) > 1 for method in methods)
    return section("runs", say("runs.title"), say("runs.lead_seeds" if several else "runs.lead"), body)


def _summary(method: Method) -> list[Content]:
    leak = method.leak
    return [
        Html(f"<strong>{named(method)}</strong>"),
        _with_spread(numbers.percent(method.accuracy), _percent_points(method.spread(method.accuracy_of))),
        _with_spread(numbers.mse(leak.mse), _small(method.spread(lambda run: run.audit.leak.mse), 4)),
        _with_spread(numbers.ssim(leak.ssim, 3), _small(method.spread(lambda run: run.audit.leak.ssim), 3)),
        numbers.decibel(leak.psnr),
        "",
        "",
        _told_by(method),
        "",
    ]


def _told_by(method: Method) -> Html:
    """What the row of a method says of its runs: their mean, or the one audit that counts of several of one model."""
    if method.failed:
        return say("runs.failed_of", count=str(len(method.runs)))
    if len(method.counted) == 1 and any(run.weaker for run in method.runs):
        audits = [run for run in method.runs if run.audit.leak.known]
        return say("runs.strongest_of", count=str(len(audits)))
    return say("runs.mean_of", count=str(len(method.counted)))


def _row(method: Method, run: Run) -> list[Content]:
    leak = run.audit.leak
    single = len(method.runs) == 1
    name = Html(f'{named(method) if single else ""}<span class="folder">{show(run.name)}</span>')
    return [
        Html(f'{name}<span class="folder">{say("runs.weaker")}</span>') if run.weaker and leak.known else name,
        _accuracy(run),
        _with_interval(numbers.mse(leak.mse), numbers.span(leak.mse_ci)),
        _with_interval(numbers.ssim(leak.ssim, 3), numbers.span(leak.ssim_ci, lambda v: numbers.ssim(v, 3))),
        numbers.decibel(leak.psnr),
        run.audit.strongest.name if run.audit.strongest else numbers.DASH,
        numbers.plain(number(run.result.get("effective_weight"))),
        run.seed or numbers.DASH,
        numbers.duration(number(run.result.get("seconds"))),
    ]


def _accuracy(run: Run) -> Html:
    value = numbers.percent(run.accuracy)
    if run.accuracy is None or not (run.unfinished or run.auditors_accuracy):
        return Html(value)
    last = "runs.before_failure" if run.lacks == "failed" else "runs.so_far"
    return _with_interval(value, say("tile.auditors" if run.auditors_accuracy else last))


def _with_interval(value: str, interval: str) -> Html:
    return Html(f'{value}<span class="interval">{interval}</span>' if interval else value)


def _with_spread(value: str, spread: str) -> Html:
    return Html(f'{value}<span class="interval">± {spread}</span>' if spread else value)


def _small(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _percent_points(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def _other_modes(methods: list[Method]) -> Html:
    """Audits of the same runs in another mode (SPEC 8.1), which lie beside the first and never mix with it."""
    rows: list[list[Content]] = [
        [
            Html(f'{named(method)}<span class="folder">{show(run.name)}</span>'),
            code(mode),
            _with_interval(numbers.mse(audit.leak.mse), numbers.span(audit.leak.mse_ci)),
            numbers.ssim(audit.leak.ssim, 3),
            numbers.decibel(audit.leak.psnr),
            audit.strongest.name if audit.strongest else numbers.DASH,
        ]
        for method in methods
        for run in method.runs
        for mode, audit in run.other_audits.items()
    ]
    if not rows:
        return Html("")
    head: list[Content] = [say("word.run"), say("runs.mode"), "MSE", "SSIM", "PSNR", say("runs.strongest")]
    table = data_table(phrase("runs.modes"), head, rows, css="numbers")
    return Html(f"<h3>{say('runs.modes')}</h3><p>{say('runs.modes_lead')}</p>{table}")


def _floors(methods: list[Method]) -> Html:
    """Floors are properties of the test pictures: normally the same for all runs, so each distinct set is told once."""
    told: dict[str, list[Run]] = {}
    for method in methods:
        for run in method.runs:
            if run.audit.floors:
                told.setdefault(repr(sorted(run.audit.floors.items())), []).append(run)
    several = len(told) > 1
    by_seed = [{run.seed for run in runs} for runs in told.values()]
    seeds_tell = None not in set().union(*by_seed) and len(set().union(*by_seed)) == sum(map(len, by_seed))
    rows: list[list[Content]] = []
    for runs in list(told.values())[:MOST_FLOORS]:
        owner: list[Content] = [_floor_owner(runs, seeds_tell)] if several else []
        rows += [
            [_floor_name(name), *owner, numbers.mse(s.mse), numbers.ssim(s.ssim, 3), numbers.decibel(s.psnr)]
            for name, s in runs[0].audit.floors.items()
        ]
    if not rows:
        return Html("")
    head: list[Content] = [say("runs.floor"), *([say("runs.floor_runs")] if several else []), "MSE", "SSIM", "PSNR"]
    return Html(f"<h3>{say('runs.floors')}</h3>{data_table(phrase('runs.floors'), head, rows, css='numbers narrow')}")


def _floor_owner(runs: list[Run], seeds_tell: bool) -> Html:
    """Whose floors these are: the seed, where it tells the sets of pictures apart, else the names of some runs."""
    if seeds_tell:
        return say("runs.floor_seed", seeds=", ".join(sorted({str(run.seed) for run in runs})))
    return show(", ".join(run.name for run in runs[:3]) + (", ..." if len(runs) > 3 else ""))


def _floor_name(name: str) -> Html:
    return say(f"floor.{name}") if name in {"mean_image", "class_mean"} else show(name)


def _sweeps(sweeps: list[Sweep]) -> Html:
    """Cells that have no run to show: a reader must know what is not in the tables."""
    rows = []
    for sweep in sweeps:
        if sweep.problem:
            damage = phrase("note.damaged", file=SWEEP, reason=sweep.problem)
            rows.append(f"<li><b>{show(sweep.name)}</b>: {show(damage)}</li>")
            continue
        done = say("runs.sweep_done", done=str(sweep.finished), count=str(sweep.cells))
        rows.append(f"<li><b>{show(sweep.name)}</b>: {done}</li>")
        rows += [
            f"<li><b>{show(cell)}</b> ({show(method)}): {say('runs.sweep_failed', error=error)}</li>"
            for cell, error in list(sweep.failed.items())[:MOST_FAILURES]
            for method in [sweep.methods.get(cell, "?")]
        ]
        if len(sweep.failed) > MOST_FAILURES:
            rows.append(f"<li>{say('runs.sweep_more', count=str(len(sweep.failed) - MOST_FAILURES))}</li>")
    return Html(f"<h3>{say('runs.sweeps')}</h3><ul class='notes'>{''.join(rows)}</ul>") if rows else Html("")


def _notes(methods: list[Method]) -> Html:
    """Each set of notes once, with all runs that have it: the cells of a sweep mostly share theirs."""
    owners: dict[str, list[str]] = {}
    for run in (run for method in methods for run in method.runs if run.notes):
        owners.setdefault("; ".join(show(note) for note in run.notes), []).append(show(run.name))
    rows = [f"<li><b>{', '.join(names)}</b>: {notes}</li>" for notes, names in owners.items()]
    return Html(f"<h3>{say('runs.notes')}</h3><ul class='notes'>{''.join(rows)}</ul>") if rows else Html("")
