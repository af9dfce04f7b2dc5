"""Runs of models that answer at random: honest ones verify, and runs with more robust samples than
there are do not.
"""

import shutil

import numpy as np
import pytest
import torch

import brinell
from _forger import Forger, whitewash
from brinell.analysis.spot_checks import MISSED, miss_probability, most_earlier
from brinell.core.errors import BrinellError

SAMPLES = 24


class Noisy(torch.nn.Module):
    """A linear model of the mean, whose answers scatter by so much."""

    def __init__(self, scatter=1.0):
        super().__init__()
        self.scatter = scatter

    def forward(self, x):
        z = 40 * (x.flatten(1).mean(1) - 0.5) + self.scatter * torch.randn(len(x))
        return torch.stack([z, -z], 1)


def samples(n, low=0.0, high=1.0):
    """So many pictures of noise, half of them bright, with their labels."""
    rng = np.random.default_rng(0)
    x = rng.uniform(low, high, (n, 1, 4, 4)).astype(np.float32)
    x += np.where(np.arange(n) % 2, 0.25, -0.25).astype(np.float32)[:, None, None, None]
    return x.clip(0, 1), (np.arange(n) % 2 == 0).astype(np.int64)


@pytest.fixture(scope="module")
def data():
    return samples(SAMPLES)


@pytest.fixture(
    scope="module", params=["fgsm", pytest.param("pgd?steps=3&eot=4", marks=pytest.mark.slow)]
)
def honest(request, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("random") / "run"
    brinell.audit(Noisy(), *data, eps="0.1,0.4", attack=request.param, out=folder)
    return folder


def test_an_honest_run_of_a_random_model_is_not_refused(honest, data):
    """So few samples decide nothing: two forged ones of 24 would be missed."""
    for _ in range(2):
        result = brinell.verify(honest, Noisy(), *data, replay=SAMPLES)
        assert result.exit_code == 4 and result.undecided, result.problems
    assert "by how its answers scatter" in result.coverage


def invent(run, forged, rng):
    """Make so many samples robust that a run broke, drawn at random."""
    forger = Forger(run)
    stage = forger.manifest["stages"][0]["name"]
    broken = sorted({row["sample_id"] for row in forger.select(stage, "broken")})
    invented = rng.choice(broken, min(forged, len(broken)), replace=False).tolist()
    cost = {
        name: max(row[name] for row in forger.select(stage)) for name in ("forwards", "backwards")
    }
    whitewash(forger, invented, lambda stage: cost)
    forger.delete_inputs(invented)
    forger.save()


@pytest.mark.slow
def test_robust_samples_of_a_random_model_are_not_invented(honest, data, tmp_path):
    run = shutil.copytree(honest, tmp_path / "run")
    invent(run, 16, np.random.default_rng(0))
    try:
        result = brinell.verify(run, Noisy(), *data, replay=SAMPLES)
    except BrinellError:
        return
    assert result.status == "refused" and "more often than chance" in result.problems[0].description


@pytest.mark.slow
@pytest.mark.parametrize("scatter", [0.05, 2.0])
def test_a_tenth_of_invented_samples_is_not_proved(tmp_path, scatter):
    """10, 20 and 30 of 100 samples, by default as many as verification draws."""
    model, data = Noisy(scatter), samples(100, 0.3, 0.7)
    brinell.audit(model, *data, eps="0.15,0.3,0.4", attack="fgsm", out=tmp_path / "run")
    rng = np.random.default_rng(75)
    for forged in (10, 20, 30):
        run = shutil.copytree(tmp_path / "run", tmp_path / str(forged))
        invent(run, forged, rng)
        result = brinell.verify(run, model, *data)
        assert result.exit_code in (1, 4), (scatter, forged, result.coverage)


def test_how_many_samples_may_break_earlier_by_chance():
    assert [most_earlier(turned) for turned in (0, 9, 10, 11, 12)] == [0, 9, 9, 10, 11]


def test_how_likely_a_forgery_is_missed_among_scattered_answers():
    """Counted over draws of samples, and of those that break otherwise by chance."""
    rng, samples, draws, turning = np.random.default_rng(), 40, 24, 0.25
    for forged in (4, 12, 30):
        hits = rng.hypergeometric(forged, samples - forged, draws, 20_000)
        turned = np.round(turning * (draws - hits)).astype(int)
        earlier = hits + rng.binomial(turned, 0.5)
        missed = np.mean(
            [k <= most_earlier(n, MISSED) for k, n in zip(earlier, hits + turned, strict=True)]
        )
        assert abs(missed - miss_probability(samples, draws, forged, turning)) < 0.02
