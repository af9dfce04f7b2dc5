"""The zoo of broken defences: each answers as its counterpart does, and its gradient is broken as
it says.
"""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from benchmarks.defences import Answer, verdict
from benchmarks.validity import FEW, cases, part
from benchmarks.zoo import ZOO, load, truth
from benchmarks.zoo.pair import Pair
from benchmarks.zoo.sound import SOUND

SAMPLES = 24
TRAINED = [name for name, entry in ZOO.items() if entry.make.__module__.endswith("trained")]
RANDOM = [name for name, entry in ZOO.items() if entry.flaw == "random"]
GRADIENT = [
    name for name, entry in ZOO.items() if entry.flaw.endswith("gradient") and name not in TRAINED
]
UNTRAINED = [
    name for name, entry in ZOO.items() if entry.flaw in ("none", "answers") and name not in TRAINED
]


@pytest.fixture(scope="module")
def digits():
    return load("digits", SAMPLES)


def gradient(module, base):
    x = base.x.clone().requires_grad_()
    logits = module(x)
    if not logits.requires_grad:
        return torch.zeros_like(x)
    gradient = torch.autograd.grad(
        F.cross_entropy(logits, base.y, reduction="sum"), x, allow_unused=True
    )[0]
    return torch.zeros_like(x) if gradient is None else gradient


def test_defences_and_their_counterparts_answer_alike(digits):
    wrong = []
    for name in (*GRADIENT, *UNTRAINED):
        pair = ZOO[name].build(digits)
        with torch.no_grad():
            defended, counterpart = pair.defended(digits.x), pair.counterpart(digits.x)
        alike = torch.equal(defended.argmax(1), counterpart.argmax(1))
        if not alike or (name in GRADIENT and not torch.allclose(defended, counterpart, atol=1e-5)):
            wrong.append(name)
    assert not wrong


def test_random_defences_and_their_counterparts_agree_on_average(digits):
    draws, wrong = 60, []
    for name in RANDOM:
        pair = ZOO[name].build(digits)
        with torch.no_grad():
            defended, counterpart = (
                torch.stack([net(digits.x) for _ in range(draws)])
                for net in (pair.defended, pair.counterpart)
            )
        error = ((defended.var(0) + counterpart.var(0)) / draws).sqrt().clamp_min(1e-6)
        if (
            not float(defended.std(0).max())
            or float(((defended.mean(0) - counterpart.mean(0)).abs() / error).max()) > 6
        ):
            wrong.append(name)
    assert not wrong


def test_gradients_are_broken(digits):
    wrong = []
    for name in GRADIENT:
        pair = ZOO[name].build(digits)
        # k-WTA's own gradient, averaged over neighbours, is one route; the other takes that of
        # ReLU.
        routes = (pair.defended, pair.surrogates[0] if pair.spread else pair.counterpart)
        broken, intact = (gradient(net, digits).flatten(1) for net in routes)
        distance = float(((broken - intact).norm(dim=1) / intact.norm(dim=1)).mean())
        if distance < 0.2 or (ZOO[name].flaw == "no gradient" and bool(broken.any())):
            wrong.append((name, distance))
    assert not wrong


@pytest.mark.slow
def test_defences_that_are_trainings_learn_and_are_kept(tmp_path, monkeypatch):
    base, wrong, answers = load("digits", SAMPLES, keep=tmp_path), [], {}
    for name in TRAINED:
        pair = ZOO[name].build(base)
        with torch.no_grad():
            answers[name] = pair.defended(base.x)
            alike = torch.equal(answers[name].argmax(1), pair.counterpart(base.x).argmax(1))
        accuracy = float((answers[name].argmax(1) == base.y).float().mean())
        if not alike or accuracy < 0.5 or not gradient(pair.counterpart, base).any():
            wrong.append((name, accuracy))
    assert not wrong
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda *_: pytest.fail("trained again"))
    with torch.no_grad():
        assert not [
            name
            for name in TRAINED
            if not torch.equal(ZOO[name].build(base).defended(base.x), answers[name])
        ]


class Threshold(torch.nn.Module):
    """Two classes by the first pixel: the exact distance to the boundary is that pixel's distance
    from a half.
    """

    def forward(self, x):
        lead = x[:, 0, 0, 0] - 0.5
        return torch.stack([-lead, lead], 1)


def test_the_truth_is_exact_where_the_margin_is_known():
    x = torch.full((5, 1, 2, 2), 0.5)
    x[:, 0, 0, 0] = torch.tensor([0.55, 0.65, 0.75, 0.35, 0.2])
    base = replace(load("digits", 5), net=Threshold(), x=x, y=torch.tensor([1, 1, 1, 0, 1]))
    pair = Pair(defended=Threshold(), counterpart=Threshold())
    # Margins 0.05, 0.15, 0.25, 0.15, and the last sample is wrong from the start.
    assert truth.robust(pair, base, 0.2, flaw="none", steps=20).tolist() == [
        False,
        False,
        True,
        False,
        False,
    ]
    assert truth.robust(pair, base, 0.1, flaw="none", steps=20).tolist() == [
        False,
        True,
        True,
        True,
        False,
    ]


def test_the_truth_sees_through_what_blinds_an_attack():
    """The same figure with the gradient intact and with it gone, and fewer than the blinded
    gradient leaves."""
    digits = load("digits", 12)

    def robust(pair):
        return truth.robust(pair, digits, 0.1, flaw="none", steps=10).tolist()

    intact, blinded = (robust(ZOO[name].build(digits)) for name in ("none", "checkerboard"))
    assert intact == blinded
    blind = Pair(defended=digits.net, counterpart=ZOO["checkerboard"].build(digits).defended)
    assert sum(robust(blind)) > sum(intact)


def test_verdicts_of_a_hundred_samples_with_14_robust():
    rows = [
        (21, (), False, "partial gradient", "clean bill on a wrong figure"),
        (21, (), True, "partial gradient", "wrong, and said to be unsure"),
        (21, ("misleading-gradients",), False, "partial gradient", "ok (named)"),
        (15, (), False, "partial gradient", "ok"),
        (15, ("misleading-gradients",), False, "partial gradient", "ok"),
        (14, ("misleading-gradients",), False, "none", "false alarm"),
        (None, (), False, "answers", "ok (refused)"),
    ]
    outcomes = [
        verdict(Answer(headline=k, failed=codes, caveat=caveat), 14, 100, flaw)
        for k, codes, caveat, flaw, _ in rows
    ]
    assert outcomes == [expected for *_, expected in rows]
    assert [truth.budget(text) for text in ("0.3", "8/255", "0.5/255")] == [0.3, 8 / 255, 0.5 / 255]


def test_sound_cases_are_half_small_a_fifth_linear_and_each_part_has_its_own():
    sample = cases(200, seed=0)
    assert 100 <= sum(len(rows) <= max(FEW) for *_, rows in sample) <= 112
    assert sum(name.startswith("linear") for name, *_ in sample) == 40
    assert {name for name, *_ in sample} == SOUND.keys()
    assert sorted([*part(sample, "1/2"), *part(sample, "2/2")]) == list(enumerate(sample))


def test_sound_models_learn():
    for name in ("linear", "masked-classes", "stumps"):
        model, x, y = SOUND[name]()
        assert float((model(x).argmax(1) == y).float().mean()) > 0.9
