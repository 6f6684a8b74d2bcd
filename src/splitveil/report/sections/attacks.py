"""Attack by attack: what the attacker has, how far it came on each method, and whether more effort would help."""

from __future__ import annotations

from splitveil.experiments.loose import number, text
from splitveil.report import numbers
from splitveil.report.audit_file import Attack
from splitveil.report.charts.lines import Curve, line_chart
from splitveil.report.markup import Content, Html, data_table, details, join, phrase, say, section, show
from splitveil.report.methods import Method, mean
from splitveil.report.sections.badge import code, named
from splitveil.report.texts import TEXTS

COMMON = {"seconds", "threat_model", "summary"}


def attacks(methods: list[Method]) -> Html:
    names = list(dict.fromkeys(name for method in methods for run in method.runs for name in run.audit.attacks))
    body = join([*(_attack(name, methods) for name in names), _inferences(methods)])
    if not body:
        return section("attacks", say("attacks.title"), None, Html(f'<p class="empty">{say("attacks.empty")}</p>'))
    return section("attacks", say("attacks.title"), say("attacks.lead"), body)


def _attack(name: str, methods: list[Method]) -> Html:
    found = [(m, [run.audit.attacks[name] for run in m.runs if name in run.audit.attacks]) for m in methods]
    found = [(method, results) for method, results in found if results]
    sample = found[0][1][0]
    threats = list(dict.fromkeys(line for _, results in found for result in results for line in result.threat_model))
    parts = [Html(f"<h3>{show(name)}</h3>"), _summary(name, sample)]
    if threats:
        lines = "".join(f"<li>{_threat(line)}</li>" for line in threats)
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


def _threat(line: str) -> Html:
    key = f"threat.{line}"
    return say(key) if key in TEXTS else show(line)


def _table(name: str, found: list[tuple[Method, list[Attack]]]) -> Html:
    rows: list[list[Content]] = []
    with_accuracy = any(result.recon_acc is not None for _, results in found for result in results)
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
        ]
        if with_winners:
            row.append(numbers.percent(mean(run.audit.winners.get(name) for run in method.runs), 0))
        if with_accuracy:
            row.append(numbers.percent(mean(result.recon_acc for result in results)))
        rows.append([*row, numbers.duration(mean(result.seconds for result in results))])
    head: list[Content] = [say("word.method"), "MSE", "SSIM", "PSNR"]
    head += [say("attacks.closest")] if with_winners else []
    head += [say("attacks.recon")] if with_accuracy else []
    return data_table(phrase("attacks.of", name=name), [*head, say("runs.time")], rows, css="numbers")


def _curves(name: str, found: list[tuple[Method, list[Attack]]]) -> Html:
    curves = [
        Curve(method.number, method.colour, method.label, result.curve)
        for method, results in found
        for result in results
        if result.curve
    ]
    if not curves:
        return Html("")
    chart = line_chart(curves, phrase("attacks.curve_of", name=name), phrase("attacks.effort"))
    rows: list[list[Content]] = []
    for method, results in found:
        for result in results:
            if result.curve:
                (first, last) = (result.curve[0], result.curve[-1])
                ends = [numbers.plain(value) for value in (*first, *last)]
                rows.append([named(method), *ends])
    head: list[Content] = [
        say("word.method"),
        say("attacks.first"),
        say("attacks.error"),
        say("attacks.last"),
        say("attacks.error"),
    ]
    table = details(say("word.as_table"), data_table(phrase("attacks.curve_of", name=name), head, rows))
    return Html(f'<figure class="plot"><figcaption>{say("attacks.curve")}</figcaption>{chart}{table}</figure>')


def _inferences(methods: list[Method]) -> Html:
    """Attacks whose outcome is not a picture: every plain number they report, one column per method."""
    names = list(dict.fromkeys(name for method in methods for run in method.runs for name in run.audit.inference))
    parts = []
    for name in names:
        found = [(m, run.audit.inference[name]) for m in methods for run in m.runs[:1] if name in run.audit.inference]
        keys = [key for key in dict.fromkeys(key for _, entry in found for key in entry) if key not in COMMON]
        rows: list[list[Content]] = [
            [code(key), *(numbers.plain(number(entry.get(key))) for _, entry in found)]
            for key in keys
            if any(number(entry.get(key)) is not None for _, entry in found)
        ]
        told = text(found[0][1].get("summary"))
        head: list[Content] = [say("attacks.finding"), *(named(method, method.short) for method, _ in found)]
        table = data_table(phrase("attacks.of", name=name), head, rows, css="numbers narrow") if rows else ""
        parts.append(Html(f"<h4>{show(name)}</h4>" + (f"<p>{show(told)}</p>" if told else "") + table))
    if not parts:
        return Html("")
    lead = f"<h3>{say('attacks.other')}</h3><p>{say('attacks.other_lead')}</p>"
    return Html(f'<article class="attack">{lead}{join(parts)}</article>')
