"""A reject class that is decided without a slope: noticed, and replaced by a smooth rule that decides alike."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import brinell
from _helpers import batch_of, distance
from brinell.core.domain import Domain
from brinell.engine import rejection
from brinell.models._torch_model import TorchModel

THREE = Domain(kind="vector", shape=(3,))
REJECT = 3
LINE = np.stack([np.linspace(0.05, 0.35, 24), np.full(24, 0.1), np.full(24, 0.1)], 1).astype(np.float32)


class Rejecting(nn.Module):
    """Three classes by three values, and a fourth that rejects inputs whose largest probability is below 0.6."""

    def __init__(self, decide):
        super().__init__()
        self.decide = decide

    def forward(self, x):
        z = 4 * torch.stack([0.5 - x[:, 0], x[:, 0] - 0.5, 0.3 * x[:, 1] - 1], 1)
        return torch.cat([z, self.decide(z, z.logsumexp(1) + np.log(0.6))[:, None]], 1)


def smooth(z, rule):
    return rule


def by_thousands(z, rule):
    return torch.where(rule > z.amax(1), 1e3, -1e3)


def by_one(z, rule):
    return z.amax(1) + torch.where(rule > z.amax(1), 1.0, -1.0)


def never(z, rule):
    return z.amax(1) - 5


def path_of(decide, eps=0.4):
    model = TorchModel(Rejecting(decide), THREE)
    return model, *rejection.follow_gradient(model, batch_of(LINE, [0] * 24), distance("linf"), eps, REJECT, batch_size=32)


def test_a_rule_without_a_slope_jumps(subtests):
    for decide, passed in [(smooth, True), (by_thousands, False), (by_one, False), (never, None)]:
        with subtests.test(str((decide, passed))):
            _, path, ledger = path_of(decide)
            finding = rejection.check_sharpness(path, ledger, REJECT)
            assert finding.passed is passed and finding.code == "rejection-jumps"
            if passed is not None:
                assert finding.figure == (0.0 if passed else 1.0)


def test_the_cost_is_as_told():
    _, _, ledger = path_of(smooth)
    assert ledger.costs.forwards.tolist() == [7] * 24 and ledger.costs.backwards.tolist() == [6] * 24


@pytest.fixture(scope="module")
def rule():
    return rejection.fit_rule(path_of(by_thousands)[1], REJECT)


def test_the_rule_decides_as_the_model_does(rule):
    assert rule.error <= 0.05
    other_logits = torch.tensor([[3.0, -3.0, -9.0], [0.1, -0.1, -9.0]])
    assert (rule.score(other_logits) > 0).tolist() == [False, True]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), decide=st.sampled_from([by_thousands, by_one]))
def test_the_classes_are_those_of_the_model(rule, seed, decide):
    """Also where the rule is wrong: it was fitted on other inputs."""
    model = TorchModel(Rejecting(decide), THREE)
    x = torch.rand(50, 3, generator=torch.Generator().manual_seed(seed))
    logits = rejection.SmoothRejection(model, rule).predict(x)
    assert (logits.argmax(1) == model.predict(x).argmax(1)).all()
    assert (logits[:, :REJECT] == model.predict(x)[:, :REJECT]).all()


def test_the_gradient_is_that_of_the_rule_also_where_it_is_overruled(rule):
    smoothed = rejection.SmoothRejection(TorchModel(Rejecting(never), THREE), rule)
    x = torch.tensor([[0.49, 0.1, 0.1]], requires_grad=True)
    answer = smoothed.predict(x)
    (answer[:, REJECT] - answer[:, :REJECT].amax(1)).sum().backward()
    assert answer.argmax(1) != REJECT and x.grad[0, 0] > 0, "nearer to 0.5 the rule rejects more"


def test_what_the_other_logits_do_not_determine_is_not_fitted():
    shape = (7, 24)
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(*shape, 4, generator=draw)
    logits[..., REJECT] = torch.where(torch.rand(shape, generator=draw) > 0.5, 100.0, -100.0)
    assert rejection.fit_rule(rejection.GradientPath(torch.zeros(*shape, 3), logits), REJECT) is None
    logits[..., REJECT] = -100.0
    assert rejection.fit_rule(rejection.GradientPath(torch.zeros(*shape, 3), logits), REJECT) is None, "nothing is rejected"


def audit(decide, out):
    """Class 1 lies beyond the rejections, which begin near 0.45 and end near 0.55: eps 0.3 leads past them from 0.25 on."""
    settings = {
        "eps": "0.3",
        "attack": ("apgd-ce?steps=10", "apgd-t?steps=10&gradient=repaired"),
        "reject_class": "last",
        "norm": "linf",
    }
    return brinell.audit(Rejecting(decide), (LINE, np.zeros(24, dtype=np.int64)), out=out, **settings).models[0]


def test_an_audit_goes_around_it_and_says_so(tmp_path):
    jumping, sloping = audit(by_thousands, tmp_path / "a"), audit(smooth, tmp_path / "b")
    assert jumping.robust_accuracy[-1].k == sloping.robust_accuracy[-1].k < 24
    checks = [{check.code: check.passed for check in result.checks}.get("rejection-jumps") for result in (jumping, sloping)]
    assert checks == [False, True]
    assert [repair.way for repair in jumping.ways_around] == [
        "a smooth rule fitted to the rejections"
    ] and not sloping.ways_around
    assert any("by a rule without a slope" in check.text for check in jumping.checks if check.passed is False)
