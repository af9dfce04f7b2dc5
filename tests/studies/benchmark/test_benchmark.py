"""Benchmark sets end to end: content, formats, resumption, and requests that are refused."""

import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import brinell
from _helpers import Recorder
from _mutations import count_refused
from _refusals import refused
from _sets import PIXELS, arrays_of, benchmark_arguments, logits, probe_queries, rows_of
from brinell import plugins
from brinell.cli import run as cli
from brinell.core.domain import Domain
from brinell.core.errors import BrinellError, RequestError
from brinell.core.model import Access
from brinell.datasets._memory import from_arrays
from brinell.rlab.agent import find_agent
from brinell.studies import register
from brinell.testing.others import check_dataset


@pytest.mark.parametrize("seed", range(3))
def test_a_set_of_data_with_a_region_changes_nothing_outside(seed, tmp_path):
    rng = np.random.default_rng(seed)
    corner = rng.integers(0, 4, 2)
    end = corner + rng.integers(3, 5, 2)
    numbers = ",".join(map(str, [*corner, *end]))
    result = brinell.benchmark(
        "digits-cnn",
        data=f"digits?region={numbers}",
        samples=8,
        distortions="gaussian-noise",
        steps=60,
        levels="1",
        out=tmp_path / "set",
    )
    arrays = arrays_of(Path(result.folder))
    value_count = 0
    for name, example in arrays.items():
        sample, _, part = name.partition("/")
        if part == "1/input":
            delta = np.abs(example - arrays[f"{sample}/0/input"])
            value_count += int((delta > 0).sum())
            delta[:, corner[1] : end[1], corner[0] : end[0]] = 0
            assert not delta.any()
    assert value_count


# What is stored


def test_known_answers(benchmark_set):
    """With a linear model an adversarial example lies just beyond the threshold, and each level
    lies at its exact multiple."""
    rows, arrays = rows_of(benchmark_set), arrays_of(benchmark_set)
    samples = {row["sample_id"]: row for row in rows_of(benchmark_set, "rows.parquet")}
    assert [row["outcome"] for row in samples.values()] == ["reached"] * 3 + ["misclassified"] + [
        "reached"
    ] * 8
    assert (
        samples[3]["queries"] == 1
        and samples[3]["l2"] is None
        and 3 not in {row["sample_id"] for row in rows}
    )
    for sample in samples.keys() - {3}:
        clean, example, double, never = (row for row in rows if row["sample_id"] == sample)
        assert [row["level"] for row in (clean, example, double, never)] == [0, 1, 2, 40]
        x = {level: arrays[f"{sample}/{level}/input"].astype(np.float64) for level in (0, 1, 2)}
        assert example["prediction"] == 1 and example["adversarial"] and clean["prediction"] == 0
        assert 0.5 < x[1].mean() < 0.52, "clean-up leaves little more than is needed"
        for level, row in ((1, example), (2, double)):
            delta = x[level] - x[0]
            assert (
                row["l2"]
                == pytest.approx(np.sqrt((delta**2).sum()))
                == pytest.approx(level * example["l2"], abs=0.01)
            )
            assert row["linf"] == pytest.approx(np.abs(delta).max()) and row["l1"] == pytest.approx(
                np.abs(delta).sum()
            )
            assert row["l0"] == (delta != 0).sum() == arrays[f"{sample}/{level}/mask"].sum()
            assert len(row["patches"]) >= (delta != 0).sum()
            for patch in row["patches"]:
                place, share = x[0].flat[patch["patch"]], patch["strength"]
                lift = share * (min(place + 0.1 * patch["severity"], 1) - place)
                assert delta.flat[patch["patch"]] == pytest.approx(
                    min(lift, 1 - place), abs=0.51 / 255
                )
            p = torch.softmax(logits(torch.tensor(x[level], dtype=torch.float32)[None]), 1)[0]
            assert row["confidence"] == pytest.approx(p.max().item(), rel=1e-4)
            assert row["true_probability"] == pytest.approx(p[0].item(), rel=1e-3)
        assert double["l0"] >= example["l0"] and double["confidence"] > example["confidence"]
        assert not never["reached"] and never["input"] is None and never["l2"] is None
        assert f"{sample}/40/input" not in arrays


def test_every_forward_is_counted(tmp_path):
    """The counts equal those of a model that counts its own queries."""
    x = np.random.default_rng(1).uniform(0.2, 0.45, (6, 1, 5, 5)).astype(np.float32)
    model = Recorder(logits, PIXELS, classes=3)
    data = from_arrays(x, np.zeros(6), domain=PIXELS)
    result = brinell.benchmark(
        model, data, out=tmp_path / "set", refine=10, levels="2,3", policy="greedy"
    )
    rows = rows_of(tmp_path / "set", "rows.parquet")
    # Each sample is asked once for the kind of answers, and once for the check of clean accuracy.
    assert probe_queries(tmp_path / "set") == 12 and result.queries == model.queries
    assert sum(row["queries"] for row in rows) == model.queries - 12
    assert all(2 < row["queries_to_success"] < row["queries"] for row in rows)
    assert result.facts.training_queries == 0
    pair = from_arrays(x[:2], np.zeros(2), domain=PIXELS)
    trained = brinell.benchmark(
        model, pair, out=tmp_path / "trained", refine=10, levels="1", policy="default"
    )
    assert (
        trained.facts.training_queries
        == sum(find_agent("prior").about["training_queries"].values())
        > 0
    )
    assert trained.facts.policy.startswith("prior (on images it needs fewer queries")


def test_queries_to_success(tmp_path, subtests):
    """With a single sample, the number of the first input that the model misclassifies."""
    for number, seed in enumerate([0, 1, 2]):
        with subtests.test(str(seed)):
            folder = tmp_path / str(number)
            folder.mkdir()
            x = np.random.default_rng(seed).uniform(0.2, 0.4, (1, 1, 5, 5)).astype(np.float32)
            model = Recorder(logits, PIXELS, classes=3)
            data = from_arrays(x, np.zeros(1), domain=PIXELS)
            brinell.benchmark(
                model,
                data,
                out=folder / "set",
                distortions="occlusion+brightness",
                refine=4,
                levels="1",
                seed=seed,
            )
            (row,) = rows_of(folder / "set", "rows.parquet")
            assert probe_queries(folder / "set") == 2
            calls = model.calls[2:]
            wrong = [number for number, x in enumerate(calls, 1) if logits(x).argmax(1).item() != 0]
            assert row["queries_to_success"] == wrong[0] < row["queries"] == len(calls)


def test_a_picture_of_a_set_is_what_the_model_was_asked_about(tmp_path):
    """Clean inputs are rounded first; examples that rounding would undo are enlarged, and stay
    adversarial as they are stored.
    """
    noise = np.random.default_rng(2).normal(0, 0.03, (12, 1, 5, 5))
    x = (0.48 + noise - noise.mean((1, 2, 3), keepdims=True)).astype(np.float32)
    model, data = Recorder(logits, PIXELS, classes=3), from_arrays(x, np.zeros(12), domain=PIXELS)
    brinell.benchmark(model, data, out=tmp_path / "set", levels="1", refine=20, policy="greedy")
    rows, arrays = rows_of(tmp_path / "set"), arrays_of(tmp_path / "set")
    assert [row["level"] for row in rows] == [0, 1] * 12
    for row in rows:
        picture = (
            np.asarray(Image.open(io.BytesIO(row["input"]["bytes"])), dtype=np.float32)[None, None]
            / 255
        )
        exact = arrays[f"{row['sample_id']}/{row['level']:g}/input"]
        assert np.allclose(picture[0], exact, atol=1e-7) and row["prediction"] == row["level"]
        assert row["prediction"] == logits(torch.from_numpy(exact)[None]).argmax(1).item()


def test_card_and_manifest(benchmark_set, work):
    card = (benchmark_set / "README.md").read_text()
    assert (
        card.startswith("---\nlicense: unknown\n")
        and str(work) not in card
        and "| 40 | 0 | 11 | – |" in card
    )
    assert (
        "**11 of the 11 samples that the agent distorted have an input" in card
        and "| misclassified | 1 |" in card
    )
    manifest = json.loads((benchmark_set / "manifest.json").read_text())
    assert manifest["facts"]["levels"] == [1, 2, 40]
    assert len([name for name in manifest["files"] if name.startswith(("data/", "arrays/"))]) == 6


# Read back


def test_the_datasets_library_loads_it(benchmark_set, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    loaded = datasets.load_dataset(str(benchmark_set), cache_dir=str(tmp_path))
    assert list(loaded) == ["test"] and len(loaded["test"]) == len(rows_of(benchmark_set)) == 44
    features, arrays = loaded["test"].features, arrays_of(benchmark_set)
    assert features["label"].names == ["dark", "bright", "dim"] and isinstance(
        features["input"], datasets.Image
    )
    for row in loaded["test"]:
        if row["reached"]:
            exact = arrays[f"{row['sample_id']}/{row['level']:g}/input"]
            assert np.array_equal(
                np.asarray(row["input"]), np.rint(exact[0].astype(np.float64) * 255)
            )
            assert np.array_equal(
                np.asarray(row["mask"]) > 0, arrays[f"{row['sample_id']}/{row['level']:g}/mask"][0]
            )
    samples = datasets.load_dataset(
        str(benchmark_set), "samples", split="test", cache_dir=str(tmp_path)
    )
    assert samples["outcome"].count("reached") == 11


def test_an_audit_reads_it(benchmark_set, work, tmp_path, capsys, subtests):
    for number, (level, count) in enumerate([("adversarial", 11), ("clean", 11), ("2", 11)]):
        with subtests.test(str(level)):
            folder = tmp_path / str(number)
            folder.mkdir()
            model = f"torch:{work / 'model.py'}:model"
            data = f"bench:{benchmark_set}?level={level}"
            assert (
                cli(
                    [
                        "audit",
                        "--data",
                        data,
                        "--model",
                        model,
                        "--eps",
                        "0",
                        "--out",
                        str(folder / "run"),
                        "--json",
                    ]
                )
                == 0
            )
            answer = json.loads(capsys.readouterr().out)
            assert answer["n"] == count and answer["models"][0]["clean_accuracy"]["k"] == (
                11 if level == "clean" else 0
            )


def test_as_a_data_set(benchmark_set):
    for level, number in (("adversarial", "1"), ("clean", "0"), ("2", "2")):
        data = plugins.build("dataset", "bench", {"path": str(benchmark_set), "level": level})()
        check_dataset(data)
        expected = np.stack(
            [arrays_of(benchmark_set)[f"{sample}/{number}/input"] for sample in (0, 4)]
        )
        assert torch.equal(data.load([0, 3]), torch.from_numpy(expected)) and data.classes == (
            "dark",
            "bright",
            "dim",
        )


A_LEVEL_THAT_IS_NOT_THERE = [
    ({"level": "3"}, "the set has no level '3'; it holds clean, adversarial, 2, 40"),
    ({"level": "most"}, "the set has no level 'most'"),
    ({"level": "40"}, "holds no input at level 40"),
]


def test_a_level_that_is_not_there(benchmark_set, subtests):
    for options, message in A_LEVEL_THAT_IS_NOT_THERE:
        with subtests.test(str(message)):
            with pytest.raises(RequestError, match=message):
                plugins.build("dataset", "bench", {"path": str(benchmark_set)} | options)()


def test_what_is_no_set(benchmark_set, tmp_path):
    def open_set():
        return plugins.build("dataset", "bench", {"path": str(tmp_path / "set")})()

    (tmp_path / "set").mkdir()
    with pytest.raises(RequestError, match="is no finished benchmark set: it has no manifest.json"):
        open_set()
    shutil.copytree(benchmark_set, tmp_path / "set", dirs_exist_ok=True)
    data, array = open_set(), next((tmp_path / "set" / "arrays").glob("*"))
    array.write_bytes(array.read_bytes()[:-9])
    with pytest.raises(RequestError, check=refused("datasets.bench._tensor")):
        data.load(range(len(data)))
    for file in (array, next((tmp_path / "set" / "data").glob("*"))):
        shutil.copytree(benchmark_set, tmp_path / "set", dirs_exist_ok=True)
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(bytes(content))
        with pytest.raises(
            RequestError, match=f"{file.name} is not what the manifest of its set says"
        ):
            open_set()
    shutil.copytree(benchmark_set, tmp_path / "set", dirs_exist_ok=True)
    array.unlink()
    with pytest.raises(RequestError, match=f"{array.name} is missing, which its manifest lists"):
        open_set()


OTHER_KINDS = [("vector", (6,)), ("signal", (2, 6)), ("video", (1, 2, 3, 3))]


def test_other_kinds_in_their_own_units(tmp_path, monkeypatch, subtests):
    """Values from -2 to 3 are stored as plain lists."""
    for number, (kind, shape) in enumerate(OTHER_KINDS):
        with subtests.test(str(kind)):
            folder = tmp_path / str(number)
            folder.mkdir()
            monkeypatch.setenv("HF_HUB_OFFLINE", "1")
            domain = Domain(kind=kind, shape=shape, low=-2.0, high=3.0)
            x = np.random.default_rng(2).uniform(-0.3, 0.4, (3, *shape)).astype(np.float32)
            model = Recorder(lambda x: logits((x + 2) / 5), domain, classes=3)
            data = from_arrays(x, np.zeros(3), domain=domain)
            brinell.benchmark(
                model,
                data,
                out=folder / "set",
                patch=1,
                distortions="gaussian-noise",
                levels="1.5",
                refine=10,
            )
            rows = rows_of(folder / "set")
            assert [row["level"] for row in rows] == [0, 1, 1.5] * 3
            arrays = arrays_of(folder / "set")
            for row in rows:
                exact = arrays[f"{row['sample_id']}/{row['level']:g}/input"]
                assert (
                    row["input"] == pytest.approx(exact.ravel().tolist())
                    and exact.min() >= -2
                    and exact.max() <= 3
                )
                assert row["mask"] == (exact != x[row["sample_id"]]).ravel().tolist()
            check_dataset(
                plugins.build("dataset", "bench", {"path": str(folder / "set"), "level": "1.5"})()
            )


# Goals


def test_the_true_class_below_a_probability(work, tmp_path):
    assert (
        cli(benchmark_arguments(work, tmp_path / "set", "--criterion", "true<0.2", levels="1")) == 0
    )
    examples = [row for row in rows_of(tmp_path / "set") if row["level"] == 1]
    assert len(examples) == 11 and all(
        0.15 < row["true_probability"] < 0.2 and row["adversarial"] for row in examples
    )
    clause = brinell.open(tmp_path / "set").facts.criterion
    assert clause == "the model is wrong, and the probability of the true class falls below 0.2"


def test_a_false_positive(work, tmp_path):
    assert (
        cli(
            benchmark_arguments(
                work, tmp_path / "set", "--criterion", "class=bright>0.9", levels="1"
            )
        )
        == 0
    )
    examples = [row for row in rows_of(tmp_path / "set") if row["level"] == 1]
    assert len(examples) == 11 and all(
        row["prediction"] == 1 and 0.9 < row["confidence"] < 0.95 for row in examples
    )
    card = (tmp_path / "set" / "README.md").read_text()
    assert (
        "an input at which the probability of class bright, which is not the true one, exceeds 0.9"
        in card
    )


def test_samples_of_the_class_itself_and_those_that_are_there_already(tmp_path):
    x = np.full((3, 1, 5, 5), 0.3, dtype=np.float32)
    x[1], x[2] = 0.7, 0.49
    model = Recorder(logits, PIXELS, classes=3)
    data = from_arrays(x, np.array([0, 1, 0]), domain=PIXELS)
    result = brinell.benchmark(
        model, data, out=tmp_path / "set", criterion="class=1>0.2", patch=1, refine=0
    )
    assert [row["outcome"] for row in rows_of(tmp_path / "set", "rows.parquet")] == [
        "reached",
        "own_class",
        "already",
    ]
    assert result.outcomes["own_class"] == result.outcomes["already"] == 1


def test_a_cap_that_no_example_fits(work, tmp_path, capsys):
    assert cli(benchmark_arguments(work, tmp_path / "set", "--eps", "0.01", "--json")) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (
        answer["outcomes"]["not_reached"] == 11
        and answer["median_l2"] is None
        and answer["levels"][1]["inputs"] == 0
    )
    assert rows_of(tmp_path / "set") == [] and len(rows_of(tmp_path / "set", "rows.parquet")) == 12


# The command line


BAD_INPUT_BEFORE_ANY_QUERY = [
    (["--criterion", "true<1.5"], "criterion 'true<1.5' needs a probability between 0 and 1"),
    (
        ["--criterion", "class=bright>0"],
        "criterion 'class=bright>0' needs a probability between 0 and 1",
    ),
    (["--criterion", "top2"], "is for brinell audit"),
    (["--criterion", "class=bright"], "criterion 'class=bright' is not known"),
    (["--criterion", "class=7>0.5"], "there is no class 7: model model has the classes 0 to 2"),
    (["--criterion", "class=brigt>0.5"], "there is no class 'brigt', did you mean 'bright'?"),
    (["--patch", "6"], "patch (6, 6) does not fit an input of shape (1, 5, 5)"),
    (["--levels", "0.5"], "levels is '0.5': write multiples"),
    (["--levels", "much"], "levels is 'much': write multiples"),
    (["--eps", "0:1:3"], "write one budget above 0"),
    (["--samples", "13"], "samples is 13, and data has 12"),
    (["--policy", "no.safetensors"], "is no policy"),
    (["--distortions", "FILE:Random"], "gave two answers to the same input"),
    (["--distortions", "FILE:Flat"], "it must keep shape and type"),
    (["--distortions", "FILE:Nan"], "answered NaN or infinity"),
    (["--distortions", "FILE:Out"], "left the bounds by"),
    (
        ["--distortions", "gaussian-noize"],
        "there is no distortion 'gaussian-noize', did you mean 'gaussian-noise'?",
    ),
]


@pytest.mark.slow
def test_bad_input_before_any_query(work, tmp_path, capsys, monkeypatch, subtests):
    for number, (options, message) in enumerate(BAD_INPUT_BEFORE_ANY_QUERY):
        with subtests.test(str(message)):
            folder = tmp_path / str(number)
            folder.mkdir()
            monkeypatch.setenv("TEST_CALLS", "0")
            options = [word.replace("FILE", str(work / "distortions.py")) for word in options]
            assert cli(benchmark_arguments(work, folder / "set", *options)) == 2
            out, err = capsys.readouterr()
            assert (
                out == ""
                and err.count("\n") == 1
                and err.startswith("brinell: error: ")
                and message in err
            )
            # Opening a module queries it with one input, which reveals its number of classes; a
            # refusal opens it once more, to list all mistakes at once.
            assert os.environ["TEST_CALLS"] in ("0", "1", "2") and not (folder / "set").exists()


def test_labels_are_not_enough(tmp_path):
    model = Recorder(logits, PIXELS, classes=3)
    model.access = Access.LABELS
    data = from_arrays(np.full((2, 1, 5, 5), 0.3, dtype=np.float32), np.zeros(2), domain=PIXELS)
    with pytest.raises(BrinellError, match="answers labels only, but the agent needs scores"):
        brinell.benchmark(model, data, out=tmp_path / "set")
    assert model.queries == 0


@pytest.mark.slow
def test_a_manifest_of_another_form(benchmark_set, tmp_path):
    file = shutil.copytree(benchmark_set, tmp_path / "set") / "manifest.json"
    study = register.load("benchmark")

    def read():
        study.layout.open(tmp_path / "set")
        plugins.build("dataset", "bench", {"path": str(tmp_path / "set")})().load([0])

    read()
    assert count_refused(40, file, read) > 20
