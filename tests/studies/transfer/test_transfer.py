"""Transfer between models with known margins, from made examples and benchmark sets; expected
figures; bad input.
"""

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import numpy as np
import pytest
import torch

import brinell
from _browser import check_everywhere, chromium
from _helpers import Recorder, threshold
from _refusals import refused
from brinell.analysis.inference import holm
from brinell.cli import run as cli
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.engine.surrogates import mean_of
from brinell.store import rows
from brinell.store.files import read_arrays
from brinell.store.folder import MANIFEST
from brinell.store.table import Folder
from brinell.studies.transfer import STUDY, TransferRequest
from brinell.studies.transfer.result import (
    TransferResult,
    budget,
    compare_cells,
    rank_by,
    sentences,
    statements_of,
    summarise,
)
from brinell.studies.transfer.rows import ExampleRows, SourceFacts, TransferFacts

TABLE = STUDY.table()
# The first value decides the class, with a threshold of 0.5 (near) or 0.6 (far). Margins of near:
# 0.12, 0.02, 0.30, wrong, 0.19.
X = np.array([[0.38, 0.1], [0.48, 0.3], [0.20, 0.5], [0.55, 0.7], [0.31, 0.9]], dtype=np.float32)
Y = np.zeros(5, dtype=int)


def near_model():
    return Recorder(threshold(0.5), name="near")


def far_model():
    return Recorder(threshold(0.6), name="far")


def unrelated(name="other"):
    """A model that depends on the second value; no example changes its prediction."""
    return Recorder(lambda x: torch.stack([0 * x[:, 1] + 1, 0.001 * x[:, 1]], 1), name=name)


@pytest.fixture(scope="module")
def transfer_result(tmp_path_factory):
    return brinell.transfer(
        model=[near_model(), far_model(), unrelated()],
        data=(X, Y),
        eps=0.15,
        out=tmp_path_factory.mktemp("made") / "t",
    )


def cell(result, source, model):
    return next(entry for entry in result.cells if (entry.source, entry.model) == (source, model))


def test_the_matrix_by_hand(transfer_result):
    """Every example changes the first value by 0.15: near errs above 0.5, far above 0.6."""
    ends = {"near": [0.53, 0.63, 0.35, 0.70, 0.46], "far": [0.53, 0.63, 0.35, 0.70, 0.46]}
    for source, values in ends.items():
        for model, limit in (("near", 0.5), ("far", 0.6)):
            entry = cell(transfer_result, source, model)
            assert (
                entry.accuracy.k == sum(value < limit for value in values) and entry.accuracy.n == 5
            )
    assert (
        cell(transfer_result, "near", "near").white_box
        and not cell(transfer_result, "near", "far").white_box
    )
    # Near misclassifies the clean fourth sample, so four samples count; of these, near errs on two
    # and far on one.
    assert (
        cell(transfer_result, "near", "near").success.k,
        cell(transfer_result, "near", "near").success.n,
    ) == (2, 4)
    assert (
        cell(transfer_result, "near", "far").success.k,
        cell(transfer_result, "near", "far").success.n,
    ) == (1, 4)
    assert (
        cell(transfer_result, "far", "far").success.k,
        cell(transfer_result, "far", "far").success.n,
    ) == (2, 5)
    assert (
        cell(transfer_result, "far", "near").success.k,
        cell(transfer_result, "far", "near").success.n,
    ) == (2, 4)
    assert cell(transfer_result, "near", "other").success.k == 0
    # The unrelated model's examples change only the second value, so no model errs on them.
    assert (
        cell(transfer_result, "other", "near").accuracy.k
        == cell(transfer_result, "other", "near").clean.k
        == 4
    )
    (source,) = (entry for entry in transfer_result.sources if entry.name == "near")
    assert source.success == pytest.approx((1 / 4 + 0) / 2)
    assert source.max_linf == pytest.approx(0.15, abs=1e-6)


def test_places_and_words(transfer_result):
    places = {source.name: source.rank.value for source in transfer_result.sources}
    assert places == {"near": 1.5, "far": 1.5, "other": 3}, (
        "near and far fail alike on other, the only target that they share"
    )
    assert all(
        source.rank.low <= source.rank.value <= source.rank.high
        for source in transfer_result.sources
    )
    text = " ".join(sentences(transfer_result))
    assert "far has the highest success" in text and "may be as high" in text, (
        "five samples tell no source from another"
    )
    assert "Examples made on other models succeed on 0.0" in text


def test_two_models_share_no_target_and_have_no_order(tmp_path):
    """Fifty samples on which only one model is fooled: the cells differ beyond doubt, and no
    sentence ranks their sources.
    """
    x = np.tile(np.array([[0.45, 0.5]], dtype=np.float32), (50, 1))
    result = brinell.transfer(
        model=[near_model(), unrelated()], data=(x, np.zeros(50, int)), eps=0.15, out=tmp_path / "t"
    )
    assert all(entry.rank is None and not entry.rivals for entry in result.sources)
    text = " ".join(sentences(result))
    assert (
        "No order of the sources is shown" in text
        and "share no target" in text
        and "Add a model" in text
    )
    assert not any(word in text for word in ("best", " least ", "highest"))


def below(compare):
    """The comparisons of each object with those before it."""
    return [row[:index] for index, row in enumerate(compare)]


def test_ranks_are_those_of_paired_comparisons():
    """Property: the rivals of a source are those whose paired, corrected comparison with it shows
    nothing.
    """
    for seed in range(20):
        rng = np.random.default_rng(seed)
        everything = np.ones(60, dtype=bool)
        values = [rng.random(60) < rate for rate in rng.choice([0.2, 0.3, 0.8], 3)]
        compare = [
            [compare_cells([((everything, a), (everything, b))]) for b in values] for a in values
        ]
        ranks = rank_by("abc", below(compare))
        p = {(i, j): compare[i][j][1] for i, j in ((1, 0), (2, 0), (2, 1))}
        corrected = dict(zip(p, holm(list(p.values())), strict=True))
        means = [float(value.mean()) for value in values]
        for number, name in enumerate("abc"):
            place, rivals = ranks[name]
            assert {"abc".index(rival) for rival in rivals} == {
                sum(pair) - number
                for pair, value in corrected.items()
                if number in pair and value > 0.05
            }
            assert (
                place.value
                == sum(mean > means[number] for mean in means)
                + (means.count(means[number]) + 1) / 2
            )
            assert place.low <= place.value <= place.high and place.high - place.low == len(rivals)
        compare[2][0] = None
        assert not rank_by("abc", below(compare)), "an order needs all pairs"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("samples", "eligible", "rate"),
    [(40, 0.1, 0.5), (40, 1.0, 0.1), (20, 0.9, 0.4), (100, 0.5, 0.05), (100, 1, 0.5)],
)
@pytest.mark.parametrize("targets", [1, 3])
def test_sources_that_succeed_alike_are_told_apart_in_at_most_6_percent(
    samples, eligible, rate, targets
):
    """The null: three sources of one rate; a sample's targets fail together, as networks of one
    training set do.
    """
    rng, trials, claims = np.random.default_rng(samples), 400, 0
    for _ in range(trials):
        cells = [
            [
                (
                    rng.random(samples) < eligible,
                    (own := rng.random(samples) < rate) ^ (rng.random(samples) < 0.1) & own,
                )
                for _ in range(targets)
            ]
            for _ in range(3)
        ]
        compare = [[compare_cells(list(zip(a, b, strict=True))) for b in cells] for a in cells]
        ranks = rank_by("abc", below(compare))
        claims += any(len(rivals) < 2 for _, rivals in ranks.values())
    assert claims <= 0.06 * trials


def test_the_source_that_is_named_is_first_by_the_paired_comparisons():
    """Means are over different models and samples, so the largest one alone names nobody."""
    rng = np.random.default_rng(0)
    named = 0
    for _ in range(200):
        table = rng.integers(-2, 3, (3, 3))
        comparisons = [
            [(float(table[a, b]), rng.choice([1e-4, 0.9])) for b in range(a)] for a in range(3)
        ]
        sources = [
            SimpleNamespace(name=name, rank=rank, rivals=rivals, success=rng.random(), n=9)
            for name, (rank, rivals) in rank_by("abc", comparisons).items()
        ]
        for statement in statements_of(sources, "0.1"):
            named += 1
            (first,) = [s for s in sources if s.name == statement.subjects[0].name]
            assert first.rank.value == min(source.rank.value for source in sources)
            assert statement.supported == (first.rank.high == 1)
            assert statement.supported == (not statement.rivals)
    assert 20 < named < 180


def test_few_discordant_samples_tell_no_source_apart():
    """However many samples count, those on which two sources agree are no evidence: the p-value is
    at least the sign test's.
    """
    for discordant, concordant in itertools.product((1, 3, 5), (0, 35)):
        eligible, success = np.arange(60) < discordant + concordant, np.arange(60) < discordant
        difference, p = compare_cells([((eligible, success), (eligible, np.zeros(60, dtype=bool)))])
        assert (
            difference == pytest.approx(discordant / (discordant + concordant))
            and p >= 2.0 ** (1 - discordant) - 1e-12
        )
        assert compare_cells([((eligible & False, success), (eligible, success))]) is None


def test_the_folder_holds_what_the_figures_are_made_of(transfer_result, tmp_path):
    transfer = TABLE.read(transfer_result.folder)
    assert STUDY.open(Path(transfer_result.folder)) == transfer_result
    assert len(transfer.rows) == 3 * 3 * 5
    arrays = read_arrays(transfer.path / "examples" / "000-00000000.safetensors")
    assert np.abs(arrays["x"][0] - X[0]).max() == pytest.approx(0.15, abs=1e-6)
    assert (transfer.path / "tables" / "cells.csv").read_text().count("\n") == 1 + 9
    page = (transfer.path / "report.html").read_text()
    assert Path(brinell.report(transfer_result)).read_text() == page, (
        "brinell report writes the same page"
    )
    assert "http:" not in page and page.count("white-box</small>") == 6
    with pytest.raises(
        RequestError,
        match="holds a transfer study: add --resume to go on with it, or choose another --out",
    ):
        brinell.transfer(
            model=[near_model(), far_model()], data=(X, Y), eps=0.15, out=transfer_result.folder
        )
    with pytest.raises(RequestError, match="is no transfer study folder"):
        TABLE.read(tmp_path)


def test_no_more_passes_than_needed(tmp_path):
    """Each model predicts each clean input and each example once; the attack and the check of clean
    accuracy add the costs that they report.
    """
    models = [near_model(), far_model()]
    for model in models:
        model.info = type(model.info)(answers="logits")
    result = brinell.transfer(
        model=models, data=(X, Y), eps=0.15, attack="mi-fgsm?steps=4", out=tmp_path / "t"
    )
    checks = [cost["forwards"] for cost in result.manifest["probes"].values()]
    assert len(checks) == 2 and min(checks) >= 5
    asked = sum(model.queries for model in models)
    assert asked == sum(checks) + 2 * (5 + 2 * 5) + 2 * 5 * 5
    assert [(source.forwards, source.backwards) for source in result.sources] == [(25, 20)] * 2


def test_models_attacked_as_one(tmp_path):
    result = brinell.transfer(
        ["near+far", "far"],
        model=[near_model(), far_model(), unrelated()],
        data=(X, Y),
        eps=0.15,
        out=tmp_path / "t",
    )
    ensemble = next(source for source in result.sources if source.name == "near+far")
    assert ensemble.n == 5 and cell(result, "near+far", "near").white_box
    x = torch.tensor(X)
    assert torch.allclose(
        mean_of([near_model(), far_model()]).predict(x),
        (near_model().predict(x) + far_model().predict(x)) / 2,
    )
    three = Recorder(lambda x: x[:, :1].repeat(1, 3), classes=3, name="three")
    with pytest.raises(RequestError, check=refused("engine.surrogates.MeanModel.__init__")):
        mean_of([near_model(), three])


def test_minimal_attacks_give_the_closest(tmp_path):
    result = brinell.transfer(
        "near",
        model=[near_model(), far_model()],
        data=(X, Y),
        eps=0.15,
        attack="ddn",
        norm="l2",
        out=tmp_path / "t",
    )
    answers = TABLE.read(result.folder).rows
    near_answers = rows.take(answers, answers.model == "near")
    assert near_answers.l2[0] == pytest.approx(0.12, abs=0.01) and near_answers.l2[
        1
    ] == pytest.approx(0.02, abs=0.01)
    assert (
        cell(result, "near", "near").success.k == 2 and cell(result, "near", "far").success.k == 0
    )


def test_examples_of_a_benchmark_set(benchmark_run, patterns, tmp_path, capsys, root):
    models = [argument for model in patterns.models for argument in ("--model", model)]
    assert (
        cli(["transfer", str(benchmark_run), *models, "--out", str(tmp_path / "t"), "--json"]) == 0
    )
    answer = json.loads(capsys.readouterr().out)
    largest = max(source["max_linf"] for source in answer["sources"])
    assert (
        budget(TransferResult.model_validate(answer))
        == f"benchmark sets with changes up to {largest:.3g} in Linf"
    )
    jsonschema.validate(answer, json.loads((root / "docs/schema/transfer.json").read_text()))
    assert [source["name"] for source in answer["sources"]] == ["run x1", "run x2"]
    facts = answer["facts"]["sources"][0]
    assert facts["white_box"] == ["patterns"] and facts["level"] == 1
    white_box = [entry for entry in answer["cells"] if entry["white_box"]]
    # At level 1, the model that the set was made on misclassifies each example and classifies each
    # clean input correctly.
    assert (
        white_box[0]["accuracy"]["k"] == 0
        and white_box[0]["success"]["value"] == 1
        and white_box[0]["clean"]["value"] == 1
    )
    assert white_box[0]["accuracy"]["n"] > 0
    assert {"source", "model", "accuracy", "success"} <= set(answer["cells"][0])


def test_bad_input(benchmark_run, tmp_path, capsys):
    digits = ["--model", "digits-cnn?width=4"]
    for arguments, message in (
        ([*digits, *digits], "two models are called 'digits-cnn-w4'"),
        (
            ["nosuch", *digits],
            "source 'nosuch' is neither a model named with --model nor the folder",
        ),
        ([*digits, "--eps", "0.1,0.2"], "a transfer has one budget"),
        ([*digits, "--criterion", "true<0.1"], "--criterion is for masks and boxes"),
        ([*digits, "--eps", "0"], "examples at budget 0 are the clean inputs"),
        ([*digits, "--attack", "fast"], "attack is fast, which is a cascade"),
        ([*digits, "--attack", "mi-fgsm?kernel=9"], "kernel is 9, larger than inputs of shape"),
        ([*digits, "--norm", "l1"], "it works in l2, linf, not in l1"),
        ([*digits, "--samples", "9999"], "ask for that many at most"),
    ):
        assert cli(["transfer", *arguments, "--out", str(tmp_path / "t")]) == 2, arguments
        assert message in capsys.readouterr().err, arguments
    assert not (tmp_path / "t" / MANIFEST).exists()
    with pytest.raises(
        RequestError, match=r"has images of shape \(1, 8, 8\).*has vectors of shape.*both need"
    ):
        brinell.transfer(
            benchmark_run, model=near_model(), data=(X, Y), eps=0.1, out=tmp_path / "t"
        )
    with pytest.raises(RequestError, check=refused("studies.transfer.run.make_plan")):
        brinell.transfer(data=(X, Y), eps=0.1, out=tmp_path / "t")


def test_a_model_of_labels_alone_is_a_target_and_no_source(tmp_path):
    labels_only = Recorder(threshold(0.5), Domain(kind="vector", shape=(2,)), name="labels")
    labels_only.access = brinell.core.model.Access.LABELS
    with pytest.raises(
        RequestError,
        match="cannot attack labels: it needs gradients, and the model gives labels only",
    ):
        brinell.transfer(
            model=[near_model(), labels_only], data=(X, Y), eps=0.1, out=tmp_path / "t"
        )
    result = brinell.transfer(
        "near", model=[near_model(), labels_only], data=(X, Y), eps=0.1, out=tmp_path / "u"
    )
    assert result.names == ["near", "labels"] and len(result.cells) == 2


def test_a_source_without_rows_has_no_figures(tmp_path):
    source = SourceFacts(name="s", members=["m"], white_box=[], level=1.0, samples=3, folder="f")
    facts = TransferFacts(eps=0.1, eps_text="0.1", attack=None, sources=[source])
    manifest = {"data": {"name": "d", "classes": ["a"]}, "models": [{"name": "m"}], "seconds": 0.0}
    content = rows.build(ExampleRows, 0, **{name: [] for name in ExampleRows.__dataclass_fields__})
    result = summarise(
        Folder(
            path=tmp_path, manifest=manifest, request=TransferRequest(), facts=facts, rows=content
        )
    )
    assert result.cells[0].accuracy.value is None and result.sources[0].success is None


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_in_a_browser(transfer_result, tmp_path):
    models = [
        near_model(),
        far_model(),
        *(unrelated(f"another-model-{number}") for number in range(10)),
    ]
    result = brinell.transfer(model=models, data=(X, Y), eps=0.15, out=tmp_path / "t")
    with chromium() as browser:
        check_everywhere(browser, Path(transfer_result.folder) / "report.html")
        check_everywhere(browser, Path(result.folder) / "report.html")
