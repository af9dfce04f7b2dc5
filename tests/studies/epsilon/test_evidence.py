"""Perceptibility by stored adversarial examples and by answers of people; the recommended range and its chart."""

from pathlib import Path

import numpy as np
import pytest
import torch

import brinell
from _browser import check_everywhere, chromium
from _reviews import make_review
from brinell.core.errors import RequestError
from brinell.engine.sources import open_data
from brinell.store.run import Run
from brinell.studies.epsilon.evidence import load_examples
from brinell.studies.epsilon.perception import psnr, rescale, ssim
from brinell.studies.epsilon.records import load_folder, sample_limits
from brinell.studies.epsilon.run import load_thresholds

N = 60


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit") / "run"
    brinell.audit("digits-cnn", "digits", samples=N, eps="0.1,0.2", attack=("fgsm",), out=folder)
    return folder


@pytest.fixture(scope="module")
def result(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("advice") / "advice"
    return brinell.epsilon("digits", samples=N, evidence=str(run), norm=("linf", "l2"), out=folder)


def answer_review(folder, eps):
    """A review of digits in which changes of `eps` and more are noticed."""
    settings = {"norm": "linf", "trials": 80, "change": "noise", "eps": "0.01,0.03,0.05,0.07,0.1,0.2"}
    make_review(folder, lambda size: size >= eps, lambda size, label: label, **settings)
    return folder


def test_stored_adversarial_examples_replace_random_changes(result, run):
    linf, l2 = result.norms
    assert (linf.judged_on, l2.judged_on) == ("attacks", "noise")
    facts, arrays = load_folder(page_folder(result))
    limit = arrays["samples"]["linf.unnoticed"]
    examples = load_examples(run, facts["data"]["digest"], "digits", N)
    assert len(examples.ids) > N // 2
    x0 = open_data("digits").load(examples.ids.tolist())
    delta, limits = examples.x_adv - x0, torch.from_numpy(limit[examples.ids]).float()
    below, above = ((x0 + rescale("linf", delta, limits * factor)).clamp(0, 1) for factor in (0.999, 1.02))
    assert ((ssim(x0, below) >= 0.9) & (psnr(x0, below) >= 30)).all()
    assert ((ssim(x0, above) < 0.9) | (psnr(x0, above) < 30)).all()
    rows = Run.open(run).records()
    assert set(examples.ids.tolist()) == set(rows.sample_id[rows.outcome == "broken"].tolist())


def page_folder(result):
    return Path(result.folder)


def test_the_report_shows_examples_and_broken_shares_at_usual_budgets(result):
    report = result.report()
    (stored,) = (block for block in report.blocks if block.title == "Stored adversarial examples")
    assert len(stored.examples) == 12 and all(len(example.pictures) == 2 for example in stored.examples)
    facts, arrays = load_folder(page_folder(result))
    share = float((sample_limits(facts, arrays["samples"], "l2")["label"] < 1).mean())
    (usual,) = (block for block in report.blocks if block.title == "Effects of usual budgets, L2")
    assert 0.05 < share < 0.95 and {row[0]: row[1].value for row in usual.rows}["1"] == share
    linf = result.norms[0]
    (reasons,) = (block for block in report.blocks if block.title == "Reasons, norm by norm")
    assert f"audit up to {linf.audit:.3g}; changes up to {linf.unnoticed:.3g} go" in report.sentences[0]
    assert reasons.sentences[0] == linf.advice
    assert 0 < linf.unnoticed < linf.sound and linf.sound_budgets[-1] == "0.1" and linf.audit < linf.sound


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_in_a_browser(result):
    with chromium() as browser:
        check_everywhere(browser, page_folder(result) / "report.html")


def test_answers_of_people_replace_other_evidence(tmp_path):
    review = answer_review(tmp_path / "review", 0.06)
    (threshold,) = load_thresholds([str(review)])
    assert 0.05 < threshold.overall < 0.07 and threshold.answers == 80
    result = brinell.epsilon("digits", samples=N, evidence=str(review), norm="linf", out=tmp_path / "advice")
    (linf,) = result.norms
    assert linf.judged_on == "people" and 0.04 < linf.unnoticed < 0.08
    assert "people noticed half of the changes of this size" in linf.advice
    _, arrays = load_folder(tmp_path / "advice")
    by_class = {int(label): threshold.per_class.get(int(label), threshold.overall) for label in arrays["samples"]["labels"]}
    np.testing.assert_allclose(
        arrays["samples"]["linf.unnoticed"], [by_class[int(label)] for label in arrays["samples"]["labels"]]
    )


def test_evidence_that_does_not_fit_is_refused(run, tmp_path):
    blind = tmp_path / "blind"
    brinell.review("digits", norm="linf", trials=10, eps="0.1", out=blind)
    for evidence, settings, text in (
        (str(run), {"norm": "l2"}, "is evidence for linf, which the request leaves out: add linf to"),
        (str(tmp_path), {}, "no run folder"),
        (str(blind), {}, "too few for a threshold"),
    ):
        with pytest.raises(RequestError, match=text):
            brinell.epsilon("digits", samples=N, evidence=evidence, out=tmp_path / "advice", **settings)
    with pytest.raises(RequestError, match="was made from other data"):
        brinell.epsilon("digits?split=train", samples=N, evidence=str(run), norm="linf", out=tmp_path / "advice")


def test_a_norm_without_unnoticed_changes_still_has_a_sound_range(tmp_path):
    result = brinell.epsilon("digits", samples=N, norm="l0", out=tmp_path / "advice")
    (l0,) = result.norms
    assert l0.unnoticed == 0 and l0.sound >= 5
    assert "Every change in this norm may be noticed" in l0.advice
