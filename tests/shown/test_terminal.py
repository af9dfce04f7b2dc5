"""Tables at a terminal of any width: no cell is lost, cropped or without the name of its row."""

import itertools
import os
import random
import sys

import pytest
from rich.cells import cell_len
from rich.text import Text

from brinell.analysis.robust_accuracy import rate
from brinell.cli.options import terminal_colors
from brinell.reports import terminal
from brinell.reports.values import Detail, Link, Measure, Percent, Points, Report, Table

WIDTHS = (60, 80, 120, 200)
ALPHABETS = ("abcdefgh", "קראטון", "汉字漢語宽度", "😀🚀🐳🦊", "äöüßéñ")
BUDGETS = [f"{k}/255" for k in range(1, 21)]


def report_of(*tables):
    return Report(verb="audit", title="t", subject="s", sentences=["a"], blocks=tables)


def lines_of(table, width):
    """The lines of a table, without the four that a report begins with."""
    return [*terminal.lines(report_of(table), width)][2:]


def random_name(rng, index):
    """A name of 3 to 60 letters of one script, alone or in words, which no other row has."""
    letters = "".join(rng.choices(rng.choice(ALPHABETS), k=rng.choice((3, 12, 60))))
    middle = len(letters) // 2
    return f"{letters[:middle]}{rng.choice((' ', ''))}{letters[middle:]}{index}"


def random_value(rng, number):
    """A cell of some kind; its number occurs in no other cell of the table."""
    share = number / 10_000
    return rng.choice(
        (
            rate(number, 10_000, eps=0.0),
            Percent(share, share / 2, share),
            Points(-share, -1.0, 0.0),
            Detail(Percent(share), f"name{number}"),
            Measure(float(number), unit="dB"),
            number,
            f"word{number}",
            None,
        )
    )


def random_table(rng):
    models, budgets = rng.choice((1, 3, 8)), rng.choice((2, 9, 20))
    classes = rng.choice((0, 2, 5))
    number = itertools.count(rng.randrange(1, 100), 3)
    names = [random_name(rng, k) for k in range(models)]
    keys = (
        [(name, f"class {k}") for name in names for k in range(classes)]
        if classes
        else [(name,) for name in names]
    )
    heads = ["model", "class"][: len(keys[0])]
    columns = [*heads, *(rng.choice((text, random_name(rng, text))) for text in BUDGETS[:budgets])]
    rows = [(*key, *(random_value(rng, next(number)) for _ in range(budgets))) for key in keys]
    heat = rng.random() < 0.3
    return Table(title="t", columns=columns, rows=rows, terminal=True, heat=heat)


def words_of(table):
    """The words of all cells and headings, as a terminal writes them."""
    grids = terminal._grid(table, intervals=False)
    texts = [*grids.heads, *(text for row in grids.rows for text in row)]
    return [word for text in texts for word in text.plain.split()]


@pytest.mark.parametrize(
    ("width", "tables"),
    [
        *((width, 8) for width in WIDTHS),
        *(pytest.param(width, 200, marks=pytest.mark.slow) for width in WIDTHS),
    ],
)
def test_no_cell_of_a_random_table_is_cropped(width, tables):
    """Property: of random tables each word of each cell is found whole, in lines that fit; a
    word that is wider than the terminal goes on in the next line.
    """
    rng = random.Random()
    for _ in range(tables):
        table = random_table(rng)
        lines = lines_of(table, width)
        assert max(map(cell_len, lines)) <= width
        assert "…" not in "".join(lines)
        words = {word for line in lines for word in line.split()}
        joined = "".join(line.strip() for line in lines)
        for word in words_of(table):
            fits = cell_len(word) <= width - terminal.INDENT
            assert word in words if fits else word in joined, (word, lines)


@pytest.mark.parametrize("width", WIDTHS)
def test_each_value_stands_by_its_names(width):
    """Property: a value stands in the line of its row and below its heading, or, turned, the other
    way round; with long names of rows, below them.
    """
    rng = random.Random()
    for _ in range(10):
        rows, columns = rng.choice((1, 3, 8)), rng.choice((2, 9, 20))
        length = rng.choice((4, 30, 58))
        names = [f"row{k:a>{length - 3}}" for k in range(rows)]
        heads = [f"head{k}" for k in range(columns)]
        cells = [[f"v{row}.{column}." for column in range(columns)] for row in range(rows)]
        body = [(name, *line) for name, line in zip(names, cells, strict=True)]
        table = Table(title="t", columns=["name", *heads], rows=body, terminal=True)
        lines = lines_of(table, width)
        for row, column in itertools.product(range(rows), range(columns)):
            value, labels = cells[row][column], {names[row], heads[column]}
            (place,) = [k for k, line in enumerate(lines) if value in line.split()]
            beside = labels & {*lines[place].split(), *lines[place - 1].split()}
            above = [line for line in lines[:place] if labels - beside & {*line.split()}]
            assert beside and above, (value, lines)


def test_a_table_that_fits_shows_its_intervals():
    rows = [("small", rate(7, 10, eps=0.0)), ("large", rate(10, 10, eps=0.0))]
    table = Table(title="Shares", columns=["model", "accuracy"], rows=rows, terminal=True)
    assert lines_of(table, 80) == [
        "",
        "Shares",
        "model              accuracy",
        "───────────────────────────",
        "small    70.0 % 39.7–89.2 %",
        "large  100.0 % 72.2–100.0 %",
    ]


def test_a_wide_table_is_turned_or_cut_into_blocks():
    """By hand: nine budgets of one model stand below one another at 40 columns; of eight models
    they are cut, and each block repeats the names.
    """
    budgets = BUDGETS[:9]
    one = Table(
        title="t", columns=["model", *budgets], rows=[("cnn", *range(1001, 1010))], terminal=True
    )
    assert lines_of(one, 40)[2:6] == [
        "model    cnn",
        "────────────",
        "1/255  1,001",
        "2/255  1,002",
    ]
    rows = [(f"model-{k}", *range(1001 + 10 * k, 1010 + 10 * k)) for k in range(8)]
    many = Table(title="t", columns=["model", *budgets], rows=rows, terminal=True)
    lines = lines_of(many, 40)
    assert [line.split() for line in lines if line.startswith("model ")] == [
        ["model", *budgets[:4]],
        ["model", *budgets[4:8]],
        ["model", *budgets[8:]],
    ]
    assert sum("model-7" in line for line in lines) == 3


def test_a_heading_has_one_line_where_there_is_room():
    """By hand: with «total drop» in one line the columns and their gaps take 43 cells."""
    rows = [(f"class {k}", *range(10 + k, 16 + k), 3.5) for k in range(3)]
    table = Table(title="t", columns=["class", *"abcdef", "total drop"], rows=rows, terminal=True)
    assert lines_of(table, 80)[2].split() == ["class", *"abcdef", "total", "drop"]
    assert lines_of(table, 44)[2].split() == ["class", *"abcdef", "total", "drop"]
    assert [line.split()[-1] for line in lines_of(table, 36)[2:4]] == ["total", "drop"]


def test_room_that_takes_no_line_off_stays_free():
    """Property: widths are the least, or one less would take more lines."""
    rng = random.Random(0)
    for _ in range(50):
        texts = [
            [
                Text(" ".join("x" * rng.randint(1, 9) for _ in range(rng.randint(1, 6))))
                for _ in "ab"
            ]
            for _ in range(rng.randint(1, 5))
        ]
        least = [max(terminal._longest_word(text) for text in column) for column in texts]
        widths = terminal._widened(least, texts, rng.randint(0, 40))
        for column, size, start in zip(texts, widths, least, strict=True):
            words = [[len(word) for word in text.plain.split()] for text in column]
            lines = terminal._count_lines(words, size)
            assert size == start or terminal._count_lines(words, size - 1) > lines


def test_a_digit_is_never_lost_beside_long_names():
    """What was seen: «3/25» for 3/255, and 100.0 as «1»."""
    names = [f"{'resnet' * 9}-{k}" for k in range(3)]
    shares = [rate(10, 10, eps=0.0)] * 9
    table = Table(
        title="Class by class",
        columns=["model", *BUDGETS[:9]],
        rows=[(name, *shares) for name in names],
        heat=True,
        terminal=True,
    )
    for width in WIDTHS:
        words = [word for line in lines_of(table, width) for word in line.split()]
        assert words.count("100.0") == 27 or sum("72.2–100.0" in word for word in words) == 27
        assert {*BUDGETS[:9], *names} <= {*words}


def test_intervals_that_have_no_room_are_said_to_stand_elsewhere():
    shares = [rate(k, 40, eps=0.0) for k in range(9)]
    rows = [(f"model {k}", *shares) for k in range(8)]
    named = Table(
        title="t", columns=["model", *BUDGETS[:9]], rows=rows, terminal=True, name="models"
    )
    assert lines_of(named, 80)[-1] == "intervals: tables/models.csv"
    assert not any("intervals:" in line for line in lines_of(named, 200))


@pytest.mark.parametrize(
    "table",
    [
        Table(title="no rows", columns=["a", "b"], rows=[], terminal=True),
        Table(title="no columns", columns=[], rows=[], terminal=True),
        Table(title="one column", columns=["a"], rows=[("x",), ("x",)], terminal=True),
        Table(title="no names", columns=["a", "b"], rows=[(1, 2), (1, 3)], terminal=True),
        Table(title="link", columns=["a"], rows=[(Link("word", "#w"),)], terminal=True),
    ],
    ids=lambda table: table.title,
)
def test_small_tables_are_shown_whole(table):
    for width in (20, 80):
        words = {word for line in lines_of(table, width) for word in line.split()}
        assert {*words_of(table)} <= words


def test_the_width_is_that_of_the_terminal(monkeypatch):
    text = "word " * 60
    long = Report(verb="audit", title="t", subject="s", sentences=[text])
    for columns in (60, 120, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        widest = max(map(len, terminal.lines(long)))
        assert columns - 5 <= widest <= columns
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setattr(sys, "__stdout__", None)
    assert 75 <= max(map(len, terminal.lines(long))) <= 80


def test_styles_reach_a_terminal_and_nothing_else(monkeypatch, audit_run):
    """In a terminal of 100 columns and in a pipe."""
    import brinell
    from brinell.cli.command import Command

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    result = brinell.open(audit_run)
    command = Command(None, {}, {}, None, None, False, False)
    texts = []
    for reader, writer in (os.openpty(), os.pipe()):
        with os.fdopen(writer, "w") as stream:
            monkeypatch.setattr(sys, "stdout", stream)
            command._answer(result)
            stream.flush()
            texts.append(os.read(reader, 100_000).decode().replace("\r\n", "\n"))
            assert (terminal_colors() is None) == (len(texts) == 2)
        os.close(reader)
    styled, plain = texts
    assert "\x1b[1m" in styled and "\x1b" not in plain
    assert plain == "\n".join(result.lines()) + "\n"
