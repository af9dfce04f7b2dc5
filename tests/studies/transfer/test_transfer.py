"""Transfer between models whose margins are known, from made examples, runs and benchmark sets; figures by hand; bad input."""

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch

import brinell
from _browser import check_everywhere, chromium
from _helpers import Recorder, audited, threshold
from brinell.analysis.stats import holm, mcnemar, paired_difference
from brinell.cli import run as cli
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.store import rows
from brinell.store.files import read_arrays
from brinell.store.folder import MANIFEST
from brinell.store.table import Folder
from brinell.studies.transfer.analysis import summarise
from brinell.studies.transfer.examples import Ensemble
from brinell.studies.transfer.page import render, write
from brinell.studies.transfer.plan import make_plan
from brinell.studies.transfer.records import TABLE, Answers
from brinell.studies.transfer.request import TransferRequest
from brinell.studies.transfer.words import reading

# The first value decides, at 0.5 (near) and at 0.6 (far): margins of class 0 are 0.12, 0.02, 0.30, wrong, 0.19.
X = np.array([[0.38, 0.1], [0.48, 0.3], [0.20, 0.5], [0.55, 0.7], [0.31, 0.9]], dtype=np.float32)
Y = np.zeros(5, dtype=int)


def near():
    return Recorder(threshold(0.5), name="near")


def far():
    return Recorder(threshold(0.6), name="far")


def other(name="other"):
    """A model that looks at the second value, which no example moves in a way that fools it."""
    return Recorder(lambda x: torch.stack([0 * x[:, 1] + 1, 0.001 * x[:, 1]], 1), name=name)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return brinell.transfer(
        model=[near(), far(), other()], data=(X, Y), eps=0.15, draws=200, out=tmp_path_factory.mktemp("made") / "t"
    )


def cell(result, source, model):
    return next(one for one in result.cells if (one.source, one.model) == (source, model))


def test_the_matrix_by_hand(made):
    """Every example is moved by 0.15 along the first value: near errs above 0.5, far above 0.6."""
    ends = {"near": [0.53, 0.63, 0.35, 0.70, 0.46], "far": [0.53, 0.63, 0.35, 0.70, 0.46]}
    for source, at in ends.items():
        for model, limit in (("near", 0.5), ("far", 0.6)):
            one = cell(made, source, model)
            assert one.accuracy.k == sum(value < limit for value in at) and one.accuracy.n == 5
    assert cell(made, "near", "near").white_box and not cell(made, "near", "far").white_box
    # Near is wrong on the fourth sample from the start, so four count; of these near errs on two and far on one.
    assert (cell(made, "near", "near").success.k, cell(made, "near", "near").success.n) == (2, 4)
    assert (cell(made, "near", "far").success.k, cell(made, "near", "far").success.n) == (1, 4)
    assert (cell(made, "far", "far").success.k, cell(made, "far", "far").success.n) == (2, 5)
    assert (cell(made, "far", "near").success.k, cell(made, "far", "near").success.n) == (2, 4)
    assert cell(made, "near", "other").success.k == 0
    # The other model's examples move the second value alone, so that they fool nobody.
    assert cell(made, "other", "near").accuracy.k == cell(made, "other", "near").clean.k == 4
    (source,) = (one for one in made.sources if one.name == "near")
    assert source.success == pytest.approx((1 / 4 + 0) / 2) and source.least == 0
    assert source.max_linf == pytest.approx(0.15, abs=1e-6)


def test_paired_differences(made):
    one = cell(made, "near", "far")
    assert one.difference == pytest.approx(-0.4) and one.clean.k == 5
    assert (one.low, one.high) == pytest.approx(paired_difference(3, 0, 2, 0))
    raw = [mcnemar(0, c.clean.k - c.accuracy.k) for c in made.cells]
    assert [c.p for c in made.cells] == pytest.approx(holm(raw))


def test_per_class_adds_up(made):
    for one in made.cells:
        assert sum(c.accuracy.k for c in one.per_class) == one.accuracy.k
        assert sum(c.success.n for c in one.per_class) == one.success.n
        assert one.per_distortion == []


def test_places_and_words(made):
    places = {one.name: one.rank.rank for one in made.sources}
    assert places["other"] == 3 and sorted(places.values()) == [1, 2, 3]
    assert all(one.rank.low <= one.rank.rank <= one.rank.high for one in made.sources)
    said = " ".join(reading(made))
    assert "far is the best source" in said and "Examples made on others succeed least on other (0.0" in said


def test_the_folder_holds_what_the_figures_are_made_of(made, tmp_path):
    transfer = TABLE.read(made.folder)
    assert summarise(transfer) == made
    assert len(transfer.rows) == 3 * 3 * 5
    held = read_arrays(transfer.path / "examples" / "000.safetensors")
    assert np.abs(held["0"] - X[0]).max() == pytest.approx(0.15, abs=1e-6)
    assert (transfer.path / "tables" / "cells.csv").read_text().count("\n") == 1 + 9 * 2
    html = render(made)
    assert Path(brinell.report(made)).read_text() == html, "brinell report writes it again"
    assert "http:" not in html and html.count(' own"') == 3
    with pytest.raises(RequestError, match="holds a transfer: add resume=True to go on with it, or choose another out="):
        brinell.transfer(model=[near(), far()], data=(X, Y), eps=0.15, out=made.folder)
    with pytest.raises(RequestError, match="is no transfer folder"):
        TABLE.read(tmp_path)


def test_no_more_passes_than_needed(tmp_path):
    """Each model sees each clean input once and each example once; the attack what it says that it costs."""
    models = [near(), far()]
    for one in models:
        one.info = type(one.info)(answers="logits")
    result = brinell.transfer(model=models, data=(X, Y), eps=0.15, attack="mi-fgsm?steps=4", draws=100, out=tmp_path / "t")
    assert result.passes == 2 * (5 + 2 * 5)
    assert sum(one.seen for one in models) == result.passes + 2 * 5 * 5
    assert [(one.forwards, one.backwards) for one in result.sources] == [(25, 20)] * 2


def test_models_attacked_as_one(tmp_path):
    result = brinell.transfer(
        ["near+far", "far"], model=[near(), far(), other()], data=(X, Y), eps=0.15, draws=100, out=tmp_path / "t"
    )
    both = next(one for one in result.sources if one.name == "near+far")
    assert both.white_box == ["near", "far"] and cell(result, "near+far", "near").white_box
    x = torch.tensor(X)
    assert torch.allclose(Ensemble([near(), far()]).predict(x), (near().predict(x) + far().predict(x)) / 2)
    three = Recorder(lambda x: x[:, :1].repeat(1, 3), classes=3, name="three")
    with pytest.raises(RequestError, match="different numbers of classes.*near 2, three 3"):
        Ensemble([near(), three])


def test_minimal_attacks_give_the_closest(tmp_path):
    result = brinell.transfer(
        "near", model=[near(), far()], data=(X, Y), eps=0.15, attack="deepfool", norm="l2", draws=100, out=tmp_path / "t"
    )
    answers = TABLE.read(result.folder).rows
    mine = rows.take(answers, answers.model == "near")
    assert mine.l2[0] == pytest.approx(0.12, abs=0.01) and mine.l2[1] == pytest.approx(0.02, abs=0.01)
    assert cell(result, "near", "near").success.k == 2 and cell(result, "near", "far").success.k == 0


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "audit"
    return audited(folder, near(), X, Y, eps="0,0.05,0.15", attack=("fgsm", "pgd?steps=3"))


def test_examples_of_a_run(run, tmp_path):
    result = brinell.transfer(run.path, model=[near(), far()], data=(X, Y), eps=0.15, draws=100, out=tmp_path / "t")
    (source,) = result.sources
    assert (source.name, source.kind, source.n, source.missing) == ("audit/near", "run", 2, 3)
    assert source.white_box == ["near"] and source.rank is None
    assert cell(result, "audit/near", "near").accuracy.k == 0
    assert any("3 of its 5 samples have no example" in note for note in result.notes)
    small = brinell.transfer(run.path, model=[near(), far()], data=(X, Y), eps=0.05, draws=100, out=tmp_path / "s")
    assert small.sources[0].n == 1
    with pytest.raises(RequestError, match="is not the data of .*audit"):
        brinell.transfer(run.path, model=near(), data=(X + 0.01, Y), eps=0.15, out=tmp_path / "u")
    with pytest.raises(RequestError, match="measures eps in linf, not in l2"):
        brinell.transfer(run.path, model=near(), data=(X, Y), norm="l2", eps=0.15, out=tmp_path / "u")
    with pytest.raises(RequestError, match="no adversarial example of near within 0.001"):
        brinell.transfer(run.path, model=near(), data=(X, Y), eps=0.001, out=tmp_path / "u")


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench") / "set"
    words = ["--distortions", "dead-pixel+occlusion", "--samples", "6", "--steps", "100", "--refine", "5", "--levels", "1,2"]
    assert cli(["benchmark", "--model", "digits-cnn?width=4", *words, "--out", str(out)]) == 0
    return out


def test_examples_of_a_benchmark_set(bench, tmp_path, capsys, root):
    models = ["--model", "digits-cnn?width=4", "--model", "digits-cnn?width=4&seed=1"]
    capsys.readouterr()
    assert cli(["transfer", str(bench), *models, "--draws", "100", "--out", str(tmp_path / "t"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    jsonschema.validate(answer, json.loads((root / "docs/schema/transfer.json").read_text()))
    assert [one["name"] for one in answer["sources"]] == ["set x1", "set x2"]
    assert answer["sources"][0]["white_box"] == ["digits-cnn-w4"] and answer["sources"][0]["level"] == 1
    own = [one for one in answer["cells"] if one["white_box"]]
    # At its own level each example of the set fools the model that it was made on, whose clean inputs were right.
    assert own[0]["accuracy"]["k"] == 0 and own[0]["success"]["value"] == 1 and own[0]["clean"]["value"] == 1
    assert own[0]["per_distortion"] and sum(d["accuracy"]["n"] for d in own[0]["per_distortion"]) == own[0]["accuracy"]["n"]
    assert {"source", "model", "accuracy", "success"} <= set(answer["cells"][0])


def test_bad_input(bench, run, tmp_path, capsys):
    digits = ["--model", "digits-cnn?width=4"]
    for words, message in (
        ([*digits, *digits], "two models are called 'digits-cnn-w4'"),
        (["nosuch", *digits], "source 'nosuch' is neither a model named by --model nor the folder"),
        ([*digits, "--eps", "0.1,0.2"], "a transfer has one budget"),
        ([*digits, "--eps", "0"], "examples at budget 0 are the clean inputs"),
        ([*digits, "--attack", "fast"], "attack is fast, which is a cascade"),
        ([*digits, "--attack", "mi-fgsm?kernel=9"], "kernel is 9, larger than inputs of shape"),
        ([*digits, "--norm", "l1"], "works in l2, linf, not in l1"),
        ([*digits, "--samples", "9999"], "ask for that many at most"),
        ([str(run.path), *digits], "is not the data of"),
    ):
        assert cli(["transfer", *words, "--out", str(tmp_path / "t")]) == 2, words
        assert message in capsys.readouterr().err, words
    assert not (tmp_path / "t" / MANIFEST).exists()
    vector = Domain(kind="vector", shape=(2,))
    with pytest.raises(RequestError, match=r"holds images of shape \(1, 8, 8\).*asked about vectors"):
        brinell.transfer(bench, model=near(), data=(X, Y), eps=0.1, out=tmp_path / "t")
    with pytest.raises(RequestError, match="needs models: name them by --model"):
        make_plan(TransferRequest(eps="0.1"), dataset=brinell.data(X, Y))
    labels_only = Recorder(threshold(0.5), vector, name="labels")
    labels_only.access = brinell.core.model.Access.LABELS
    with pytest.raises(RequestError, match="needs gradients, and labels gives labels only: name the sources"):
        brinell.transfer(model=[near(), labels_only], data=(X, Y), eps=0.1, out=tmp_path / "t")
    shown = brinell.transfer("near", model=[near(), labels_only], data=(X, Y), eps=0.1, draws=100, out=tmp_path / "u")
    assert [one.model for one in shown.models] == ["near", "labels"] and len(shown.cells) == 2


def test_a_source_without_rows_has_no_figures(tmp_path):
    facts = {
        "request": {"draws": 100, "seed": 0},
        "data": {"name": "d", "classes": ["a"]},
        "distance": "linf",
        "eps": 0.1,
        "eps_text": "0.1",
        "attack": None,
        "sources": [
            {"name": "s", "kind": "set", "members": ["m"], "white_box": [], "level": 1.0, "n": 0, "missing": 3}
            | {"forwards": 0, "backwards": 0, "seconds": 0.0}
        ],
        "models": [{"name": "m"}],
        "passes": 0,
        "seconds": 0.0,
    }
    empty = {name: [] for name in ("sample_id", "label", "linf", "l2", "clean_pred", "pred", "source", "model", "distortion")}
    result = summarise(Folder(path=tmp_path, manifest=facts, rows=rows.build(Answers, 0, **empty)))
    assert result.cells[0].accuracy.value is None and result.sources[0].success is None


@pytest.mark.browser
def test_the_page_in_a_browser(made, tmp_path):
    twelve = [near(), far(), *(other(f"another-model-{number}") for number in range(10))]
    many = brinell.transfer(model=twelve, data=(X, Y), eps=0.15, draws=200, out=tmp_path / "t")
    with chromium() as browser:
        check_everywhere(browser, write(made.folder))
        check_everywhere(browser, write(many.folder))
