"""Class distance against class robustness: an audit beside an epsilon study of the same data, whose
distances and breaking points are known by hand.
"""

import csv
import io
import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from brinell.analysis.class_distances import nearest_classes
from brinell.analysis.inference import correlate_ranks
from brinell.core.domain import Domain
from brinell.core.errors import BrinellError
from brinell.datasets._memory import from_arrays
from brinell.reports import html, terminal
from brinell.reports.csv import csv_files
from brinell.reports.values import Table
from brinell.store.files import read_arrays, write_arrays
from brinell.studies.epsilon import STUDY as EPSILON
from brinell.studies.epsilon.result import MEANS

CENTRES = (0.05, 0.15, 0.3, 0.5, 0.73, 0.98)
"""Classes lie side by side on a line; a sample breaks where it crosses the middle of two centres."""
OFFSETS = (-0.02, -0.01, 0.0, 0.01)
EPS = 0.082
NAMES = ("ant", "bee", "cow", "dog", "eel", "fox")


class Nearest(nn.Module):
    """A network that gives the class of the nearest centre."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.tensor(CENTRES[:count]))

    def forward(self, x):
        return -50 * (x[:, :1] - self.centres) ** 2


def make_data(count: int = len(CENTRES), height: float = 0.5):
    """Samples around the first centres; a `height` of its own makes other data."""
    x = [[centre + offset, height] for centre in CENTRES[:count] for offset in OFFSETS]
    y = np.repeat(np.arange(count), len(OFFSETS))
    domain = Domain(kind="vector", shape=(2,))
    return from_arrays(np.array(x, np.float32), y, NAMES[:count], domain=domain)


def known_distances() -> tuple[list[int], list[float]]:
    """By class the nearest other class and its mean distance, as a plain loop finds them."""
    nearest, distances = [], []
    for label in range(len(CENTRES)):
        means = {
            neighbour: np.mean(
                [
                    abs(CENTRES[label] + a - CENTRES[neighbour] - b)
                    for a, b in itertools.product(OFFSETS, OFFSETS)
                ]
            )
            for neighbour in range(len(CENTRES))
            if neighbour != label
        }
        nearest.append(min(means, key=means.__getitem__))
        distances.append(min(means.values()))
    return nearest, distances


def known_drops() -> list[float]:
    """By class the share of samples with the middle of two centres within the budget."""
    middles = [(a + b) / 2 for a, b in itertools.pairwise(CENTRES)]
    drops = []
    for centre in CENTRES:
        broken = [min(abs(centre + offset - m) for m in middles) < EPS for offset in OFFSETS]
        drops.append(-float(np.mean(broken)))
    return drops


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("epsilon") / "study"
    brinell.epsilon(make_data(), norm="linf", pairs=0, out=folder)
    return folder


@pytest.fixture(scope="module")
def audited(study, tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit") / "run"
    return brinell.audit(Nearest(6), make_data(), eps=EPS, attack="fab", epsilon=study, out=folder)


def table_of(report, name: str) -> Table:
    (table,) = [b for b in report.blocks if isinstance(b, Table) and b.name == name]
    return table


def test_distance_and_drop_of_each_class(audited):
    """Distances and drops are those that loops over the samples find."""
    nearest, distances = known_distances()
    drops = known_drops()
    table = table_of(audited.report(), "class_distances")
    assert table.columns == [
        "class",
        "nearest other class",
        "mean distance",
        "to the nearest sample",
        "clean",
        "total drop",
    ]
    cells = {row[0]: row[1:] for row in table.rows}
    assert [row[2] for row in table.rows] == sorted(row[2] for row in table.rows)
    for index, name in enumerate(NAMES):
        neighbour, distance, _, clean, drop = cells[name]
        assert neighbour == NAMES[nearest[index]]
        assert distance == pytest.approx(distances[index], rel=1e-4)
        assert (clean.k, clean.n) == (4, 4)
        assert drop.value == pytest.approx(drops[index])
    # The class `ant` ends at 0.06, `bee` begins at 0.13.
    assert cells["ant"][2] == pytest.approx(np.median([0.1, 0.09, 0.08, 0.07]), rel=1e-4)


def test_the_correlation_is_that_of_the_ranks(audited):
    from scipy.stats import spearmanr

    _, distances = known_distances()
    expected = spearmanr(np.round(distances, 6), known_drops()).statistic
    correlation = audited.models[0].distance_correlation
    assert correlation.n == 6 and correlation.value == pytest.approx(expected)
    assert correlation.low < correlation.value < correlation.high
    (row,) = table_of(audited.report(), "distance_correlation").rows
    assert row[1] == 6 and row[2].value == correlation.value
    assert row[3] == "the nearer a class is to another, the more it loses"


def test_page_files_terminal_and_json(audited):
    report = audited.report()
    title = "Class distance against class robustness, Linf, up to 0.082"
    assert title in html.page(report) and "Do near classes lose more?" in html.page(report)
    for width in (60, 80, 200):
        text = "\n".join(terminal.lines(report, width))
        assert "Class distance against class" in text and "Do near classes lose more?" in text
    lines = list(csv.DictReader(io.StringIO(csv_files(report)["class_distances.csv"])))
    first = next(line for line in lines if line["class"] == "ant")
    assert first["nearest other class"] == "bee" and first["clean n"] == "4"
    assert float(first["total drop, points"]) == pytest.approx(100 * known_drops()[0])
    (printed,) = audited.payload()["models"]
    entry = printed["per_class"][0]["nearest"]
    assert (entry["class"], entry["name"]) == (1, "bee")
    assert set(printed["distance_correlation"]) == {"n", "value", "low", "high"}


def test_without_a_study_nothing_is_said(patterns, audit_run):
    (printed,) = brinell.open(audit_run).payload()["models"]
    assert "distance_correlation" not in printed and "nearest" not in printed["per_class"][0]


def test_several_models_and_few_classes(tmp_path):
    """Of four classes no correlation is stated, and each model has its columns."""
    data = make_data(4)
    brinell.epsilon(data, norm="linf", pairs=0, out=tmp_path / "study")
    models = {"one": Nearest(4), "two": Nearest(4)}
    result = brinell.audit(
        models, data, eps=EPS, attack="fgsm", epsilon=tmp_path / "study", out=tmp_path / "run"
    )
    report = result.report()
    table = table_of(report, "class_distances")
    assert table.columns[4:] == [
        "one, clean",
        "one, total drop",
        "two, clean",
        "two, total drop",
        "mean total drop over the models",
    ]
    for row in table_of(report, "distance_correlation").rows:
        assert row[1:3] == [4, row[2]] and row[2].value is None and "fewer than 5" in row[3]


def test_verification_follows_the_study(audited, study, tmp_path):
    """The copy is verified by itself; one with a changed file is refused, and one with false
    distances, whose digests and pages fit, is found out."""
    verified = brinell.verify(audited.folder, Nearest(6), make_data())
    assert not verified.problems
    assert any("epsilon was carried out again" in text for text in verified.verified_claims)

    run = tmp_path / "run"
    shutil.copytree(audited.folder, run)
    layout, means = EPSILON.layout, read_arrays(run / "epsilon" / MEANS)
    write_arrays(run / "epsilon" / MEANS, {norm: 2 * array for norm, array in means.items()})
    with pytest.raises(BrinellError, match=r"means.safetensors was changed"):
        brinell.open(run)
    layout.save(run / "epsilon", layout.read(run / "epsilon"))
    brinell.open(run / "epsilon").write()
    forged = brinell.open(run)
    forged.write()
    first, second = (result.models[0].per_class[0].nearest for result in (audited, forged))
    assert second.distance == pytest.approx(2 * first.distance)
    problems = brinell.verify(run, Nearest(6), make_data(), trust=tmp_path).problems
    assert any(problem.location.startswith("epsilon/") for problem in problems)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"height": 0.25}, "was made from other data than"),
        ({"norm": "l2"}, "measured linf and not l2"),
        ({"epsilon": "no such folder"}, "is no epsilon study folder"),
    ],
)
def test_another_study_is_refused_before_the_audit(changes, message, study, tmp_path):
    settings = {"epsilon": study, "norm": "linf"} | changes
    data = make_data(height=settings.pop("height", 0.5))
    with pytest.raises(BrinellError, match=message):
        brinell.audit(Nearest(6), data, eps=EPS, attack="fgsm", out=tmp_path / "run", **settings)
    assert not (tmp_path / "run" / "manifest.json").exists()


def test_a_study_from_elsewhere_is_refused(study, tmp_path):
    """The names in its request would be opened by a verification of the run."""
    shutil.copytree(study, tmp_path / "moved")
    with pytest.raises(BrinellError, match="was not made by you, or was moved"):
        brinell.audit(
            Nearest(6),
            make_data(),
            eps=EPS,
            attack="fgsm",
            epsilon=tmp_path / "moved",
            out=tmp_path / "run",
        )


def test_a_finished_run_takes_a_study(study, tmp_path):
    """A run goes on with the study that it lacked; a second one is refused."""
    data, settings = make_data(), {"eps": EPS, "attack": "fgsm", "out": tmp_path / "run"}
    assert brinell.audit(Nearest(6), data, **settings).models[0].distance_correlation is None
    for _ in range(2):
        result = brinell.audit(Nearest(6), data, epsilon=study, resume=True, **settings)
        assert result.models[0].distance_correlation is not None
    brinell.epsilon(data, norm="linf", pairs=3, out=tmp_path / "other")
    with pytest.raises(BrinellError, match="holds another epsilon study"):
        brinell.audit(Nearest(6), data, epsilon=tmp_path / "other", resume=True, **settings)


def test_nearest_of_random_means():
    """Property: the nearest class is the one that a plain search finds, and a class without a pair
    has none."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(1, 12))
        means = rng.random((count, count)).tolist()
        empty = int(rng.integers(count))
        for label in range(count):
            means[empty][label] = means[label][empty] = None
        nearest = nearest_classes([], means, {})
        for label in range(count):
            pairs = [(means[label][k], k) for k in range(count) if k not in (label, empty)]
            if label == empty or not pairs:
                assert label not in nearest
            else:
                assert (nearest[label].distance, nearest[label].class_) == min(pairs)


def test_intervals_of_correlations_hold():
    """Of random pairs with a known correlation, 93 % of the intervals at least hold it, and from
    ten pairs on at most 98 %."""
    from scipy.stats import rankdata

    rng = np.random.default_rng(3)
    for n, rho in ((5, 0.0), (7, 0.8), (10, 0.5), (40, 0.8)):
        true = 6 / np.pi * np.arcsin(rho / 2)
        hits = 0
        for _ in range(600):
            x = rng.standard_normal(n)
            y = rho * x + (1 - rho**2) ** 0.5 * rng.standard_normal(n)
            correlation = correlate_ranks(rankdata(x), rankdata(y))
            hits += correlation.low <= true <= correlation.high
        assert 0.93 <= hits / 600 <= (0.98 if n >= 10 else 1.0), (n, rho)
    assert correlate_ranks([1, 2, 3, 4, 5], [1, 2, 3, 4, 5]).low < 0.9
    assert correlate_ranks([1, 1, 1, 1, 1], [1, 2, 3, 4, 5]).value is None
