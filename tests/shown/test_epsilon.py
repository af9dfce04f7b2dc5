"""Which eps makes sense: distances of classes, limits with their meaning, and a named budget judged
by class, on data whose distances are known by hand.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

import brinell
from _browser import chromium, open_page
from brinell.core.domain import Domain
from brinell.core.errors import BrinellError
from brinell.datasets._memory import from_arrays
from brinell.reports import html, terminal
from brinell.reports.csv import csv_files
from brinell.reports.distances import class_distances, nearer_classes, nearness_sentence
from brinell.reports.values import Framed, Gallery, Table
from brinell.store.files import read_arrays
from brinell.studies.epsilon.result import PAIRS, EpsilonResult
from brinell.studies.epsilon.run import psnr, ssim

X = (0.0, 0.8, 0.4, 0.45)
LABELS = (0, 0, 1, 1)
"""The class `wide` lies at 0 and 0.8, the class `tight` at 0.4 and 0.45 between them: distances to
the nearest sample of the other class 0.4, 0.35, 0.4, 0.35, within the class 0.8, 0.8, 0.05, 0.05."""


def write_data(path):
    x = np.array([[value, 0.5] for value in X], dtype=np.float32)
    domain = Domain(kind="vector", shape=(2,))
    return from_arrays(x, np.array(LABELS), ("wide", "tight"), domain=domain)


@pytest.fixture(scope="module")
def result(tmp_path_factory) -> EpsilonResult:
    folder = tmp_path_factory.mktemp("epsilon")
    return brinell.epsilon(write_data(folder), eps=0.19, pairs=0, out=folder / "run")


def table_of(report, name):
    (table,) = [b for b in report.blocks if isinstance(b, Table) and b.name == name]
    return table


def test_nearer_classes_by_hand():
    means = [[0.8, 0.4, None], [0.4, 0.05, 0.9], [None, 0.9, None]]
    assert nearer_classes(means) == [[1], [], []]
    sentence = nearness_sentence("Linf", ["a", "b", "c"], means)
    assert sentence == (
        "Linf: by mean distance of these samples 1 class of 3 is nearer to another class than to "
        "itself: a (to b)."
    )
    assert nearness_sentence("L2", ["a"], [[0.1]]) == ""
    assert "each class is nearest to itself" in nearness_sentence(
        "L2", ["a", "b"], [[1, 2], [2, 1]]
    )


def test_distances_of_class_to_class(result):
    """Mean of 0.4, 0.45, 0.4, 0.35 between the classes; 0.8 and 0.05 within them."""
    report = result.report()
    for norm in ("linf", "l2"):
        table = table_of(report, f"distances-{norm}")
        assert table.columns == ("class", "wide", "tight", "nearer than itself")
        first, second = table.rows
        assert (first[0], first[1], first[3]) == ("wide", pytest.approx(0.8), ["tight"])
        assert isinstance(first[2], Framed) and first[2].value == pytest.approx(0.4)
        assert second[1:] == (pytest.approx(0.4), pytest.approx(0.05, rel=1e-4), None)
        assert table.terminal and table.page
        line = csv_files(report)[f"distances-{norm}.csv"].splitlines()[1].split(",")
        assert line[0] == "wide" and line[3] == "tight"
        assert [float(text) for text in line[1:3]] == pytest.approx([0.8, 0.4], rel=1e-5)
    for space in ("Linf", "L2"):
        assert (
            f"{space}: by mean distance of these samples 1 class of 2 is nearer to another class "
            "than to itself: wide (to tight)." in report.sentences
        )
    assert '<span class="framed">0.4</span>' in html.page(report)
    assert any("[0.4]" in line.split() for line in terminal.lines(report))


def test_a_named_budget_is_judged_by_class(result):
    """Half the distances to the other class are 0.2, 0.175, 0.2, 0.175: 0.19 breaks label
    constancy on one sample of each class, and interpolation on both tight samples.
    """
    report = result.report()
    table = table_of(report, "judgement")
    assert table.columns == (
        "class",
        "samples",
        "label constancy: broken on",
        "interpolation: broken on",
    )
    content = [
        (name, n, *((cell.value.k, cell.value.n, cell.text) for cell in cells))
        for name, n, *cells in table.rows
    ]
    assert content == [
        ("all samples", 4, (2, 4, "fails"), (2, 4, "fails")),
        ("wide", 2, (1, 2, "fails"), (0, 2, "holds")),
        ("tight", 2, (1, 2, "fails"), (2, 2, "fails")),
    ]
    assert report.sentences[0] == (
        "eps 0.19 in Linf: label constancy fails for every class; interpolation fails for tight."
    )
    lines = csv_files(report)["judgement.csv"].splitlines()
    assert len(lines) == 4 and lines[2].startswith("wide,2,0.5,") and lines[2].endswith("holds")
    assert "What eps 0.19 keeps" in html.page(report)


def test_one_budget_is_recommended_and_each_limit_has_its_meaning(result, tmp_path):
    """The label may change above 0.175, half of 0.35; a tight sample becomes another one below 0.05."""
    report = result.report()
    table = table_of(report, "budgets")
    assert table.columns == ("limit", "Linf", "L2", "meaning")
    limits = {row[0]: row[1:] for row in table.rows}
    assert [*limits] == [
        "recommended",
        "label constancy",
        "interpolation",
        "perceptibility",
        "background",
        "outline",
        "usual budgets",
    ]
    assert limits["label constancy"][0] == pytest.approx(0.175, abs=2e-3)
    assert limits["interpolation"][0] == pytest.approx(0.0499, abs=1e-4)
    assert limits["recommended"][0] == limits["outline"][0] < limits["interpolation"][0]
    assert all(isinstance(row[-1], str) and row[-1] for row in table.rows)
    assert table.folded and table.terminal
    (recommended,) = [text for text in report.sentences if "audit up to" in text]
    assert recommended.startswith("Linf: audit up to 0.0413: above it the outline of another class")
    data = write_data(tmp_path)
    alone = brinell.epsilon(data, norm="linf", pairs=0, out=tmp_path / "run").report()
    assert alone.sentences[0] == (
        "Linf: audit up to 0.0499: except on at most 1 % of the samples, no change within it "
        "leads to another sample of the data."
    )


def test_pictures_have_a_background_and_the_named_budget(tmp_path):
    """Of an empty ground with a stroke of one column in eight, seven eighths are background, and
    a detector sees half of a level.
    """
    x = np.zeros((8, 1, 8, 8), np.float32)
    for index in range(8):
        x[index, 0, :, index] = 0.9
    data = brinell.data(x, np.arange(8) % 2)
    result = brinell.epsilon(data, eps=0.3, out=tmp_path / "run")
    assert result.facts.background == pytest.approx(7 / 8)
    report = result.report()
    (row,) = [row for row in table_of(report, "budgets").rows if row[0] == "background"]
    assert row[1:3] == (pytest.approx(0.5 / 256), None) and "87.5" in row[3]
    gallery = gallery_of(report, "Does the picture still show its class?")
    captions = [picture.caption for picture in gallery.examples[0].pictures]
    assert "eps 0.3" in captions and len(gallery.examples) == 2


def test_many_classes_and_strange_names():
    """Of 1,000 classes the CSV has all; names of 60 letters and emoji stay whole."""
    names = [f"{'name' * 14}{k}🦊" for k in range(1000)]
    means = (1.0 - np.eye(1000)).tolist()
    means[0][0] = 2.0  # farther from itself than from all others
    table = class_distances("L2", names, means, text="", name="d")
    assert not table.terminal and not table.page and len(table.rows) == 1000
    assert len(table.rows[0][-1]) == 999


@pytest.mark.parametrize("eps", ["0", "0.1,0.2", "large"])
def test_what_is_no_budget_is_refused(eps, tmp_path):
    with pytest.raises(BrinellError):
        brinell.epsilon(write_data(tmp_path), eps=eps, out=tmp_path / "run")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_embedding_has_the_same_table_beside_that_of_the_inputs(tmp_path):
    """Both tables are made of mean L2 distances between the held-out samples, worked out here."""
    pytest.importorskip("pytorch_metric_learning")
    rng, y = np.random.default_rng(0), np.arange(80) % 2
    x = rng.uniform(0, 1, (80, 1, 8, 8)).astype(np.float32)
    x[:, 0, 0] = y[:, None]
    test_x, test_y = x[:20], y[:20]
    result = brinell.train_metric(
        (x[20:], y[20:]), test=(test_x, test_y), steps=5, out=tmp_path / "e.safetensors"
    )
    flat = test_x.reshape(20, -1)
    size = np.linalg.norm(flat[:, None] - flat[None], axis=2)
    tables = [b for b in result.report().blocks if isinstance(b, Table)]
    names = [table.name for table in tables]
    assert names == ["", "distances-pixels", "distances-embedding"]
    means = result.means["pixels"]
    for a in (0, 1):
        for b in (0, 1):
            block = size[test_y == a][:, test_y == b]
            known = block.sum() / (block.size - len(block) * (a == b))
            assert means[a][b] == pytest.approx(known, rel=1e-4)
    assert tables[1].columns == tables[2].columns == ("class", "0", "1", "nearer than itself")
    assert len(result.report().sentences) == 3


def gallery_of(report, title):
    return next(b for b in report.blocks if isinstance(b, Gallery) and b.title == title)


def test_limits_come_with_the_pairs_to_look_at(result, tmp_path):
    """The common limit of label constancy is that of 0.8 and 0.45, which meet at 0.625; a tight
    sample's neighbour in its class is the other one.
    """
    content = read_arrays(Path(result.folder) / PAIRS)
    assert content["label/eps"][0] == pytest.approx(0.175)
    for pair, labels in zip(content["label/x"], content["label/labels"], strict=True):
        assert set(labels.tolist()) == {0, 1}
        assert abs(pair[0, 0] - pair[1, 0]) == pytest.approx(0.35, abs=0.06)
    first, second = content["interpolation/x"][0][:, 0].tolist()
    assert {round(first, 3), round(second, 3)} == {0.4, 0.45}
    gallery = gallery_of(result.report(), "The pairs to look at")
    captions = [example.caption for example in gallery.examples]
    assert captions[0].startswith("label constancy: sample ") and "at eps 0.175" in captions[0]
    middle = [picture.caption for picture in gallery.examples[0].pictures]
    assert middle[1] == "halfway" and middle[2].startswith("nearest ")
    assert "The pairs to look at" in html.page(result.report())


def test_a_change_at_the_limit_is_the_one_that_was_measured(tmp_path):
    """Random changes of the limit's size keep SSIM and PSNR, and slightly larger ones do not; a
    nearest training sample is shown too."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.2, 0.8, (12, 1, 8, 8)).astype(np.float32)
    train = np.clip(x + 0.01, 0, 1)
    data = brinell.data(x, np.arange(12) % 2)
    result = brinell.epsilon(
        data, train=brinell.data(train, 1 - np.arange(12) % 2), out=tmp_path / "r"
    )
    content = read_arrays(tmp_path / "r" / PAIRS)
    for pair, eps in zip(content["perception/x"], content["perception/eps"], strict=True):
        assert np.abs(pair[1] - pair[0]).max() == pytest.approx(eps, rel=1e-3)
        clean, changed = torch.from_numpy(pair)[:, None].float().unbind()
        larger = clean + 1.05 * (changed - clean)
        kept = [
            bool(ssim(clean, y) >= 0.9 - 1e-4) and bool(psnr(clean, y) >= 30 - 1e-3)
            for y in (changed, larger)
        ]
        assert kept == [True, False]
    for pair in content["label/x"]:
        assert np.abs(pair[1] - pair[0]).max() == pytest.approx(0.01, abs=2e-3)
    assert len(gallery_of(result.report(), "The pairs to look at").examples) >= 6


@pytest.mark.slow
@pytest.mark.browser
def test_ten_classes_fit_a_page_of_1280_pixels(tmp_path):
    """The last class and what is nearer are seen without scrolling."""
    brinell.epsilon("digits", samples=100, norm="linf", pairs=5, out=tmp_path / "run")
    with chromium() as browser, open_page(browser, tmp_path / "run" / "report.html") as tab:
        region = "[aria-label='Mean distance of class to class, Linf']"
        widths = tab.evaluate(
            "name => [document.querySelector(name).scrollWidth, "
            "document.querySelector(name).clientWidth]",
            region,
        )
    assert widths[0] <= widths[1]
