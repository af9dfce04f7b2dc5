"""A model is judged by what it returns: the class that its answer names, whatever the size, offset
and type of its scores.
"""

import random

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from _helpers import Recorder, batch_of, mlp, threat_of
from brinell.core import losses
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.models._answers import CONVERSIONS, LogitModel

NETWORK = mlp(classes=5, seed=1)
X = torch.rand(24, 6, generator=torch.Generator().manual_seed(0))
SIX = Domain(kind="vector", shape=(6,))
ATTACKS = ("apgd-dlr?steps=8", "square?steps=20")


class Scored(nn.Module):
    """The network with a factor, an offset, masked classes behind its own, and a type of numbers."""

    def __init__(self, factor=1.0, offset=0.0, masked=0, low=-torch.inf, dtype=torch.float32):
        super().__init__()
        self.network, self.factor, self.offset = NETWORK, factor, offset
        self.masked, self.low, self.dtype = masked, low, dtype

    def forward(self, x):
        logits = self.network(x) * self.factor + self.offset
        return torch.cat([logits, logits.new_full((len(x), self.masked), self.low)], 1).to(
            self.dtype
        )


def draw(rng, *, exact):
    """Settings of a `Scored` at random; if `exact`, those by which no digit of a lead is lost."""
    masked = rng.choice([0, 1, 2])
    low = rng.choice([-torch.inf, -1e9, -1e4])
    if exact:
        return {
            "factor": 2.0 ** rng.randint(-99, 99 if low == -torch.inf or not masked else 3),
            "masked": masked,
            "low": low,
        }
    if rng.random() < 0.5:
        return {"dtype": rng.choice([torch.float16, torch.bfloat16]), "masked": masked, "low": low}
    return {
        "offset": rng.choice([-1, 1]) * 10.0 ** rng.uniform(-30, 30),
        "masked": masked,
        "low": -torch.inf,
    }


@pytest.mark.parametrize("number", range(8))
def test_figures_are_those_of_the_model_and_verify_accepts_them(tmp_path, number):
    """Robust counts of the plain network are 13 and 1; a model that loses digits has those of its
    own answers.
    """
    settings = draw(random.Random(number), exact=number % 2 == 0)
    model, y = Scored(**settings), NETWORK(X).argmax(1)
    with torch.no_grad():
        clean = int((model(X).argmax(1) == y).sum())
    result = brinell.audit(
        model, X, y, eps=[0.05, 0.15], attack=ATTACKS, out=tmp_path / "run", progress=False, seed=3
    )
    counts = [rate.k for rate in result.models[0].robust_accuracy]
    assert result.models[0].clean_accuracy.k == clean, settings
    if abs(settings.get("offset", 0)) < 1e5:
        assert counts == [13, 1], settings
    elif clean < 24:
        assert counts[0] <= clean, settings
    assert brinell.verify(tmp_path / "run", model, (X, y)).status == "proved", settings


def test_the_ledger_counts_the_answers_that_name_another_class():
    """At any size, offset and type, of random inputs and of those on a boundary, where an input
    alone is rounded otherwise."""
    rng = random.Random(5)
    for number in range(120):
        settings = draw(rng, exact=number % 2 == 0)
        model = Scored(**settings)
        x = torch.rand(32, 6, generator=torch.Generator().manual_seed(number))
        ends = x.flip(0)
        with torch.no_grad():
            first = NETWORK(x).argmax(1)
            for _ in range(rng.choice([0, 24])):  # nearer and nearer to where the class changes
                middle = (x + ends) / 2
                same = (NETWORK(middle).argmax(1) == first)[:, None]
                x, ends = torch.where(same, middle, x), torch.where(same, ends, middle)
            logits = model(ends).float()
            alone = torch.cat([model(row).argmax(1) for row in ends.split(1)])
        wrong, clear = (
            logits.argmax(1) != first,
            losses.margin(logits, first) > losses.rounding(logits, first),
        )
        ledger = Ledger(
            Recorder(model, SIX, 5 + model.masked),
            batch_of(ends, first),
            threat_of(0.1, domain=SIX, n=32),
        )
        ledger.oracle().scores(ledger.batch.ids, ends)
        assert (
            not (ledger.fooled & ~(wrong & (alone != first))).any() and ledger.fooled[clear].all()
        ), settings
        assert (
            not (ledger.best.margin[~ledger.fooled] > 0).any()
            and ledger.best.margin.isfinite().all()
        ), settings


def test_scores_inside_count_only_where_they_explain_the_answer():
    """Models correct probabilities after a softmax, in place, by a copy, or behind torch's back;
    some rows, or all.
    """
    rng = random.Random(3)
    corrections = [
        lambda p, w: p.mul_(w),
        lambda p, w: p * w,
        lambda p, w: torch.cat([(p[:9] * w).detach(), p[9:]]),
        lambda p, w: torch.from_numpy(
            np.multiply(p.detach().numpy(), w.numpy(), out=p.detach().numpy())
        ),
        lambda p, w: p,
    ]
    for number in range(40):
        correct, weights = (
            corrections[number % 5],
            torch.rand(5, generator=torch.Generator().manual_seed(number)),
        )

        def function(x, correct=correct, weights=weights):
            return correct((3 * NETWORK(x)).softmax(1), weights)

        kind = rng.choice(["probabilities", "sigmoids"])
        model = LogitModel(Recorder(function, SIX, 5), kind)
        leaf = X.clone().requires_grad_()
        logits, answer = model.predict(leaf), function(X)
        assert torch.equal(logits.argmax(1), answer.argmax(1)), number
        if number % 5 == 4:
            assert torch.equal(logits, 3 * NETWORK(X))
        elif number % 5 < 3:
            expected = CONVERSIONS[kind](answer)
            torch.testing.assert_close(logits[:9], expected[:9], atol=1e-4, rtol=1e-4)
        if number % 5 < 2:
            (grad,) = torch.autograd.grad(logits.sum(), leaf)
            assert grad.isfinite().all()


def test_probabilities_that_round_to_one_are_decided_by_the_answer():
    """Two scores above 17 both give the probability 1, of which the first leads; the logits inside
    say otherwise.
    """
    model = LogitModel(
        Recorder(lambda x: torch.tensor([[1.0, 20.0, 30.0]]).expand(len(x), 3).sigmoid(), SIX, 3),
        "sigmoids",
    )
    logits = model.predict(X[:1])
    assert logits.argmax(1).item() == 1 and logits[0, 1] > logits[0, 2] == 30
