"""Who leaks most: per class, per group, and the tenth of the pictures that came out best for the attacker."""

from __future__ import annotations

from splitveil.report import numbers
from splitveil.report.audit_file import Scores
from splitveil.report.charts.rows import Dot, row_chart
from splitveil.report.markup import Content, Html, data_table, details, phrase, say, section
from splitveil.report.method import Method, mean
from splitveil.report.sections.badge import named

MOST_CLASSES = 20  # rows in the chart; the table has all of them


def leakage(methods: list[Method]) -> Html | None:
    parts = [_decile(methods), _classes(methods)]
    body = "".join(f"<div>{part}</div>" for part in parts if part)
    body = f'<div class="pair even">{body}</div>' if all(parts) else body
    body += _groups(methods)
    return section("leakage", say("leakage.title"), say("leakage.lead"), Html(body)) if body else None


def _decile(methods: list[Method]) -> Html:
    rows: list[list[Content]] = []
    for method in methods:
        worst = [run.audit.worst_decile for run in method.counted if run.audit.worst_decile.known]
        if worst:
            rows.append(
                [
                    named(method, method.short),
                    numbers.ssim(method.leak.ssim, 3),
                    numbers.ssim(mean(s.ssim for s in worst), 3),
                    numbers.mse(method.leak.mse),
                    numbers.mse(mean(s.mse for s in worst)),
                ]
            )
    if not rows:
        return Html("")
    head: list[Content] = [
        say("word.method"),
        say("leakage.mean", metric="SSIM"),
        say("leakage.worst", metric="SSIM"),
        say("leakage.mean", metric="MSE"),
        say("leakage.worst", metric="MSE"),
    ]
    table = data_table(phrase("leakage.decile"), head, rows, css="numbers")
    return Html(f"<h3>{say('leakage.decile')}</h3><p>{say('leakage.decile_lead')}</p>{table}")


def _classes(methods: list[Method]) -> Html:
    scores: dict[str, dict[int, Scores]] = {}
    for method in methods:
        for name in dict.fromkeys(name for run in method.counted for name in run.audit.per_class):
            found = [run.audit.per_class[name] for run in method.counted if name in run.audit.per_class]
            scores.setdefault(name, {})[method.number] = Scores(mean(s.mse for s in found), mean(s.ssim for s in found))
    if not scores:
        return Html("")
    use_ssim = any(s.ssim is not None for row in scores.values() for s in row.values())
    metric = "SSIM" if use_ssim else "MSE"
    shown = [method for method in methods if any(method.number in row for row in scores.values())]
    # Worst first: by the defended methods where there are any, since theirs is the leak that remains.
    ranking = [method.number for method in shown if not method.undefended] or [method.number for method in shown]
    order = sorted(scores, key=lambda name: _rank(scores[name], ranking), reverse=True)
    chart_rows = [
        (name, [dot for m in shown if (dot := _dot(m, name, scores[name].get(m.number), use_ssim)) is not None])
        for name in order[:MOST_CLASSES]
    ]
    chart = row_chart(chart_rows, phrase("leakage.aria", metric=metric), phrase("leakage.x", metric=metric))
    head: list[Content] = [say("word.class")]
    for method in shown:
        head += [Html(f"{named(method, method.short)} {metric}"), "MSE"] if use_ssim else [named(method, method.short)]
    rows: list[list[Content]] = []
    for name in order:
        row: list[Content] = [name]
        for method in shown:
            entry = scores[name].get(method.number, Scores())
            row += [numbers.ssim(entry.ssim, 3), numbers.mse(entry.mse)] if use_ssim else [numbers.mse(entry.mse)]
        rows.append(row)
    table = details(say("word.as_table"), data_table(phrase("leakage.classes"), head, rows, css="numbers"))
    cut = f"<p>{say('leakage.cut', count=str(MOST_CLASSES))}</p>" if len(order) > MOST_CLASSES else ""
    return Html(f'<h3>{say("leakage.classes")}</h3>{cut}<figure class="plot wide">{chart}{table}</figure>')


def _groups(methods: list[Method]) -> Html:
    """One line per group and method: what the attacks leave of the error of guessing, means over the runs."""
    rows: list[list[Content]] = []
    for name in dict.fromkeys(name for m in methods for run in m.counted for name in run.audit.per_group):
        for method in methods:
            found = [run.audit.per_group[name] for run in method.counted if name in run.audit.per_group]
            if not found:
                continue
            mse, guess = mean(one.scores.mse for one in found), mean(one.guess for one in found)
            left = numbers.percent(mse / guess) if mse is not None and guess else numbers.percent(None)
            count = numbers.quantity(mean(one.count for one in found))
            ssim = numbers.ssim(mean(one.scores.ssim for one in found), 3)
            rows.append([name, named(method, method.short), left, numbers.mse(mse), numbers.mse(guess), ssim, count])
    if not rows:
        return Html("")
    head: list[Content] = [say("leakage.group"), say("word.method"), say("leakage.left"), "MSE"]
    head += [say("leakage.guess"), "SSIM", say("leakage.pictures")]
    table = data_table(phrase("leakage.groups"), head, rows, css="numbers")
    return Html(f"<h3>{say('leakage.groups')}</h3><p>{say('leakage.groups_lead')}</p>{table}")


def _rank(row: dict[int, Scores], ranking: list[int]) -> tuple[float, float]:
    ssim = mean(row[number].ssim for number in ranking if number in row)
    mse = mean(row[number].mse for number in ranking if number in row)
    return (ssim if ssim is not None else -1.0, -(mse if mse is not None else 1e9))


def _dot(method: Method, name: str, scores: Scores | None, use_ssim: bool) -> Dot | None:
    value = None if scores is None else scores.ssim if use_ssim else scores.mse
    if value is None:
        return None
    written = f"SSIM {numbers.ssim(value, 3)}" if use_ssim else f"MSE {numbers.mse(value)}"
    return Dot(method.number, method.colour, value, phrase("leakage.tip", name=method.label, cls=name, value=written))
