"""A reject class that is decided without a slope is noticed."""

import numpy as np
import torch
from torch import nn

import brinell
from _helpers import batch_of, distance
from brinell.core.checks import Code
from brinell.core.domain import Domain
from brinell.core.streams import Streams
from brinell.engine import rejection
from brinell.engine.context import CheckContext
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


def finding_on(decide, eps=0.4):
    model = TorchModel(Rejecting(decide), THREE)
    batch = batch_of(LINE, [0] * 24)
    context = CheckContext(model, batch, distance("linf"), eps, Streams.of(0, batch.ids), batch_size=32, reject=REJECT)
    (finding,) = context.make({Code.REJECTION: rejection.rejection_jumps})
    return finding, context.ledgers[0]


def test_a_rule_without_a_slope_jumps(subtests):
    for decide, passed in [(smooth, True), (by_thousands, False), (by_one, False), (never, None)]:
        with subtests.test(str((decide, passed))):
            finding, _ = finding_on(decide)
            assert finding.passed is passed and finding.code == "rejection-jumps"
            if passed is not None:
                assert finding.figure == (0.0 if passed else 1.0)


def test_the_cost_is_as_told():
    _, ledger = finding_on(never)
    assert ledger.costs.forwards.tolist() == [7] * 24 and ledger.costs.backwards.tolist() == [6] * 24


def audit(decide, out):
    """Class 1 lies beyond the rejections, which begin near 0.45 and end near 0.55: eps 0.3 leads past them from 0.25 on."""
    settings = {
        "eps": "0.3",
        "attack": ("apgd-ce?steps=10", "square?steps=100"),
        "reject_class": "last",
        "norm": "linf",
    }
    return brinell.audit(Rejecting(decide), (LINE, np.zeros(24, dtype=np.int64)), out=out, **settings).models[0]


def test_an_audit_says_so(tmp_path):
    jumping, sloping = audit(by_thousands, tmp_path / "a"), audit(smooth, tmp_path / "b")
    assert jumping.robust_accuracy[-1].k >= sloping.robust_accuracy[-1].k < 24
    checks = [{check.code: check.passed for check in result.checks}.get("rejection-jumps") for result in (jumping, sloping)]
    assert checks == [False, True]
    assert any("by a rule without a slope" in check.text for check in jumping.checks if check.passed is False)
