"""The zoo of broken defences: each answers as its counterpart does, and its gradient is broken as it says."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from benchmarks.defences import ZOO, load, truth
from benchmarks.defences.pair import Pair
from benchmarks.defences.run import Answer, verdict

SAMPLES = 24
RANDOM = [name for name, entry in ZOO.items() if entry.flaw == "random"]
TRAINED = {name for name, entry in ZOO.items() if entry.make.__module__.endswith("trained")}
GRADIENT = [name for name, entry in ZOO.items() if entry.flaw.endswith("gradient") and name not in TRAINED]
UNTRAINED = [name for name, entry in ZOO.items() if entry.flaw in ("none", "answers") and name not in TRAINED]


@pytest.fixture(scope="module")
def digits():
    return load("digits", SAMPLES)


def gradient(module, base):
    x = base.x.clone().requires_grad_()
    logits = module(x)
    if not logits.requires_grad:
        return torch.zeros_like(x)
    gradient = torch.autograd.grad(F.cross_entropy(logits, base.y, reduction="sum"), x, allow_unused=True)[0]
    return torch.zeros_like(x) if gradient is None else gradient


@pytest.mark.parametrize("name", [*GRADIENT, *UNTRAINED])
def test_a_defence_and_its_counterpart_say_the_same(name, digits):
    pair = ZOO[name].build(digits)
    with torch.no_grad():
        defended, counterpart = pair.defended(digits.x), pair.counterpart(digits.x)
    agree = (defended.argmax(1) == counterpart.argmax(1)).float().mean()
    assert agree == 1
    if ZOO[name].flaw.endswith("gradient"):
        torch.testing.assert_close(defended, counterpart)


@pytest.mark.parametrize("name", RANDOM)
def test_a_random_defence_and_its_counterpart_agree_on_average(name, digits):
    pair = ZOO[name].build(digits)
    with torch.no_grad():
        defended, counterpart = (torch.stack([net(digits.x) for _ in range(300)]) for net in (pair.defended, pair.counterpart))
    error = ((defended.var(0) + counterpart.var(0)) / 300).sqrt().clamp_min(1e-6)
    assert float(defended.std(0).max()) > 0, "nothing is random"
    assert float(((defended.mean(0) - counterpart.mean(0)).abs() / error).max()) < 6


@pytest.mark.parametrize("name", GRADIENT)
def test_the_gradient_is_broken(name, digits):
    pair = ZOO[name].build(digits)
    # k-WTA's own gradient, averaged over neighbours, is one route; the other takes that of ReLU.
    routes = (pair.defended, pair.surrogates[0] if pair.spread else pair.counterpart)
    broken, intact = (gradient(net, digits).flatten(1) for net in routes)
    assert float(((broken - intact).norm(dim=1) / intact.norm(dim=1)).median()) > 0.2
    if ZOO[name].flaw == "no gradient":
        assert float(broken.abs().max()) == 0


@pytest.mark.parametrize("name", sorted(TRAINED))
def test_a_defence_that_is_a_training_learns_and_is_kept(name, tmp_path, monkeypatch):
    base = load("digits", SAMPLES, keep=tmp_path)
    pair = ZOO[name].build(base)
    with torch.no_grad():
        answers = pair.defended(base.x)
        assert torch.equal(answers.argmax(1), pair.counterpart(base.x).argmax(1))
    assert float((answers.argmax(1) == base.y).float().mean()) > 0.5
    assert float(gradient(pair.counterpart, base).abs().max()) > 0
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda *_: pytest.fail("trained again"))
    with torch.no_grad():
        assert torch.equal(ZOO[name].build(base).defended(base.x), answers)


def test_a_budget_is_read_as_the_command_line_reads_it():
    assert [truth.budget(text) for text in ("0.3", "8/255", "0.5/255")] == [0.3, 8 / 255, 0.5 / 255]


class Threshold(torch.nn.Module):
    """Two classes by the first pixel: the exact distance to the boundary is that pixel's distance from a half."""

    def forward(self, x):
        lead = x[:, 0, 0, 0] - 0.5
        return torch.stack([-lead, lead], 1)


def test_the_truth_is_exact_where_the_margin_is_known():
    x = torch.full((5, 1, 2, 2), 0.5)
    x[:, 0, 0, 0] = torch.tensor([0.55, 0.65, 0.75, 0.35, 0.2])
    base = replace(load("digits", 5), net=Threshold(), x=x, y=torch.tensor([1, 1, 1, 0, 1]))
    pair = Pair(defended=Threshold(), counterpart=Threshold())
    # Margins 0.05, 0.15, 0.25, 0.15, and the last sample is wrong from the start.
    assert truth.robust(pair, base, 0.2, flaw="none", steps=20).tolist() == [False, False, True, False, False]
    assert truth.robust(pair, base, 0.1, flaw="none", steps=20).tolist() == [False, True, True, True, False]


def test_the_truth_sees_through_what_blinds_an_attack(digits):
    """The same figure with the gradient intact and with it gone, and fewer than the blinded gradient leaves."""
    outputs = {}
    for name in ("none", "all-numpy", "checkerboard"):
        pair = ZOO[name].build(digits)
        outputs[name] = truth.robust(pair, digits, 0.1, flaw=ZOO[name].flaw, steps=20).tolist()
    assert outputs["none"] == outputs["all-numpy"] == outputs["checkerboard"]
    blind = Pair(defended=digits.net, counterpart=ZOO["checkerboard"].build(digits).defended)
    assert sum(truth.robust(blind, digits, 0.1, flaw="none", steps=20).tolist()) > sum(outputs["none"])


@pytest.mark.parametrize(
    ("headline", "failed", "flaw", "expected"),
    [
        (21, (), "partial gradient", "clean bill on a wrong figure"),
        (21, ("misleading-gradients",), "partial gradient", "ok (named)"),
        (15, (), "partial gradient", "ok"),
        (15, ("misleading-gradients",), "partial gradient", "ok"),
        (14, ("misleading-gradients",), "none", "false alarm"),
        (None, (), "answers", "ok (refused)"),
    ],
)
def test_verdicts_of_a_hundred_samples_with_14_robust(headline, failed, flaw, expected):
    assert verdict(Answer(headline=headline, failed=failed, robust=np.ones(100, bool)), 14, 100, flaw) == expected


def test_a_headline_that_says_it_is_unsure_is_no_clean_bill():
    assert verdict(Answer(headline=21, caveat=True), 14, 100, "partial gradient") == "wrong, and said to be unsure"
