"""Which surrogates a policy keeps: those whose gradients explain the answers of the model to probes of inputs set aside."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from brinell.core.intervals import CONFIDENCE, deviations
from brinell.core.oracle import Batch, Oracle
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.rlab.episodes import Placement
from brinell.rlab.prior import probe
from brinell.rlab.sensitivity import class_weights
from brinell.rlab.validation import held_out

PROBES = 16
"""Random distortions of each input."""
SCALE = 0.25
"""Their distance in budgets: an answer to a larger change says little about a gradient, since the model is not linear."""
MOST = 100
"""Inputs that are probed at most."""
SHARE = 0.1
"""Share of the inputs that is set aside for it, beside those of the validation."""


class Explained(NamedTuple):
    """How well one surrogate explains the answers of the model."""

    correlation: float
    """Mean over inputs of the correlation of the effects of probes with those that its gradient lets expect."""
    low: float
    """Lower end of its interval, and -1 for fewer than two inputs."""

    @property
    def explains(self) -> bool:
        """True if the gradient explains something beyond chance."""
        return self.low > 0


def set_aside(count: int) -> range:
    """The rows of so many inputs by which surrogates are chosen: those before the ones of the validation."""
    last = count - held_out(count)
    return range(last - int(SHARE * count), last)


def explain_answers(oracle: Oracle, batch: Batch, threat: Threat, placement: Placement, rng: Streams) -> list[Explained]:
    """Probe inputs close to the clean ones, and say of each surrogate of the oracle how well it explains the answers.

    The oracle must allow them all; the budget of the threat is that of the episodes.
    """
    logits = oracle.scores(batch.ids, batch.x)
    weights = class_weights(lambda values: threat.criterion.margin(values, batch.y, batch.x), logits, rng.fold("weights"))
    slopes = oracle.slopes(batch.ids, batch.x, weights)
    questions: dict[str, Any] = {
        "probes": PROBES,
        "group_size": len(placement.grid),
        "scale": SCALE * threat.eps,
        "slopes": slopes,
    }
    probes = probe(oracle, batch, threat, placement.grid, placement.variants, rng, **questions)
    return [interval_of(column) for column in correlations(probes.effect, probes.prediction).unbind(1)]


def correlations(effect: Tensor, prediction: Tensor) -> Tensor:
    """(n, surrogates): cosines of the effects (n, probes) and of what surrogates let expect (n, probes, surrogates)."""
    products = torch.einsum("np,nps->ns", effect, prediction)
    norms = effect.norm(dim=1)[:, None] * prediction.norm(dim=1)
    return torch.where(norms > 0, products / norms.clamp_min(1e-30), 0.0)


def interval_of(values: Tensor) -> Explained:
    """The mean (n,) with the lower end of its normal interval."""
    if len(values) < 2:
        return Explained(float(values.sum()), -1.0)
    error = float(values.std()) / math.sqrt(len(values))
    mean = float(values.mean())
    return Explained(mean, mean - deviations(CONFIDENCE) * error)
