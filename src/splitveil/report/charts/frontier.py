"""Privacy against utility: one marker per method, error bars, floors, and the staircase of methods nobody dominates."""

from __future__ import annotations

from dataclasses import dataclass

from splitveil.report.charts.frame import Box, axes, mark, px, svg, text
from splitveil.report.charts.scale import Scale, fit
from splitveil.report.markup import Html, Phrase, attribute, show


@dataclass(frozen=True)
class Spot:
    """One method or one of its seeds: privacy on x, accuracy on y, each with an interval where there is one."""

    method: int
    colour: str
    letter: str
    x: float
    y: float
    tip: Phrase
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    faint: bool = False


@dataclass(frozen=True)
class Floor:
    """A vertical line: what an attacker reaches without looking at the feature."""

    x: float
    name: Phrase


def frontier_chart(
    spots: list[Spot],
    floors: list[Floor],
    title: Phrase,
    x_label: Phrase,
    y_label: Phrase,
    better: Phrase,
    *,
    flip: bool,
) -> Html:
    """`flip` turns the x axis around, so that more privacy is always to the right (SSIM falls as privacy grows)."""
    box = Box(460, 330, left=66, top=22, bottom=46, right=18)
    xs = [value for s in spots for value in (s.x, *(s.x_range or ()))] + [floor.x for floor in floors]
    ys = [value for s in spots for value in (s.y, *(s.y_range or ()))]
    x = fit(xs, box.x0, box.x1, zero=True)
    if flip:
        x = Scale(x.low, max(x.high, 1.0), box.x1, box.x0)
    y = fit([*ys, max(ys) - 0.04, max(ys) + 0.005], box.y0, box.y1)
    body = [axes(box, x, y, x_label, y_label, percent_y=True)]
    for position, floor in enumerate(sorted(floors, key=lambda f: x(f.x))):
        at = px(x(floor.x))
        body.append(f'<line class="floor" x1="{at}" x2="{at}" y1="{box.y1}" y2="{box.y0}"/>')
        body.append(text(x(floor.x) - 5, box.y0 - 8 - 15 * position, floor.name, "floor-name end"))
    body.append(text(box.x1, 12, better, "name end"))
    body.append(_staircase([s for s in spots if not s.faint], x, y, flip))
    letters = _letters([s for s in spots if not s.faint], x, y)
    body += [_spot(s, x, y, letters) for s in sorted(spots, key=lambda s: not s.faint)]
    return svg(box, "".join(body), title, "frontier", role="group")


def best(spots: list[Spot], flip: bool) -> list[Spot]:
    """Spots that no other beats in both directions, from most accurate to most private."""
    chosen: list[Spot] = []
    for spot in sorted(spots, key=lambda s: (-s.y, s.x if flip else -s.x)):
        if not chosen or (spot.x < chosen[-1].x if flip else spot.x > chosen[-1].x):
            chosen.append(spot)
    return chosen


def _staircase(spots: list[Spot], x: Scale, y: Scale, flip: bool) -> str:
    chosen = best(spots, flip)
    if len(chosen) < 2:
        return ""
    steps = [f"M{px(x(chosen[0].x))} {px(y(chosen[0].y))}"]
    steps += [f"V{px(y(spot.y))}H{px(x(spot.x))}" for spot in chosen[1:]]
    return f'<path class="stairs" d="{"".join(steps)}"/>'


def _letters(spots: list[Spot], x: Scale, y: Scale) -> dict[int, tuple[float, float]]:
    """Where each method's letter goes: the first of six places around its marker that nothing else occupies."""
    taken = [(x(spot.x), y(spot.y)) for spot in spots]
    places: dict[int, tuple[float, float]] = {}
    for spot in spots:
        around = [(x(spot.x) + dx, y(spot.y) + dy) for dx, dy in AROUND]
        inside = [p for p in around if min(x.start, x.end) + 6 < p[0] < max(x.start, x.end) - 6] or around
        free = [p for p in inside if all(abs(p[0] - a) > 12 or abs(p[1] - b) > 11 for a, b in taken)]
        places[spot.method] = (free or inside)[0]
        taken.append(places[spot.method])
    return places


AROUND = ((14.0, -10.0), (-14.0, -10.0), (14.0, 10.0), (-14.0, 10.0), (20.0, 0.0), (-20.0, 0.0))


def _spot(spot: Spot, x: Scale, y: Scale, letters: dict[int, tuple[float, float]]) -> str:
    at_x, at_y = x(spot.x), y(spot.y)
    parts = []
    if spot.x_range:
        a, b = sorted(map(x, spot.x_range))
        parts.append(f'<path class="bar" d="M{px(a)} {px(at_y - 4)}v8m0-4H{px(b)}m0-4v8"/>')
    if spot.y_range:
        a, b = sorted(map(y, spot.y_range))
        parts.append(f'<path class="bar" d="M{px(at_x - 4)} {px(a)}h8m-4 0V{px(b)}m-4 0h8"/>')
    if spot.faint:
        dot = mark(spot.method, at_x, at_y, 2.6)
        return f'<g class="spot faint {spot.colour}" data-m="{spot.method}" {attribute("data-tip", spot.tip)}>{dot}</g>'
    parts.append(mark(spot.method, at_x, at_y, 5.5))
    letter_x, letter_y = letters[spot.method]
    parts.append(
        f'<text class="letter mid" x="{px(letter_x)}" y="{px(letter_y)}" dy=".35em">{show(spot.letter)}</text>'
    )
    # An invisible disc on top, large enough for a finger.
    parts.append(f'<circle class="hit" cx="{px(at_x)}" cy="{px(at_y)}" r="11"/>')
    return (
        f'<g class="spot {spot.colour}" data-m="{spot.method}" tabindex="0" role="img" '
        f"{attribute('data-tip', spot.tip)} {attribute('aria-label', spot.tip)}>{''.join(parts)}</g>"
    )
