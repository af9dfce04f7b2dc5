"""Criteria of probability and rank: known distances to the threshold, clean figures, verification,
and refusals.
"""

import math
import shutil

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from _forger import Forger, survive
from brinell.core.criterion import MISCLASSIFIED, TopK, WrittenProbability
from brinell.core.errors import RequestError
from brinell.core.intervals import clopper_pearson_low
from brinell.engine.criteria import parse_threshold

STEEP = 20.0
BUDGETS = (0.05, 0.1, 0.15, 0.2)
DISTANCES = np.array([0.0, 0.026, 0.073, 0.127, 0.174, 0.226])
"""Linf distances of the samples to the threshold: one that meets it, one between each two
budgets, and one beyond all."""


class TwoClasses(nn.Module):
    """The log-odds of class 1 are `STEEP` times the mean of the values minus 0.5."""

    def forward(self, x):
        lead = STEEP * (x.mean(1) - 0.5)
        return torch.stack([torch.zeros_like(lead), lead], 1)


class Rising(nn.Module):
    """Class 0 beats class 1 by 1 everywhere, and the logit of class 2 rises with the mean of the
    values."""

    def forward(self, x):
        lead = STEEP * (x.mean(1) - 0.5)
        return torch.stack([torch.ones_like(lead), torch.zeros_like(lead), lead], 1)


class Ranked(nn.Module):
    """Class 1 is always before class 0, and class 2 comes before it where the mean of the values
    exceeds a half."""

    def forward(self, x):
        lead = STEEP * (x.mean(1) - 0.5)
        return torch.stack([torch.zeros_like(lead), torch.ones_like(lead), lead, lead - 9], 1)


def inputs(boundary):
    """Samples (6, 4) whose mean is below `boundary` by `DISTANCES`, the first above it."""
    means = boundary - DISTANCES
    means[0] = boundary + 0.01
    return np.repeat(means[:, None], 4, 1).astype(np.float32)


def linear(classes, n, seed):
    """A linear model of 4 values whose classes are about as frequent on its n samples."""
    rng, module = torch.Generator().manual_seed(seed), nn.Linear(4, classes)
    x = torch.rand(n, 4, generator=rng)
    with torch.no_grad():
        module.weight[:] = 2 * torch.randn(classes, 4, generator=rng)
        module.bias[:] = -(x @ module.weight.T).mean(0)
    return module, x.numpy()


def logit(probability):
    return math.log(probability / (1 - probability))


def audit(module, x, y, out, criterion, **options):
    settings = {"eps": ",".join(map(str, BUDGETS)), "attack": "apgd-ce?steps=20"} | options
    return brinell.audit(module, (x, np.asarray(y)), out=out, criterion=criterion, **settings)


TRUE_BOUNDARY = 0.5 + logit(0.9) / STEEP
"""Mean at which class 0 has a probability of 0.1."""
WRONG_BOUNDARY = 0.5 + (logit(0.9) + math.log(math.e + 1)) / STEEP
"""Mean at which class 2 of `Rising` has a probability of 0.9."""


KNOWN = {
    "true<0.1": (TwoClasses(), TRUE_BOUNDARY),
    "class=2>0.9": (Rising(), WRONG_BOUNDARY),
    "top2": (Ranked(), 0.5),
}
SLOW = ["fab?steps=30", "square?steps=300", "ray-s?steps=2000"]


@pytest.mark.parametrize("criterion", KNOWN)
@pytest.mark.parametrize(
    "attacks", [["apgd-ce?steps=10"], pytest.param(SLOW, marks=pytest.mark.slow)], ids=len
)
def test_the_share_is_that_of_the_known_distances(attacks, criterion, tmp_path):
    (module, boundary), y = KNOWN[criterion], np.zeros(6, np.int64)
    x = inputs(boundary)
    for attack in attacks:
        result = audit(module, x, y, tmp_path / attack, criterion, attack=attack)
        assert (result.clean().k, result.clean().n) == (5, 6), attack
        assert [rate.k for rate in result.models[0].robust_accuracy] == [4, 3, 2, 1], attack
    assert (
        brinell.verify(tmp_path / attacks[-1], module, (x, y), trust=tmp_path / attacks[-1]).status
        != "refused"
    )


def test_classes_without_samples_are_counted_without_that_of_the_criterion(tmp_path):
    """Of three classes one or two have samples; of the class of the criterion no sample can be."""
    x = inputs(WRONG_BOUNDARY)
    cases = {("true<0.1", 1): 2, ("true<0.1", 2): 1, ("class=2>0.9", 1): 1, ("class=2>0.9", 2): 0}
    for (criterion, classes), expected in cases.items():
        data = brinell.data(x, np.arange(6) % classes, classes=["a", "b", "c"])
        out = tmp_path / f"{classes}{criterion}"
        result = brinell.audit(
            Rising(), data, eps="0.1", attack="fgsm", criterion=criterion, out=out
        )
        assert result.models[0].classes_without_samples == expected, (criterion, classes)


def test_the_clean_share_is_no_accuracy(tmp_path):
    """A wrong answer with a probability of 0.27 for the true class does not meet true<0.1, nor does
    a right one of 0.51."""
    means = np.array([0.55, 0.499, 0.65])
    result = audit(
        TwoClasses(),
        np.repeat(means[:, None], 4, 1).astype(np.float32),
        [0, 0, 0],
        tmp_path / "run",
        "true<0.1",
    )
    assert (result.clean().k, result.clean().n) == (2, 3)
    clean = [row for row in Forger(tmp_path / "run").select("clean")]
    assert [row["outcome"] for row in clean] == ["unmet", "unmet", "met"]
    assert [row["clean_pred"] for row in clean] == [1, 0, 1]


def test_of_two_classes_a_half_is_misclassification(tmp_path):
    module, x = linear(classes=2, n=24, seed=0)
    y = (module(torch.as_tensor(x)).argmax(1).numpy() + (np.arange(24) % 8 == 0)) % 2
    unmet, robust = (
        audit(module, x, y, tmp_path / str(text), text).models[0] for text in ("true<0.5", None)
    )
    counts = [
        [rate.k for rate in (model.clean_accuracy, *model.robust_accuracy)]
        for model in (unmet, robust)
    ]
    assert counts[0] == counts[1] and 0 < counts[0][-1] < counts[0][0], (
        "the budgets break some and leave some"
    )


def test_attacks_see_logits_whose_lead_is_the_margin():
    for classes in [2, 3, 7]:
        thresholds = [
            WrittenProbability(true_below=0.05),
            WrittenProbability(true_below=0.6),
            WrittenProbability(wrong_class=0, wrong_above=0.3),
        ]
        for threshold in [*thresholds, TopK(1), *[TopK(2)] * (classes > 2)]:
            logits = 6 * torch.randn(200, classes, generator=torch.Generator().manual_seed(1))
            y = torch.randint(1, classes, (200,), generator=torch.Generator().manual_seed(2))
            logits.requires_grad_()
            view, margin = (
                threshold.logits_for_attack(logits, y),
                threshold.margin(logits, y, logits),
            )
            torch.testing.assert_close(
                MISCLASSIFIED.margin(view, y, view), margin, atol=1e-4, rtol=1e-4
            )
            decided = margin.abs() > 1e-3
            assert ((view.argmax(1) != y) == (margin > 0))[decided].all()
            assert (margin > 0).any() and (margin < 0).any()
            (grad,) = torch.autograd.grad(view.sum(), logits)
            assert grad.isfinite().all()


CLASSES = ("cat", "dog", "a<b")


def test_texts():
    for text, described in (
        ("true<0.1", (0.1, None, None)),
        (" true < 1e-3 ", (0.001, None, None)),
        ("class=dog>0.9", (None, 1, 0.9)),
        ("class=2 > .5", (None, 2, 0.5)),
        ("class=a<b>0.5", (None, 2, 0.5)),
    ):
        threshold = parse_threshold(text, CLASSES)
        assert (threshold.true_below, threshold.wrong_class, threshold.wrong_above) == described
        assert parse_threshold(threshold.text, CLASSES) == threshold, (
            "what is recorded can be typed"
        )
    for text in ("top5", " top-5", "top:5"):
        assert parse_threshold(text, CLASSES) == parse_threshold(TopK(5).text, CLASSES) == TopK(5)
    for text in (
        "",
        "top",
        "top-x",
        "true",
        "true<",
        "true>0.1",
        "true<0",
        "true<1",
        "true<nan",
        "class=cow>0.9",
        "class=cat<0.9",
    ):
        with pytest.raises(RequestError) as refusal:
            parse_threshold(text, CLASSES)
        assert "\n" not in str(refusal.value)


def test_what_cannot_be_combined_is_refused_first(tmp_path_factory):
    for options, message in [
        ({"targeted": "1"}, "leave one of them out"),
        ({"reject_class": "1"}, "leave one of them out"),
        ({"certify": True}, "does not go with --criterion|does not go with criterion"),
        ({"criterion": "class=7>0.9"}, "no class 7"),
        ({"criterion": "top2"}, "the first 2 of 2 classes"),
        ({"criterion": "top0"}, "the first 0 of 2 classes"),
        ({"criterion": "class=0>0.9"}, "all samples are of the class of criterion"),
    ]:
        tmp_path = tmp_path_factory.mktemp("row")
        with pytest.raises(RequestError, match=message):
            audit(
                TwoClasses(),
                inputs(TRUE_BOUNDARY),
                [0] * 6,
                tmp_path / "run",
                options.pop("criterion", "true<0.1"),
                **options,
            )
        assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("threshold") / "run"
    options = {"eps": "0.1,0.2", "attack": "apgd-ce?steps=20", "samples": 12}
    brinell.audit("digits-cnn", "digits", criterion="true<0.1", out=folder, **options)
    return folder


def test_a_gate_judges_the_share_by_its_name(run):
    rate = brinell.open(run).robust(0.1)
    low = clopper_pearson_low(rate.k, rate.n, 0.025)
    gate = brinell.gate(run, unmet=low - 0.01, eps=0.1, without_checks=True)
    assert gate.passed and any("does not meet" in check.name for check in gate.checks)
    assert not brinell.gate(run, unmet=low + 0.01, eps=0.1, without_checks=True).passed
    with pytest.raises(RequestError, match="not robust accuracy"):
        brinell.gate(run, robust=0.5, eps=0.1, without_checks=True)


def test_a_forged_run_is_not_proved(run, tmp_path):
    assert brinell.verify(run, replay=12, trust=run).status == "proved"

    def lenient(forger):
        forger.manifest["criterion"] |= {"true_below": 0.3, "text": "true<0.3"}

    def margin(forger):
        forger.change(
            "margin",
            -0.5,
            attack="clean",
            samples=[next(forger.select("clean", "unmet"))["sample_id"]],
        )

    def survived(forger):
        for row in list(forger.select(outcome="broken")):
            survive(row)

    def met(forger):
        forger.change(
            "outcome",
            "correct",
            attack="clean",
            samples=[next(forger.select("clean", "unmet"))["sample_id"]],
        )

    for forge in (lenient, margin, survived, met):
        shutil.copytree(run, tmp_path / forge.__name__)
        forger = Forger(tmp_path / forge.__name__)
        forge(forger)
        forger.save()
        try:
            status = brinell.verify(forger.path, replay=12, trust=forger.path).status
        except brinell.BrinellError:
            status = "refused"
        assert status == "refused", forge.__name__
