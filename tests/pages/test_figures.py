"""Figures decoded again: each value stands where a naive reading of the axes expects it."""

import math
import re
from html import unescape
from itertools import combinations

import numpy as np
import pytest

from brinell.analysis.distributions import Histogram
from brinell.analysis.results import Rate
from brinell.analysis.robust_accuracy import rate
from brinell.pages import figures
from brinell.pages.bands import band_figure

SIZES = {"large": (430, 270, 60, 46, 10, 12), "small": (170, 124, 36, 26, 8, 14)}
"""Width, height, and margins to the left, below, above and to the right."""
TEXT = re.compile(r'<text class="(\w+)[^"]*" x="([\d.]+)" y="([\d.]+)"(?: textLength="([\d.]+)")?[^>]*>([^<]*)<')


def place(kind: str, x: float, y: float) -> tuple[float, float]:
    """Pixels of a point of a plot, both in shares of it."""
    width, height, left, below, above, right = SIZES[kind]
    return left + x * (width - left - right), height - below - y * (height - below - above)


def points(text: str) -> list[tuple[float, float]]:
    return [tuple(map(float, point.split(","))) for point in text.split()]


def near(found: list, expected: list) -> bool:
    return len(found) == len(expected) and np.allclose(found, expected, atol=0.051)


def test_lines_bands_and_marks_stand_where_their_rates_are():
    for kind in SIZES:
        """Property: of series of random rates each line, band and mark, with its style and its words."""
        for seed in range(10):
            rng = np.random.default_rng(seed)
            eps = np.sort(rng.random(4)).round(3).tolist()
            lines = [
                figures.Series(
                    name=f"model {style}",
                    rates=[rate(int(rng.integers(0, 51)), 50, eps=e) for e in eps],
                    style=style,
                    band=bool(style % 2),
                    tick_texts=[f"tick {e}" for e in eps] if style == 6 else (),
                )
                for style in (0, 1, 3, 6, -1)
            ]
            top = 1.25 * eps[-1]
            svg = figures.curve(lines, [(eps[0], "first"), (top, "last")], title="t", small=kind == "small")
            drawn = re.findall(r'<polyline class="line ([^"]+)" points="([^"]+)"', svg)
            bands = re.findall(r'<polygon class="band ([^"]+)" points="([^"]+)"', svg)
            ordered = [lines[-1], *lines[:-1]]
            styles = ["ref", "s0 d0", "s1 d1", "s3 d3", "s1 d2"]
            assert [style for style, _ in drawn] == styles
            assert [style for style, _ in bands] == [style for style, line in zip(styles, ordered, strict=True) if line.band]
            for (_, text), line in zip(drawn, ordered, strict=True):
                assert near(points(text), [place(kind, r.eps / top, r.value) for r in line.rates])
            for (_, text), line in zip(bands, [line for line in ordered if line.band], strict=True):
                ends = [(r.eps / top, r.high) for r in line.rates] + [(r.eps / top, r.low) for r in line.rates[::-1]]
                assert near(points(text), [place(kind, *end) for end in ends])
            tips = [unescape(text) for text in re.findall(r"<title>([^<]*)</title>", svg)]
            assert len(tips) == 16
            marked = [(line, r) for line in ordered[1:] for r in line.rates]
            for tip, (line, r) in zip(tips, marked, strict=True):
                where = f"tick {r.eps}" if line.style == 6 else f"eps {r.eps:.3g}"
                bounds = f"{100 * r.low:.1f}–\u2060{100 * r.high:.1f}\u00a0%"
                assert tip == f"{line.name}, {where}: {100 * r.value:.1f}\u00a0% ({bounds}, {r.k}\u00a0of\u00a050)"
            circles = [
                tuple(map(float, c)) for c in re.findall(r'<circle class="dot s0 d0" cx="(.*?)" cy="(.*?)" r="(.*?)"', svg)
            ]
            radius = (2.2 if kind == "small" else 3.2) + 0.7 * 3
            assert near(circles, [(*place(kind, r.eps / top, r.value), radius) for r in lines[0].rates]), (
                "smaller the higher it lies"
            )
            diamonds = re.findall(r'<polygon class="dot s3 d3" points="([^"]+)"', svg)
            size = 1.25 * (radius - 0.7 * 2)
            for text, r in zip(diamonds, lines[2].rates, strict=True):
                x, y = place(kind, r.eps / top, r.value)
                assert near(points(text), [(x + size, y), (x, y + size), (x - size, y), (x, y - size)])


def test_shapes_of_marks():
    corners = {1: (4, 45), 2: (3, 270), 3: (4, 0), 4: (3, 90)}
    for style, (number, first) in corners.items():
        text = re.search(r'points="([^"]+)"', figures.mark(style, 10, 20, 4, "")).group(1)
        angles = sorted(round(math.degrees(math.atan2(y - 20, x - 10))) % 360 for x, y in points(text))
        assert angles == sorted((first + 360 // number * i) % 360 for i in range(number)), style
        assert all(math.dist((x, y), (10, 20)) == pytest.approx(5, abs=0.1) for x, y in points(text))
    assert "<title>a &lt; b</title></circle>" in figures.mark(0, 1, 2, 3, "a < b") and "title" not in figures.mark(5, 1, 2, 3, "")
    assert figures.key(2).count("<polygon") == 1 and figures.key(-1).count("<line") == 1 and "dot" not in figures.key(-1)


def test_a_rate_without_a_value_is_left_out():
    rates = [rate(10, 10, eps=0.0), Rate(eps=0.1, value=None, low=None, high=None, n=0, k=0), rate(5, 10, eps=0.2)]
    svg = figures.curve([figures.Series(name="m", rates=rates, style=0)], [(0.0, "0"), (0.2, "0.2")], title="t <1>")
    (line,) = re.findall(r'<polyline class="line s0 d0" points="([^"]+)"', svg)
    assert near(points(line), [place("large", 0, 1), place("large", 1, 0.5)]) and 'aria-label="t &lt;1&gt;"' in svg
    nothing = figures.curve([figures.Series(name="m", rates=rates[1:2], style=0)], [(0.1, "0.1")], title="t")
    assert "<circle" not in nothing and "<polyline" not in nothing


def test_axes_say_what_stands_there():
    ticks = [(0.0, "0"), (0.5, "half"), (1.0, "one")]
    svg = figures.curve([], ticks, title="t", distance="L2")
    labels = {unescape(text): (float(x), float(y)) for _, x, y, _, text in TEXT.findall(svg)}
    levels = {f"{percent} %": (54, place("large", 0, percent / 100)[1] + 4) for percent in (0, 25, 50, 75, 100)}
    assert {text: labels[text] for text in levels} == {text: pytest.approx(xy, abs=0.06) for text, xy in levels.items()}
    assert labels["half"] == pytest.approx((place("large", 0.5, 0)[0], 224 + 21.5), abs=0.06)
    assert labels["budget eps (L2)"] == pytest.approx((239, 264)) and len(labels) == 9
    small = figures.curve([], ticks, title="t", small=True)
    assert sorted(text for *_, text in TEXT.findall(small)) == ["0", "0", "100", "50", "one"]
    assert "budget" not in figures.curve([], ticks, title="t") and "queries" in figures.curve(
        [], ticks, title="t", axis="queries"
    )


def test_histograms_decoded():
    """Property: of random counts the height, place and words of each bar, and the largest count on the axis."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        counts = rng.integers(0, 40, 6) + np.eye(6, dtype=int)[seed % 6]
        bars = Histogram(edges=np.arange(7) / 4, counts=counts)
        svg = figures.histogram(bars, title="t", label="what", style=8, ticks=[(0.0, "none"), (1.5, "top")])
        most = int(counts.max())
        plot, left = 330 - 20, max(40, math.ceil(0.85 * 12.5 * len(str(most)) + 6))
        rects = [
            tuple(map(float, r))
            for r in re.findall(r'<rect class="bar s3" x="(.*?)" y="(.*?)" width="(.*?)" height="(.*?)"', svg)
        ]
        step, height = (plot - left) / 6, 174 - 46 - 10
        assert near(
            rects, [(left + i * step + 0.5, 128 - height * c / most, step - 1, height * c / most) for i, c in enumerate(counts)]
        )
        tips = re.findall(r"<title>([^<]*)</title>", svg)
        assert tips == [f"{i / 4:.3g} to {(i + 1) / 4:.3g}: {c}" for i, c in enumerate(counts)]
        texts = [text for *_, text in TEXT.findall(svg)]
        assert texts == ["0", *([] if most % 2 else [str(most // 2)]), str(most), "none", "top", "what"]
    whole = Histogram(edges=np.array([0.5, 1.5, 3.5, 1500.5]), counts=np.array([2, 1, 4]))
    svg = figures.histogram(whole, title="t", label="n", style=0)
    assert re.findall(r"<title>([^<]*)</title>", svg) == ["1: 2", "2–3: 1", "4–1\u202f500: 4"]
    assert {"1", "4–1\u202f500"} < {text for *_, text in TEXT.findall(svg)}
    empty = figures.histogram(
        Histogram(edges=np.array([0.0, 1.0]), counts=np.array([0])), title="t", label="n", style=0, ticks=[(0.0, "0")]
    )
    assert 'height="0.0"' in empty


def test_polylines_are_scaled_clipped_and_thinned():
    frame = figures.Frame(width=100, height=50, left_edge=10, bottom=5, top=5, right=10)
    text = figures.polyline(frame, "s1", [0.0, 2.0, 4.0, -9.0], 0.0, 4.0)
    assert 'class="line s1"' in text
    (line,) = re.findall(r'points="([^"]+)"', text)
    assert near(points(line), [(10, 45), (10 + 80 / 3, 25), (10 + 160 / 3, 5), (90, 45)])
    (long,) = re.findall(r'points="([^"]+)"', figures.polyline(frame, "s1", list(range(960)), 0.0, 959.0))
    assert len(points(long)) == 240 and near(points(long)[:2], [(10, 45), (10 + 80 / 239, 45 - 40 * 4 / 959)])
    assert near(points(re.findall(r'points="([^"]+)"', figures.polyline(frame, "s1", [3.0], 3.0, 3.0))[0]), [(10, 45)])


def test_the_band_between_proofs_and_attacks():
    budgets = [0.1, 0.2, 0.4]
    certified, robust = [rate(k, 10, eps=e) for k, e in zip((6, 3, 0), budgets, strict=True)], [rate(k, 10) for k in (9, 8, 5)]
    svg = band_figure(budgets, certified, robust, "a <b>")
    drawn = {style: points(text) for style, text in re.findall(r'<polyline class="line (\S+)" points="([^"]+)"', svg)}
    assert near(drawn["s0"], [place("large", *xy) for xy in ((0.25, 0.9), (0.5, 0.8), (1, 0.5))])
    assert near(drawn["s1"], [place("large", *xy) for xy in ((0.25, 0.6), (0.5, 0.3), (1, 0))])
    (band,) = re.findall(r'<polygon class="band" points="([^"]+)"', svg)
    assert near(points(band), drawn["s1"] + drawn["s0"][::-1])
    assert [text for *_, text in TEXT.findall(svg)][5:] == ["0", "0.2", "0.4", "eps"]
    assert re.search(r"attacked</li>.*proven</li>", svg) and "a &lt;b&gt;" in svg.replace("amp;", "")


def boxes(svg: str, letter: float, size: float) -> list[tuple[str, float, float, float, float]]:
    """Every label of a figure with its left, right, top and bottom in a font whose letters are so wide and 1.4 high."""
    labels = []
    for anchor, x, y, length, text in TEXT.findall(svg):
        width = float(length or letter * size * len(unescape(text)))
        start = float(x) - {"end": 1, "mid": 0.5, "start": 0}[anchor] * width
        labels.append((unescape(text), start, start + width, float(y) - 1.1 * size, float(y) + 0.3 * size))
    return labels


def test_labels_have_room_in_any_font():
    for letter in (0.4, 0.85):
        """Property: of figures with random budgets, counts and names no label leaves the figure or lies on another."""
        faults = []
        for seed in range(40):
            rng = np.random.default_rng(seed)
            eps = np.unique(np.append(rng.lognormal(size=rng.integers(1, 20)), 0.0)).tolist()
            ticks = [(e, str(rng.choice([f"{e:.4g}", f"{round(e * 255)}/255"]))) for e in eps]
            line = figures.Series(name="m", rates=[rate(1, 2, eps=e) for e in eps], style=0)
            counts = Histogram(edges=np.arange(len(eps) + 1.0), counts=rng.integers(0, 10 ** rng.integers(1, 8), len(eps)))
            label = "eps " * int(rng.integers(1, 12))
            for size, svg in (
                (12.5, figures.curve([line], ticks, title="t", axis=label)),
                (11.5, figures.curve([line], ticks, title="t", small=True)),
                (12.5, figures.histogram(counts, title="t", label=label, style=0, ticks=ticks if seed % 2 else None)),
            ):
                width, height = map(int, re.search(r'viewBox="0 0 (\d+) (\d+)"', svg).groups())
                labels = boxes(svg, letter, size)
                assert len(labels) >= 3
                faults += [
                    (seed, box) for box in labels if box[1] < -1 or box[2] > width + 1 or box[3] < -3 or box[4] > height + 1
                ]
                faults += [
                    (seed, a[0], b[0])
                    for a, b in combinations(labels, 2)
                    if a[1] < b[2] and b[1] < a[2] and a[3] < b[4] - 0.5 and b[3] < a[4] - 0.5
                ]
        assert faults == []


def test_the_largest_budget_is_named_and_evenly_spaced_ones_get_evenly_spaced_ticks():
    def texts(values: list[float]) -> list[str]:
        ticks = [(figures.LARGE.x(value / max(values)), f"{value:g}") for value in values]
        return [text for _, text in figures._spaced(figures.LARGE, ticks)]

    assert texts([i * 0.0375 for i in range(9)]) == ["0", "0.075", "0.15", "0.225", "0.3"]
    assert texts([0.1]) == ["0.1"] and texts([0.0, 0.001, 0.002, 0.004, 0.5])[-1] == "0.5"
    uneven = [0.0, 0.001, 0.002, 0.003, 0.004, 0.3, 0.5, 0.7, 0.85, 1.0]
    assert texts(uneven) == ["0", "0.3", "0.5", "0.7", "0.85", "1"], "whatever has room"
