"""RLAB's mask for explanation: queries show and hide regions, a linear model weighs cells.

The published mask is the trace of the attack, patch by patch (Sarkar et al. 2024, Benchmark
generation framework with customizable distortions). A map of single patches says little about a
decision that depends on several patches (docs/results/explain.md). So each region is queried twice:
shown on the blurred input, and hidden in the clean input. Random regions have every size and follow
the image: nearby cells of similar colour go together (`explainers._cells`). The linear model
predicts the evidence for the class, which is its logit minus the mean logit. Its prior correlates
nearby cells.

Two priors answer two questions. `prior=broad` locates the object: its correlation length is a fifth
of the input, and it treats the answers as very noisy. In this limit the posterior mean is the
covariance of answers and regions, smoothed by the prior. A bilateral filter then averages nearby
cells of similar colour. `prior=fitted` shows what the model follows: length and noise maximise the
marginal likelihood of the answers (Rasmussen & Williams 2006, section 5.4.1), without a filter. The
first overlaps objects better, the second predicts the model better (docs/results/explain.md).

Deviations from the attack's posterior (`rlab.sensitivity`): a cell has one weight and no gradient,
its prior is correlated across places, and all answers are fitted at once. No query applies a
distortion.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from brinell.core.contracts import KINDS, Access, Batch, Domain, Oracle, Streams
from brinell.core.settings import Checked, NotNegative, Range
from brinell.explainers._asking import class_evidence, hidden_fill, masked_values
from brinell.explainers._cells import Cells, bilateral_filter, covariance

SIZES = (0.25, 0.12, 0.06)
"""Correlation lengths of random regions, in shares of the longest side."""
ALIKE = 0.5
"""Colour scale of random regions, in shares of the input's standard deviation."""
SMOOTH = 0.2
"""Correlation length of the broad prior, in shares of the longest side."""
LENGTHS = (0.04, 0.1, 0.2)
"""Candidate correlation lengths of the fitted prior, in shares of the longest side."""
NOISES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Candidate noise variances of the fitted prior, in shares of the mean prior variance of an
answer."""


@dataclass(frozen=True, kw_only=True)
class RLABExplainer(Checked):
    """Weights of cells from queries that show and hide random regions (RLAB)."""

    questions: Annotated[int, Range("[4, inf)")] = 256
    """Queries about each input: half of them show a region, half of them hide it."""
    cells: Annotated[int, Range("[2, inf)")] = 784
    """Approximate maximum number of cells in the map."""
    prior: Literal["fitted", "broad"] = "fitted"
    """fitted: explains what the model follows; broad: locates the object."""
    look: NotNegative = 0.12
    """Colour scale of the bilateral filter of the broad prior, in shares of the input's standard
    deviation; 0 turns it off."""

    access = Access.SCORES
    domains = frozenset(KINDS)

    def __call__(self, oracle: Oracle, batch: Batch, domain: Domain, rng: Streams) -> Tensor:
        """Maps, (n, *places). Costs `questions` forwards."""
        cells = Cells.over(domain, self.cells)
        regions = self._regions(batch.x, domain, cells, rng)

        def masks(first: int, last: int) -> Tensor:
            """(n, last - first, *places): the masks of these numbers."""
            return cells.maps(regions[:, first:last])

        fill = hidden_fill(batch.x, domain)
        parts = masked_values(oracle, batch, domain, regions.shape[1], masks, fill, class_evidence)
        values = torch.cat([value for _, value in parts], 1)

        # Both less their means: the model has no constant.
        values = values - values.mean(1, keepdim=True)
        centred = regions - regions.mean(1, keepdim=True)

        # Without colours (0) the prior is the same for all inputs: that of the first one serves.
        if self.prior == "fitted":
            priors = [
                covariance(batch.x[:1], domain, cells, (length,), colour=0)[0] for length in LENGTHS
            ]
            pairs = zip(centred, values, strict=True)
            worth = torch.stack([fit_worth(region, answer, priors) for region, answer in pairs])
            return cells.maps(worth[:, None])[:, 0]

        worth = torch.einsum("nk,nkc->nc", values, centred) / regions.shape[1]
        worth = worth @ covariance(batch.x[:1], domain, cells, (SMOOTH,), colour=0)[0]
        worth = bilateral_filter(worth, batch.x, domain, cells, self.look)
        return cells.maps(worth[:, None])[:, 0]

    def _regions(self, x: Tensor, domain: Domain, cells: Cells, rng: Streams) -> Tensor:
        """Random regions, (n, questions, cells) of 0 and 1, each followed by its complement.

        A region holds the cells in which a random field is largest: between a fifth and four fifths
        of all cells.
        """
        pairs = self.questions // 2
        # Normal numbers times a root of the covariance have this covariance.
        root = torch.linalg.cholesky(covariance(x, domain, cells, SIZES, ALIKE))
        field = rng.normal(pairs, len(cells)) @ root.mT
        size = (len(cells) * (0.2 + 0.6 * rng.fold("size").uniform(pairs))).round()
        rank = field.argsort(-1, descending=True).argsort(-1)
        region = (rank < size[..., None]).float()
        return torch.stack([region, 1 - region], 2).flatten(1, 2)


def fit_worth(regions: Tensor, values: Tensor, priors: list[Tensor]) -> Tensor:
    """Posterior mean of the cells' weights, (cells,), at the largest marginal likelihood.

    Priors and noises are compared.

    Args:
        regions: (k, cells) the regions that were shown, minus their mean.
        values: (k,) the answers, minus their mean.
        priors: candidate covariances, each (cells, cells).
    """
    best = -torch.inf
    worth = torch.zeros(regions.shape[1], device=regions.device)
    regions = regions.double()
    values = values.double()

    for prior in priors:
        across = prior.double() @ regions.T
        gram = regions @ across
        scale = gram.diagonal().mean()
        # In the eigenbasis of the answers' covariance the noise is added to each
        # eigenvalue.
        roots, turns = torch.linalg.eigh(gram / scale)
        turned = turns.T @ values
        for noise in NOISES:
            spread = roots.clamp_min(0) + noise
            # Twice the logarithm, but for constants, at the scale of the answers that makes it
            # largest.
            likelihood = -len(values) * (turned.square() / spread).mean().log() - spread.log().sum()
            if likelihood > best:
                best = float(likelihood)
                worth = (across @ (turns @ (turned / spread)) / scale).float()
    return worth
