"""A report says the same on a page, at a terminal, as CSV and in Markdown."""

import csv
import io
import random
import re

import numpy as np
import pytest
from markupsafe import Markup

from _browser import check_everywhere, chromium
from _pages import page_faults
from brinell.analysis.inference import Rank
from brinell.analysis.robust_accuracy import rate
from brinell.reports import html, markdown, numbers, terminal
from brinell.reports.csv import csv_files, table_csv
from brinell.reports.values import (
    Code,
    Curve,
    Detail,
    Example,
    Facts,
    Figures,
    Gallery,
    Link,
    Measure,
    Note,
    Percent,
    Picture,
    Points,
    Prose,
    PValue,
    Report,
    Seconds,
    Series,
    Span,
    Step,
    Table,
)

RATES = [rate(k, 40, eps=eps) for k, eps in ((38, 0.0), (21, 4 / 255), (3, 8 / 255))]


def report(**changes):
    """A report with a block of each kind and a cell of each kind."""
    columns = {
        "name": "first",
        "rate": RATES[1],
        "none": None,
        "count": 12345,
        "number": 0.015686,
        "points": Points(-0.2, -0.3, -0.1),
        "p": PValue(1e-9),
        "measure": Measure(1.5, 1.2, 1.9, "dB"),
        "percent": Percent(0.25, 0.2, 0.3),
        "time": Seconds(90.0),
        "link": Link("sample 3", "#sample-3"),
        "code": Code("brinell audit"),
        "detail": Detail("weak", "12 samples"),
        "span": Span(0.0, 0.94),
    }
    names = list(columns)
    cells = Table(
        title="Cells",
        columns=names[:7],
        rows=[list(columns.values())[:7]],
        name="cells",
        terminal=True,
    )
    more = Table(
        title="More cells",
        columns=names[7:],
        rows=[list(columns.values())[7:]],
        name="more",
        folded=True,
    )
    settings = dict(
        verb="audit",
        title="Robustness of resnet20",
        subject="cifar10, 40 samples, Linf",
        sentences=[
            "At most 7.5 % of the samples are robust within 8/255.",
            "Half of the accuracy is lost at 4/255.",
        ],
        blocks=[
            Curve(
                title="Robust accuracy",
                series=[
                    Series(name=name, points=[(r.eps, r) for r in RATES])
                    for name in ("resnet20", "resnet32")
                ],
                ticks=[(0.0, "0"), (4 / 255, "4/255"), (8 / 255, "8/255")],
                axis="budget eps (Linf)",
            ),
            Table(
                title="Class by class",
                columns=("class", "samples", "0", "4/255", "8/255"),
                rows=[(name, 4, *RATES) for name in ("airplane", "automobile", "bird")],
                name="classes",
                heat=True,
            ),
            cells,
            more,
            Figures(
                title="Each class",
                figures=[
                    Curve(title=name, series=[], ticks=[(0.0, "0")], axis="eps") for name in "ab"
                ],
            ),
            Gallery(
                title="Examples",
                examples=[
                    Example(
                        pictures=[Picture(Markup("x"), "clean")],
                        caption=f"sample {i}",
                        anchor=f"sample-{i}",
                    )
                    for i in range(8)
                ],
            ),
            Facts(title="Facts", facts=[("attacks", "fast"), ("queries", 1000)]),
            Prose(title="Not tested", sentences=["Larger budgets were not tested."]),
        ],
        notes=[Note("weak", "warn", "The attacks are weak."), Note("seen", "note", "A note.")],
        steps=[Step("Harden the model.", "brinell harden --data FILE.npz")],
        request={"data": "cifar10", "eps": "0:8/255:3", "attack": ["fast"], "norm": None},
        provenance=[("digest", Code("abc123"))],
    )
    return Report(**settings | changes)


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_cells_are_written_once_and_alike():
    for value, main, detail in (
        (RATES[1], "52.5 %", "37.5–67.1 %"),
        (rate(0, 0, eps=0.0), "–", ""),
        (None, "–", ""),
        (True, "yes", ""),
        (12345, "12 345", ""),
        (0.0156863, "0.0157", ""),
        (-1234.6, "−1 235", ""),
        (Points(-0.21, -0.3, 0.0001), "−21.0", "−30.0 to 0.0"),
        (Measure(1.5, 1.2, 1.9, "dB"), "1.5 dB", "1.2 to 1.9"),
        (Measure(None), "–", ""),
        (Rank(value=1.5, low=1, high=3), "1.5 (1 to 3)", ""),
        (Rank(value=2.0, low=2, high=2), "2", ""),
        (PValue(1e-9), "< 0.0001", ""),
        (Seconds(90), "1.5 min", ""),
        (Detail(RATES[0], "fast"), "95.0 %", "83.5–98.6 %; fast"),
        (["a", "b"], "a, b", ""),
    ):
        plain = [
            re.sub("[\u00a0\u202f]", " ", text).replace("\u2060", "")
            for text in (numbers.main_text(value), numbers.detail_text(value))
        ]
        assert plain == [main, detail], value


def test_lists_and_counts_agree_in_number():
    assert [numbers.counted(n, "folder") for n in (0, 1, 2)] == [
        "0 folders",
        "1 folder",
        "2 folders",
    ]
    names = list("abcde")
    assert [numbers.listed(names[:n]) for n in range(6)] == [
        "",
        "a",
        "a and b",
        "a, b and c",
        "a, b, c and d",
        "a, b, c and 2 more",
    ]


def test_csv_holds_full_numbers():
    files = csv_files(report())
    assert set(files) == {"cells.csv", "more.csv", "classes.csv"}
    (row,) = [
        first | second
        for first, second in zip(
            rows_of(files["cells.csv"]), rows_of(files["more.csv"]), strict=True
        )
    ]
    assert (
        float(row["rate"]) == RATES[1].value
        and row["rate k"] == "21"
        and row["rate n"] == "40"
        and row["none"] == ""
    )
    assert (row["number"], row["count"], row["points low"], row["p"]) == (
        "0.015686",
        "12345",
        "-30.0",
        "1e-09",
    )
    assert (row["measure, dB high"], row["percent"], row["time, seconds"]) == (
        "1.9",
        "0.25",
        "90.0",
    )
    assert (row["link"], row["code"]) == ("sample 3", "brinell audit")
    assert (row["detail"], row["detail note"]) == ("weak", "12 samples")
    assert (row["span low"], row["span high"]) == ("0.0", "0.94") and "span" not in row
    with pytest.raises(ValueError, match="the same name"):
        csv_files(report(blocks=[Table(title=t, columns=(), rows=[], name="a") for t in "ab"]))


def test_columns_of_random_tables_stay_aligned():
    rng = random.Random(5)
    kinds = [
        lambda: RATES[rng.randrange(3)],
        lambda: rng.random(),
        lambda: None,
        lambda: Points(0.1, 0.0, 0.2),
        lambda: 'a,\n"b',
        lambda: Span(rng.random(), None),
    ]
    for _ in range(50):
        columns = [rng.choice(kinds) for _ in range(rng.randrange(1, 6))]
        rows = [
            [rng.choice((kind, kinds[2]))() for kind in columns] for _ in range(rng.randrange(4))
        ]
        table = Table(title="t", columns=[f"c{i}" for i in range(len(columns))], rows=rows)
        parsed = list(csv.reader(io.StringIO(table_csv(table))))
        assert len(parsed) == len(rows) + 1 and len({len(row) for row in parsed}) == 1
        for row, cells in zip(rows, rows_of(table_csv(table)), strict=True):
            for i, value in enumerate(row):
                if isinstance(value, Span):
                    assert float(cells[f"c{i} low"]) == value.low and cells[f"c{i} high"] == ""
                elif isinstance(value, Points):
                    assert float(cells[f"c{i}, points"]) == 10.0
                elif isinstance(expected := getattr(value, "value", value), float):
                    assert float(cells[f"c{i}"]) == expected


def test_the_terminal_begins_with_the_answer_and_fits():
    text = list(terminal.lines(report(), 80))
    assert text[0] == "At most 7.5 % of the samples are robust within 8/255."
    assert max(map(len, text)) <= 80 and any(
        "warning: The attacks are weak." in line for line in text
    )
    assert "  brinell harden --data FILE.npz" in text and not any(
        "A note." in line for line in text
    )
    assert any("A note." in line for line in terminal.lines(report(), 80, verbose=True))
    assert not any(character in "".join(text) for character in "\u00a0\u2060\u202f")


def test_no_word_of_a_table_is_cut_at_80_columns():
    """Property: of random tables with columns whose longest words have room beside each other."""
    rng = np.random.default_rng()
    for _ in range(20):
        columns = int(rng.integers(2, 9))
        words = ["".join(rng.choice(list("abcdefgh"), rng.integers(2, 7))) for _ in range(40)]
        heads, rows = (
            [" ".join(rng.choice(words, 2)) for _ in range(columns)],
            [rng.choice(words, columns).tolist() for _ in range(3)],
        )
        text = "\n".join(
            terminal.lines(
                report(blocks=[Table(title="t", columns=heads, rows=rows, terminal=True)]), 80
            )
        ).split()
        assert {word for line in (heads, *rows) for cell in line for word in cell.split()} <= set(
            text
        )


def test_no_text_acts_on_a_terminal_a_page_or_a_table():
    bad = '<script>alert(1)</script>\x1b[31m"&=1+1'
    hostile = report(
        title=bad,
        subject=bad,
        sentences=[bad],
        notes=[Note("a", "warn", bad)],
        blocks=[
            Table(
                title=bad, columns=("a", bad), rows=[(bad, Link(bad, bad))], name="t", terminal=True
            )
        ],
        steps=[Step(bad, bad)],
        request={"data": bad},
    )
    assert "<script>alert" not in html.page(hostile) and "<script>alert" not in markdown.markdown(
        hostile
    )
    assert (
        "\x1b" not in "\n".join(terminal.lines(hostile))
        and "\x1b" not in csv_files(hostile)["t.csv"]
    )


def test_markdown_has_answer_notes_and_tables():
    text = markdown.markdown(report())
    assert (
        "**At most 7.5 % of the samples are robust within 8/255.**" in text
        and "> The attacks are weak." in text
    )
    assert (
        "| class | samples | 0 | 4/255 | 8/255 |" in text
        and "`brinell harden --data FILE.npz`" in text
    )


def test_the_page_says_everything(tmp_path):
    path = html.write(tmp_path, report())
    text = path.read_text()
    for words in (
        "Class by class",
        "Not tested",
        "Larger budgets",
        "abc123",
        "0:8/255:3",
        'id="sample-3"',
        "brinell harden",
        "52.5",
    ):
        assert words in text, words
    assert page_faults(path) == [] and (tmp_path / "tables" / "classes.csv").is_file()


def test_a_figure_has_each_value_where_it_belongs():
    text = html.page(report())
    tips = re.findall(r"<title>(resnet20, [^<]*)</title>", text)
    assert [tip.split(":")[0] for tip in tips] == [
        "resnet20, 0",
        "resnet20, 4/255",
        "resnet20, 8/255",
    ]
    heights = [
        float(y) for y in re.findall(r'<circle class="dot s0 d0" cx="[^"]*" cy="([^"]*)"', text)
    ]
    assert heights == sorted(heights), "a smaller share stands lower"


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_in_a_browser(tmp_path):
    with chromium() as browser:
        check_everywhere(browser, html.write(tmp_path, report()))
