"""The agent's result on the page of a benchmark set: success of the samples that it distorted, and
sizes and distortions of the examples, each as a plain loop over the rows counts them.
"""

import csv
import io
from pathlib import Path
from statistics import mean, median

import pyarrow.parquet as pq
import pytest

import brinell
from brinell.reports.csv import csv_files
from brinell.reports.values import Table


def tables(report) -> dict[str, Table]:
    return {block.title: block for block in report.blocks if isinstance(block, Table)}


@pytest.fixture(scope="module")
def benchmark(patterns, tmp_path_factory):
    """A set of `patterns`, whose model is wrong about two of 24 samples; two distortions."""
    return brinell.benchmark(
        patterns.model,
        data=patterns.data,
        distortions="gaussian-noise+dead-pixel",
        steps=40,
        refine=5,
        levels="1,2",
        out=tmp_path_factory.mktemp("set") / "set",
    )


def examples_of(result) -> list[dict]:
    """The rows of level 1 that hold an example."""
    files = sorted((Path(result.folder) / "data").glob("*.parquet"))
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return [row for row in rows if row["level"] == 1 and row["reached"]]


def test_success_is_of_the_samples_that_were_right(benchmark):
    """The two samples that are wrong untouched are in no figure, and the page says so."""
    rows = pq.read_table(Path(benchmark.folder) / "rows.parquet").to_pylist()
    right = [row for row in rows if row["clean_prediction"] == row["label"]]
    assert len(right) == 22
    examples = [row for row in right if row["outcome"] == "reached"]
    assert (benchmark.success.k, benchmark.success.n) == (len(examples), 22)
    first, second, *_ = benchmark.report().sentences
    assert first.startswith(f"{len(examples)} of the 22 samples that the agent distorted")
    assert second.startswith("2 further samples counted in no figure")


def test_sizes(benchmark):
    """Mean, median and largest of distances, queries and patches."""
    rows = pq.read_table(Path(benchmark.folder) / "rows.parquet").to_pylist()
    rows_reached, examples = [row for row in rows if row["l2"] is not None], examples_of(benchmark)
    values = {
        "L2": [row["l2"] for row in rows_reached],
        "Linf": [row["linf"] for row in examples],
        "queries": [row["queries_to_success"] for row in rows_reached],
        "patches": [len(row["patches"]) for row in examples],
    }
    table = tables(benchmark.report())["The adversarial examples"]
    assert [row[0] for row in table.rows] == list(values) and table.terminal
    for row, numbers in zip(table.rows, values.values(), strict=True):
        assert row[1:] == pytest.approx((mean(numbers), median(numbers), max(numbers)))
    file = list(csv.DictReader(io.StringIO(csv_files(benchmark.report())["examples.csv"])))
    assert [float(line["largest"]) for line in file] == pytest.approx(
        [max(numbers) for numbers in values.values()]
    )


def test_shares_of_the_distortions(benchmark):
    """Of all patches and of those of each class; the shares of a class sum to one."""
    table = tables(benchmark.report())["Share of each distortion"]
    counts: dict = {}
    for row in examples_of(benchmark):
        for patch in row["patches"]:
            for name in ("all", benchmark.classes[row["label"]]):
                counts.setdefault(name, []).append(patch["distortion"])
    assert {row[0] for row in table.rows} == set(counts)
    for name, distortion, share in table.rows:
        names_placed = counts[name]
        assert (share.k, share.n) == (names_placed.count(distortion), len(names_placed))
