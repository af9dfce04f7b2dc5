"""Inputs at the edge: one model, one class, one budget, no correct sample, a thousand classes, names
of 60 letters, from right to left and of emoji. Every table says what it cannot show, and nothing is
cropped in silence.
"""

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.cells import cell_len
from torch import nn

import brinell
from _browser import chromium
from _pages import page_faults
from _synthetic_runs import write_run
from brinell.core.outward import printable
from brinell.reports import html, terminal
from brinell.reports.csv import csv_files
from brinell.reports.values import Table
from brinell.studies.register import open_folder

WIDTHS = (60, 80, 120, 200)
INF = np.inf
LONG, HEBREW, EMOJI = "x" * 60, "חתול שחור", "🐱‍👤 cat 🦊"
ODD = (LONG, HEBREW, EMOJI)
SIDE = 6


def many_names(count: int) -> list[str]:
    """Odd names first, and plain ones after them."""
    return [*ODD, *(f"c{index}" for index in range(count - len(ODD)))][:count]


def write_audit(
    folder: Path, *, models=("net",), classes=3, budgets=(0.1,), right=True, names=None
):
    """A run of some samples of each class, whose distances are drawn, or which is always wrong."""
    rng = np.random.default_rng(classes + len(models))
    names = names or many_names(classes)
    labels = np.arange(max(2 * classes, 12)) % classes
    breaks = {}
    for model in models:
        distances = rng.choice([0.0, 0.05, 0.15, INF] if right else [0.0], len(labels))
        breaks[model] = np.stack([distances, distances])
    return write_run(folder, breaks, labels, list(budgets), names)


AUDITS = {
    "one of each": {"classes": 1, "names": ["only", "never"]},
    "no correct sample": {"right": False},
    "odd names": {"models": (LONG, "דגם", "🤖 net"), "budgets": (0.05, 0.1, 0.2)},
    "a thousand classes": {"classes": 1000, "models": ("net", "two")},
}


def audit_report(case: str, folder: Path):
    return open_folder(write_audit(folder / "run", **AUDITS[case])).report()


def compare_report(case: str, folder: Path):
    settings = AUDITS[case] | {"models": AUDITS[case].get("models", ("net", "two"))}
    run = write_audit(folder / "run", **settings)
    return brinell.compare(run, out=folder / "compare").report()


def pictures(classes: int, names: list[str], each: int = 2):
    rng = np.random.default_rng(classes)
    x = rng.uniform(0, 1, (max(each * classes, 8), 1, SIDE, SIDE)).astype(np.float32)
    return brinell.data(x, np.arange(len(x)) % classes, classes=names)


STUDIES = {
    "one of each": (1, ["only"]),
    "odd names": (3, list(ODD)),
    "a thousand classes": (1000, many_names(1000)),
}


def epsilon_report(case: str, folder: Path):
    classes, names = STUDIES[case]
    data = pictures(classes, names, each=1 if classes > 10 else 4)
    return brinell.epsilon(data, eps=0.1, norm="linf", out=folder / "eps").report()


def explain_report(case: str, folder: Path):
    classes, names = STUDIES[case]
    network = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, max(classes, 2)))
    weights = np.random.default_rng(0).normal(size=network[1].weight.shape)
    network[1].weight.data = torch.from_numpy(weights).float()
    names = names if classes > 1 else [*names, "never"]
    settings = {"method": ["gradient", "occlusion"], "steps": 2, "samples": 4}
    data = pictures(classes, names, each=1)
    return brinell.explain(network, data, out=folder / "maps", **settings).report()


REPORTS = {
    **{("audit", case): audit_report for case in AUDITS},
    **{("compare", case): compare_report for case in AUDITS},
    **{("epsilon", case): epsilon_report for case in STUDIES},
    **{("explain", case): explain_report for case in STUDIES},
}


VERBS = ("audit", "compare", "epsilon", "explain")


def cases_of(verb: str) -> list[str]:
    return [case for of_verb, case in REPORTS if of_verb == verb]


@pytest.fixture(scope="module")
def report_of(tmp_path_factory):
    """The report of a verb in a case, which is made once."""
    made = {}

    def report(verb, case):
        if (verb, case) not in made:
            folder = tmp_path_factory.mktemp(verb)
            made[verb, case] = REPORTS[verb, case](case, folder), folder
        return made[verb, case]

    return report


def texts_of(table: Table) -> list[str]:
    grid = terminal._grid(table, intervals=False)
    return [text.plain for row in (grid.heads, *grid.rows) for text in row]


@pytest.mark.parametrize("verb", VERBS)
def test_nothing_is_cropped_at_a_terminal(verb, report_of):
    """Property: at each width every word of every cell is found whole, in lines that fit."""
    for case in cases_of(verb):
        check_terminal(report_of(verb, case)[0])


def check_terminal(report):
    tables = [block for block in report.blocks if isinstance(block, Table) and block.terminal]
    assert all(len(table.rows) <= 130 for table in tables), "a terminal gets no thousand rows"
    for width in WIDTHS:
        lines = [*terminal.lines(report, width)]
        assert max(cell_len(line) for line in lines if not line.startswith("  brinell")) <= width
        words = {word for line in lines for word in line.split()}
        joined = "".join(line.strip() for line in lines)
        for table in tables:
            for word in {word for text in texts_of(table) for word in text.split()}:
                fits = cell_len(word) <= width - terminal.INDENT
                assert word in words if fits else word in joined, (width, table.title, word)


@pytest.mark.parametrize("verb", VERBS)
def test_files_have_every_class_and_the_page_says_what_it_leaves_out(verb, report_of):
    """Of a thousand classes a page shows some and says where all are; a CSV file has all names."""
    for case in cases_of(verb):
        check_files(verb, case, report_of(verb, case)[0])


def check_files(verb, case, report):
    files = csv_files(report)
    content = "\n".join(files.values())
    if case == "odd names":
        page = html.page(report)
        for name in ODD * (verb != "explain"):  # whose tables are of methods
            assert printable(name) in content, "a joiner is written as its number"
            assert name in page or printable(name) in page
    for name, text in files.items():
        table = next(b for b in report.blocks if isinstance(b, Table) and f"{b.name}.csv" == name)
        rows = list(csv.reader(io.StringIO(text)))
        assert len(rows) == 1 + len(table.rows) - table.total
        assert len({len(row) for row in rows}) == 1
    for table in (block for block in report.blocks if isinstance(block, Table)):
        if case == "a thousand classes" and table.page and not table.name and table.rows:
            assert "has all" in table.text, table.title


@pytest.mark.parametrize(
    ("verb", "case", "sentence"),
    [
        ("audit", "one of each", ""),
        ("audit", "no correct sample", "No sample was attacked"),
        ("compare", "no correct sample", ""),
        ("epsilon", "one of each", "only one class"),
        (
            "epsilon",
            "a thousand classes",
            "1\u202f000 classes are files: tables/distances-linf.csv and tables/classes-linf.csv",
        ),
    ],
)
def test_what_cannot_be_shown_is_said(verb, case, sentence, report_of):
    report, _ = report_of(verb, case)
    notes = [note.text for note in report.notes]
    assert sentence in " ".join([report.subject, *report.sentences, *notes])
    assert not re.search(r"\bnan\b", html.page(report))


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("verb", VERBS)
def test_pages_do_not_overflow(verb, report_of):
    """At 390 and 1280 px, as they open."""
    with chromium():
        pass
    for case in cases_of(verb):
        report, folder = report_of(verb, case)
        page = html.write(folder / "page", report)
        faults = [fault for fault in page_faults(page) if "the result ends" not in fault]
        assert faults == [], case  # a sentence with names of 60 letters may be longer
