"""The likelihood by which the trust in surrogates is chosen."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from rlab.surrogates import Answer, likelihood

from brinell.rlab.posterior import Posterior, Trust


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("coefficient", [0.0, 0.6])
def test_the_trust_that_made_the_answers_is_the_likeliest(coefficient):
    """Eight episodes whose gradient has this part along the surrogate, with changes that follow the surrogate."""
    n, places = 8, 64
    slopes = normal(n, 1, 1, places, seed=1)
    slopes = slopes / slopes.square().mean((2, 3), keepdim=True).sqrt()
    gradient = normal(n, 1, places, seed=2) + coefficient * slopes[:, 0]
    rows, answers = torch.arange(n), []
    for step in range(20):
        change = 0.1 * normal(n, 1, places, seed=10 + step) + 0.05 * slopes[:, 0]
        answers.append(Answer(rows, slopes, change, (gradient * change).sum((1, 2))))
    posterior, energy = Posterior(n, 1, places, surrogates=1), torch.ones(n, places)
    values = {mean: likelihood(posterior, energy, answers, Trust(mean=mean, spike=0.05)) for mean in (0.001, 0.6)}
    assert max(values, key=values.get) == (0.6 if coefficient else 0.001), values
