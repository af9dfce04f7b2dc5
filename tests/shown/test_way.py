"""The agent's way to one example on the pages of a benchmark set and of an audit: probability of
the true class, L2 and patches over the queries, additions and removals marked.
"""

import csv
import io
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

import brinell
from _sets import arrays_of, rows_of
from approval import page_text, terminal_of
from brinell.reports.csv import csv_files
from brinell.reports.html import page
from brinell.reports.numbers import percent, short
from brinell.reports.values import Curve, Table
from brinell.reports.way import way_blocks

NAMES = ("query", "probability of the true class", "L2", "patches", "added", "removed")
WAY = np.array(
    [
        (1, 0.9, 0.0, 0, 0, 0),
        (3, 0.6, 0.5, 4, 4, 0),
        (7, 0.4, 2.0, 8, 6, 2),
        (9, 0.5, 1.0, 6, 0, 2),
    ],
    dtype=np.float32,
)


def blocks_of(report) -> tuple[Curve, Table]:
    (curve,) = (
        block
        for block in report.blocks
        if isinstance(block, Curve) and block.title.startswith("The agent's way")
    )
    (table,) = (
        block
        for block in report.blocks
        if isinstance(block, Table) and block.title == "The agent's way"
    )
    return curve, table


def check_blocks(curve, table, way):
    """Figure and table hold every row of a way, the figure as shares of the largest value."""
    names = ("probability of the true class", "L2", "distorted patches", "patches added")
    *lines, added, removed = curve.series
    for series, name, scale in zip(
        lines, names, (1, way[:, 2].max(), way[:, 3].max()), strict=False
    ):
        column = way[:, {"p": 1, "L": 2, "d": 3}[name[0]]]
        assert series.name.startswith(name) and series.line
        assert [query for query, _ in series.points] == way[:, 0].tolist()
        assert [share.value for _, share in series.points] == pytest.approx(column / scale)
    assert f"100 % = {short(float(way[:, 2].max()))}" in lines[1].name
    assert f"100 % = {int(way[:, 3].max())}" in lines[2].name
    assert not added.line and not removed.line
    assert [query for query, _ in added.points] == way[way[:, 4] > 0, 0].tolist()
    assert [query for query, _ in removed.points] == way[way[:, 5] > 0, 0].tolist()
    assert tuple(table.columns) == NAMES and table.terminal and table.name == "way"
    for cells, row in zip(table.rows, way.tolist(), strict=True):
        query, probability, size, *counts = cells
        assert [query, probability.value, size, *counts] == row


def test_a_way_known_by_hand():
    check_blocks(*way_blocks(WAY, "sample 7"), WAY)


def check_shown(report, texts, way):
    """Page, terminal and CSV hold the rows."""
    (text,) = (text for name, text in csv_files(report).items() if name.endswith("way.csv"))
    lines = list(csv.DictReader(io.StringIO(text)))
    assert [[float(line[name]) for name in NAMES] for line in lines] == [
        pytest.approx(row) for row in way.tolist()
    ]
    for text in texts:
        block = text[text.rindex("The agent's way") :].replace("\xa0", " ")
        for query, probability, size, *counts in way.tolist():
            for cell in (f"{query:.0f}", percent(probability), short(size), *map(int, counts)):
                assert str(cell).replace("\xa0", " ") in block


def test_way_of_a_benchmark_set(patterns, tmp_path):
    """The first pictured sample, whose row of the first success has the stated queries."""
    result = brinell.benchmark(
        patterns.model,
        data=patterns.data,
        distortions="gaussian-noise+dead-pixel",
        steps=40,
        refine=5,
        levels="1",
        out=tmp_path / "set",
    )
    folder = Path(result.folder)
    ways = {
        int(name.partition("/")[0]): array
        for name, array in arrays_of(folder).items()
        if name.endswith("/way")
    }
    examples = {row["sample_id"]: row for row in rows_of(folder) if row["level"] == 1}
    queries = {
        row["sample_id"]: row["queries_to_success"]
        for row in pq.read_table(folder / "rows.parquet").to_pylist()
    }
    clean = {row["sample_id"]: row for row in rows_of(folder) if row["level"] == 0}
    assert ways.keys() == examples.keys() and len(ways) > 10
    for sample, way in ways.items():
        assert way[0].tolist()[2:] == [0, 0, 0, 0] and way[0, 0] == 2, "after the first check"
        assert way[0, 1] == pytest.approx(clean[sample]["true_probability"], rel=1e-4)
        assert queries[sample] in way[:, 0]
        assert way[-1, 3] == len(examples[sample]["patches"])
    report = result.report()
    curve, table = blocks_of(report)
    sample = min(ways)
    assert f"sample {sample}, true class" in curve.title
    check_blocks(curve, table, ways[sample])
    texts = (page_text(page(report)), terminal_of(result, result.folder))
    check_shown(report, texts, ways[sample])


def test_way_of_an_audit(patterns, tmp_path):
    """Of the first sample that the agent fools; other attacks have none."""
    result = brinell.audit(
        patterns.model,
        patterns.data,
        attack=["rlab?steps=30&refine=0", "fgsm"],
        norm="l2",
        eps="0.05,0.4",
        out=tmp_path / "run",
    )
    stored = {
        name: array
        for path in Path(result.folder).rglob("*.safetensors")
        for name, array in load_file(path).items()
        if name.endswith("/way")
    }
    ways = {int(name.partition("/")[0]): array for name, array in stored.items()}
    _, table = blocks_of(result.report())
    (sample,) = (
        sample
        for sample, way in ways.items()
        if f"sample {sample}," in table.text and len(way[~np.isnan(way[:, 0])])
    )
    way = ways[sample][~np.isnan(ways[sample][:, 0])]
    check_blocks(*blocks_of(result.report()), way)
    texts = (page_text(page(result.report())), terminal_of(result, result.folder))
    check_shown(result.report(), texts, way)
    without = brinell.audit(
        patterns.model,
        patterns.data,
        attack="fgsm",
        norm="l2",
        eps="0.05,0.4",
        out=tmp_path / "without",
    )
    titles = [block.title for block in without.report().blocks]
    assert not [title for title in titles if title.startswith("The agent's way")]
