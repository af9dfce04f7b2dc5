"""Figures decoded again: each value stands where a naive reading of the axes expects it, and labels
have room.
"""

import re
from html import unescape
from itertools import combinations

import numpy as np

from brinell.analysis.results import Rate
from brinell.analysis.robust_accuracy import rate
from brinell.reports import figures
from brinell.reports.values import Curve, Series

SIZES = {"large": (430, 270, 60, 46, 10, 12), "small": (170, 124, 36, 26, 8, 14)}
"""Width, height, and margins to the left, below, above and to the right."""
TEXT = re.compile(
    r'<text class="(\w+)[^"]*" x="([\d.]+)" y="([\d.]+)"(?: textLength="([\d.]+)")?[^>]*>([^<]*)<'
)


def place(kind: str, x: float, y: float) -> tuple[float, float]:
    """Pixels of a point of a plot, both in shares of it."""
    width, height, left_edge, below, above, right = SIZES[kind]
    return left_edge + x * (width - left_edge - right), height - below - y * (
        height - below - above
    )


def points(text: str) -> list[tuple[float, ...]]:
    return [tuple(map(float, point.split(","))) for point in text.split()]


def are_close(values: list, expected: list) -> bool:
    return len(values) == len(expected) and np.allclose(values, expected, atol=0.051)


def test_lines_bands_and_marks_stand_where_their_rates_are():
    """Property: of series of random rates each line, band and mark, with its style and its words."""
    for seed in range(20):
        kind, rng = list(SIZES)[seed % 2], np.random.default_rng(seed)
        eps = np.sort(rng.random(4)).round(3).tolist()
        lines = [
            Series(
                name=f"model {i}",
                points=[(e, rate(int(rng.integers(0, 51)), 50, eps=e)) for e in eps],
                band=bool(i % 2),
            )
            for i in range(4)
        ]
        top = 1.25 * eps[-1]
        svg = figures.draw(
            Curve(title="t", series=lines, ticks=[(eps[0], "first"), (top, "last")], axis="x"),
            small=kind == "small",
        )
        polylines = re.findall(r'<polyline class="line ([^"]+)" points="([^"]+)"', svg)
        bands = re.findall(r'<polygon class="band ([^"]+)" points="([^"]+)"', svg)
        assert [style for style, _ in polylines] == ["s0 d0", "s1 d1", "s2 d2", "s3 d3"] and [
            style for style, _ in bands
        ] == [
            "s1 d1",
            "s3 d3",
        ]
        for (_, text), line in zip(polylines, lines, strict=True):
            assert are_close(points(text), [place(kind, e / top, r.value) for e, r in line.points])
        for (_, text), line in zip(bands, [line for line in lines if line.band], strict=True):
            ends = [(e / top, r.high) for e, r in line.points] + [
                (e / top, r.low) for e, r in line.points[::-1]
            ]
            assert are_close(points(text), [place(kind, *end) for end in ends])
        tips = [unescape(text) for text in re.findall(r"<title>([^<]*)</title>", svg)]
        counts = [f"{line.name}, {r.k}\u00a0of\u00a050)" for line in lines for _, r in line.points]
        assert [f"{tip.partition(',')[0]}, {tip.rpartition(', ')[2]}" for tip in tips] == counts


def test_a_rate_without_a_value_is_left_out():
    rates = [
        rate(10, 10, eps=0.0),
        Rate(eps=0.1, value=None, low=None, high=None, n=0, k=0),
        rate(5, 10, eps=0.2),
    ]
    series = Series(name="m", points=[(r.eps, r) for r in rates])
    svg = figures.draw(
        Curve(title="t <1>", series=[series], ticks=[(0.0, "0"), (0.2, "0.2")], axis="x")
    )
    (line,) = re.findall(r'<polyline class="line s0 d0" points="([^"]+)"', svg)
    assert (
        are_close(points(line), [place("large", 0, 1), place("large", 1, 0.5)])
        and 'aria-label="t &lt;1&gt;"' in svg
    )


def test_labels_have_room_in_any_font():
    """Property: of figures with random budgets, counts and names no label leaves the figure or lies
    on another.
    """
    faults = []
    for seed in range(60):
        rng, letter = np.random.default_rng(seed), (0.4, 0.85)[seed % 2]
        eps = np.unique(np.append(rng.lognormal(size=rng.integers(1, 20)), 0.0)).tolist()
        ticks = [(e, str(rng.choice([f"{e:.4g}", f"{round(e * 255)}/255"]))) for e in eps]
        axis = "eps " * int(rng.integers(1, 12))
        curve = Curve(
            title="t",
            series=[Series(name="m", points=[(e, rate(1, 2, eps=e)) for e in eps])],
            ticks=ticks,
            axis=axis,
        )
        for size, svg in ((12.5, figures.draw(curve)), (11.5, figures.draw(curve, small=True))):
            width, height = map(int, re.search(r'viewBox="0 0 (\d+) (\d+)"', svg).groups())
            boxes = []
            for anchor, x, y, length, text in TEXT.findall(svg):
                wide = float(length or letter * size * len(unescape(text)))
                start = float(x) - {"end": 1, "mid": 0.5, "start": 0}[anchor] * wide
                boxes.append((start, start + wide, float(y) - 1.1 * size, float(y) + 0.3 * size))
            assert len(boxes) >= 3
            faults += [
                seed
                for box in boxes
                if box[0] < -1 or box[1] > width + 1 or box[2] < -3 or box[3] > height + 1
            ]
            overlaps = [
                a
                for a, b in combinations(boxes, 2)
                if a[0] < b[1] and b[0] < a[1] and a[2] < b[3] - 0.5 and b[2] < a[3] - 0.5
            ]
            faults += [seed for _ in overlaps]
    assert faults == []
