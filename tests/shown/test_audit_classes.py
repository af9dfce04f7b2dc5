"""Classes over budgets and over models on the page, in the files and at the terminal of an audit:
the figures of a published study, and of random runs as a plain loop counts them.
"""

import csv
import io

import numpy as np
import pytest

import brinell
from _synthetic_runs import from_analysis, write_rows, write_run
from brinell.reports import html
from brinell.reports.csv import csv_files
from brinell.reports.numbers import main_text
from brinell.reports.values import Detail, Points, Table
from brinell.studies.register import open_folder

INF = np.inf
GOLDEN = from_analysis("test_per_class_study")


def tables(report) -> dict[str, Table]:
    """The tables by their titles."""
    return {block.title: block for block in report.blocks if isinstance(block, Table)}


def rows_of(report, name: str) -> list[dict[str, str]]:
    """The rows of a CSV file of a report."""
    return list(csv.DictReader(io.StringIO(csv_files(report)[f"{name}.csv"])))


def texts(table: Table) -> list[list[str]]:
    """The cells as people read them, each with the figure beside it."""
    return [
        [main_text(cell) + (f" {cell.text}" if isinstance(cell, Detail) else "") for cell in row]
        for row in table.rows
    ]


def golden_breaks(number: int) -> np.ndarray:
    """(stages, samples) distances of the published study's model, its losses spread evenly over the
    budgets."""
    breaks = []
    for n, k, r in zip(GOLDEN.SAMPLES, *GOLDEN.counts(number), strict=True):
        distances = 0.5 / 255 + np.arange(k - r) % 8 / 255
        breaks += [*[0.0] * (n - k), *distances, *[INF] * r]
    return np.array([breaks, breaks])


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The published study: five models, nine budgets, ten classes."""
    breaks = {name: golden_breaks(number) for number, name in enumerate(GOLDEN.MODELS)}
    labels = np.repeat(np.arange(10), GOLDEN.SAMPLES)
    names = [f"class {index}" for index in range(10)]
    path = write_run(tmp_path_factory.mktemp("study") / "run", breaks, labels, GOLDEN.EPS, names)
    return open_folder(path)


def test_by_hand(tmp_path):
    """Two classes of four samples at two budgets.

    Of the first class one is wrong untouched, one breaks at the smaller budget and one at the
    larger; of the second all break at the larger.
    """
    distances = np.array([0, 0.05, 0.15, INF, 0.15, 0.15, 0.15, 0.15])
    labels = np.array([0] * 4 + [1] * 4)
    breaks = {"net": np.stack([distances, distances])}
    run = write_run(tmp_path / "run", breaks, labels, [0.1, 0.2], ["cat", "dog"])
    report = open_folder(run).report()
    table = tables(report)["Class by class over the budgets"]
    nbsp = "\u00a0"
    assert list(table.columns) == ["eps", "all", "mean drop", "cat", "dog"]
    assert texts(table) == [
        ["clean", f"87.5{nbsp}%", "–", f"75.0{nbsp}%", f"100.0{nbsp}%"],
        ["26/255", f"75.0{nbsp}% −12.5", "−12.5", f"50.0{nbsp}% −25.0", f"100.0{nbsp}% 0.0"],
        ["51/255", f"12.5{nbsp}% −62.5", "−62.5", f"25.0{nbsp}% −25.0", f"0.0{nbsp}% −100.0"],
        ["total drop", "−75.0", "−75.0", "−50.0", "−100.0"],
    ]
    assert table.terminal and table.heat and not table.folded
    page = html.page(report)
    assert (
        "<small>−12.5</small>" in page and "(5.3" not in page.split("<small>−12.5</small>")[1][:9]
    )
    line = next(row for row in rows_of(report, "class_steps") if row["name"] == "cat")
    assert (line["model"], line["class"], line["eps"]) == ("net", "0", "clean")
    assert (line["accuracy k"], line["accuracy n"]) == ("3", "4")


def test_published_study(study):
    """The published totals, and means over classes and over models, stand in the tables."""
    report = study.report()
    steps = tables(report)["Class by class over the budgets"]
    assert list(steps.columns[:4]) == ["model", "eps", "all", "mean drop"]
    assert len(steps.columns) == 14 and len(steps.rows) == 5 * 10
    totals = [row for row in steps.rows if row[1] == "total drop"]
    for number, row in enumerate(totals):
        assert row[0] == GOLDEN.MODELS[number]
        drops = [100 * cell.value for cell in row[4:]]
        assert drops == pytest.approx(GOLDEN.TOTAL_DROP[number], abs=0.5)
        assert 100 * row[3].value == pytest.approx(GOLDEN.MEAN_PER_MODEL[number], abs=0.05)

    drops = tables(report)["Total drop up to 8/255, class by model"]
    assert list(drops.columns) == ["class", *GOLDEN.MODELS, "mean over the models"]
    means = {row[0]: 100 * row[-1].value for row in drops.rows}
    published = {f"class {c}": mean for c, mean in enumerate(GOLDEN.MEAN_PER_CLASS)}
    assert {name: means[name] for name in published} == pytest.approx(published, abs=0.1)
    *_, last = drops.rows
    assert last[0] == "mean over classes"
    assert [100 * cell.value for cell in last[1:-1]] == pytest.approx(
        GOLDEN.MEAN_PER_MODEL, abs=0.05
    )
    assert all(cell.low < cell.value < cell.high for cell in last[1:-1])
    assert drops.rows[0][0] == "class 3" and drops.terminal and steps.terminal


def test_published_study_is_of_the_data(study):
    """In the published study classes differ, and models hardly do: the first screen says it."""
    parts = study.drops.decomposition
    statement = parts.statement
    assert statement.supported and statement.subjects[0].name == "classes"
    assert parts.classes.value > 0.8 > 0.2 > parts.models.value
    (sentence,) = [text for text in study.report().sentences[:3] if "variation" in text]
    assert sentence.endswith("the class matters more than the model.")
    assert f"{100 * parts.classes.value:.0f}" in sentence


def test_plain_count(tmp_path):
    """Property: every cell of random runs is what a loop over the distances counts."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        n, classes, eps = 60, int(rng.integers(1, 7)), [0.05, 0.1, 0.2][: 1 + seed % 3]
        labels = rng.integers(0, classes, n)
        breaks = {}
        for name in ["net", "other", "third"][: 1 + seed % 3]:
            distance = np.where(rng.random(n) < 0.1, 0, 0.1 * rng.lognormal(size=n))
            breaks[name] = np.stack([distance, distance])
        names = [f"c{index}" for index in range(classes)]
        report = open_folder(write_run(tmp_path / f"{seed}", breaks, labels, eps, names)).report()

        def accuracy(model, members, budget, breaks=breaks):
            right = [breaks[model][0][i] > budget for i in members]
            return sum(right) / len(right)

        table = tables(report)["Class by class over the budgets"]
        skip = len(breaks) > 1
        for number, model in enumerate(breaks):
            rows = table.rows[number * (len(eps) + 2) : (number + 1) * (len(eps) + 2)]
            names_shown = table.columns[skip + 3 :]
            members = [np.flatnonzero(labels == int(name[1:])) for name in names_shown]
            before = None
            for budget, row in zip([0.0, *eps], rows, strict=False):
                rates = [accuracy(model, of_class, budget) for of_class in members]
                cells = row[skip + 3 :]
                assert [getattr(cell, "value", cell) for cell in map(rate_of, cells)] == rates
                assert rate_of(row[skip + 1]).k == (breaks[model][0] > budget).sum()
                if before is not None:
                    drops = [b - a for a, b in zip(before, rates, strict=True)]
                    assert row[skip + 2].value == pytest.approx(np.mean(drops))
                    signed = [cell.text.replace("−", "-") for cell in cells]
                    assert [float(text) for text in signed] == pytest.approx(
                        [100 * drop for drop in drops], abs=0.051
                    )
                before = rates
            clean = [accuracy(model, of_class, 0.0) for of_class in members]
            total = [cell.value for cell in rows[-1][skip + 3 :]]
            assert total == pytest.approx([b - a for a, b in zip(clean, before, strict=True)])
        count = len(breaks) * (1 + len(names_shown)) * (1 + len(eps))
        assert len(rows_of(report, "class_steps")) == count


def rate_of(cell):
    """The rate of a cell, with or without a figure beside it."""
    return cell.value if isinstance(cell, Detail) else cell


def test_odd_names_and_many_classes(tmp_path):
    """A thousand classes: twenty on the page, which says so, and all in the file; odd names whole."""
    long, hebrew, emoji = "x" * 60, "חתול", "🐱 cat"
    names = [long, hebrew, emoji, *(f"c{index}" for index in range(997))]
    labels = np.arange(1010) % 1000
    distance = np.where(labels < 3, 0.05, INF)
    breaks = {"net": np.stack([distance] * 2), "two": np.stack([distance] * 2)}
    report = open_folder(write_run(tmp_path / "run", breaks, labels, [0.1], names)).report()
    table = tables(report)["Class by class over the budgets"]
    assert list(table.columns[4:7]) == [long, hebrew, emoji] and len(table.columns) == 24
    assert "Of 1\u202f000 classes the 20 lowest; tables/class_steps.csv has all" in table.text
    assert len(rows_of(report, "class_steps")) == 2 * 1001 * 2
    drops = rows_of(report, "total_drops")
    assert len(drops) == 1001 and {row["class"] for row in drops[:3]} == {long, hebrew, emoji}
    on_page = [block for block in report.blocks if isinstance(block, Table) and block.page]
    (page_table,) = [table for table in on_page if table.title.startswith("Total drop")]
    assert (
        len(page_table.rows) == 21
        and "Of 1\u202f000 classes the 20 that lose most" in page_table.text
    )
    page = html.page(report)
    assert long in page and hebrew in page and emoji in page


def test_what_cannot_be_shown_is_said(tmp_path):
    """One class, one budget, no correct sample, one sample of a class."""
    labels = np.zeros(8, int)
    wrong = {"net": np.zeros((2, 8)), "two": np.zeros((2, 8))}
    report = open_folder(
        write_run(tmp_path / "wrong", wrong, labels, [0.1], ["cat", "dog"])
    ).report()
    table = tables(report)["Class by class over the budgets"]
    assert [main_text(cell) for cell in table.rows[0][2:]] == ["0.0\u00a0%", "–", "0.0\u00a0%"]
    assert any("fewer than two classes have two samples" in text for text in report.sentences)

    labels = np.array([0, 0, 0, 1, 1, 1, 2])
    breaks = {
        "net": np.tile([0.05] * 3 + [INF] * 4, (2, 1)),
        "two": np.tile([0.05] * 3 + [INF] * 3 + [0.05], (2, 1)),
    }
    run = write_run(tmp_path / "apart", breaks, labels, [0.1], ["cat", "dog", "eel"])
    result = open_folder(run)
    assert result.drops.left_out == ["eel"]
    parts = result.drops.decomposition
    assert (parts.classes.value, parts.models.value, parts.interaction.value) == (1, 0, 0)
    title = "Total drop up to 26/255, class by model"
    assert "One sample only, and so in no share: eel." in tables(result.report())[title].text

    alike = {name: np.full((2, 8), 0.05) for name in ("net", "two")}
    report = open_folder(
        write_run(tmp_path / "alike", alike, np.arange(8) % 2, [0.1], ["cat", "dog"])
    ).report()
    assert any("show no variation by class or model" in text for text in report.sentences[:3])


def test_weakest_class_with_all_that_tie(tmp_path):
    """Ties are named, classes that may be as weak are named, and small classes are named as few."""
    labels = np.repeat(np.arange(5), [20, 20, 20, 20, 2])
    share = [0.05, 0.05, 0.2, 1.0, 0.0]
    distance = np.concatenate(
        [
            np.where(np.arange(n) < round(s * n), INF, 0.05)
            for n, s in zip([20, 20, 20, 20, 2], share, strict=True)
        ]
    )
    names = ["ant", "bee", "cow", "dog", "eel"]
    breaks = {"net": np.stack([distance] * 2)}
    result = open_folder(write_run(tmp_path / "run", breaks, labels, [0.1], names))
    sentence = result.report().sentences[1]
    assert "the weakest are ant (class 0) and bee (class 1) with 5.0" in sentence
    assert "cow (class 2) may be as weak" in sentence
    assert sentence.endswith("Fewer than 5 samples, so in no order: eel (class 4) (0 of 2).")
    (row,) = [row for row in rows_of(result.report(), "robust_accuracy") if row["eps"] == "26/255"]
    assert row["lowest of a class"] == "0.05"
    few = "fewer than 5 samples, so in no order: eel (class 4) (0 of 2)"
    assert row["weakest class"] == f"ant (class 0) and bee (class 1); {few}"


def test_parameters_and_time_beside_the_models(tmp_path):
    """A correlation is stated from five models on, and it is the one of the ranks."""
    labels, sizes = np.arange(40) % 2, [5, 1, 4, 2, 3]
    breaks = {
        f"net{number}": np.tile(np.where(np.arange(40) < 8 * size, INF, 0.05), (2, 1))
        for number, size in enumerate(sizes)
    }
    for most, stated in ((4, False), (5, True)):
        models = dict(list(breaks.items())[:most])
        synthetic = from_analysis("synthetic")
        manifest = synthetic.manifest(list(models), [0.1], 40, ["cat", "dog"])
        for entry, size in zip(manifest["models"], sizes, strict=False):
            entry["parameters"] = 1000 * size
        rows = {
            name: synthetic.records(name, labels, [0.1], distances, classes=2)
            for name, distances in models.items()
        }
        result = open_folder(write_rows(tmp_path / f"sized-{most}", rows, manifest))
        table = tables(result.report())["The models side by side"]
        assert list(table.columns[-2:]) == ["parameters", "seconds"]
        assert [row[-2] for row in table.rows] == [1000 * size for size in sizes[:most]]
        for row, model in zip(table.rows, result.models, strict=True):
            assert row[-1].value == sum(stage.seconds for stage in model.stages) > 0
        assert ("Spearman's correlation" in table.text) == stated
        if stated:  # 2 of the 120 orders have a correlation of 1 or -1
            assert "over 5 models: 1 (p 0.017)" in table.text


def test_points_are_points():
    """The type of drops, which a file writes in points."""
    assert main_text(Points(-0.0167)) == "−1.7"


def test_comparison_of_the_published_study(study, tmp_path):
    """A comparison of the same models shows the same means, at the budget that it compares at."""
    result = brinell.compare(study.folder, at="8/255", out=tmp_path / "compare")
    assert result.drops == study.drops
    report = result.report()
    title = "Total drop up to 8/255, class by model"
    assert tables(report)[title].rows == tables(study.report())[title].rows
    assert any(text.endswith("matters more than the model.") for text in report.sentences[:3])
    assert rows_of(report, "total_drops") == rows_of(study.report(), "total_drops")
