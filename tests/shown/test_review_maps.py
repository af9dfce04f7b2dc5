"""People's judgement of maps: pairs of maps of one input by two methods, judged by planted judges
whose answers are known.
"""

import csv
import io
import itertools
import json
import re
import shutil
from collections import Counter
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import brinell
from _browser import chromium, open_page
from _pages import page_faults
from brinell.core.errors import BrinellError
from brinell.reports import html, terminal
from brinell.reports.csv import csv_files
from brinell.reports.values import Table
from brinell.studies.review import STUDY
from brinell.studies.review.choices import choice_sentences, choices_of
from brinell.studies.review.result import PAIRS

METHODS = ["gradient", "occlusion", "smoothgrad"]
"""Methods of the study; random and centre are measured beside them."""
ORDER = ["occlusion", "gradient", "smoothgrad", "centre", "random"]
"""The order in which the planted judge prefers maps."""


@pytest.fixture(scope="module")
def explained(patterns, tmp_path_factory):
    folder = tmp_path_factory.mktemp("explained") / "study"
    settings = {"samples": 16, "method": METHODS, "steps": 2}
    return brinell.explain(patterns.model, patterns.data, out=folder, **settings)


@pytest.fixture(scope="module")
def review(explained, patterns, tmp_path_factory):
    """A review that nobody has judged."""
    folder = tmp_path_factory.mktemp("review") / "pairs"
    return brinell.review(patterns.data, maps=explained.folder, trials=60, out=folder)


def trials_of(result):
    return STUDY.table().read(result.folder).rows


def judge(result, choose, file, reviewer="ann"):
    """Answers of a judge `choose(left, right)` to all pairs, as the page saves them."""
    trials = trials_of(result)
    answers = [
        {"trial": number, "reviewer": reviewer, "preference": choose(left, right)}
        for number, (left, right) in enumerate(
            zip(trials.left_method, trials.right_method, strict=True)
        )
    ]
    digest = result.manifest["files"][PAIRS]
    file.write_text(json.dumps({"review": digest, "answers": answers}))
    return result.add(file)


def prefer_by_order(left, right):
    """The planted judge: always the method that stands first in ORDER."""
    return "left" if ORDER.index(left) < ORDER.index(right) else "right"


def table_of(report, name: str) -> Table:
    (table,) = [b for b in report.blocks if isinstance(b, Table) and b.name == name]
    return table


def test_pairs_are_balanced_shuffled_and_unnamed(review, explained):
    """Every two methods meet equally often, never twice on one input, on both sides; the page is
    not told a method."""
    trials = trials_of(review)
    pairs = [frozenset(pair) for pair in zip(trials.left_method, trials.right_method, strict=True)]
    counts = Counter(pairs)
    assert set(counts) == {frozenset(pair) for pair in itertools.combinations(ORDER, 2)}
    assert set(counts.values()) == {6} and len(pairs) == 60
    assert len(set(zip(pairs, trials.sample_id.tolist(), strict=True))) == 60
    assert len(np.unique(trials.sample_id)) == explained.n == 16
    for name in ORDER:
        assert 0 < (trials.left_method == name).sum() < 24

    page = (Path(review.folder) / "pairs.html").read_text(encoding="utf-8")
    content = re.search(r"pairs = (.*), answers", page)[1]
    assert not any(name in content for name in ORDER)
    entries = json.loads(content)
    assert [set(pair) for pair in entries] == [{"pictures", "class"}] * 60
    assert all(len(pair["pictures"]) == 3 for pair in entries)
    assert {entry["class"] for entry in entries} <= set(explained.classes)


def test_shares_of_a_planted_judge(review, explained, tmp_path):
    """The first of five methods wins all of its comparisons, the second three quarters of them."""
    result = judge(review, prefer_by_order, tmp_path / "answers.json")
    shares = {choice.name: choice for choice in result.maps}
    for place, name in enumerate(ORDER):
        choice = shares[name]
        assert (choice.n, choice.ties) == (24, 0)
        assert choice.wins == 24 - 6 * place and choice.value == pytest.approx(1 - place / 4)
    assert shares["occlusion"].verdict == "more" and shares["random"].verdict == "less"
    assert shares["smoothgrad"].verdict is None

    report = result.report()
    first, second = report.sentences
    assert first == (
        "People choose the map of occlusion most often: in 100.0\u00a0% of 24 comparisons with "
        "another method."
    )
    assert "more often than not: occlusion" in second.replace("gradient and occlusion", "occlusion")
    assert "less often than not" in second and "random" in second
    table = table_of(report, "choices")
    assert [row[0] for row in table.rows] == ORDER
    gaps = {method.name: method.gain for method in explained.methods}
    column = table.columns.index("gap")
    for row in table.rows:
        assert row[1].value == shares[row[0]].value
        assert row[column].value == pytest.approx(gaps[row[0]].value)
    assert result.report().blocks[1].name == "agreement"


def test_page_files_terminal_json_and_verification(review, patterns, root, tmp_path):
    result = judge(review, prefer_by_order, tmp_path / "answers.json")
    report = result.report()
    assert "People&#39;s choice beside the measures" in html.page(report)
    for width in (60, 80, 200):
        text = "\n".join(terminal.lines(report, width))
        assert all(name in text for name in ORDER)
    lines = [*csv.DictReader(io.StringIO(csv_files(report)["choices.csv"]))]
    assert [line["method"] for line in lines] == ORDER
    assert [float(line["chosen"]) for line in lines] == [1, 0.75, 0.5, 0.25, 0]
    assert float(lines[0]["gap, points"]) == pytest.approx(
        100 * result.facts.methods["occlusion"]["gain"].value
    )
    jsonschema.validate(
        result.payload(), json.loads((root / "docs/schema/review.json").read_text("utf-8"))
    )
    assert brinell.verify(result.folder).passed


def test_forged_measures_are_found_out(review, tmp_path):
    """The measures beside the answers are those of the study of maps."""
    result = judge(review, prefer_by_order, tmp_path / "answers.json")
    copy = tmp_path / "copy"
    shutil.copytree(result.folder, copy)
    manifest = STUDY.layout.read(copy)
    manifest["facts"]["methods"]["random"]["gain"]["value"] = 0.99
    STUDY.layout.save(copy, manifest)
    brinell.open(copy).write()
    assert not brinell.verify(copy, trust=tmp_path).passed


def test_a_judge_who_sees_no_difference(review, tmp_path):
    """Neither counts half for both: no method is shown to be chosen."""
    result = judge(review, lambda left, right: None, tmp_path / "answers.json", "bob")
    by_bob = [answer for answer in result.maps if answer.ties]
    assert len(by_bob) == len(ORDER)
    pairs = np.array([["a", "b"], ["b", "a"]] * 9, dtype=object)
    choices = choices_of(["a", "b"], pairs, np.arange(18), [None] * 18)
    assert [(c.value, c.ties, c.verdict) for c in choices] == [(0.5, 18, None)] * 2
    assert [*choice_sentences(choices)][1].startswith("No method is shown")


def test_shares_are_counts_of_random_answers():
    """Property: shares, wins and ties are what a loop over the answers counts."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        names = ["a", "b", "c", "d"][: 2 + seed % 3]
        count = int(rng.integers(1, 40))
        pairs = np.array([rng.permutation(names)[:2] for _ in range(count)], dtype=object)
        sides = rng.choice(np.array(["left", "right", None], dtype=object), count).tolist()
        choices = choices_of(names, pairs, rng.integers(0, 9, count), sides)
        for choice in choices:
            wins = ties = total = 0
            for pair, side in zip(pairs, sides, strict=True):
                if choice.name in pair:
                    total += 1
                    ties += side is None
                    wins += {"left": pair[0], "right": pair[1], None: ""}[side] == choice.name
            assert (choice.n, choice.wins, choice.ties) == (total, wins, ties)
            share = None if not total else pytest.approx((wins + ties / 2) / total)
            assert choice.value == share


def test_a_judge_by_chance_shows_nothing():
    """Of judges who answer by chance, at most 6 % show a method that is chosen more or less."""
    false, judges = 0, 300
    for seed in range(judges):
        rng = np.random.default_rng(seed)
        names = np.array(["a", "b", "c", "d"], dtype=object)
        pairs = np.array([rng.permutation(4)[:2] for _ in range(60)])
        sides = rng.choice(np.array(["left", "right", None], dtype=object), 60).tolist()
        inputs = rng.integers(0, 12, 60)
        choices = choices_of([*names], names[pairs], inputs, sides)
        false += any(choice.verdict for choice in choices)
    assert false / judges <= 0.06


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"maps": "nowhere"}, "is no explain study folder"),
        ({"data": "digits"}, "was made from other data than"),
        ({"run": "somewhere"}, "do not go together"),
    ],
)
def test_what_has_no_pairs_is_refused(change, message, explained, patterns, tmp_path):
    settings = {"data": patterns.data, "maps": explained.folder, "out": tmp_path / "r"} | change
    with pytest.raises(BrinellError, match=message):
        brinell.review(settings.pop("data"), **settings)


def test_one_method_has_no_pairs(patterns, tmp_path):
    study = brinell.explain(
        patterns.model, patterns.data, samples=2, method="gradient", steps=0, out=tmp_path / "e"
    )
    with pytest.raises(BrinellError, match="maps by gradient alone"):
        brinell.review(patterns.data, maps=study.folder, out=tmp_path / "r")


def test_answers_of_another_form_are_refused(review, tmp_path):
    """Answers to changes, and sides that are none."""
    digest = review.manifest["files"][PAIRS]
    for wrong in (
        {"trial": 0, "reviewer": "", "differs": True, "named": 1},
        {"trial": 0, "reviewer": "", "preference": "middle"},
        {"trial": 60, "reviewer": "", "preference": "left"},
    ):
        file = tmp_path / "answers.json"
        file.write_text(json.dumps({"review": digest, "answers": [wrong]}))
        with pytest.raises(BrinellError, match=r"answers\.json"):
            review.add(file)


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1280])
def test_in_a_browser(width, explained, patterns, tmp_path):
    """Every pair is judged by buttons and keys, and the answers are those that were given."""
    folder = tmp_path / "r"
    review = brinell.review(patterns.data, maps=explained.folder, trials=3, out=folder)
    viewport = {"width": width, "height": 844}
    with chromium() as browser, open_page(browser, folder / "pairs.html", viewport=viewport) as tab:
        tab.wait_for_selector("#pair:not([hidden])")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert "Which map shows better what speaks for" in tab.inner_text("#which")
        assert tab.locator("#pair img").count() == 3
        tab.locator("#choose-left").click()
        tab.locator("h1").click()
        tab.keyboard.press("r")
        tab.keyboard.press("n")
        tab.wait_for_selector("#done:not([hidden])")
        with tab.expect_download() as download:
            tab.click("#save")
        download.value.save_as(tmp_path / "answers.json")
    answers = json.loads((tmp_path / "answers.json").read_text())["answers"]
    assert [answer["preference"] for answer in answers] == ["left", "right", None]
    assert page_faults(review.add(tmp_path / "answers.json").write()) == []
