"""The posterior gives answers their likelihood: the trust in surrogates under which they were drawn
is the likeliest.
"""

import torch

from _environments import predicted
from brinell.rlab.sensitivity import Posterior, Trust


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def likelihood(slopes, answers, trust):
    """The mean log-likelihood of an answer, given those before it; the first two of each episode
    fix the unit.
    """
    n, _, channels, places = slopes.shape
    posterior, rows, values = (
        Posterior(n, channels, places, surrogates=1, trust=trust),
        torch.arange(n),
        [],
    )
    posterior.forget(rows, torch.ones(n, places))
    for change, effect in answers:
        posterior.follow(rows, slopes)
        mean, variance = predicted(posterior, rows, change)
        values.append(
            -0.5
            * (
                variance.clamp_min(1e-12).log()
                + (effect - mean).square() / variance.clamp_min(1e-12)
            )
        )
        posterior.update(rows, change, effect)
    return float(torch.stack(values[2:]).mean())


def test_the_trust_that_made_the_answers_is_the_likeliest():
    """Eight episodes whose gradient has a part along the surrogate, with changes that follow the
    surrogate."""
    n, places = 8, 64
    slopes = normal(n, 1, 1, places, seed=1)
    slopes = slopes / slopes.square().mean((2, 3), keepdim=True).sqrt()
    for coefficient in (0.0, 0.6):
        gradient, answers = normal(n, 1, places, seed=2) + coefficient * slopes[:, 0], []
        for step in range(20):
            change = 0.1 * normal(n, 1, places, seed=10 + step) + 0.05 * slopes[:, 0]
            answers.append((change, (gradient * change).sum((1, 2))))
        values = {
            mean: likelihood(slopes, answers, Trust(mean=mean, deviation=0.05))
            for mean in (0.001, 0.6)
        }
        assert max(values, key=values.get) == (0.6 if coefficient else 0.001), values
