"""What shows, judged by stored adversarial examples and by people's answers; the range that is recommended, and its chart."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import brinell
from _browser import check_everywhere, chromium, opened
from brinell.core.errors import RequestError
from brinell.engine.plan import open_data
from brinell.store.run import Run
from brinell.studies.epsilon import page
from brinell.studies.epsilon.evidence import stored
from brinell.studies.epsilon.perception import psnr, resized, ssim
from brinell.studies.epsilon.records import limits_of, load_folder
from brinell.studies.review.analysis import thresholds
from brinell.studies.review.records import Answer, Review
from brinell.studies.review.request import ReviewRequest
from brinell.studies.review.run import make_review

N = 60


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit") / "run"
    brinell.audit("digits-cnn", "digits", samples=N, eps="0.1,0.2", attack=("fgsm",), out=folder)
    return folder


@pytest.fixture(scope="module")
def made(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("advice") / "advice"
    return brinell.epsilon("digits", samples=N, evidence=str(run), norm=("linf", "l2"), out=folder)


def judged(folder, eps):
    """A review of digits in which changes of `eps` and more are noticed."""
    request = ReviewRequest(data="digits", norm="linf", trials=80, change="noise", eps="0.01,0.03,0.05,0.07,0.1,0.2")
    review = make_review(request, open_data("digits"), folder)
    for trial in review.trials:
        review.add(Answer(trial=trial.number, reviewer="ann", differs=trial.eps >= eps, named=trial.label, seconds=1.0))
    return folder


def test_stored_adversarial_examples_take_the_place_of_random_changes(made, run):
    linf, l2 = made.norms
    assert (linf.judged_on, l2.judged_on) == ("attacks", "noise")
    facts, arrays = load_folder(page_folder(made))
    limit = arrays["samples"]["linf.unnoticed"]
    kept = stored(run, facts["data"]["digest"], "digits", N)
    assert len(kept.ids) > N // 2
    x0 = open_data("digits").load(kept.ids.tolist())
    delta, own = kept.x_adv - x0, torch.from_numpy(limit[kept.ids]).float()
    below, above = ((x0 + resized("linf", delta, own * factor)).clamp(0, 1) for factor in (0.999, 1.02))
    assert ((ssim(x0, below) >= 0.9) & (psnr(x0, below) >= 30)).all()
    assert ((ssim(x0, above) < 0.9) | (psnr(x0, above) < 30)).all()
    rows = Run.open(run).records()
    assert set(kept.ids.tolist()) == set(rows.sample_id[rows.outcome == "fooled"].tolist())


def page_folder(result):
    return Path(result.folder)


def test_the_page_shows_them_and_the_share_that_breaks_at_usual_budgets(made):
    html = page.render(page_folder(made))
    assert html.count('<figure class="example">') == 12 and "What attacks do to these pictures" in html
    facts, arrays = load_folder(page_folder(made))
    share = float((limits_of(facts, arrays["samples"], "l2")["label"] < 1).mean())
    assert 0.05 < share < 0.95 and f"<title>1: label may change on {100 * share:.1f}\u00a0%</title>" in html
    linf = made.norms[0]
    assert f"{linf.unnoticed:.3g} to {linf.sound:.3g}" in html and linf.advice in re.sub("&#39;", "'", html)
    assert 0 < linf.unnoticed < linf.sound and linf.within[-1] == "0.3"


@pytest.mark.browser
def test_the_page_in_a_browser(made):
    with chromium() as browser:
        check_everywhere(browser, page_folder(made) / "report.html")
        with opened(browser, page_folder(made) / "report.html") as tab:
            tab.locator(".norms svg.figure").first.focus()
            tab.keyboard.press("End")
            said = tab.locator(".tip").inner_text().splitlines()
    assert [line.rpartition(" on ")[0] for line in said] == ["0.3: label may change", "0.3: meets its class", "0.3: noticed"]


def test_what_people_notice_decides_where_they_were_asked(tmp_path):
    review = judged(tmp_path / "review", 0.06)
    told = thresholds(Review.open(review))
    assert 0.05 < told.overall < 0.07 and told.answers == 80
    result = brinell.epsilon("digits", samples=N, evidence=str(review), norm="linf", out=tmp_path / "advice")
    (linf,) = result.norms
    assert linf.judged_on == "people" and 0.04 < linf.unnoticed < 0.08
    assert "people noticed half of the changes of this size" in linf.advice
    _, arrays = load_folder(tmp_path / "advice")
    by_class = {int(label): told.per_class.get(int(label), told.overall) for label in arrays["samples"]["labels"]}
    np.testing.assert_allclose(
        arrays["samples"]["linf.unnoticed"], [by_class[int(label)] for label in arrays["samples"]["labels"]]
    )


def test_evidence_that_does_not_fit_is_refused(run, tmp_path):
    blind = tmp_path / "blind"
    make_review(ReviewRequest(data="digits", norm="linf", trials=10, eps="0.1"), open_data("digits"), blind)
    for evidence, more, text in (
        (str(run), {"norm": "l2"}, "is about linf, for which nothing is recommended: add linf to"),
        (str(tmp_path), {}, "no run folder"),
        (str(blind), {}, "do not tell which changes are noticed"),
    ):
        with pytest.raises(RequestError, match=text):
            brinell.epsilon("digits", samples=N, evidence=evidence, out=tmp_path / "advice", **more)
    with pytest.raises(RequestError, match="was made from other data"):
        brinell.epsilon("digits?split=train", samples=N, evidence=str(run), norm="linf", out=tmp_path / "advice")


def test_an_l0_that_always_shows_is_a_range_and_not_0(tmp_path):
    result = brinell.epsilon("digits", samples=N, norm="l0", out=tmp_path / "advice")
    (l0,) = result.norms
    assert l0.unnoticed == 0 and l0.sound >= 5
    assert page.span(l0) == f"up to {l0.sound:g}" and "Every change in it may be noticed" in l0.advice
