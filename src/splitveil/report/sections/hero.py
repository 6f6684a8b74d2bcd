"""The first screen's words: the verdict in a sentence, the scale, four numbers, and what limits the claim."""

from __future__ import annotations

from collections.abc import Callable

from splitveil.experiments.loose import table, text
from splitveil.report import numbers
from splitveil.report.audit_file import Scores
from splitveil.report.charts.rows import Pin, scale_chart
from splitveil.report.markup import Content, Html, Phrase, bold, join, phrase, plain, say, show
from splitveil.report.method import Method, mean
from splitveil.report.run import Run
from splitveil.report.verdict import ACCURACY_PRICE, Verdict


def hero(verdict: Verdict, methods: list[Method]) -> Html:
    method = verdict.headline
    if method is None:
        return Html(
            f'<div><p class="eyebrow">{_setting(methods[0])}</p><p class="verdict">{_unattacked(methods)}</p></div>'
        )
    words = [
        Html(f'<p class="eyebrow">{_setting(method)}</p>'),
        Html(f'<p class="verdict">{sentence(verdict, method)}</p>'),
        Html(
            f'<p class="which">{say("hero.which", name=bold(method.label))}{_why(verdict, methods)}</p>{_once(method)}'
        ),
    ]
    figures = [_scale(verdict, method), _tiles(verdict, method)]
    return Html(f"<div>{join(words)}</div><div>{join(figures)}</div>{_caveats(verdict)}")


def _why(verdict: Verdict, methods: list[Method]) -> Html:
    """How the headline was chosen, where there was a choice."""
    if verdict.defended < 2:
        return Html("")
    points = f"{100 * ACCURACY_PRICE:g}"
    if verdict.undefended is None and verdict.cheap < verdict.defended:
        near = "hero.near" if verdict.cheap > 1 else "hero.near_one"
        return say(near, count=str(verdict.cheap), total=str(verdict.defended), points=points)
    if verdict.undefended is None:
        told = all(method.runs[0].says_how_defended for method in methods if method.leak.known)
        return say("hero.safest" if told else "hero.least", count=str(verdict.defended))
    if verdict.cheap == 1:
        return say("hero.cheap_one", total=str(verdict.defended), points=points)
    if verdict.cheap:
        return say("hero.cheap", count=str(verdict.cheap), total=str(verdict.defended), points=points)
    return say("hero.costly", count=str(verdict.defended), points=points)


def _once(method: Method) -> Html:
    """What is left of the leak for an attacker that sees each picture once, where the verdict's attacker sees more."""
    once = [run.audit.worst_once for run in method.counted]
    scores = Scores(mean(one.mse for one in once), mean(one.ssim for one in once))
    if scores.mse is None or method.leak.mse is None or scores.mse <= method.leak.mse:
        return Html("")
    repeats = {a.repeats for run in method.counted for a in run.audit.attacks.values() if a.repeats is not None}
    if len(repeats) == 1:
        said = say("hero.once_not", count=str(repeats.pop()), score=_score(scores))
    else:
        said = say("hero.once", score=_score(scores))
    return Html(f'<p class="which">{said}</p>')


def sentence(verdict: Verdict, method: Method) -> Html:
    """ "At 88.9 % accuracy the best of 3 attacks recovers pictures at SSIM 0.41 (MSE 0.0250); undefended 0.87 ..." """
    attacks = max((len(run.audit.attacks) for run in method.counted), default=0)
    known = "verdict.attack_auditors" if method.auditors_accuracy else "verdict.attack"
    parts = [
        say(
            known if method.accuracy is not None else "verdict.attack_only",
            accuracy=bold(numbers.percent(method.accuracy)),
            attacks=_attack_count(attacks),
            score=_score(method.leak),
        )
    ]
    if verdict.undefended is not None and verdict.undefended is not method:
        beside = _score(verdict.undefended.leak, bare=True)
        parts.append(say("verdict.beside", name=verdict.undefended.short, score=beside))
    elif method.undefended:
        parts.append(say("verdict.is_noise_alone" if method.runs[0].sigma else "verdict.is_undefended"))
    if verdict.floor.known:
        parts.append(say("verdict.floor", score=_score(verdict.floor, bare=True)))
    return Html(join(parts) + show(phrase("verdict.stop")))


def _attack_count(count: int) -> Phrase:
    return phrase("verdict.the_attack") if count <= 1 else phrase("verdict.best_of", count=count)


def _score(scores: Scores, *, bare: bool = False) -> Html:
    """SSIM in bold, MSE behind it; `bare` leaves out the names once the sentence has said them."""
    mse = ("" if bare else "MSE ") + numbers.mse(scores.mse)
    if scores.ssim is None:
        return bold(mse)
    ssim = bold(("" if bare else "SSIM ") + numbers.ssim(scores.ssim))
    return Html(f'<span class="score">{ssim} ({mse})</span>' if scores.mse is not None else ssim)


def _unattacked(methods: list[Method]) -> Html:
    """No attack on pictures yet: what was trained, and first of all whether it has been trained to the end."""
    runs = [run for method in methods for run in method.runs]
    open_ = [run for run in runs if run.lacks == "unfinished"]
    failed = [run for run in runs if run.lacks == "failed"]
    done = [method for method in methods if not method.unfinished]
    begun = done or [method for method in methods if not method.failed]
    known = [method.accuracy for method in begun if method.accuracy is not None]
    parts = [_unfinished(open_, len(runs))] if open_ else []
    if failed:
        key = "verdict.failed" if len(runs) > 1 else "verdict.failed_only"
        parts.append(say(key, count=str(len(failed)), total=str(len(runs))))
    one = len(runs) - len(open_) - len(failed) == 1
    if any(run.audit.inference for run in runs):
        parts.append(say("verdict.no_pictures"))
    elif not known:
        parts.append(say("verdict.nothing"))
    elif done:
        key = "verdict.unattacked_one" if one else "verdict.unattacked"
        parts.append(say(key, accuracy=bold(numbers.percent(max(known)))))
    else:
        key = "verdict.so_far_one" if len(runs) == 1 else "verdict.so_far"
        parts.append(say(key, accuracy=bold(numbers.percent(max(known)))))
    return join(parts)


def _unfinished(open_: list[Run], total: int) -> Html:
    if total > 1:
        return say(
            "verdict.unfinished" if len(open_) > 1 else "verdict.unfinished_one",
            count=str(len(open_)),
            total=str(total),
        )
    progress = open_[0].progress
    if progress is None:
        return say("verdict.unfinished_only")
    return say("verdict.unfinished_at", epoch=str(progress[0]), epochs=str(progress[1]))


def _setting(method: Method) -> Html:
    run = method.representative
    images = run.audit.num_images
    parts: list[Content] = [
        run.data_name or "",
        text(table(run.config.get("model")).get("name")) or "",
        phrase("setting.protocol", name=run.protocol) if run.protocol else "",
        phrase("setting.altered" if run.audit.altered else "setting.tier", name=run.audit.tier)
        if run.audit.tier
        else "",
        phrase("setting.images", count=f"{images:,}") if images else "",
        phrase("setting.seeds", count=len(method.counted)) if len(method.counted) > 1 else "",
    ]
    return Html(" · ".join(show(part) for part in parts if part))


def _scale(verdict: Verdict, method: Method) -> Html:
    """SSIM from 0 to 1 with the floor, the headline and the undefended model; nothing when no SSIM is known."""
    pins: list[Pin] = []
    for scores, name, colour in (
        (verdict.floor, phrase("scale.floor"), "m-floor"),
        (method.leak, plain(method.short), method.colour),
        *([(other.leak, other.short, "m-open")] if (other := verdict.undefended) else []),
    ):
        written = numbers.ssim(scores.ssim)
        if scores.ssim is not None and not any(pin.colour == colour for pin in pins):
            pins.append(Pin(scores.ssim, Phrase(f"{name.en} {written}", f"{name.zh} {written}"), colour))
    if not pins:
        return Html("")
    told = Phrase("; ".join(pin.name.en for pin in pins), "；".join(pin.name.zh for pin in pins))  # noqa: RUF001
    title = phrase("scale.title", pins=told)
    return scale_chart(pins, title, phrase("scale.low"), phrase("scale.high"))


def _tiles(verdict: Verdict, method: Method) -> Html:
    other = verdict.undefended if verdict.undefended is not method else None
    tiles: list[tuple[Phrase, str, Html]] = []
    if method.accuracy is not None:
        change = None if other is None or other.accuracy is None else method.accuracy - other.accuracy
        beside = say("tile.points", value=numbers.points(change)) if change is not None else Html("")
        beside = say("tile.auditors") if method.auditors_accuracy else beside
        tiles.append((phrase("word.accuracy"), numbers.percent(method.accuracy), beside))
    leak, before = method.leak, other.leak if other is not None else Scores()
    if leak.ssim is not None:
        tiles.append((phrase("tile.ssim"), numbers.ssim(leak.ssim), _before(other, before.ssim, numbers.ssim)))
    if leak.mse is not None:
        ratio = leak.mse / before.mse if before.mse else None
        beside = Html(numbers.span(leak.mse_ci))
        if other is not None and ratio is not None:
            beside = say("tile.ratio", value=f"{ratio:.1f}", name=other.short)
        tiles.append((phrase("tile.mse"), numbers.mse(leak.mse), beside))
    if leak.psnr is not None:
        tiles.append((phrase("tile.psnr"), numbers.decibel(leak.psnr), _before(other, before.psnr, numbers.decibel)))
    cells = [
        f'<div><dt>{show(name)}</dt><dd>{show(value)}<span class="beside">{beside}</span></dd></div>'
        for name, value, beside in tiles
    ]
    return Html(f'<dl class="tiles">{"".join(cells)}</dl>')


def _before(other: Method | None, value: float | None, write: Callable[[float], str]) -> Html:
    """The same number of the model beside it, where it is known."""
    return Html("") if other is None or value is None else say("tile.before", name=other.short, value=write(value))


def _caveats(verdict: Verdict) -> Html:
    if not verdict.caveats:
        return Html("")
    rows = "".join(f"<li>{show(caveat)}</li>" for caveat in verdict.caveats)
    return Html(f'<div class="caveats" role="note"><b>{say("caveat.title")}</b> <ul>{rows}</ul></div>')
