"""Where the figure of a claim stands among the entries of RobustBench, or why it has no place."""

import csv
from importlib.resources import files

import pytest

import brinell
from brinell.analysis.published import TEST_SETS, compare_with_entries, place_among
from brinell.analysis.robust_accuracy import rate
from brinell.reports.published import place_sentence, place_table
from brinell.reports.values import Percent, Table

CIFAR10 = next(iter(TEST_SETS))


@pytest.fixture(scope="module")
def claim(claim_run):
    return brinell.open(claim_run)


def place_of(claim, k, n=10_000, *, digest=CIFAR10, recommended=False, eps=8 / 255, **changes):
    """The place of k of n samples within 8/255 in Linf on the test set of CIFAR-10."""
    figure = rate(k, n, eps=eps)
    model = claim.result.model_copy(
        update={
            "n": n,
            "eps": [0.0, eps],
            "eps_text": ["0", "eps"],
            "robust_accuracy": [rate(n, n, eps=0.0), figure],
            "weak": None,
            "checks": [],
        }
        | changes
    )
    data = claim.data.model_copy(update={"digest": digest})
    return figure, compare_with_entries(model, 1, data, recommended=recommended)


def test_places_by_hand():
    assert [place_among(share, [0.7, 0.6, 0.5]) for share in (0.8, 0.7, 0.65, 0.1)] == [1, 1, 2, 4]
    assert place_among(0.69996, [0.7, 0.6]) == 1  # hundredths of a percent, as they are written


def test_a_comparable_figure_has_its_place_among_neighbours(claim):
    """The table of CIFAR-10 in Linf begins with 75.28, 73.71, 72.08, 71.59 and has 99 entries."""
    text = (files("brinell.analysis") / "robustbench.csv").read_text()
    rows = [
        row
        for row in csv.DictReader(text.splitlines())
        if (row["data"], row["distance"]) == ("cifar10", "linf")
    ]
    assert [row["autoattack"] for row in rows][:4] == ["75.28", "73.71", "72.08", "71.59"]
    figure, published = place_of(claim, 7371)
    assert (published.place, published.entries, len(rows)) == (2, 99, 99)
    lowest = [float(row["lowest"]) for row in rows]
    assert published.place_by_lowest == 1 + sum(value > 73.71 for value in lowest) == 1
    assert published.best == 1 + sum(float(r["autoattack"]) > 100 * figure.high for r in rows)
    assert published.worst == 1 + sum(float(r["autoattack"]) > 100 * figure.low for r in rows) > 2
    table = place_table(published, "net", rate(9500, 10_000, eps=0.0), figure)
    assert table.columns == ("place", "model", "clean", "robust", "lowest known")
    first = ("1", "Amini2024MeanSparse_S-WRN-94-16", Percent(0.936), Percent(0.7528))
    assert table.rows[0][:4] == first
    assert table.rows[1][:2] == ("2 of 100", "net (this)")
    assert [row[0] for row in table.rows[2:]] == ["3", "4", "5"]
    sentence = place_sentence(published, figure)
    assert "place 2 (" in sentence and "99 entries of RobustBench of 2025-03-31" in sentence


def test_fewer_samples_are_said(claim):
    _, published = place_of(claim, 55, 100)
    assert published.comparable and published.worst - published.best > 20
    assert "100 of the 10,000 test images were attacked" in published.differences


def test_what_is_not_comparable_says_why(claim, subtests):
    cases = {
        "not a test set": {"digest": "0" * 32},
        "flatters it": {"eps": 4 / 255},
        "lowers it": {"eps": 16 / 255},
        "no entries in L1": {"distance": "l1"},
        "budgets differ by sample": {"recommended": True},
        "targeted at cat": {"criterion": "targeted at cat"},
        "weaker than AutoAttack": {"weak": "fgsm"},
        "no sample was judged": {"robust_accuracy": [rate(0, 0, eps=0.0)] * 2},
    }
    for reason, changes in cases.items():
        with subtests.test(reason):
            figure, published = place_of(claim, 50, 100, **changes)
            assert not published.comparable and published.place is None
            (text,) = [text for text in published.differences if reason in text]
            assert place_sentence(published, figure).startswith("Not comparable")
            table = place_table(published, "net", figure, figure)
            assert (text,) in table.rows and table.columns == ("difference",)


def test_the_claim_of_a_run_says_where_it_stands(audit_run, tmp_path):
    """`patterns` is no test set of RobustBench, and it was attacked by two weak attacks."""
    claim = brinell.claim(audit_run, against="robustbench", out=tmp_path / "claim")
    assert not claim.published.comparable and len(claim.published.differences) == 2
    assert "Not comparable with RobustBench's entries" in " ".join(claim.report().sentences)
    (table,) = [
        block
        for block in claim.report().blocks
        if isinstance(block, Table) and block.name == "published"
    ]
    assert [text for (text,) in table.rows] == claim.published.differences
    page = (tmp_path / "claim" / "report.html").read_text()
    assert all(text in page for text in claim.published.differences)
    assert (tmp_path / "claim" / "tables" / "published.csv").is_file()
