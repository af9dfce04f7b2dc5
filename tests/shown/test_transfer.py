"""The matrix of a transfer: the accuracy of every victim on the examples of every source, with
intervals, whole at any width; hardened victims are marked.
"""

import csv
import io
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import brinell
from approval import page_text
from brinell.analysis.proportions import wilson
from brinell.core.errors import RequestError
from brinell.reports import terminal
from brinell.reports.csv import csv_files
from brinell.reports.html import page
from brinell.reports.values import Detail, Table
from brinell.studies.transfer.run import is_hardened


@pytest.fixture(scope="module")
def transfer(patterns, harden_run, tmp_path_factory):
    """A model, the same hardened and one with a lead, each a source and a victim."""
    hardened = f"{brinell.open(harden_run).spec}&name=later"
    return brinell.transfer(
        data=patterns.data,
        model=[patterns.models[0], hardened, patterns.models[1]],
        attack="pgd?steps=3",
        eps="6/255",
        out=tmp_path_factory.mktemp("transfer") / "transfer",
    )


@pytest.fixture(scope="module")
def matrix(transfer) -> Table:
    (table,) = (
        block
        for block in transfer.report().blocks
        if isinstance(block, Table) and block.title == "Accuracy, source by victim"
    )
    return table


def counts_of(transfer) -> dict:
    """(right, all) by source and victim, and of the clean inputs by victim, row by row."""
    counts: dict = {}
    for row in pq.read_table(Path(transfer.folder) / "rows.parquet").to_pylist():
        for source, answer in ((row["source"], row["pred"]), ("clean", row["clean_pred"])):
            if source == "clean" and row["source"] != transfer.sources[0].name:
                continue
            right, number = counts.get((source, row["model"]), (0, 0))
            counts[source, row["model"]] = right + (answer == row["label"]), number + 1
    return counts


def test_every_cell_is_a_count_with_its_interval(transfer, matrix):
    counts = counts_of(transfer)
    assert len(counts) == 4 * 3
    victims = ["patterns", "later (hardened)", "lead"]
    assert list(matrix.columns) == ["made on", *victims]
    assert [row[0] for row in matrix.rows] == ["clean", "patterns", "later", "lead"]
    for source, *cells in matrix.rows:
        for model, cell in zip(transfer.names, cells, strict=True):
            rate = cell.value if isinstance(cell, Detail) else cell
            assert isinstance(cell, Detail) == (source == model)
            assert (rate.k, rate.n) == counts[source, model]
            assert (rate.low, rate.high) == pytest.approx(tuple(wilson(rate.k, rate.n)))


def test_page_csv_and_terminal_show_every_cell(transfer, matrix):
    """The terminal at any width: each cell with its row and its column in one of its blocks."""
    report = transfer.report()
    (text,) = (text for name, text in csv_files(report).items() if name.endswith("accuracy.csv"))
    lines = list(csv.DictReader(io.StringIO(text)))
    text = page_text(page(report))
    block = text[text.index("Accuracy, source by victim") :]
    assert "later (hardened)" in block and matrix.terminal and not matrix.folded
    for line, (source, *cells) in zip(lines, matrix.rows, strict=True):
        assert line["made on"] == source
        for name, cell in zip(matrix.columns[1:], cells, strict=True):
            rate = cell.value if isinstance(cell, Detail) else cell
            assert [float(line[f"{name}{end}"]) for end in ("", " low", " high")] == pytest.approx(
                [rate.value, rate.low, rate.high]
            )
            assert (line[f"{name} k"], line[f"{name} n"]) == (str(rate.k), str(rate.n))
            assert f"{100 * rate.low:.0f}–{100 * rate.high:.0f}" in block
    for width in (30, 60, 80, 120, 200):
        shown = "\n".join(terminal.lines(report, width))
        block = shown[shown.index("Accuracy, source by victim") : shown.index("Success, source")]
        for _, *cells in matrix.rows:
            for cell in cells:
                rate = cell.value if isinstance(cell, Detail) else cell
                assert f"{100 * rate.value:.1f} {100 * rate.low:.1f}–{100 * rate.high:.1f}" in block
        for word in ("patterns", "later", "(hardened)", "lead", "clean"):
            assert word in block, width


def test_a_hardened_model_is_known_by_its_folder(patterns, harden_run, tmp_path):
    result = brinell.open(harden_run)
    assert is_hardened(result.spec) and not is_hardened(patterns.model)
    assert not is_hardened(f"{patterns.model}?weights={tmp_path / 'weights.safetensors'}")
    copy = tmp_path / Path(result.weights).name
    copy.write_bytes(Path(result.weights).read_bytes())
    assert not is_hardened(result.spec.replace(result.weights, str(copy)))
    with pytest.raises(RequestError):
        is_hardened("")
