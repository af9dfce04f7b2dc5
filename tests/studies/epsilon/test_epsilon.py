"""Recommendations for a data set, notes on bad data, and budgets by sample in an audit."""

import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import torch

import brinell
from _browser import check_everywhere, chromium
from _helpers import Recorder, plan_of, run_audit, threshold
from _mutations import count_refused
from _refusals import refused
from _reviews import make_review
from brinell.analysis.compare import Side, compare
from brinell.analysis.curve import dense_table
from brinell.cli import run as cli
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.record import CLEAN, Outcome
from brinell.datasets._memory import from_arrays
from brinell.engine.request import Request
from brinell.store.files import read_arrays
from brinell.studies.audits import plan_audit
from brinell.studies.epsilon import STUDY
from brinell.studies.register import write_page

LINE = Domain(kind="vector", shape=(2,))
NORMS = ("linf", "l2", "l1", "l0")


def vectors(*coordinates, labels):
    x = np.array([[value, 0.5] for value in coordinates], dtype=np.float32)
    return from_arrays(x, np.array(labels), domain=LINE)


def strokes(path, seed=0):
    """Two classes of one wide stroke each on an empty ground: far apart in Linf, near each other in
    L2.
    """
    rng, x = np.random.default_rng(seed), np.zeros((60, 1, 12, 12), np.float32)
    for index in range(60):
        x[index, 0, :, 2 + 6 * (index % 2) + index // 2 % 3] = rng.uniform(0.9, 1, size=12)
    np.savez(path, x=x, y=np.arange(60) % 2)
    return f"npz:{path}"


def test_budgets_of_four_points_by_hand(tmp_path):
    data = vectors(0.1, 0.2, 0.5, 0.9, labels=[0, 0, 1, 1])
    result = brinell.epsilon(data, out=tmp_path / "a", allow=0.0, norm=NORMS)
    linf = result.norms[0]
    assert (
        tuple(recommendation.norm for recommendation in result.norms) == NORMS
        and not result.facts.evidence
    )
    # Half of the distances 0.4, 0.3, 0.3, 0.7 to the other class; distances 0.1, 0.1, 0.4, 0.4
    # within the class.
    assert linf.overall.eps == pytest.approx(0.1, rel=0.02) == linf.overall.limits["interpolation"]
    assert linf.overall.sound == linf.overall.eps and "perception" not in linf.overall.limits
    # Both values change by eps, which is farther in L2 by the root of 2.
    assert linf.audit == linf.outline == pytest.approx(linf.overall.sound / np.sqrt(2))
    assert result.report().sentences[0].startswith("Linf: audit up to 0.0706: ")
    assert (
        linf.per_class[1].eps == pytest.approx(0.15, rel=0.02) == linf.per_class[1].limits["label"]
    )
    assert linf.overall.other_least == pytest.approx(0.3)


def test_bad_data_get_notes(tmp_path):
    data = vectors(0.1, 0.1, 0.1, 0.5, 0.9, labels=[0, 0, 1, 2, 2])
    result = brinell.epsilon(data, out=tmp_path / "a", allow=0.0)
    assert (
        "every eps unsound" in result.facts.notes["conflict"]
        and "positions 0, 1, 2" in result.facts.notes["conflict"]
    )
    assert "1 samples repeat" in result.facts.notes["duplicates"]
    assert (
        result.norms[0].overall.eps == 0
        and "No eps above 0 is sound" in result.report().sentences[0]
    )
    one_class = brinell.epsilon(vectors(0.1, 0.2, labels=[0, 0]), out=tmp_path / "b")
    assert list(one_class.facts.notes) == ["one-class"]
    with pytest.raises(RequestError, match="there is no distance"):
        brinell.epsilon(vectors(0.1, labels=[0]), out=tmp_path / "c")


def test_training_samples_count_as_neighbours_unless_they_are_in_the_data(tmp_path):
    data, train = (
        vectors(0.1, 0.5, 0.6, labels=[0, 1, 1]),
        vectors(0.1, 0.2, 0.45, labels=[0, 1, 0]),
    )
    result = brinell.epsilon(data, train=train, out=tmp_path / "a", norm="linf", allow=0.0)
    assert "1 training samples are also in" in result.facts.notes["leak"]
    assert result.norms[0].overall.train_least == pytest.approx(0.05, abs=1e-6)
    assert result.norms[0].overall.eps == pytest.approx(0.025, rel=0.01)


def test_each_sample_is_attacked_within_its_budget(tmp_path):
    # The model errs above 0.35. Budgets: 0.19 within the class, 0.15 (half the distance) to another
    # class, 0 for equal samples.
    x = np.array([[0.8, 0.5], [0.1, 0.5], [0.29, 0.5], [0.9, 0.2], [0.9, 0.2]], np.float32)
    y = np.array([1, 0, 0, 1, 0])
    model = Recorder(threshold(0.35), LINE)
    data = from_arrays(x, y, domain=LINE)
    brinell.epsilon(data, out=tmp_path / "advice", norm="linf")
    eps = f"recommended:{tmp_path / 'advice'}"
    run = run_audit(tmp_path / "run", model, x, y, eps=eps, attack=("pgd",))
    records, budgets = run.rows, np.array([0.15, 0.19, 0.19, 0.0, 0.0])
    np.testing.assert_allclose(records.unit, budgets[records.sample_id], rtol=1e-5)
    table = dense_table(records, run.manifest)
    states = dict(
        zip(
            zip(table["sample_id"].tolist(), table["eps"].tolist(), strict=True),
            table["state"],
            strict=True,
        )
    )
    assert [states[2, e] for e in (0.25, 0.5, 0.75, 1.0)] == ["robust", *["broken"] * 3], (
        "the margin is 0.06 of 0.19"
    )
    assert all(states[1, e] == "robust" for e in (0.25, 0.5, 0.75, 1.0)), (
        "the margin is 0.25 and the budget 0.19"
    )
    spared = (records.sample_id == 3) & (records.attack != CLEAN)
    assert records.outcome[spared].tolist() == [Outcome.SPARED], (
        "no eps is sound for equal samples of two labels"
    )
    exact = records.outcome == Outcome.BROKEN
    assert records.linf[exact].tolist() == pytest.approx([0.095], rel=1e-4), (
        "shrunk to the second budget of the sample"
    )
    assert run.manifest["recommended"]["without"] == 2
    result = brinell.analysis.robust_accuracy.summarise(run.manifest, records, "run").models[0]
    assert [rate.k for rate in result.robust_accuracy] == [4, 4, 3, 3, 3] and result.complete
    page = write_page(run.path).read_text()
    assert brinell.verify(run.path, model, data).passed is True
    assert "multiples of the eps recommended by" in page and "2 samples without a sound eps" in page
    plain = run_audit(tmp_path / "plain", model, x, y, eps="0.25,1", attack=("pgd",))
    sides = [
        Side(run="", manifest=audited.manifest, records=audited.rows, model="recorder")
        for audited in (run, plain)
    ]
    with pytest.raises(RequestError, match="differ in their budgets by sample"):
        compare(*sides)


def test_a_recommendation_for_other_data_is_refused(tmp_path):
    data, model = vectors(0.1, 0.3, 0.8, labels=[0, 0, 1]), Recorder(threshold(0.35), LINE)
    brinell.epsilon(data, out=tmp_path / "advice", norm="linf")

    def plan(eps, dataset=data, norm="linf"):
        request = Request(
            data="in-memory:test", model=("in-memory",), eps=eps, norm=norm, attack=("pgd",)
        )
        return plan_audit(request, dataset=dataset, models=(model,))

    folder = f"recommended:{tmp_path / 'advice'}"
    assert plan(f"{folder}?by=class").budgets.texts == ("0", "0.25×", "0.5×", "0.75×", "1×")
    assert plan(f"{folder}?by=set").units.tolist() == pytest.approx([0.199] * 3, rel=0.01)
    assert plan("recommended?conditions=label").units.tolist() == pytest.approx([0.35, 0.25, 0.25])
    for eps, text in (
        (f"{folder}?by=day", "option by of eps recommended is 'day'"),
        (f"{folder}?conditions=luck", "option conditions of eps recommended is 'luck'"),
        (f"{folder}?conditions=perception", "leaves no condition"),
        (f"{folder}?bye=class", "no option 'bye'"),
        (f"recommended:{tmp_path}", "it has no manifest.json"),
    ):
        with pytest.raises(RequestError, match=text):
            plan(eps)
    with pytest.raises(RequestError, check=refused("studies.epsilon.recommended._load")):
        plan(folder, vectors(0.1, 0.3, 0.7, labels=[0, 0, 1]))
    with pytest.raises(RequestError, match="nothing is recommended for l2"):
        plan(folder, norm="l2")
    with pytest.raises(RequestError, match="data of one class"):
        plan("recommended?conditions=label", vectors(0.1, 0.3, labels=[0, 0]))
    assert plan_of(model, torch.rand(3, 2).numpy(), [0, 1, 0]).units.tolist() == [1, 1, 1], (
        "a plan without a recommendation"
    )


def test_pictures_end_to_end(tmp_path, capsys):
    folder = tmp_path / "d"
    assert cli(["epsilon", "digits", "--samples", "40", "--out", str(folder), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["n"] == 40 and set(answer["norms"][0]["overall"]["limits"]) >= {
        "label",
        "interpolation",
    }
    assert answer == brinell.open(folder).payload()
    page = (folder / "report.html").read_text()
    assert Path(brinell.report(folder)).read_text() == page, "brinell report writes the same page"
    assert (
        "http:" not in page
        and "https:" not in page
        and "Does the picture still show its class?" in page
    )
    first = read_arrays(folder / "arrays/outlines.safetensors")
    assert first["labels"].tolist() == list(range(10)) and first["x"].shape == (10, 1, 8, 8)
    assert cli(["epsilon", "digits", "--out", str(folder)]) == 2, (
        "an existing folder is not overwritten"
    )


def test_impossible_requests_are_refused_in_one_line(tmp_path, capsys):
    for arguments, message in (
        (["--norm", "l3"], "norm.0 is 'l3'"),
        (["--samples", "1"], "there is no distance"),
        (["--norm", "l2", "--norm", "l2"], "each may occur only once"),
        (["--evidence", str(tmp_path)], "holds no review"),
    ):
        assert cli(["epsilon", "digits", "--out", str(tmp_path / "a"), *arguments]) == 2
        line = capsys.readouterr().err
        assert message in line and line.count("\n") == 1, arguments


@pytest.mark.shared
@pytest.mark.slow
def test_mnist_digits_2_and_8_are_nearer_to_1_than_to_themselves(tmp_path, shared):
    # The differences are some 0.03 of 9.4: it takes 1,000 samples a class to see them.
    file = np.load(shared / "mnist" / "mnist_train.npz")
    first = np.concatenate([np.flatnonzero(file["labels"] == label)[:1000] for label in range(10)])
    data = (file["images"][first].reshape(-1, 1, 28, 28), file["labels"][first])
    result = brinell.epsilon(data, out=tmp_path / "m", pairs=10, norm="l2")
    means = result.norms[0].means
    assert means[2][1] < means[2][2] and means[8][1] < means[8][8]
    assert result.norms[0].overall.other_least > 1


def test_order_does_not_change_the_recommendation(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.random((40, 2)).astype(np.float32), np.arange(40) % 2
    first = brinell.epsilon((x, y), out=tmp_path / "a")
    second = brinell.epsilon((x[::-1].copy(), y[::-1].copy()), out=tmp_path / "b")
    assert [norm.overall for norm in first.norms] == [norm.overall for norm in second.norms]


@pytest.mark.parametrize("count", [50, pytest.param(None, marks=pytest.mark.slow)])
def test_damaged_manifests_are_refused(tmp_path, count):
    x = np.random.default_rng(0).uniform(0, 1, (6, 1, 8, 8)).astype(np.float32)
    brinell.epsilon((x, np.array([0, 1, 2] * 2)), out=tmp_path / "a", norm=("linf",))
    assert (
        count_refused(count, tmp_path / "a/manifest.json", lambda: STUDY.open(tmp_path / "a")) > 10
    )


@pytest.mark.parametrize("seed", range(3))
def test_page_terminal_json_and_steps_name_one_budget_where_linf_and_l2_disagree(
    tmp_path, capsys, seed
):
    """The range ends where the outline of another class leaves the sound budget of L2."""
    assert cli(["epsilon", strokes(tmp_path / "d.npz", seed), "--out", str(tmp_path / "a")]) == 0
    terminal, page = capsys.readouterr().out, unescape((tmp_path / "a" / "report.html").read_text())
    first, second = brinell.open(tmp_path / "a").norms
    assert (
        first.audit == first.outline == pytest.approx(second.overall.sound / np.sqrt(12), rel=0.1)
    ), "a line of 12 values"
    assert first.audit < first.overall.sound and "the outline of another class" in page
    row = next(line for line in terminal.splitlines() if line.startswith("recommended "))
    answer, cell = (
        re.search(pattern, page)[1]
        for pattern in (r"audit up to\s([\d.]+)", r"recommended</th>\s*<td[^>]*>([\d.]+)</td>")
    )
    assert {row.split()[1], answer.rstrip(".:"), cell} == {f"{first.audit:.3g}"}
    top, _, bottom = re.search(r"--norm linf --eps 0:([\d./]+):9", page)[1].partition("/")
    assert float(top) / float(bottom or 1) <= first.audit * 1.005


def test_answers_of_people_replace_random_changes(tmp_path):
    settings = {"norm": "linf", "trials": 80, "eps": "0.01,0.03,0.05,0.07,0.1,0.2"}
    make_review(
        tmp_path / "review", lambda size: size >= 0.06, lambda size, label: label, **settings
    )
    result = brinell.epsilon(
        "digits", samples=60, evidence=str(tmp_path / "review"), out=tmp_path / "advice"
    )
    linf, l2 = result.norms
    assert (result.facts.evidence["linf"].by, result.facts.evidence["l2"].by) == ("people", "noise")
    assert 0.04 < linf.overall.limits["perception"] < 0.08 and result.facts.evidence["linf"].n == 80
    assert 0 < l2.overall.limits["perception"] < l2.overall.sound
    with pytest.raises(
        RequestError, match="is evidence for linf, which the request leaves out: add linf to"
    ):
        brinell.epsilon(
            "digits",
            samples=60,
            evidence=str(tmp_path / "review"),
            norm="l2",
            out=tmp_path / "other",
        )
    brinell.review("digits", norm="linf", trials=10, eps="0.1", out=tmp_path / "blind")
    with pytest.raises(RequestError, match="too few for a threshold"):
        brinell.epsilon(
            "digits", samples=60, evidence=str(tmp_path / "blind"), out=tmp_path / "other"
        )


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_in_a_browser(epsilon_run):
    with chromium() as browser:
        check_everywhere(browser, epsilon_run / "report.html")
