"""Runs of models that answer at random: honest ones verify, and runs with more robust samples than
there are do not.
"""

import shutil

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import brinell
from _forger import Forger, whitewash
from brinell.analysis.spot_checks import MISSED, miss_probability, most_earlier
from brinell.core.errors import BrinellError
from brinell.store.files import write_arrays

SAMPLES = 24


class Noisy(torch.nn.Module):
    """A linear model of the mean, whose answers scatter."""

    def forward(self, x):
        z = 40 * (x.flatten(1).mean(1) - 0.5) + torch.randn(len(x))
        return torch.stack([z, -z], 1)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (SAMPLES, 1, 4, 4)).astype(np.float32)
    x += np.where(np.arange(SAMPLES) % 2, 0.25, -0.25).astype(np.float32)[:, None, None, None]
    return x.clip(0, 1), (np.arange(SAMPLES) % 2 == 0).astype(np.int64)


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


@pytest.mark.slow
def test_robust_samples_of_a_random_model_are_not_invented(honest, data, tmp_path):
    forger = Forger(shutil.copytree(honest, tmp_path / "run"))
    stage = forger.manifest["stages"][0]["name"]
    samples = sorted({row["sample_id"] for row in forger.select(stage, "broken")})[:16]
    cost = {
        name: max(row[name] for row in forger.select(stage)) for name in ("forwards", "backwards")
    }
    whitewash(forger, samples, lambda stage: cost)
    for file in (forger.path / "arrays").glob("*-0*"):
        write_arrays(
            file,
            {name: array for name, array in load_file(file).items() if int(name) not in samples},
        )
    forger.save()
    try:
        result = brinell.verify(forger.path, Noisy(), *data, replay=SAMPLES)
    except BrinellError:
        return
    assert result.status == "refused" and "more often than chance" in result.problems[0].description


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
