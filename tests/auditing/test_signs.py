"""Models that answer suspiciously raise their sign, and honest ones none."""

import pytest
import torch
from torch import nn

from brinell import api
from brinell.auditing.checks import signs
from brinell.core.domain import Domain
from brinell.core.torch_target import TorchTarget

DOMAIN = Domain(kind="image", shape=(1, 4, 4))
X = torch.linspace(0, 1, 24 * 16).reshape(24, 1, 4, 4)


class Random(nn.Module):
    """Logits with noise of its own."""

    def __init__(self):
        super().__init__()
        self.draw = torch.Generator().manual_seed(0)

    def forward(self, x):
        return torch.randn(len(x), 3, generator=self.draw)


class Quantised(nn.Module):
    """Sees its input on 8 levels only, so its gradient is zero everywhere."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 3)
        with torch.no_grad():
            self.linear.weight.copy_(torch.arange(48).reshape(3, 16).sin())

    def forward(self, x):
        return self.linear((x * 8).round().flatten(1) / 8)


class OneHot(nn.Module):
    """Answers with the class alone."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 3)

    def forward(self, x):
        return nn.functional.one_hot(self.inner(x.flatten(1)).argmax(1), 3).float() * 10


def found(module):
    target = TorchTarget(module, DOMAIN)
    with torch.no_grad():
        y = target.predict(X).argmax(1)
    return set(signs(target, X, y))


@pytest.mark.parametrize(
    ("module", "codes"),
    [
        (Random, {"random-answers", "zero-gradients"}),
        (Quantised, {"zero-gradients"}),
        (OneHot, {"zero-gradients"}),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), set()),
    ],
)
def test_each_broken_defence_raises_its_sign(module, codes):
    assert found(module()) == codes


def test_black_box_better_than_white_box_is_told_and_fails_the_gate(tmp_path):
    module = Quantised()
    y = module(X).argmax(1)
    settings = {"eps": "0.3", "norm": "linf", "out": tmp_path / "run"}
    result = api.audit(module, (X, y), attack=("apgd-ce?steps=5&random_start=false", "square?steps=200"), **settings).models[0]
    assert {warning.code for warning in result.warnings} == {"zero-gradients", "gradients-mislead", "black-box-better"}


def test_one_sample_raises_no_alarm():
    from brinell.core.intervals import wilson

    assert wilson(1, 128).low < 0.002 < wilson(8, 1000).low
