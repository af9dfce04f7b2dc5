"""A review end to end: pairs, answers, figures, and the pages in a browser."""

import itertools
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
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.datasets._memory import from_arrays
from brinell.engine.sources import open_data
from brinell.studies.review import ReviewRequest, page
from brinell.studies.review.analysis import summarise
from brinell.studies.review.records import Answer, Review
from brinell.studies.review.run import make_review
from brinell.testing.pages import page_faults


def new_review(folder, **settings):
    return make_review(ReviewRequest(**{"data": "digits", "trials": 20, **settings}), open_data("digits"), folder)


# The pairs


def test_sizes_are_those_of_what_is_shown(tmp_path):
    for norm, change in itertools.product(("linf", "l2"), ("crafted", "noise")):
        review = new_review(tmp_path / norm / change, norm=norm, change=change, eps="0.1,0.4")
        clean, changed = (pixels.astype(float) / 255 for pixels in review.pairs())
        flat = (changed - clean).reshape(len(clean), -1)
        sizes = np.abs(flat).max(1) if norm == "linf" else np.linalg.norm(flat, axis=1)
        np.testing.assert_allclose(sizes, [trial.eps for trial in review.trials], atol=1e-12)
        changed_trials = [trial for trial in review.trials if trial.eps > 0]
        assert len(changed_trials) == 16 and len(review.trials) == 20
        # Clipping only shrinks a change; rounding moves each picture by at most half a level.
        room = 1 / 255 * (1 if norm == "linf" else 8)
        assert all(trial.eps <= 0.4 + room for trial in changed_trials)
        assert {label: sum(t.label == label for t in review.trials) for label in range(10)} == dict.fromkeys(range(10), 2)


def test_the_crafted_change_by_hand(tmp_path):
    """With black and white pictures, Linf adds eps to black and cannot change white; L2 moves black by eps along the diagonal."""
    x = torch.stack([torch.zeros(1, 2, 2), torch.ones(1, 2, 2)] * 4)
    data = from_arrays(x, np.array([0, 1] * 4), domain=Domain(kind="image", shape=(1, 2, 2), levels=256))
    request = ReviewRequest(data="x", norm="l2", eps="0.4", trials=8, catch=0.25)
    review = make_review(request, data, tmp_path / "r")
    clean, changed = review.pairs()
    for trial in review.trials:
        if trial.eps:
            expected = 51 if trial.label == 0 else 204  # 0.4 / sqrt(4) = 0.2 of each pixel
            assert (changed[trial.number] == expected).all() and (clean[trial.number] == 255 * trial.label).all()


def test_pairs_of_a_run_have_its_distances(audit_run, patterns, tmp_path):
    request = ReviewRequest(data=patterns.data, change=f"run:{audit_run}", trials=10)
    review = make_review(request, open_data(patterns.data), tmp_path / "r")
    sizes = [trial.eps for trial in review.trials]
    assert sum(size == 0 for size in sizes) == 2 and max(sizes) <= 7.001 / 255
    with pytest.raises(RequestError, match="other data"):
        make_review(
            ReviewRequest(data="x", change=f"run:{audit_run}"),
            from_arrays(torch.rand(9, 1, 8, 8), np.arange(9)),
            tmp_path / "s",
        )


def test_bad_requests(tmp_path):
    for settings, message in (
        ({"eps": "0"}, "at least one size above 0"),
        ({"eps": "0.0001"}, "changes nothing on a screen"),
        ({"change": "blur"}, "crafted, noise or run:FOLDER"),
        ({"change": "run:nowhere"}, "is no run folder"),
    ):
        with pytest.raises(RequestError, match=message):
            new_review(tmp_path / "r", **settings)
    assert not (tmp_path / "r").exists()


def test_vectors_have_no_picture(tmp_path):
    data = from_arrays(torch.rand(6, 5), np.array([0, 1] * 3))
    with pytest.raises(RequestError, match="shows pictures"):
        make_review(ReviewRequest(data="x"), data, tmp_path / "r")


# Answers


def judge(review, threshold, reviewer="", seed=0):
    """Answers of a person who notices half of the changes of size `threshold`."""
    rng = random.Random(seed)
    answers = []
    for trial in review.trials:
        probability = 1 / (1 + math.exp(-math.log(trial.eps / threshold) / 0.25)) if trial.eps else 0.0
        named = trial.label if trial.eps < 0.1 else None
        answers.append(
            {"trial": trial.number, "reviewer": reviewer, "differs": rng.random() < probability}
            | {"named": named, "seconds": 0.1}
        )
    return answers


def save(file, review, answers):
    file.write_text(json.dumps({"review": review.digest, "answers": answers}))
    return str(file)


def test_the_page_is_not_told_what_it_must_not_show(tmp_path):
    review = new_review(tmp_path / "r")
    pairs = json.loads(re.search(r"pairs = (.*), answers", page.trial_page(review))[1])
    assert len(pairs) == 20 and all(set(pair) == {"pictures", "marked"} for pair in pairs)
    for pair, trial in zip(pairs, review.trials, strict=True):
        assert (pair["pictures"][0] == pair["pictures"][1]) == (trial.eps == 0)


def test_answers_of_several_people_are_kept_and_the_last_one_counts(tmp_path):
    review = new_review(tmp_path / "r")
    ann, bob = judge(review, 0.06, "ann"), judge(review, 0.3, "bob", 1)
    for answers in (ann[:7], bob, ann):
        review.add([Answer(**answer) for answer in answers])
    stored = Review.open(tmp_path / "r").answers()
    assert [answer.model_dump() for answer in stored] == [*ann, *bob]
    review.add([Answer(**ann[3] | {"differs": not ann[3]["differs"]})])
    assert [answer.differs for answer in review.answers()][3] != ann[3]["differs"] and len(review.answers()) == 40


def test_a_file_that_is_no_answers_is_refused(tmp_path):
    review, other = new_review(tmp_path / "r"), new_review(tmp_path / "s", seed=1)
    good = judge(review, 0.06)[0]
    file = tmp_path / "answers.json"
    wrong = [good | change for change in ({"trial": 20}, {"named": 10}, {"differs": 1}, {"seconds": -1}, {"trial": "0"})]
    for content in (
        *({"review": review.digest, "answers": [answer]} for answer in wrong),
        {"review": other.digest, "answers": [good]},
        {"review": review.digest},
        [],
        7,
    ):
        file.write_text(json.dumps(content))
        with pytest.raises(RequestError, match=str(file)) as error:
            review.read(file)
        assert "\n" not in str(error.value)
    for content in (b"\xff\xfe", b"[" * 100_000, b"", b'{"review": NaN'):
        file.write_bytes(content)
        with pytest.raises(RequestError, match="is no file of answers"):
            review.read(file)


def test_a_whole_review(tmp_path, monkeypatch):
    monkeypatch.setattr("brinell.studies.review.psychometric.POINTS", 25)
    out = tmp_path / "r"
    assert brinell.review("digits", out=out, trials=60).answers == 0
    file = save(tmp_path / "answers.json", Review.open(out), judge(Review.open(out), 0.06))
    result = brinell.review("digits", out=out, trials=60, resume=True, answers=file)
    assert result.answers == 60 and result.false_alarms == 0 and result.catch == 12
    assert result.overall.low < 0.06 < result.overall.high
    assert len(result.per_class) == 10 and sum(group.n for group in result.per_class) == 48
    assert result.by_size[0].eps == 0 and result.by_size[0].right.value == 1
    assert result.by_size[-1].right.value == 0, "changes above 0.1 hide the class"
    html = (out / "report.html").read_text()
    assert f"{result.overall.threshold:.3g}" in html and "http:" not in html and "https:" not in html
    with pytest.raises(RequestError, match="holds another review"):
        brinell.review("digits", out=out, trials=59, resume=True)
    with pytest.raises(RequestError, match="holds a review"):
        brinell.review("digits", out=out, trials=60)


def test_nobody_has_judged_yet(tmp_path):
    review = new_review(tmp_path / "r")
    assert summarise(review).overall is None
    assert "No changed pair has been judged yet" in page.render(review)


# In a browser


@pytest.mark.slow
@pytest.mark.browser
def test_in_a_browser(tmp_path):
    review = new_review(tmp_path / "r", trials=4, catch=0.25)
    page.write(review.path)
    with chromium() as browser:
        tab = browser.new_page()
        complaints = []
        tab.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.goto((review.path / "pairs.html").as_uri())
        tab.fill("#reviewer", "eve")
        tab.locator("h1").click()
        for i, (first, second) in enumerate([("y", "3"), ("n", "x"), (None, None), ("y", "0")]):
            tab.wait_for_selector("#first:not([hidden])")
            assert tab.inner_text("#count") == f"Pair {i + 1} of 4"
            assert tab.evaluate("document.getElementById('left').naturalWidth") == 8
            tab.locator("#same").click() if first is None else tab.locator("#differs" if first == "y" else "#same").press("Enter")
            tab.wait_for_selector("#second:not([hidden])")
            side = "left" if review.trials[i].changed_left else "right"
            assert tab.inner_text("#which") == f"What does the {side} picture show?"
            tab.locator("[data-class='7']").click() if second is None else tab.keyboard.press(second)
            if i == 1:
                tab.reload()
        tab.wait_for_selector("#done:not([hidden])")
        with tab.expect_download() as download:
            tab.click("#save")
        download.value.save_as(tmp_path / "answers.json")
    assert not complaints
    answers = review.read(tmp_path / "answers.json")
    assert [(answer.trial, answer.differs, answer.named) for answer in answers] == [
        (0, True, 3),
        (1, False, None),
        (2, False, 7),
        (3, True, 0),
    ]
    assert {answer.reviewer for answer in answers} == {"eve"}


@pytest.mark.slow
@pytest.mark.browser
def test_the_results_in_a_browser(tmp_path):
    review = new_review(tmp_path / "r", trials=60, norm="linf", change="noise")
    review.add([Answer(trial=t.number, reviewer="ann", differs=t.eps >= 0.06, named=t.label, seconds=1.0) for t in review.trials])
    with chromium() as browser:
        check_everywhere(browser, page.write(review.path))
    assert page_faults(review.path / "report.html") == []


# The command line


def test_the_command(tmp_path, capsys, root):
    out = tmp_path / "r"
    arguments = ["review", "digits", "--trials", "24", "--norm", "linf", "--eps", "0.05,0.3", "--out", str(out)]
    assert brinell.cli.run(arguments) == 0
    output = capsys.readouterr()
    assert "0 of 24 pairs judged" in output.out and f"--out {out} --resume --answers FILE" in output.out
    file = save(tmp_path / "answers.json", Review.open(out), judge(Review.open(out), 0.06))
    assert brinell.cli.run([*arguments, "--resume", "--answers", file, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    jsonschema.validate(answer, json.loads((root / "docs/schema/review.json").read_text()))
    assert answer["answers"] == 24


@pytest.mark.parametrize("count", [120, pytest.param(None, marks=pytest.mark.slow)])
def test_a_manifest_of_another_form(tmp_path, count):
    review = new_review(tmp_path / "r")
    review.add([Answer(trial=0, reviewer="", differs=True, named=3, seconds=1.0)])
    assert count_refused(count, tmp_path / "r/manifest.json", lambda: page.render(Review.open(tmp_path / "r"))) > 20
