"""Models that answer as web services do: a label, its probability, the largest ones, percentages."""

import numpy as np
import pytest
import torch

import brinell
from _helpers import mlp

N, CLASSES, EPS = 60, 5, 0.1
NET = mlp(6, CLASSES, seed=4)
X = torch.rand(N, 6, generator=torch.Generator().manual_seed(1)).numpy()
Y = NET(torch.as_tensor(X)).argmax(1).numpy()


def probabilities(x):
    with torch.no_grad():
        return NET(torch.as_tensor(np.asarray(x), dtype=torch.float32)).double().softmax(1).numpy()


def largest(p, k, fill):
    """The k largest probabilities, and 0 or equal shares of the rest for the others."""
    is_shown = p >= np.sort(p, 1)[:, -k][:, None]
    rest = (1 - np.where(is_shown, p, 0).sum(1, keepdims=True)) / (p.shape[1] - k) if fill else 0.0
    return np.where(is_shown, p, rest)


def service(seed):
    """A service with random settings; its name, and the number of scores that it gives."""
    rng = np.random.default_rng(seed)
    k, fill, digits = 1 + seed % 3, bool(rng.integers(2)), int(rng.integers(1, 4))
    confidence = rng.uniform(0.6, 1)
    answer = {
        "largest": lambda x: largest(probabilities(x), k, fill),
        "rounded": lambda x: np.round(probabilities(x), digits),
        "percent": lambda x: np.round(100 * probabilities(x)),
        "largest, rounded": lambda x: np.round(largest(probabilities(x), k, fill), digits),
        "constant": lambda x: np.eye(CLASSES)[probabilities(x).argmax(1)] * confidence,
        "labels": lambda x: probabilities(x).argmax(1),
    }
    name = list(answer)[seed % len(answer)]
    return f"{name} {k} {digits}", answer[name]


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    return robust(
        brinell.audit(NET, (X, Y), eps=EPS, samples=N, out=tmp_path_factory.mktemp("truth") / "run")
    )


def robust(result):
    return result.models[0].robust_accuracy[-1].k


@pytest.mark.nightly
def test_the_figure_is_the_truth_or_a_check_fails(truth, tmp_path_factory):
    for seed in range(12):
        tmp_path = tmp_path_factory.mktemp("row")
        name, answer = service(seed)
        result = brinell.audit(answer, (X, Y), eps=EPS, samples=N, out=tmp_path / "run")
        failed = [check.code for check in result.models[0].checks if check.passed is False]
        assert robust(result) <= truth + 1 or failed, name
        assert truth - 1 <= robust(result) <= truth + 3, (name, failed)
