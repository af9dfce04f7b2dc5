"""A cascade leaves out attacks that have no lead to follow, and says so."""

import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import brinell
from brinell.core.checks import Code
from brinell.datasets.digits import Digits
from brinell.engine.adaptive import MASKING, OF_NOISE, needless_stages
from brinell.engine.progress import SilentProgress
from brinell.models.digits_cnn import DigitsCnn


class Hopeless(nn.Module):
    """The built-in network without gradients, or with dropout that never ends."""

    def __init__(self, inner, kind):
        super().__init__()
        self.inner, self.kind = inner, kind

    def forward(self, x):
        if self.kind == "no_grad":
            with torch.no_grad():
                return self.inner(x)
        if self.kind == "detach":
            return self.inner(x.detach())
        return F.dropout(self.inner(x), 0.2, training=True)


class Notes(SilentProgress):
    """Keeps the notes."""

    def __init__(self):
        super().__init__()
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def test_only_noise_or_a_gradient_that_is_nowhere_shortens_a_cascade(subtests):
    for seed in range(30):
        with subtests.test(str((seed,))):
            rng = random.Random(seed)
            codes = rng.sample(sorted(MASKING | {Code.COMPANY, Code.DRIFT}), rng.randint(0, 5))
            share = rng.choice([0.5, 1.0])
            checks = [{"code": code, "passed": rng.choice([True, False, False, None]), "figure": share} for code in codes]
            failed = {check["code"] for check in checks if check["passed"] is False}
            noise, flat, reason = needless_stages(checks)
            assert noise == ({"masked", "blind"} if Code.RANDOM in failed and failed & MASKING <= OF_NOISE else set())
            assert flat == (Code.ZERO in failed and share == 1)
            assert bool(reason) == bool(noise or flat)


@pytest.mark.parametrize(("kind", "reason"), [("detach", "no input has a gradient")])
def test_a_model_without_gradients_is_attacked_by_what_needs_none(tmp_path, kind, reason):
    data = Digits()()
    net, notes = Hopeless(DigitsCnn()(data.domain).module, kind), Notes()
    attack = ["fgsm", "square?steps=300", "apgd-ce?when=masked", "square?steps=500&when=masked"]
    audit = brinell.audit(net, data, samples=16, eps="0.2", attack=attack, out=tmp_path / "r", progress=notes)
    (note,) = [text for text in notes.notes if reason in text]
    assert note.endswith("full budgets go to attacks that need none")
    run = {stage.attack: stage for stage in audit.models[0].stages}
    assert run["apgd-ce?when=masked"].forwards == 0 and run["square?steps=500&when=masked"].forwards > 0
    assert audit.models[0].robust_accuracy[-1].value < 0.7, "what needs no gradient breaks samples"


@pytest.mark.slow
def test_random_answers_go_straight_to_means(tmp_path):
    data = Digits()()
    net, notes = Hopeless(DigitsCnn()(data.domain).module, "dropout"), Notes()
    attack = ["fgsm", "apgd-ce?steps=5&eot=20&when=random", "square?steps=500&when=masked"]
    audit = brinell.audit(net, data, samples=16, eps="0.02", attack=attack, out=tmp_path / "r", progress=notes)
    assert any("straight to means over several answers" in text for text in notes.notes)
    run = {stage.attack: stage for stage in audit.models[0].stages}
    assert run["square?steps=500&when=masked"].forwards == 0 and run["apgd-ce?steps=5&eot=20&when=random"].forwards > 0
    assert "an estimate" in audit.models[0].verdict or audit.models[0].robust_accuracy[-1].k == 0
    assert brinell.verify(tmp_path / "r", model=net, data=data).exit_code in (0, 4)
