"""Recommendations for a data set, notes on bad data, and budgets by sample in an audit."""

import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import torch

import brinell
from _helpers import Recorder, plan_of, run_audit, threshold
from _mutations import count_refused
from _refusals import refused
from brinell.analysis.compare import Side, compare
from brinell.analysis.curve import dense_table
from brinell.cli import run as cli
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.record import CLEAN, Outcome
from brinell.datasets._memory import from_arrays
from brinell.engine.request import Request
from brinell.pages import html
from brinell.studies.audit.plan import plan_audit
from brinell.studies.epsilon.figures import find_surprises, summarise
from brinell.studies.epsilon.records import load_folder, sample_limits

LINE = Domain(kind="vector", shape=(2,))


def vectors(*coordinates, labels):
    x = np.array([[value, 0.5] for value in coordinates], dtype=np.float32)
    return from_arrays(x, np.array(labels), domain=LINE)


def notes(result):
    return {note.code: note.text for note in result.notes}


def test_budgets_of_four_points_by_hand(tmp_path):
    data = vectors(0.1, 0.2, 0.5, 0.9, labels=[0, 0, 1, 1])
    result = brinell.epsilon(data, out=tmp_path / "a", allow=0.0)
    linf = result.norms[0]
    assert [recommendation.norm for recommendation in result.norms] == ["linf", "l2", "l1", "l0"]
    assert result.conditions == ["label", "interpolation"] and "no-perception" in notes(result)
    # Half of the distances 0.4, 0.3, 0.3, 0.7 to the other class; distances 0.1, 0.1, 0.4, 0.4 within the class.
    assert linf.overall.eps == pytest.approx(0.1, rel=0.02) and linf.overall.reason == "interpolation"
    assert linf.sound == linf.overall.eps and linf.unnoticed is None and linf.judged_on is None
    # Both values change by eps, which is farther in L2 by the root of 2.
    assert linf.outline.l2 == pytest.approx(linf.sound) and linf.audit == pytest.approx(linf.sound / np.sqrt(2))
    assert linf.advice.startswith("Linf up to 0.0706: above it, the outline of another class")
    assert "By distance alone up to 0.0999: above it, more than 0 % of the samples could turn into another sample" in linf.advice
    assert linf.per_class[1].eps == pytest.approx(0.15, rel=0.02) and linf.per_class[1].reason == "label"
    assert linf.separation[0].other_least == pytest.approx(0.3)
    assert linf.reasons == {"interpolation": 2, "label": 2}
    _, arrays = load_folder(tmp_path / "a")
    assert arrays["samples"]["linf.other_at"].tolist() == [2, 2, 1, 1]


def test_a_class_nearer_to_another_is_marked():
    means = np.array([[1.0, 0.5, 2.0], [0.5, 0.4, np.nan], [2.0, np.nan, np.nan]])
    (surprise,) = find_surprises("l2", means)
    assert (surprise.class_, surprise.nearer_to, surprise.mean_within, surprise.mean_between) == (0, 1, 1.0, 0.5)


def test_bad_data_get_notes(tmp_path):
    data = vectors(0.1, 0.1, 0.1, 0.5, 0.9, labels=[0, 0, 1, 2, 2])
    messages = notes(result := brinell.epsilon(data, out=tmp_path / "a", allow=0.0))
    assert "every eps unsound" in messages["conflict"] and "positions 0, 1, 2" in messages["conflict"]
    assert "1 samples repeat" in messages["duplicates"] and "0, 1" in messages["single"]
    assert result.norms[0].strict == 0 and result.norms[0].overall.eps == 0
    assert "No eps above 0 is sound" in result.norms[0].explanation
    one_class = notes(brinell.epsilon(vectors(0.1, 0.2, labels=[0, 0]), out=tmp_path / "b"))
    assert "nothing is known about label constancy" in one_class["one-class"]
    flat = np.zeros((4, 1, 8, 8), np.float32)
    flat[:2, 0, 0, 0] = [[0.3], [0.6]][0][0], 0.9
    flat[3] = 0.5
    assert "positions 2, 3" in notes(brinell.epsilon((flat, np.array([0, 1, 0, 1])), out=tmp_path / "c"))["constant"]


@pytest.mark.parametrize(("value", "text"), [(float("nan"), "NaN.*position 1"), (1.5, "exceeds its bounds by 0.5")])
def test_data_that_cannot_be_measured_are_refused(tmp_path, value, text):
    data = from_arrays(np.full((3, 2), 0.5, np.float32), np.array([0, 0, 1]), domain=LINE)

    def spoilt(indices, load=data.load):
        """Data that change after they were opened and checked."""
        x = load(indices).clone()
        x[1, 0] = value
        return x

    data.load = spoilt
    with pytest.raises(RequestError, match=text):
        brinell.epsilon(data, out=tmp_path / "a")
    with pytest.raises(RequestError, match="there is no distance"):
        brinell.epsilon(vectors(0.1, labels=[0]), out=tmp_path / "a")
    with pytest.raises(RequestError, match="no condition applies"):
        brinell.epsilon(vectors(0.1, 0.4, labels=[0, 1]), out=tmp_path / "a", conditions=("perception",))


def test_training_samples_count_as_neighbours_unless_they_are_in_the_data(tmp_path):
    data, train = vectors(0.1, 0.5, 0.6, labels=[0, 1, 1]), vectors(0.1, 0.2, 0.45, labels=[0, 1, 0])
    result = brinell.epsilon(data, train=train, out=tmp_path / "a", norm="linf", allow=0.0)
    assert "1 training samples are also in" in notes(result)["leak"]
    assert result.norms[0].separation[0].train_least == pytest.approx(0.05, abs=1e-6)
    assert result.norms[0].strict == pytest.approx(0.025, rel=0.01)


def test_each_sample_is_attacked_within_its_budget(tmp_path):
    # The model errs above 0.35. Budgets: 0.19 within the class, 0.15 (half the distance) to another class, 0 for equal samples.
    x = np.array([[0.8, 0.5], [0.1, 0.5], [0.29, 0.5], [0.9, 0.2], [0.9, 0.2]], np.float32)
    y = np.array([1, 0, 0, 1, 0])
    model = Recorder(threshold(0.35), LINE)
    data = from_arrays(x, y, domain=LINE)
    brinell.epsilon(data, out=tmp_path / "advice", norm="linf")
    eps = f"recommended:{tmp_path / 'advice'}"
    run = run_audit(tmp_path / "run", model, x, y, eps=eps, attack=("pgd",))
    records, budgets = run.records(), np.array([0.15, 0.19, 0.19, 0.0, 0.0])
    np.testing.assert_allclose(records.unit, budgets[records.sample_id], rtol=1e-5)
    table = dense_table(records, run.manifest)
    states = dict(zip(zip(table["sample_id"].tolist(), table["eps"].tolist(), strict=True), table["state"], strict=True))
    assert [states[2, e] for e in (0.25, 0.5, 0.75, 1.0)] == ["robust", *["broken"] * 3], "the margin is 0.06 of 0.19"
    assert all(states[1, e] == "robust" for e in (0.25, 0.5, 0.75, 1.0)), "the margin is 0.25 and the budget 0.19"
    spared = (records.sample_id == 3) & (records.attack != CLEAN)
    assert records.outcome[spared].tolist() == [Outcome.SPARED], "no eps is sound for equal samples of two labels"
    exact = records.outcome == Outcome.BROKEN
    assert records.linf[exact].tolist() == pytest.approx([0.095], rel=1e-4), "shrunk to the second budget of the sample"
    assert run.manifest["recommended"]["without"] == 2
    result = brinell.analysis.robust_accuracy.summarise(run.manifest, records, "run").models[0]
    assert [rate.k for rate in result.robust_accuracy] == [4, 4, 3, 3, 3] and result.complete
    assert brinell.verify(run.path, model, data).passed is True
    page = html.render(run.path)
    assert "multiples of the eps that each sample was recommended" in page and "For 2 samples no eps is sound" in page
    plain = run_audit(tmp_path / "plain", model, x, y, eps="0.25,1", attack=("pgd",))
    sides = [Side(run="", manifest=audited.manifest, records=audited.records(), model="recorder") for audited in (run, plain)]
    with pytest.raises(RequestError, match="the same budget"):
        compare(*sides)


def test_a_recommendation_for_other_data_is_refused(tmp_path):
    data, model = vectors(0.1, 0.3, 0.8, labels=[0, 0, 1]), Recorder(threshold(0.35), LINE)
    brinell.epsilon(data, out=tmp_path / "advice", norm="linf")

    def plan(eps, dataset=data, norm="linf"):
        request = Request(data="in-memory:test", model=("in-memory",), eps=eps, norm=norm, attack=("pgd",))
        return plan_audit(request, dataset=dataset, models=(model,))

    folder = f"recommended:{tmp_path / 'advice'}"
    assert plan(f"{folder}?by=class&points=3&to=2").budgets.texts == ("0", "1×", "2×")
    assert plan(f"{folder}?by=set").units.tolist() == pytest.approx([0.199] * 3, rel=0.01)
    assert plan("recommended?conditions=label").units.tolist() == pytest.approx([0.35, 0.25, 0.25])
    for eps, text in (
        (f"{folder}?by=day", "by is 'day'"),
        (f"{folder}?conditions=luck", "no condition 'luck'"),
        (f"{folder}?conditions=perception", "leaves no condition"),
        (f"{folder}?bye=class", "no option 'bye'"),
        (f"recommended:{tmp_path}", "is no recommendation folder: it has no manifest.json"),
    ):
        with pytest.raises(RequestError, match=text):
            plan(eps)
    with pytest.raises(RequestError, check=refused("studies.epsilon.recommended._load_or_measure")):
        plan(folder, vectors(0.1, 0.3, 0.7, labels=[0, 0, 1]))
    with pytest.raises(RequestError, match="nothing is recommended for l2"):
        plan(folder, norm="l2")
    with pytest.raises(RequestError, match="data of one class"):
        plan("recommended?conditions=label", vectors(0.1, 0.3, labels=[0, 0]))


def test_pictures_end_to_end(tmp_path, capsys):
    from brinell.cli import run

    folder = tmp_path / "d"
    assert run(["epsilon", "digits", "--samples", "40", "--model", "digits-cnn?width=4", "--out", str(folder), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["n"] == 40 and answer["norms"][0]["overall"]["reason"] in ("label", "interpolation", "perception")
    assert answer == summarise(folder).model_dump(mode="json", by_alias=True)
    page = (folder / "report.html").read_text()
    assert Path(brinell.report(folder)).read_text() == page, "brinell report writes the same page"
    assert "http:" not in page and "https:" not in page and page.count("<script") == 1
    assert "predicted" in page and "Does the picture still show its class?" in page
    facts, arrays = load_folder(folder)
    pairs_between = [
        (picture, array)
        for picture, array in zip(facts["crafted"]["pictures"], arrays["crafted"]["pictures"], strict=True)
        if picture["kind"] == "between"
    ]
    clean = dict(zip(arrays["crafted"]["ids"].tolist(), arrays["crafted"]["clean"], strict=True))
    for picture, array in pairs_between:
        expected = np.clip(clean[picture["sample"]] + picture["eps"] * np.sign(clean[picture["second"]]), 0, 1)
        np.testing.assert_allclose(array, expected, atol=1e-6)
    assert run(["epsilon", "digits", "--out", str(folder)]) == 2, "an existing folder is not overwritten"


def test_impossible_requests_are_refused_in_one_line(tmp_path, capsys):
    for arguments, message in (
        (["--norm", "l3"], "norm.0 is 'l3'"),
        (["--samples", "1"], "samples is 1"),
        (["--conditions", "luck"], "conditions.0 is 'luck'"),
        (["--norm", "l2", "--norm", "l2"], "each may occur only once"),
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
    result = brinell.epsilon(data, out=tmp_path / "m", pairs=10, norm="l2", conditions=("label", "interpolation"))
    assert {(2, 1), (8, 1)} <= {(surprise.class_, surprise.nearer_to) for surprise in result.surprises if surprise.norm == "l2"}
    assert result.norms[0].separation[0].other_least > 1


def test_order_does_not_change_the_recommendation(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.random((40, 2)).astype(np.float32), np.arange(40) % 2
    first = brinell.epsilon((x, y), out=tmp_path / "a")
    second = brinell.epsilon((x[::-1].copy(), y[::-1].copy()), out=tmp_path / "b")
    assert [recommendation.overall for recommendation in first.norms] == [
        recommendation.overall for recommendation in second.norms
    ]


def test_a_plan_without_a_recommendation_has_one_unit_for_all():
    plan = plan_of(Recorder(threshold(0.5), LINE), torch.rand(3, 2).numpy(), [0, 1, 0])
    assert plan.units.tolist() == [1, 1, 1] and plan.recommended is None


@pytest.mark.parametrize("count", [120, pytest.param(None, marks=pytest.mark.slow)])
def test_damaged_manifests_are_refused(tmp_path, count):
    def read(folder):
        facts, arrays = load_folder(folder)
        for norm in facts["norms"]:
            sample_limits(facts, arrays["samples"], norm)

    x = np.random.default_rng(0).uniform(0, 1, (6, 1, 8, 8)).astype(np.float32)
    brinell.epsilon((x, np.array([0, 1, 2] * 2)), out=tmp_path / "a", norm=("linf",))
    assert count_refused(count, tmp_path / "a/manifest.json", lambda: read(tmp_path / "a")) > 20


@pytest.mark.parametrize("seed", range(3))
def test_the_recommended_range_ends_where_linf_and_l2_disagree(tmp_path, seed):
    """A few wide strokes of a class on an empty ground: far apart in Linf, near each other in L2."""
    rng = np.random.default_rng(seed)
    x = np.zeros((60, 1, 12, 12), np.float32)
    for index in range(60):
        x[index, 0, :, 2 + 6 * (index % 2) + index // 2 % 3] = rng.uniform(0.9, 1, size=12)
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(60) % 2)
    result = brinell.epsilon(f"npz:{tmp_path}/d.npz", norm=("linf", "l2"), out=tmp_path / "a")
    sound = {norm.norm: norm.sound for norm in result.norms}
    outline = result.norms[0].outline
    expected = sound["l2"] / np.sqrt(12)  # the outline is a line of 12 values
    assert outline.eps == pytest.approx(expected, rel=0.1) if expected < sound["linf"] else outline is None
    page = (tmp_path / "a" / "report.html").read_text()
    assert ("the norms disagree" in page) == (outline is not None)


def empty_ground(path):
    """Two classes of one wide stroke each: the norms disagree about their outlines."""
    rng, x = np.random.default_rng(0), np.zeros((60, 1, 12, 12), np.float32)
    for index in range(60):
        x[index, 0, :, 2 + 6 * (index % 2) + index // 2 % 3] = rng.uniform(0.9, 1, size=12)
    np.savez(path, x=x, y=np.arange(60) % 2)
    return f"npz:{path}"


def test_page_terminal_json_and_advice_name_one_budget(tmp_path, capsys):
    """Each says «up to» first, and up to the same number; the command on the page ends there or below."""
    spec = empty_ground(tmp_path / "d.npz")
    assert cli(["epsilon", spec, "--out", str(tmp_path / "a")]) == 0
    terminal = capsys.readouterr().out
    assert cli(["epsilon", spec, "--out", str(tmp_path / "b"), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["norms"][0]
    budget = f"{first['audit']:.3g}"
    assert first["outline"] is not None and first["audit"] < first["sound"]
    row = next(line for line in terminal.splitlines() if line.startswith(" Linf "))
    page = unescape((tmp_path / "a" / "report.html").read_text())
    answer = re.search(r"audit up to\s([\d.]+)", page)
    cell = re.search(r"Linf</th>\s*<td[^>]*>([\d.]+)</td>", page)
    said = [row.split()[1], answer[1].rstrip("."), cell[1], re.search(r"Linf up to ([\d.]+):", first["advice"])[1]]
    assert said == [budget] * 4
    assert f"Linf: audit up to {budget}" in terminal and f"Linf up to {budget}:" in page
    command = re.search(r"--norm linf --eps 0:([\d./]+):9", page)[1]
    top, _, bottom = command.partition("/")
    assert float(top) / float(bottom or 1) <= first["audit"] * 1.005
