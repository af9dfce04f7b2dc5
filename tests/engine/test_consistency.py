"""Models whose answers depend on company, place, mode or time are named as such; healthy ones, and
noise, are not.
"""

import pytest
import torch
from torch import nn

import brinell
from _defences import Noisy, OneHot, Wrapper
from _helpers import batch_of, distance, mlp
from brinell.core.checks import Code
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.model import Access
from brinell.core.streams import Streams
from brinell.engine.checks import BEFORE_ATTACKS
from brinell.engine.context import SINGLES, CheckContext
from brinell.models._torch_model import TorchModel

SIX = Domain(kind="vector", shape=(6,))
X = torch.rand(24, 6, generator=torch.Generator().manual_seed(3))
Y = mlp(6, 3)(X).argmax(1)
CONSISTENCY_CODES = (Code.BATCH, Code.MODE, Code.DRIFT)


def probe(module, x=X, batch_size=128, access=Access.GRADIENTS, domain=SIX, extra_calls=0):
    """The findings by code, and the forwards of these checks."""
    model = TorchModel(module, domain, 3)
    model.access = access
    batch = batch_of(x, [0] * len(x))
    context = CheckContext(
        model, batch, distance("linf"), 0.1, Streams.of(0, batch.ids), batch_size=batch_size
    )
    with model.session():
        assert context.answers
        for _ in range(extra_calls):
            context.ask(context.rows)
        forwards = context.costs[0]
        context.make(CHECKS)
    return context.findings, context.costs[0] - forwards


CHECKS = {code: BEFORE_ATTACKS[code] for code in (Code.DRIFT, Code.BATCH, Code.MODE)}


def failed(findings):
    return {code for code, finding in findings.items() if finding.passed is False}


class Trains(Wrapper):
    """Puts itself in training mode in its forward pass."""

    def __init__(self, net):
        super().__init__(net)
        self.norm = nn.BatchNorm1d(6, momentum=0.5)

    def forward(self, x):
        self.train()
        return self.net(self.norm(x))


class Other(Wrapper):
    """Any function of a network and inputs."""

    def __init__(self, net, function):
        super().__init__(net)
        self.function = function

    def forward(self, x):
        return self.function(self.net, x)


def other(function):
    return lambda net: Other(net, function)


def noise_by_row(net, x):
    return net(x) + 0.3 * torch.randn(len(x), 3, generator=torch.Generator().manual_seed(0))


BatchNormed = other(lambda net, x: net(nn.functional.batch_norm(x, None, None, training=True)))
Median = other(lambda net, x: net(x - 0.5 * x.median(0).values))
"""Subtracts what the median input of the batch has, which no function of torch is known for."""
ByGradient = other(lambda net, x: net(x) if not torch.is_grad_enabled() else net(1 - x))
"""Hides behind another model while gradients are asked for."""


class Counting(Wrapper):
    """Multiplies by a factor that follows the number of calls."""

    def __init__(self, net, factor):
        super().__init__(net)
        self.factor, self.calls = factor, 0

    def forward(self, x):
        self.calls += 1
        return self.net(x) * self.factor(self.calls)


def drift(net):
    return Counting(net, lambda calls: 0.998**calls)


def jump(net, call=7):
    return Counting(net, lambda calls: 1 if calls < call else -1)


class Learns(Wrapper):
    """Moves a weight with each call, by so little that no two calls differ visibly."""

    def forward(self, x):
        with torch.no_grad():
            self.net[3].bias[0] += 1e-9
            self.net[3].bias.data[1] += 1e-7
        return self.net(x)


PLANTED = {
    "batch norm": (BatchNormed, {Code.BATCH}),
    "median of the batch": (Median, {Code.BATCH}),
    "noise by row": (other(noise_by_row), {Code.BATCH}),
    "drift": (drift, {Code.DRIFT}),
    "jump": (jump, {Code.DRIFT}),
    "another model for gradients": (ByGradient, {Code.MODE}),
}


def test_each_dependence_is_named():
    for batch_size in [128, 24, 7, 2]:
        for name, (defence, codes) in PLANTED.items():
            if name == "jump" and batch_size < 24:
                continue  # its seventh call is among the first answers, which is for random-answers
            extra_calls = 40 if name == "drift" else 0  # as many calls as the other checks make
            findings, _ = probe(defence(mlp(6, 3)), batch_size=batch_size, extra_calls=extra_calls)
            assert failed(findings) == codes, (name, batch_size)


def test_causes_are_told_where_they_are_known():
    for batch_size in (128, 2):
        findings, _ = probe(Trains(mlp(6, 3)), batch_size=batch_size)
        assert (
            failed(findings) == {Code.BATCH, Code.MODE}
            and "the model, net, net.0 and 4 more" in findings[Code.MODE].text
        )
        text = findings[Code.BATCH].text
        assert "batch norm in training mode" in text and "fails on one alone" in text
    text = probe(BatchNormed(mlp(6, 3)))[0][Code.BATCH].text
    assert "batch norm without statistics" in text and "evaluation mode" not in text
    assert "it normalises by the batch" not in probe(Median(mlp(6, 3)))[0][Code.BATCH].text

    def strict(net, x):
        if len(x) == 1:
            raise ValueError("expected more than 1 value per channel")
        return net(x)

    findings, _ = probe(other(strict)(mlp(6, 3)))
    assert failed(findings) == {Code.BATCH} and "fails on one alone" in findings[Code.BATCH].text
    assert "ask for one" not in findings[Code.BATCH].text, "it fails on one"


def test_healthy_models_pass_and_cost_little():
    for defence in [Wrapper, OneHot]:
        for batch_size in [128, 24, 7, 2, 1]:
            findings, forwards = probe(defence(mlp(6, 3)), batch_size=batch_size)
            assert [findings[code].passed for code in CONSISTENCY_CODES] == [True] * 3
            assert forwards == SINGLES
    for access in (Access.SCORES, Access.LABELS):
        healthy, _ = probe(mlp(6, 3), access=access)
        assert failed(healthy) == set() and healthy[Code.BATCH].passed
        assert failed(probe(BatchNormed(mlp(6, 3)), access=access)[0]) == {Code.BATCH}


def test_one_input_at_a_time_has_no_company():
    """With batch size 1 batch norm removes the input, but the classifier is consistent: no attack
    can gain from the batch.
    """
    findings, _ = probe(Median(mlp(6, 3)), batch_size=1)
    assert failed(findings) == set() and "alone" in findings[Code.BATCH].text
    findings, _ = probe(mlp(6, 3), x=X[:1])
    assert findings[Code.BATCH].passed is None and not failed(findings)


def test_noise_is_no_drift_and_no_company():
    """Random answers fail only their separate check."""
    for scale in (0.01, 1.0):
        findings, forwards = probe(Noisy(mlp(6, 3), scale))
        assert [findings[code].passed for code in CONSISTENCY_CODES] == [
            None,
            True,
            None,
        ] and forwards == 48
        assert "random-answers" in findings[Code.DRIFT].text


def test_half_precision_is_allowed_its_rounding():
    """Kernels in bfloat16 round by company."""

    class Rounded(Wrapper):
        half = True

        def forward(self, x):
            logits = self.net(x.bfloat16().float() if self.half else x) * (1 + 0.01 * (len(x) % 2))
            return logits.bfloat16().float() if self.half else logits

    assert failed(probe(Rounded(mlp(6, 3)), x=X[:23])[0]) == set()
    Rounded.half = False
    assert failed(probe(Rounded(mlp(6, 3)), x=X[:23])[0]) == {Code.BATCH}


# In a run


def audit(module, out, x=X, **options):
    settings = {"eps": "0.05", "attack": ("apgd-ce?steps=5", "square?steps=50"), "batch_size": 8}
    return brinell.audit(module, (x, Y), out=out, **(settings | options)).models[0]


def states(result):
    return {check.code: check.passed for check in result.checks}


def test_batch_norm_in_training_mode_is_marked_or_refused(tmp_path):
    """Pictures can be normalised alone, vectors cannot; that shows when the model is opened."""

    class Pictures(Trains):
        def __init__(self):
            super().__init__(mlp(6, 3))
            self.norm = nn.BatchNorm2d(1)

    result = audit(Pictures(), tmp_path / "run", x=X.reshape(-1, 1, 2, 3))
    assert [states(result)[code] for code in (Code.BATCH, Code.MODE, Code.WEIGHTS)] == [False] * 3
    with pytest.raises(RequestError, match="Expected more than 1 value per channel when training"):
        audit(Trains(mlp(6, 3)), tmp_path / "other")


def test_weights_that_change_while_they_are_asked_are_named(tmp_path):
    result = audit(Learns(mlp(6, 3)), tmp_path / "run")
    assert states(result)[Code.WEIGHTS] is False and states(result)[Code.RANDOM], (
        "no two calls differ visibly"
    )
    assert "changed-weights" in str(result.caveat)


def test_a_late_jump_is_seen_at_the_end(tmp_path):
    result = audit(jump(mlp(6, 3), 150), tmp_path / "run")
    assert (
        states(result)[Code.DRIFT] is False and Code.DRIFT in str(result.caveat) and result.complete
    )
    (message,) = [warning.text for warning in result.warnings if warning.code == Code.DRIFT]
    assert "at the end the model answers 16 of 16 clean inputs differently" in message
