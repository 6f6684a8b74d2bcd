"""Attack by attack: what the attacker has, how far it came on each method, and whether more effort would help."""

from __future__ import annotations

from splitveil.report import numbers
from splitveil.report.audit_file import Attack
from splitveil.report.charts.frame import Box
from splitveil.report.charts.lines import Curve, line_chart
from splitveil.report.extra import Extra
from splitveil.report.markup import Content, Html, Phrase, data_table, details, join, phrase, say, section, show
from splitveil.report.method import Method, mean
from splitveil.report.sections.badge import code, named
from splitveil.report.sections.inferences import inferences
from splitveil.report.texts import TEXTS
from splitveil.report.texts_attacks import ATTACK_NAMES

EFFORT = {  # what the first number of an attack's curve counts
    "decoder": "epochs",
    "average": "epochs",
    "gan": "epochs",
    "prior": "epochs",
    "optimize": "steps",
    "refine": "steps",
    "decoder_strong": "parameters",
}


def attacks(methods: list[Method]) -> Html:
    names = list(dict.fromkeys(name for method in methods for run in method.runs for name in run.audit.attacks))
    body = join([*(_attack(name, methods) for name in names), inferences(methods)])
    if not body:
        return section("attacks", say("attacks.title"), None, Html(f'<p class="empty">{say("attacks.empty")}</p>'))
    body = join([_measures(methods), body, _untried(methods)])
    return section("attacks", say("attacks.title"), say("attacks.lead"), body)


def _measures(methods: list[Method]) -> Html:
    """What must be known of the measures that the audits were given, to read their columns."""
    found: dict[str, list[Extra]] = {}
    for method in methods:
        for run in method.counted:
            for name in dict.fromkeys(name for attack in run.audit.attacks.values() for name in attack.extra):
                found.setdefault(name, []).append(run.audit.measures[name])
    lines = []
    for name, ones in found.items():
        ways = {one.larger_is_private for one in ones} - {None}
        way = "attacks.unknown" if len(ways) != 1 else "attacks.larger" if True in ways else "attacks.smaller"
        floor = numbers.plain(mean(one.floor for one in ones))
        lines.append(f"<p>{say('attacks.extra', name=name, floor=floor, way=phrase(way))}</p>")
    return Html("".join(lines))


def _untried(methods: list[Method]) -> Html:
    """The attacks that faced none of the runs: what an audit leaves open is a part of what it says."""
    audits = [run.audit for method in methods for run in method.runs]
    names = [n for n in ATTACK_NAMES if not any(n in audit.attacks or n in audit.inference for audit in audits)]
    if not names:
        return Html("")
    lines = "".join(f"<li><b>{show(name)}</b>: {say(f'attack.{name}')}</li>" for name in names)
    lead = f"<h3>{say('attacks.untried')}</h3><p>{say('attacks.untried_lead')}</p>"
    return Html(f'<article class="attack">{lead}<div class="threat"><ul>{lines}</ul></div></article>')


def _attack(name: str, methods: list[Method]) -> Html:
    found = [(m, [run.audit.attacks[name] for run in m.having(lambda run: name in run.audit.attacks)]) for m in methods]
    found = [(method, results) for method, results in found if results]
    sample = found[0][1][0]
    threats = list(dict.fromkeys(line for _, results in found for result in results for line in result.threat_model))
    parts = [Html(f"<h3>{show(name)}</h3>"), _summary(name, sample)]
    if threats:
        repeats = sorted({r.repeats for _, results in found for r in results if r.repeats is not None})
        lines = "".join(f"<li>{_threat(line, repeats)}</li>" for line in threats)
        parts.append(Html(f'<div class="threat"><h4>{say("attacks.threat")}</h4><ul>{lines}</ul></div>'))
    chart = _curves(name, found)
    numbers_ = _table(name, found)
    words = join([*parts, numbers_])
    body = f'<div class="pair"><div>{words}</div>{chart}</div>' if chart else words
    return Html(f'<article class="attack">{body}</article>')


def _summary(name: str, sample: Attack) -> Html:
    """The attack's own sentence; for the known attacks ours, which comes in both languages."""
    if f"attack.{name}" in TEXTS:
        return Html(f"<p>{say(f'attack.{name}')}</p>")
    return Html(f"<p>{show(sample.summary)}</p>") if sample.summary else Html("")


def _threat(line: str, repeats: list[int]) -> Html:
    """What the attacker has; of further transmissions also how many: noise is averaged away."""
    if line == "repeats" and repeats:
        return say("threat.repeats_of", count=" / ".join(map(str, repeats)))
    key = f"threat.{line}"
    return say(key) if key in TEXTS else show(line)


def _table(name: str, found: list[tuple[Method, list[Attack]]]) -> Html:
    rows: list[list[Content]] = []
    with_accuracy = any(result.recon_acc is not None for _, results in found for result in results)
    extra = list(dict.fromkeys(measure for _, results in found for result in results for measure in result.extra))
    with_winners = any(name in run.audit.winners for method, _ in found for run in method.runs)
    for method, results in found:
        scores = [result.scores for result in results]
        interval = numbers.span(scores[0].mse_ci) if len(scores) == 1 else ""
        row: list[Content] = [
            named(method),
            Html(
                numbers.mse(mean(s.mse for s in scores))
                + (f'<span class="interval">{interval}</span>' if interval else "")
            ),
            numbers.ssim(mean(s.ssim for s in scores), 3),
            numbers.decibel(mean(s.psnr for s in scores)),
            *(numbers.plain(mean(result.extra.get(measure) for result in results)) for measure in extra),
        ]
        if with_winners:
            row.append(numbers.percent(mean(run.audit.winners.get(name) for run in method.counted), 0))
        if with_accuracy:
            row.append(numbers.percent(mean(result.recon_acc for result in results)))
        rows.append([*row, numbers.duration(mean(result.seconds for result in results))])
    head: list[Content] = [say("word.method"), "MSE", "SSIM", "PSNR", *extra]
    head += [say("attacks.closest")] if with_winners else []
    head += [say("attacks.recon")] if with_accuracy else []
    return data_table(phrase("attacks.of", name=name), [*head, say("runs.time")], rows, css="numbers")


def _curves(name: str, found: list[tuple[Method, list[Attack]]]) -> Html:
    curves = [
        Curve(
            method.number, method.colour, method.label, _strength(result), shape=method.number if result.tried else None
        )
        for method, results in found
        for result in results
        if result.curve
    ]
    if not curves:
        return Html("")
    effort = phrase(f"effort.{EFFORT.get(name, 'any')}")
    title = phrase("attacks.curve_of", name=name)
    error = phrase("attacks.own_error")
    box = Box(340, 210, left=66)  # a name beside the axis: the error is not the one in the table
    chart = line_chart(curves, title, effort, y_label=error, log_x=EFFORT.get(name) == "parameters", box=box)
    has_tried = any(result.tried for _, results in found for result in results)
    body = _tried(title, effort, found) if has_tried else _ends(title, found)
    table = details(say("word.as_table"), body)
    return Html(f'<figure class="plot"><figcaption>{say("attacks.curve")}</figcaption>{chart}{table}</figure>')


def _strength(result: Attack) -> tuple[tuple[float, float], ...]:
    """Error over effort. Where decoders of several sizes were tried: the best up to each size, the vote included."""
    if not result.tried:
        return result.curve
    sizes = sorted({size for _, size, _ in result.tried} | {result.curve[-1][0]})
    errors = [*((size, error) for _, size, error in result.tried), result.curve[-1]]
    return tuple((size, min(error for other, error in errors if other <= size)) for size in sizes)


def _ends(title: Phrase, found: list[tuple[Method, list[Attack]]]) -> Html:
    rows: list[list[Content]] = [
        [named(method), *(numbers.plain(value) for value in (*result.curve[0], *result.curve[-1]))]
        for method, results in found
        for result in results
        if result.curve
    ]
    head: list[Content] = [
        say("word.method"),
        say("attacks.first"),
        say("attacks.error"),
        say("attacks.last"),
        say("attacks.error"),
    ]
    return data_table(title, head, rows, css="numbers")


def _tried(title: Phrase, effort: Phrase, found: list[tuple[Method, list[Attack]]]) -> Html:
    """Every decoder that was trained, and their vote."""
    rows: list[list[Content]] = []
    for method, results in found:
        for result in results:
            for label, size, error in result.tried:
                rows.append([named(method, method.short), code(label), numbers.quantity(size), numbers.mse(error)])
            if result.tried:
                size, error = result.curve[-1]
                vote = [say("attacks.vote"), numbers.quantity(size), numbers.mse(error)]
                rows.append([named(method, method.short), *vote])
    head: list[Content] = [say("word.method"), say("attacks.decoder"), show(effort), say("attacks.error")]
    return data_table(title, head, rows, css="numbers")
