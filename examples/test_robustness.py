"""Robustness as a test: `pytest examples/test_robustness.py` fails where the classifier is less
robust than is demanded.
"""

import pytest
from sklearn.datasets import load_digits
from torch import nn, optim, tensor

import brinell


@pytest.fixture(scope="module")
def trained():
    """A small network on handwritten digits, and samples that it has not seen.

    Yours is loaded here.
    """
    digits = load_digits()
    x, y = digits.images[:, None].astype("float32") / 16, digits.target
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = optim.Adam(model.parameters(), 0.01)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tensor(x[:1300])), tensor(y[:1300])).backward()
        optimizer.step()
    return model, x[1300:], y[1300:]


def test_robust_accuracy(trained, tmp_path):
    """The lower end of the interval counts, so that chance does not pass the test."""
    assert (
        brinell.audit(*trained, eps=8 / 255, samples=100, out=tmp_path / "run")
        .robust(eps=8 / 255)
        .low
        > 0.4
    )
