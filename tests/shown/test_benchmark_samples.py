"""The agent's result on the page of a benchmark set: success of the samples that it distorted,
sizes, distortions and pictures of the examples, each as a plain loop over the rows counts them.
"""

import base64
import csv
import html
import io
import re
from pathlib import Path
from statistics import mean, median

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import brinell
from _helpers import Recorder
from _sets import arrays_of
from brinell.core.domain import Domain
from brinell.datasets._memory import from_arrays
from brinell.reports.csv import csv_files
from brinell.reports.html import page
from brinell.reports.values import Gallery, Table
from brinell.studies.benchmark.gallery import choose


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


def rows_of(result) -> list[dict]:
    """The rows of data/ that hold an input."""
    files = sorted((Path(result.folder) / "data").glob("*.parquet"))
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return [row for row in rows if row["reached"]]


def examples_of(result) -> list[dict]:
    """The rows of level 1 that hold an example."""
    return [row for row in rows_of(result) if row["level"] == 1]


def test_success_is_of_the_samples_that_were_right(benchmark):
    """The two samples that are wrong untouched are in no figure, and the page says so."""
    rows = pq.read_table(Path(benchmark.folder) / "rows.parquet").to_pylist()
    right = [row for row in rows if row["clean_prediction"] == row["label"]]
    assert len(right) == 22
    examples = [row for row in right if row["outcome"] == "reached"]
    assert (benchmark.success.k, benchmark.success.n) == (len(examples), 22)
    first, second, *_ = benchmark.report().sentences
    assert first.startswith(f"{len(examples)} of the 22 samples that the agent distorted")
    assert second.startswith("2 further samples are in no figure")


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


def test_levels_and_outcomes(benchmark):
    """Inputs, accuracy, share of adversarial ones and distance of every level, clean first; and
    what became of all samples.
    """
    stored = [
        row
        for file in sorted((Path(benchmark.folder) / "data").glob("*.parquet"))
        for row in pq.read_table(file).to_pylist()
    ]
    table = tables(benchmark.report())["By level"]
    assert table.terminal and [row[0] for row in table.rows] == [0, 1, 2]
    for level, inputs, missing, accuracy, adversarial, size in table.rows:
        rows = [row for row in stored if row["level"] == level]
        reached = [row for row in rows if row["reached"]]
        assert (inputs, missing) == (len(reached), len(rows) - len(reached))
        right = mean(row["prediction"] == row["label"] for row in reached)
        assert accuracy.value == pytest.approx(right)
        share = mean(row["adversarial"] for row in reached)
        assert adversarial.value == pytest.approx(share)
        assert size == pytest.approx(median(row["l2"] for row in reached))
    outcomes = dict(tables(benchmark.report())["Samples"].rows)
    samples = pq.read_table(Path(benchmark.folder) / "rows.parquet").to_pylist()
    assert sum(outcomes.values()) == len(samples) == 24
    for name, count in outcomes.items():
        assert count == sum(row["outcome"] == name.replace(" ", "_") for row in samples)


def test_shares_of_the_distortions(benchmark):
    """Of all patches and of those of each class; the shares of a class sum to one."""
    table = tables(benchmark.report())["Share of each distortion"]
    counts: dict = {}
    for row in examples_of(benchmark):
        for patch in row["patches"]:
            for name in ("all", benchmark.classes[row["label"]]):
                counts.setdefault(name, []).append(patch["distortion"])
    assert {row[0] for row in table.rows} == set(counts)
    for name, distortion, share, _ in table.rows:
        names_placed = counts[name]
        assert (share.k, share.n) == (names_placed.count(distortion), len(names_placed))


def test_shares_of_the_squared_distance(benchmark):
    """The patches are single pixels here, so that the changes of the stored inputs give the
    energies.
    """
    sums: dict = {}
    arrays = arrays_of(Path(benchmark.folder))
    for row in examples_of(benchmark):
        clean, x = (arrays[f"{row['sample_id']}/{level}/input"].astype(float) for level in (0, 1))
        for patch in row["patches"]:
            square = (x - clean).flat[patch["patch"]] ** 2
            assert patch["energy"] == pytest.approx(square)
            for name in ("all", benchmark.classes[row["label"]]):
                by_distortion = sums.setdefault(name, {"gaussian-noise": 0.0, "dead-pixel": 0.0})
                by_distortion[patch["distortion"]] += square
        assert sum(patch["energy"] for patch in row["patches"]) == pytest.approx(row["l2"] ** 2)
    table = tables(benchmark.report())["Share of each distortion"]
    assert table.terminal
    shares = {(name, distortion): energy.value for name, distortion, _, energy in table.rows}
    assert len(shares) == len(table.rows) == 2 * len(sums)
    for (name, distortion), energy in shares.items():
        assert energy == pytest.approx(sums[name][distortion] / sum(sums[name].values()))
    lines = list(csv.DictReader(io.StringIO(csv_files(benchmark.report())["distortions.csv"])))
    assert [float(line["of the squared L2"]) for line in lines] == pytest.approx([*shares.values()])


def galleries(report) -> dict[str, Gallery]:
    return {block.title: block for block in report.blocks if isinstance(block, Gallery)}


def pixels_of(picture) -> np.ndarray:
    (encoded,) = re.findall(r"base64,([^\"]+)", picture.image)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(encoded))))


def in_bytes(array: np.ndarray) -> np.ndarray:
    return np.rint(array[0] * 255).astype(np.uint8)


def percent_of(share: float) -> str:
    return f"{100 * share:.0f}"


def test_pictures_of_samples(benchmark):
    """At least six samples of mixed classes, clean, changed and distorted, as the set holds them;
    with distances, queries, and both answers.
    """
    arrays = arrays_of(Path(benchmark.folder))
    queries = {
        row["sample_id"]: row["queries_to_success"]
        for row in pq.read_table(Path(benchmark.folder) / "rows.parquet").to_pylist()
    }
    rows = {row["sample_id"]: row for row in examples_of(benchmark)}
    clean_rows = {row["sample_id"]: row for row in rows_of(benchmark) if row["level"] == 0}
    gallery = galleries(benchmark.report())["Clean, changed and distorted"]
    assert not gallery.folded and gallery.open_examples >= 6
    samples = [int(re.findall(r"Sample (\d+)", example.caption)[0]) for example in gallery.examples]
    assert len(set(samples)) == len(samples) >= 6
    assert {rows[sample]["label"] for sample in samples[:4]} == {0, 1, 2, 3}
    for sample, example in zip(samples, gallery.examples, strict=True):
        row, clean = rows[sample], clean_rows[sample]
        before, change, after = example.pictures
        assert (pixels_of(before) == in_bytes(arrays[f"{sample}/0/input"])).all()
        assert (pixels_of(after) == in_bytes(arrays[f"{sample}/1/input"])).all()
        changed = (arrays[f"{sample}/1/input"] != arrays[f"{sample}/0/input"])[0]
        assert (pixels_of(change)[~changed] == pixels_of(change)[~changed][0]).all()
        assert (np.abs(pixels_of(change)[changed].astype(int) - 127.5) > 1).all()
        true, wrong = (benchmark.classes[row[name]] for name in ("label", "prediction"))
        assert before.caption.startswith(f"{true}, {percent_of(clean['confidence'])}")
        assert after.caption.startswith(f"{wrong}, {percent_of(row['confidence'])}")
        assert f"{true}, {percent_of(row['true_probability'])}" in after.caption
        assert f"L2 {row['l2']:.3g}" in example.caption
        assert f"{queries[sample]} quer" in example.caption
        assert f"{len(row['patches'])} patch" in example.caption


def test_pictures_of_every_level(benchmark):
    """One sample at each of its levels, clean first."""
    arrays = arrays_of(Path(benchmark.folder))
    (example,) = galleries(benchmark.report())["One sample at every level"].examples
    sample = int(re.findall(r"Sample (\d+)", example.caption)[0])
    levels = [row for row in rows_of(benchmark) if row["sample_id"] == sample]
    assert len(example.pictures) == len(levels) == 3
    for picture, row in zip(example.pictures, levels, strict=True):
        assert (pixels_of(picture) == in_bytes(arrays[f"{sample}/{row['level']:g}/input"])).all()
        if row["level"]:
            assert picture.caption.startswith(f"×\xa0{row['level']:g}, L2 {row['l2']:.3g}")
        answer = f"{benchmark.classes[row['prediction']]}, {percent_of(row['confidence'])}"
        assert answer in picture.caption


def test_page_holds_the_pictures(benchmark):
    text = page(benchmark.report())
    for title in ("Clean, changed and distorted", "One sample at every level"):
        assert title in text
    assert text.count("<img") >= 6 * 3 + 3


def photographs(side=224, high=1.0):
    """A set of two photographs, and a model that compares their mean with a half."""
    shape = (3, side, side)
    x = np.random.default_rng(0).uniform(0.3, 0.45, (2, *shape)).astype(np.float32) * high
    domain = Domain(kind="image", shape=shape, high=high, levels=256)

    def logits(x):
        lead = 40 * (x.flatten(1).mean(1) / high - 0.5)
        return torch.stack([-lead, lead], 1)

    return Recorder(logits, domain), from_arrays(x, np.zeros(2), domain=domain)


def text_of(model, data, folder):
    settings = {"distortions": "brightness", "patch": 56, "steps": 30, "refine": 2, "levels": "1"}
    result = brinell.benchmark(model, data, out=folder, **settings)
    assert result.success.k
    table = tables(result.report())["The adversarial examples"]
    assert table.text in html.unescape(page(result.report()))
    return table.text, result


def test_l2_of_photographs_stands_beside_the_papers_in_their_units(tmp_path):
    text, result = text_of(*photographs(), tmp_path / "photographs")
    rows = pq.read_table(Path(result.folder) / "rows.parquet").to_pylist()
    sizes = [row["l2"] / 0.226 for row in rows if row["l2"] is not None]
    figures = mean(sizes), median(sizes), max(sizes)
    assert "mean {:.3g}, median {:.3g}, largest {:.3g}".format(*figures) in text
    assert "2.48" in text and "4.74" in text


def test_other_inputs_do_not_stand_beside_the_papers(benchmark, tmp_path):
    texts = [tables(benchmark.report())["The adversarial examples"].text]
    texts.append(text_of(*photographs(side=64), tmp_path / "small")[0])
    texts.append(text_of(*photographs(high=255.0), tmp_path / "units")[0])
    for text in texts:
        assert "2.48" not in text and "papers" not in text


@pytest.mark.parametrize("seed", range(5))
def test_pictured_samples_are_of_every_class_by_turns(seed):
    """Of samples that are sorted by class, as folders of pictures are: no class is shown once more
    before every other one has had its turn.
    """
    rng = np.random.default_rng(seed)
    labels = np.sort(rng.integers(0, 4, 40)).tolist()
    reached = rng.random(40) < 0.7
    rows = {
        sample: {0.0: {"label": label}} | ({1.0: {"label": label}} if reached[sample] else {})
        for sample, label in enumerate(labels)
    }
    samples = choose(rows, 12)
    assert len(samples) == len(set(samples)) == min(12, int(reached.sum()))
    assert reached[samples].all()
    of_class = {
        label: [s for s in range(40) if reached[s] and labels[s] == label] for label in labels
    }
    counts = dict.fromkeys(of_class, 0)
    for sample in samples:
        label = labels[sample]
        assert sample == of_class[label][counts[label]], "in the order of the data"
        waiting = [counts[other] for other in of_class if counts[other] < len(of_class[other])]
        assert counts[label] == min(waiting)
        counts[label] += 1
