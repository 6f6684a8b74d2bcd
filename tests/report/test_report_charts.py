"""Scales, thinning and the frontier; the drawn pixels are turned back into data and compared."""

from __future__ import annotations

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitveil.report.charts.frontier import Floor, Spot, best, frontier_chart
from splitveil.report.charts.lines import Curve, line_chart
from splitveil.report.charts.rows import Pin, scale_chart
from splitveil.report.charts.scale import Scale, fit, round_step, thin, tick_label
from splitveil.report.markup import Phrase, plain

WORD = plain("word")
sizes = st.floats(-1e12, 1e12).filter(lambda value: value == 0 or abs(value) > 1e-12)


@given(st.lists(sizes, min_size=1, max_size=30), st.booleans())
def test_scale_holds_all_values_and_a_few_ticks(values, zero):
    scale = fit(values, 50, 400, zero=zero)
    assert all(50 - 1e-6 <= scale(value) <= 400 + 1e-6 for value in values)
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 7
    assert all(50 - 1e-3 <= scale(tick) <= 400 + 1e-3 for tick in ticks)
    assert len({tick_label(tick, ticks[1] - ticks[0]) for tick in ticks[1:]} if len(ticks) > 1 else {0}) >= 1


@given(st.floats(1e-9, 1e9))
def test_round_step_is_round_and_close(raw):
    step = round_step(raw)
    assert raw * (1 - 1e-6) <= step <= raw * 2.5 * (1 + 1e-6)
    mantissa = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert any(mantissa == pytest.approx(round_) for round_ in (1, 2, 2.5, 5))


def test_tick_labels_differ():
    scale = Scale(0.0, 0.01, 0, 100)
    labels = [tick_label(tick, 0.0025) for tick in scale.ticks(4)]
    assert labels == ["0", "0.0025", "0.0050", "0.0075", "0.0100"]


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=700))
def test_thinning_keeps_ends_and_extremes(values):
    points = [(float(position), value) for position, value in enumerate(values)]
    kept = thin(points, 120)
    assert len(kept) <= 120
    assert kept == sorted(kept)
    assert set(kept) <= set(points)
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert min(p[1] for p in kept) == min(values)
    assert max(p[1] for p in kept) == max(values)


def test_lines_are_drawn_where_the_data_are():
    data = ((1.0, 0.2), (2.0, 0.8), (5.0, -0.4))
    chart = line_chart([Curve(0, "m0", WORD, data)], WORD, WORD)
    found = re.search(r'<polyline points="([^"]+)"', chart)
    frame = re.search(r'data-x="([^"]+)"', chart)
    assert found
    assert frame
    low, high, start, end, _ = map(float, frame[1].split())
    pixels = [tuple(map(float, pair.split(","))) for pair in found[1].split()]
    assert [low + (x - start) / (end - start) * (high - low) for x, _ in pixels] == pytest.approx([1, 2, 5], abs=0.01)
    (a, b, c) = [y for _, y in pixels]
    assert b < a < c  # larger values are higher up (SVG counts downward) ...
    assert (a - b) / (c - b) == pytest.approx(0.6 / 1.2, abs=0.01)  # ... and in proportion
    assert re.search(r'data-v="([^"]+)"', chart)[1] == "1,0.2 2,0.8 5,-0.4"  # type: ignore[index]


def test_one_epoch_is_a_dot():
    assert "<circle" in line_chart([Curve(0, "m0", WORD, ((1.0, 0.2),))], WORD, WORD)


def spot(number, x, y):
    return Spot(number, "m0", "A", x, y, WORD)


def test_frontier_is_what_nobody_beats():
    spots = [spot(0, 0.01, 0.90), spot(1, 0.03, 0.88), spot(2, 0.02, 0.85), spot(3, 0.05, 0.80), spot(4, 0.05, 0.79)]
    assert [s.method for s in best(spots, flip=False)] == [0, 1, 3]
    by_ssim = [spot(0, 0.9, 0.90), spot(1, 0.5, 0.88), spot(2, 0.6, 0.85), spot(3, 0.2, 0.80)]
    assert [s.method for s in best(by_ssim, flip=True)] == [0, 1, 3]


def test_more_private_is_to_the_right_in_both_charts():
    for flip, private, open_ in ((False, 0.08, 0.01), (True, 0.2, 0.9)):
        spots = [spot(0, open_, 0.9), spot(1, private, 0.8)]
        chart = frontier_chart(spots, [Floor(private, WORD)], WORD, WORD, WORD, WORD, flip=flip)
        circle = re.search(r'<circle cx="([\d.]+)"', chart)
        square = re.search(r'<rect x="([\d.]+)"', chart)
        assert circle
        assert square
        assert float(circle[1]) < float(square[1])


def test_error_bars_span_the_interval():
    wide = Spot(0, "m0", "A", 0.05, 0.9, WORD, x_range=(0.04, 0.06), y_range=(0.88, 0.92))
    chart = frontier_chart([wide], [Floor(0.1, WORD)], WORD, WORD, WORD, WORD, flip=False)
    bars = re.findall(r'class="bar" d="M([\d.]+) ([\d.]+)v8m0-4H([\d.]+)', chart)
    ticks = {
        float(t): float(x)
        for x, t in re.findall(r'<text class="tick mid" x="([\d.]+)" y="[\d.]+">([\d.]+)</text>', chart)
    }
    per_unit = (ticks[0.1] - ticks[0]) / 0.1
    ((left, _, right),) = bars
    assert float(left) == pytest.approx(ticks[0] + 0.04 * per_unit, abs=0.2)
    assert float(right) == pytest.approx(ticks[0] + 0.06 * per_unit, abs=0.2)


def test_pins_are_in_order_and_inside():
    pins = [Pin(1.4, Phrase("high", "高"), "m0"), Pin(-0.2, WORD, "m1"), Pin(0.5, WORD, "m2")]
    at = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', scale_chart(pins, WORD, WORD, WORD))]
    assert at == [6.0, 280.0, 554.0]


@pytest.mark.parametrize(
    "values",
    [(0.15, 0.41, 0.87), (0.15, 0.17, 0.19), (0.0, 0.01, 0.02), (0.5, 0.5, 0.5), (0.97, 0.98, 1.0), (0.18, 0.62, 0.62)],
)
@pytest.mark.parametrize("method", ["gated 0.41", "slot_gated faithful, weight 8 0.62"])
def test_names_of_pins_do_not_touch(values, method):
    names = ("mean picture 0.15", method, "undefended 0.87")
    pins = [Pin(value, plain(name), "m0") for value, name in zip(values, names, strict=True)]
    found = re.findall(
        r'<text class="pin-name (\w*)" x="([\d.]+)" y="([\d.]+)">([^<]+)<', scale_chart(pins, WORD, WORD, WORD)
    )
    spans = []
    for anchor, x, y, name in found:
        width = 11 * len(name)  # on a phone
        left = float(x) - {"": 0, "mid": width / 2, "end": width}[anchor]
        assert -1 <= left <= 561 - width, "inside the drawing"
        assert all(y != other or left > b or left + width < a for other, a, b in spans), values
        spans.append((y, left, left + width))
    assert len(spans) == 3


@pytest.mark.parametrize("values", [(0.5, 0.5, 0.5), (0.15, 0.62, 0.62), (0.6, 0.62, 0.62), (0.15, 0.41, 0.87)])
def test_the_line_to_a_name_crosses_no_other_name(values):
    pins = [Pin(value, plain(f"some model {value}"), "m0") for value in values]
    drawn = scale_chart(pins, WORD, WORD, WORD)
    names = re.findall(r'<text class="pin-name (\w*)" x="([\d.]+)" y="([\d.]+)">([^<]+)<', drawn)
    lines = re.findall(r'<g class="pin m0"><line x1="([\d.]+)" x2="[\d.]+" y1="([\d.]+)" y2="([\d.]+)"', drawn)
    assert len(names) == len(lines) == 3
    for at, top, bottom in (map(float, line) for line in lines):
        for anchor, x, y, name in names:
            width = 11 * len(name)  # on a phone, where letters reach 13 above the line that they stand on
            left = float(x) - {"": 0, "mid": width / 2, "end": width}[anchor]
            assert not (left < at < left + width and top < float(y) and bottom > float(y) - 13), name


@given(st.integers(0, 50), st.integers(1, 20_000))
def test_epochs_have_whole_ticks(first, length):
    ticks = Scale(first, first + length, 0, 100).ticks(5, whole=True)
    assert ticks
    assert all(tick == int(tick) for tick in ticks)


def test_gates_are_drawn_first_and_a_surrogate_is_no_gate(demo, build):
    """`surrogate_steps` has the word in its name."""
    path = demo / "defended" / "metrics.jsonl"
    rows = [json.loads(line) | {"surrogate_steps": 44} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = build(demo).source
    assert source.index("gate_mean") < source.index("More curves") < source.index("surrogate_steps")


def test_faults_that_never_happened_are_no_curves(demo, build):
    path = demo / "defended" / "metrics.jsonl"
    faults = {"nonfinite_fit": 0.0, "nonfinite_rob": 2.0}
    path.write_text("".join(json.dumps(json.loads(line) | faults) + "\n" for line in path.read_text().splitlines()))
    source = build(demo).source
    assert "nonfinite_rob" in source
    assert "nonfinite_fit" not in source
