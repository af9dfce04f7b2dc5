"""A review end to end: pairs, answers, figures, and the pages in a browser."""

import json
import math
import random
import re

import jsonschema
import numpy as np
import pytest
import torch

import brinell
import brinell.cli
from _browser import check_everywhere, chromium
from _mutations import count_refused
from _pages import page_faults
from _reviews import add_answers, answers_to, make_review, save_answers, trials_of
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.datasets._memory import from_arrays
from brinell.store.files import read_arrays
from brinell.studies.review.result import ANSWERS, PAIRS


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """Fewer thresholds on the grid: the curve itself is tested beside its module."""
    monkeypatch.setattr("brinell.studies.review.psychometric.POINTS", 25)


def new_review(folder, data="digits", **settings):
    """A review that nobody has judged."""
    return brinell.review(data, out=folder, **{"trials": 20, **settings})


def pairs_of(folder):
    """Clean and changed pictures."""
    return [read_arrays(folder / PAIRS)[name] for name in ("clean", "changed")]


# The pairs


def test_sizes_are_those_of_what_is_shown(tmp_path):
    for norm in ("linf", "l2"):
        folder = tmp_path / norm
        new_review(folder, norm=norm, eps="0.1,0.4")
        clean, changed = (pixels.astype(float) / 255 for pixels in pairs_of(folder))
        flat, trials = (changed - clean).reshape(len(clean), -1), trials_of(folder)
        sizes = np.abs(flat).max(1) if norm == "linf" else np.linalg.norm(flat, axis=1)
        np.testing.assert_allclose(sizes, trials.eps, atol=1e-12)
        assert (trials.eps > 0).sum() == 16 and len(trials) == 20
        # Clipping only shrinks a change; rounding moves each picture by at most half a level.
        room = 1 / 255 * (1 if norm == "linf" else 8)
        assert (trials.eps <= 0.4 + room).all()
        assert np.bincount(trials.label, minlength=10).tolist() == [2] * 10


def test_the_crafted_change_by_hand(tmp_path):
    """With black and white pictures, Linf adds eps to black and cannot change white; L2 moves black
    by eps along the diagonal.
    """
    x = torch.stack([torch.zeros(1, 2, 2), torch.ones(1, 2, 2)] * 4)
    data = from_arrays(
        x, np.array([0, 1] * 4), domain=Domain(kind="image", shape=(1, 2, 2), levels=256)
    )
    new_review(tmp_path / "r", data, norm="l2", eps="0.4", trials=8)
    trials = trials_of(tmp_path / "r")
    for label, eps, clean, changed in zip(
        trials.label, trials.eps, *pairs_of(tmp_path / "r"), strict=True
    ):
        if eps:
            expected = 51 if label == 0 else 204  # 0.4 / sqrt(4) = 0.2 of each pixel
            assert (changed == expected).all() and (clean == 255 * label).all()


def test_pairs_of_a_run_have_its_distances(audit_run, patterns, tmp_path):
    new_review(tmp_path / "r", patterns.data, run=str(audit_run), trials=10)
    sizes = trials_of(tmp_path / "r").eps
    assert sum(sizes == 0) == 2 and sizes.max() <= 7.001 / 255
    with pytest.raises(RequestError, match="other data"):
        new_review(
            tmp_path / "s", from_arrays(torch.rand(9, 1, 8, 8), np.arange(9)), run=str(audit_run)
        )


def test_bad_requests(tmp_path):
    for settings, message in (
        ({"eps": "0"}, "at least one size above 0"),
        ({"eps": "0.0001"}, "changes nothing on a screen"),
        ({"data": from_arrays(torch.rand(6, 1, 4, 4), np.zeros(6, int))}, "has one class"),
        ({"run": "nowhere"}, "is no run folder"),
        ({"data": from_arrays(torch.rand(6, 5), np.array([0, 1] * 3))}, "shows pictures"),
    ):
        with pytest.raises(RequestError, match=message):
            new_review(tmp_path / "r", **settings)
    assert not (tmp_path / "r").exists()


# Answers


def judgement(threshold, seed=0):
    """A person who notices half of the changes of size `threshold`."""
    rng = random.Random(seed)
    return lambda eps: (
        rng.random() < (1 / (1 + math.exp(-math.log(eps / threshold) / 0.25)) if eps else 0.0)
    )


def label_if_small(eps, label):
    return label if eps < 0.1 else None


def test_the_page_is_not_told_what_it_must_not_show(tmp_path):
    new_review(tmp_path / "r")
    pairs = json.loads(
        re.search(r"pairs = (.*), answers", (tmp_path / "r/pairs.html").read_text())[1]
    )
    assert len(pairs) == 20 and all(set(pair) == {"pictures", "marked"} for pair in pairs)
    for pair, eps in zip(pairs, trials_of(tmp_path / "r").eps, strict=True):
        assert (pair["pictures"][0] == pair["pictures"][1]) == (eps == 0)


def test_answers_of_several_people_are_kept_and_the_last_one_counts(tmp_path):
    folder = tmp_path / "r"
    new_review(folder)
    ann, bob = (
        answers_to(folder, judgement(threshold, len(name)), label_if_small, name)
        for name, threshold in (("ann", 0.06), ("bo", 0.3))
    )
    for answers in (ann[:7], bob, ann):
        add_answers(folder, answers)
    stored = json.loads((folder / ANSWERS).read_text())["answers"]
    assert stored == [*ann, *bob]
    add_answers(folder, [ann[3] | {"differs": not ann[3]["differs"]}])
    stored = json.loads((folder / ANSWERS).read_text())["answers"]
    assert stored[3]["differs"] != ann[3]["differs"] and len(stored) == 40


def test_a_file_that_is_no_answers_is_refused(tmp_path):
    result, other = (new_review(tmp_path / name, seed=seed) for seed, name in enumerate("rs"))
    good = answers_to(tmp_path / "r", judgement(0.06))[0]
    file = tmp_path / "answers.json"
    digest, foreign = (review.manifest["files"][PAIRS] for review in (result, other))
    wrong = [
        good | change
        for change in ({"trial": 20}, {"named": 10}, {"differs": 1}, {"trial": -1}, {"trial": "0"})
    ]
    for content in (
        *({"review": digest, "answers": [answer]} for answer in wrong),
        {"review": foreign, "answers": [good]},
        {"review": digest},
        [],
        7,
    ):
        file.write_text(json.dumps(content))
        with pytest.raises(RequestError, match=str(file)) as error:
            result.add(file)
        assert "\n" not in str(error.value)
    for content in (b"\xff\xfe", b"[" * 100_000, b"", b'{"review": NaN'):
        file.write_bytes(content)
        with pytest.raises(RequestError, match="is no file of answers"):
            result.add(file)
    assert not (tmp_path / "r" / ANSWERS).exists()


def test_a_whole_review(tmp_path):
    out = tmp_path / "r"
    empty = brinell.review("digits", out=out, trials=60)
    assert empty.answers == 0 and empty.overall is None
    assert "No changed pair has been judged yet" in (out / "report.html").read_text()
    file = save_answers(
        tmp_path / "answers.json", out, answers_to(out, judgement(0.06), label_if_small)
    )
    result = brinell.review("digits", out=out, trials=60, resume=True, answers=file)
    assert result.answers == 60 and (result.false_alarms.k, result.false_alarms.n) == (0, 12)
    assert result.overall.low < 0.06 < result.overall.high
    assert len(result.per_class) == 10 and sum(group.n for group in result.per_class) == 48
    assert result.by_size[0].eps == 0 and result.by_size[0].right.value == 1
    assert result.by_size[-1].right.value == 0, "changes above 0.1 hide the class"
    html = (out / "report.html").read_text()
    assert (
        f"{result.overall.threshold:.3g}" in html and "http:" not in html and "https:" not in html
    )
    with pytest.raises(RequestError, match="holds another review"):
        brinell.review("digits", out=out, trials=59, resume=True)
    with pytest.raises(RequestError, match="holds a review"):
        brinell.review("digits", out=out, trials=60)
    assert brinell.verify(out).passed


# In a browser


@pytest.mark.slow
@pytest.mark.browser
def test_in_a_browser(tmp_path):
    folder = tmp_path / "r"
    new_review(folder, trials=4)
    with chromium() as browser:
        tab = browser.new_page()
        complaints = []
        tab.on(
            "console",
            lambda message: complaints.append(message.text) if message.type == "error" else None,
        )
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.goto((folder / "pairs.html").as_uri())
        tab.fill("#reviewer", "eve")
        tab.locator("h1").click()
        for i, (first, second) in enumerate([("y", "3"), ("n", "x"), (None, None), ("y", "0")]):
            tab.wait_for_selector("#first:not([hidden])")
            assert tab.inner_text("#count") == f"Pair {i + 1} of 4"
            assert tab.evaluate("document.getElementById('left').naturalWidth") == 8
            tab.locator("#same").click() if first is None else tab.locator(
                "#differs" if first == "y" else "#same"
            ).press("Enter")
            tab.wait_for_selector("#second:not([hidden])")
            side = "left" if trials_of(folder).changed_left[i] else "right"
            assert tab.inner_text("#which") == f"What does the {side} picture show?"
            tab.locator("[data-class='7']").click() if second is None else tab.keyboard.press(
                second
            )
            if i == 1:
                tab.reload()
        tab.wait_for_selector("#done:not([hidden])")
        with tab.expect_download() as download:
            tab.click("#save")
        download.value.save_as(tmp_path / "answers.json")
    assert not complaints
    brinell.open(folder).add(tmp_path / "answers.json")
    answers = json.loads((folder / ANSWERS).read_text())["answers"]
    assert [(answer["trial"], answer["differs"], answer["named"]) for answer in answers] == [
        (0, True, 3),
        (1, False, None),
        (2, False, 7),
        (3, True, 0),
    ]
    assert {answer["reviewer"] for answer in answers} == {"eve"}


@pytest.mark.slow
@pytest.mark.browser
def test_the_results_in_a_browser(tmp_path):
    page = make_review(
        tmp_path / "r", lambda eps: eps >= 0.06, lambda eps, label: label, trials=60
    ).write()
    with chromium() as browser:
        check_everywhere(browser, page)
    assert page_faults(page) == []


# The command line


def test_the_command(tmp_path, capsys, root):
    out = tmp_path / "r"
    arguments = [
        "review",
        "digits",
        "--trials",
        "24",
        "--norm",
        "linf",
        "--eps",
        "0.05,0.3",
        "--out",
        str(out),
    ]
    assert brinell.cli.run(arguments) == 0
    output = capsys.readouterr()
    assert (
        "0 of 24 pairs judged" in output.out
        and f"--out {out} --resume --answers FILE" in output.out
    )
    file = save_answers(tmp_path / "answers.json", out, answers_to(out, judgement(0.06)))
    assert brinell.cli.run([*arguments, "--resume", "--answers", file, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    jsonschema.validate(answer, json.loads((root / "docs/schema/review.json").read_text()))
    assert answer["answers"] == 24


@pytest.mark.parametrize("count", [40, pytest.param(None, marks=pytest.mark.slow)])
def test_a_manifest_of_another_form(tmp_path, count):
    new_review(tmp_path / "r")
    add_answers(tmp_path / "r", answers_to(tmp_path / "r", judgement(0.06))[:1])
    assert (
        count_refused(
            count, tmp_path / "r/manifest.json", lambda: brinell.open(tmp_path / "r").report()
        )
        > 8
    )
