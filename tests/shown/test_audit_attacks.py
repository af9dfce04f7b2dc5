"""The attacks of an audit, one after the other and each by itself: figures worked by hand, and
those of a real run as a plain loop over its rows counts them.
"""

import csv
import io
from statistics import mean, median

import numpy as np
import pytest

import brinell
from _synthetic_runs import from_analysis, write_rows, write_run
from brinell.reports import html
from brinell.reports.csv import csv_files
from brinell.reports.values import Curve, Figures, Table
from brinell.studies.register import open_folder

INF = np.inf
SEPARATE = "The attacks, each by itself"
CASCADE = "The attacks, stage by stage"


def blocks(report) -> dict:
    return {block.title: block for block in report.blocks}


def column(table: Table, name: str) -> list:
    """A column of a table by its heading."""
    return [row[list(table.columns).index(name)] for row in table.rows]


def write_separate(path, names=("net",)):
    """Six samples, one wrong untouched; the first attack breaks three of the five others, the
    second one, which the first broke too."""
    synthetic, labels, eps = from_analysis("synthetic"), np.arange(6) % 2, [0.1, 0.2]
    distances = {
        "apgd-ce": np.array([0, 0.05, 0.15, 0.15, INF, INF]),
        "apgd-dlr": np.array([0, 0.15, INF, INF, INF, INF]),
    }
    rows = {}
    for name in names:
        parts = [
            synthetic.records(name, labels, eps, distance[None], (stage,), classes=2)
            for stage, distance in distances.items()
        ]
        second = synthetic.keep(parts[1], parts[1].attack != "clean")
        rows[name] = synthetic.join(parts[0], second)
    manifest = synthetic.manifest(list(names), eps, 6, ["cat", "dog"])
    for stage in manifest["stages"]:
        stage["turn"] = {"alone": True}
    return write_rows(path, rows, manifest)


def test_each_by_itself_by_hand(tmp_path):
    """Success is of the five that are right; the rows' queries are 2 to 4 for those broken, and 100
    for failures."""
    run = write_separate(tmp_path / "run")
    report = open_folder(run).report()
    table = blocks(report)[SEPARATE]
    assert CASCADE not in blocks(report) and table.terminal and not table.folded
    assert column(table, "samples") == [5, 5]
    assert [(cell.k, cell.n) for cell in column(table, "success")] == [(3, 5), (1, 5)]
    assert column(table, "Linf, mean") == pytest.approx([(0.05 + 0.15 + 0.15) / 3, 0.15])
    assert column(table, "Linf, median") == pytest.approx([0.15, 0.15])
    assert column(table, "Linf, largest") == pytest.approx([0.15, 0.15])
    assert column(table, "queries, mean") == pytest.approx([(2 + 3 + 4 + 200) / 5, 402 / 5])
    assert column(table, "queries, median") == [4, 100]
    assert [(cell.k, cell.n) for cell in column(table, "within 10")] == [(3, 5), (1, 5)]
    assert column(table, "within 1\u202f000") == [None, None]
    assert "each attack runs on what those before left" not in html.page(report).lower()
    curve = blocks(report)["Success over queries, each attack by itself"]
    assert isinstance(curve, Curve) and [line.name for line in curve.series] == list(
        column_names(table)
    )
    assert [(queries, share.k) for queries, share in curve.series[0].points[:3]] == [
        (1, 0),
        (2, 1),
        (5, 3),
    ]
    (first, second) = csv.DictReader(io.StringIO(csv_files(report)["attacks.csv"]))
    assert (first["success k"], second["success k"], second["success n"]) == ("3", "1", "5")


def column_names(table: Table) -> list[str]:
    return [cell.value for cell in column(table, "attack")]


def test_several_models(tmp_path):
    """Each model has its rows and its figure."""
    run = write_separate(tmp_path / "run", ("net", "two"))
    sections = blocks(open_folder(run).report())
    assert column(sections[SEPARATE], "model") == ["net", "net", "two", "two"]
    curves = sections["Success over queries, each attack by itself"]
    assert isinstance(curves, Figures) and [figure.title for figure in curves.figures] == [
        "net",
        "two",
    ]


def test_cascade_by_hand(tmp_path):
    """The second attack gets what the first left, and the drops add up."""
    distances = np.array([[0, 0.05, 0.15, INF, INF, INF], [0, 0.05, 0.15, 0.15, INF, INF]])
    labels = np.arange(6) % 2
    run = write_run(tmp_path / "run", {"net": distances}, labels, [0.2], ["cat", "dog"])
    sections = blocks(open_folder(run).report())
    table = sections[CASCADE]
    assert SEPARATE not in sections
    assert column(table, "samples attacked") == [5, 3]
    assert [cell.value for cell in column(table, "robust accuracy")] == pytest.approx(
        [1 / 2, 1 / 3]
    )
    assert [cell.value for cell in column(table, "change, points")] == pytest.approx(
        [-1 / 3, -1 / 6]
    )
    assert column(table, "broken first") == [2, 1]
    assert all(cost > 0 for cost in column(table, "forwards"))
    assert all(cell.value > 0 for cell in column(table, "seconds"))


def test_real_run_by_rows(patterns, tmp_path):
    """A run of two attacks by themselves and one after them: every figure from the rows alone."""
    attacks = ("square?steps=40&alone=true", "fgsm?alone=true", "pgd?steps=2")
    out = tmp_path / "run"
    result = brinell.audit(
        patterns.model, data=patterns.data, eps="2/255,6/255", attack=attacks, out=out
    )
    rows = brinell.open(out).to_pandas()
    right = set(rows[(rows.attack == "clean") & (rows.outcome == "correct")].sample_id)
    sections = blocks(result.report())
    table = sections[SEPARATE]
    assert len(sections[CASCADE].rows) == 1 and len(table.rows) == 2
    for number, name in enumerate(dict.fromkeys(rows.attack[rows.attack != "clean"])):
        if "alone" not in name:
            continue
        of_attack = rows[rows.attack == name]
        assert set(of_attack.sample_id) == right
        queries, sizes, cheap = [], [], 0
        for row in of_attack.itertuples():
            broke = row.outcome == "broken"
            queries.append(int(row.queries_to_success) if broke else row.forwards)
            sizes += [row.linf] * broke
            cheap += broke and row.queries_to_success <= 10
        cells = dict(zip(table.columns, table.rows[number], strict=True))
        assert (cells["success"].k, cells["success"].n) == (len(sizes), len(right))
        assert cells["queries, mean"] == pytest.approx(mean(queries))
        assert cells["queries, median"] == pytest.approx(median(queries))
        assert cells["Linf, mean"] == pytest.approx(mean(sizes))
        assert cells["Linf, largest"] == pytest.approx(max(sizes))
        if cells["within 10"] is not None:
            assert cells["within 10"].k == cheap
        assert cells["forwards"] == of_attack.forwards.sum()


def test_nothing_right(tmp_path):
    """Without a correct sample an attack by itself has nothing to try, and no figure is made up."""
    synthetic, labels = from_analysis("synthetic"), np.zeros(4, int)
    rows = synthetic.records("net", labels, [0.1], np.zeros((2, 4)), classes=2)
    manifest = synthetic.manifest(["net"], [0.1], 4, ["cat", "dog"])
    for stage in manifest["stages"]:
        stage["turn"] = {"alone": True}
    sections = blocks(open_folder(write_rows(tmp_path / "run", {"net": rows}, manifest)).report())
    assert (
        SEPARATE not in sections and "2 further stages had nothing to do" in sections[CASCADE].text
    )
