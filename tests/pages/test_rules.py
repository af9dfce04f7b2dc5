"""The rules of pages (`brinell.testing.pages`): each has a page that breaks it, and pages of random size keep them."""

import random

import numpy as np
import pytest

import brinell
from brinell.pages import html
from brinell.testing.pages import can_measure, page_faults

pytestmark = [pytest.mark.browser, pytest.mark.skipif(not can_measure(), reason="no browser")]
GOOD = '<!doctype html><html lang="en"><body style="margin:0"><main>{before}<p data-answer>The result.</p>{after}</main></html>'
SCROLL = '<div class="scroll" aria-label="T" style="overflow-x:auto">'
TALL = '<div style="height:{}px"></div>'


def faults_of(tmp_path, text):
    file = tmp_path / "page.html"
    file.write_text(text, encoding="utf-8")
    return page_faults(file)


def test_a_page_that_keeps_the_rules(tmp_path):
    folded = f"<details><summary>More</summary>{TALL.format(9000)}</details>"
    wide_table = f'{SCROLL}<table class="many" style="width:3000px"><tr><td>1</td></tr></table></div>'
    assert faults_of(tmp_path, GOOD.format(before="", after=folded + wide_table)) == []


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        (TALL.format(870), "", "beyond 900"),
        (TALL.format(1390), "", "beyond 1400"),
        ("", TALL.format(5000), "above 5000"),
        ("", "<p data-answer>Another result.</p>", "2 elements hold the result"),
        ("", '<div style="width:1400px">x</div>', 'at 1280 pixels <div> "x" is wider'),
        ("", '<div style="overflow:hidden"><p style="width:500px">x</p></div>', 'at 390 pixels <p> "x" is wider'),
        ("", f'{SCROLL}<p style="width:1300px">x</p></div>', "T (1300 in 1280) runs off"),
        ("", '<svg class="figure" width="90" height="9"><text x="80" y="8">a label</text></svg>', "leaves its figure"),
        ("", "<script>throw new Error('planted')</script>", "planted"),
    ],
)
def test_each_rule_has_a_page_that_breaks_it(tmp_path, before, after, fault):
    assert fault in "; ".join(faults_of(tmp_path, GOOD.format(before=before, after=after)))


def test_a_result_without_text_is_none(tmp_path):
    text = GOOD.format(before="", after="").replace("The result.", "")
    assert "must" in "; ".join(faults_of(tmp_path, text))


@pytest.mark.parametrize("seed", range(4))
def test_audits_of_random_size_answer_first(make, seed):
    """Models, classes, budgets and the lengths of names vary."""
    rng, sizes = np.random.default_rng(seed), random.Random(seed)
    models, classes, budgets = sizes.randint(1, 12), sizes.randint(2, 60), sizes.randint(1, 12)
    names = [f"class-{index}-" + "x" * sizes.randint(0, 30) for index in range(classes)]
    breaks = {f"model-{index}-" + "m" * sizes.randint(0, 30): rng.lognormal(size=(2, 80)) * 0.1 for index in range(models)}
    run = make(breaks, np.arange(80) % classes, [(index + 1) / 20 for index in range(budgets)], names)
    assert page_faults(html.write(run)) == []


@pytest.mark.parametrize("seed", range(2))
def test_studies_of_random_size_answer_first(tmp_path, seed):
    """The number of models, samples and budgets varies."""
    sizes = random.Random(seed)
    models = [f"digits-cnn?width=4&seed={index}" for index in range(sizes.randint(2, 9))]
    calls = {
        "study": lambda out: brinell.study(
            model=models, samples=sizes.randint(10, 30), eps=f"0:0.3:{sizes.randint(2, 9)}", attack="fgsm", out=out
        ),
        "transfer": lambda out: brinell.transfer(model=models, samples=10, eps="0.1", out=out),
        "corrupt": lambda out: brinell.corrupt(
            model=models[:4], samples=5, severity=sorted(sizes.sample(range(1, 6), 2)), reference="digits-cnn-w4", out=out
        ),
    }
    for name, call in calls.items():
        call(tmp_path / name)
        assert page_faults(tmp_path / name / "report.html") == [], name
