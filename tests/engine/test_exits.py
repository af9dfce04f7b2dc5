"""Models whose code ends in the middle of a run: by `sys.exit`, or by an error that `except
Exception` does not see.
"""

import random

import pytest
import torch
from torch import nn

import brinell


class Left(BaseException):
    """An error that `except Exception` does not see."""


class Net(nn.Module):
    """A network that raises from some question on."""

    def __init__(self, error, first):
        super().__init__()
        self.head, self.error, self.first, self.asked = nn.Linear(64, 3), error, first, 0

    def forward(self, x):
        self.asked += 1
        if self.asked >= self.first:
            raise self.error
        return self.head(x.flatten(1))


def exits(code):
    """What `sys.exit` raises."""
    return SystemExit(code)


def test_a_model_that_exits_ends_the_call_by_an_error_of_one_line(tmp_path_factory, subtests):
    for seed in range(10):
        with subtests.test(str((seed,))):
            tmp_path = tmp_path_factory.mktemp("row")
            rng = random.Random(seed)
            error = rng.choice(
                [
                    exits(0),
                    exits(None),
                    exits("two\nlines"),
                    Left("two\nlines"),
                    GeneratorExit(),
                    exits(3),
                ]
            )
            first, data = (
                rng.choice([1, 2, 3, 6, 10]),
                (torch.rand(6, 1, 8, 8), torch.arange(6) % 3),
            )
            net = Net(error, first)
            model = net if rng.random() < 0.5 else lambda x: net(torch.as_tensor(x))
            with pytest.raises(brinell.BrinellError) as failure:
                brinell.audit(model, data, eps=0.1, attack="fgsm", out=tmp_path / "run")
            assert type(error).__name__ in str(failure.value) and "\n" not in str(failure.value)
            net.asked = 0
            try:
                brinell.attack(model, *data, attack="pgd?steps=12", eps=0.1)
                assert net.asked < first
            except brinell.BrinellError as failure_of_batch:
                assert type(error).__name__ in str(failure_of_batch) and "\n" not in str(
                    failure_of_batch
                )


def test_the_error_of_a_model_that_exits_later_is_a_model_error(tmp_path):
    data = (torch.rand(6, 1, 8, 8), torch.arange(6) % 3)
    with pytest.raises(brinell.core.errors.ModelError, match="SystemExit"):
        brinell.audit(Net(exits(0), 4), data, eps=0.1, attack="fgsm", out=tmp_path / "run")


def test_an_interruption_by_hand_is_passed_on(tmp_path):
    data = (torch.rand(6, 1, 8, 8), torch.arange(6) % 3)
    with pytest.raises(KeyboardInterrupt):
        brinell.audit(
            Net(KeyboardInterrupt(), 4), data, eps=0.1, attack="fgsm", out=tmp_path / "run"
        )
