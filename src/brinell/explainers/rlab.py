"""The mask of RLAB for explanation: many patches at once are shown and hidden, and the answers say what each is worth.

The published mask is the trace of the attack, patch by patch (Sarkar et al. 2024, Benchmark generation framework with
customizable distortions). A map of single patches says little about a decision that rests on several (docs/explain.md), so a
question here is about a whole region of the input: it is shown alone, grown out of the blurred input, and it is trimmed from the
whole one. Regions are drawn so that they have every size and follow the picture: cells that lie near each other, and that look
alike, go together (`explainers._cells`). What a cell is worth is a linear model of the evidence for the class, which is its
logit less the mean of all. Its prior says that near cells are worth alike.

There are two masks, for two questions. Where is the thing (`prior=broad`): near cells are worth alike over a fifth of the input,
the answers count as very noisy, in which limit the posterior's mean is the covariance of the answers with what showed, smoothed
by the prior, and cells near each other that look alike share what they are worth. What does the model follow (`prior=fitted`):
length and noise are those under which the answers are likeliest (Rasmussen & Williams 2006, section 5.4.1), and looks are left
out. The first lies better on things, the second predicts the model better (docs/explain.md).

Deviations from the attack's posterior (`rlab.posterior`): what a cell is worth is one number and not a gradient, its prior is
not independent from place to place, and all answers are weighed at once. No question is about a distortion.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from brinell.core.contracts import KINDS, Access, Batch, Domain, Oracle, Streams
from brinell.core.settings import at_least, one_of
from brinell.explainers._asking import answered, class_evidence, hidden_by
from brinell.explainers._cells import Cells, covariance, shared_by_look

__all__ = ["RLAB"]

SIZES = (0.25, 0.12, 0.06)
"""Lengths of the regions that are drawn, in shares of the longest side."""
ALIKE = 0.5
"""Spread of colours within which cells of a region go together, in shares of the input's own."""
SMOOTH = 0.2
"""Length of the broad prior over which cells are worth alike, in shares of the longest side."""
LENGTHS = (0.04, 0.1, 0.2)
"""Those that a fitted prior chooses from."""
NOISES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Variances of what the linear model leaves unexplained, in shares of the mean variance of an answer under the prior."""


@dataclass(frozen=True, kw_only=True)
class RLAB:
    """What regions of patches are worth, grown and trimmed (RLAB)."""

    questions: int = 256
    """Questions about each input, half of them about regions and half about what is left without them."""
    cells: int = 784
    """Cells that regions are made of, at most about so many."""
    prior: Literal["fitted", "broad"] = "fitted"
    """fitted: what the model follows; broad: where the thing is."""
    look: float = 0.12
    """Of the broad prior: spread of colours within which cells share what they are worth, in shares of the input's own; 0 leaves
    looks out."""

    access = Access.SCORES
    domains = frozenset(KINDS)

    def __post_init__(self) -> None:
        at_least(self, questions=4, cells=2, look=0)
        one_of(self, prior=("fitted", "broad"))

    def __call__(self, oracle: Oracle, batch: Batch, domain: Domain, rng: Streams) -> Tensor:
        """(n, *places). Asks `questions` questions."""
        cells = Cells.over(domain, self.cells)
        shown = self._regions(batch.x, domain, cells, rng)

        def masks(first: int, last: int) -> Tensor:
            return cells.maps(shown[:, first:last])

        fill = hidden_by(batch.x, domain)
        parts = answered(oracle, batch, domain, shown.shape[1], masks, fill, class_evidence)
        values = torch.cat([found for _, found in parts], 1)
        values, seen = values - values.mean(1, keepdim=True), shown - shown.mean(1, keepdim=True)
        if self.prior == "fitted":
            priors = [covariance(batch.x[:1], domain, cells, (length,), 0)[0] for length in LENGTHS]
            worth = torch.stack([fitted(one, answer, priors) for one, answer in zip(seen, values, strict=True)])
            return cells.maps(worth[:, None])[:, 0]
        worth = torch.einsum("nk,nkc->nc", values, seen) / shown.shape[1]
        worth = worth @ covariance(batch.x[:1], domain, cells, (SMOOTH,), 0)[0]
        return cells.maps(shared_by_look(worth, batch.x, domain, cells, self.look)[:, None])[:, 0]

    def _regions(self, x: Tensor, domain: Domain, cells: Cells, rng: Streams) -> Tensor:
        """(n, questions, cells) of 0 and 1: regions, each followed by all that does not belong to it.

        A region is where a random field is largest: between a fifth and four fifths of the cells.
        """
        pairs = self.questions // 2
        root = torch.linalg.cholesky(covariance(x, domain, cells, SIZES, ALIKE))
        field = rng.normal(pairs, len(cells)) @ root.mT
        size = (len(cells) * (0.2 + 0.6 * rng.fold("size").uniform(pairs))).round()
        rank = field.argsort(-1, descending=True).argsort(-1)
        region = (rank < size[..., None]).float()
        return torch.stack([region, 1 - region], 2).flatten(1, 2)


def fitted(seen: Tensor, values: Tensor, priors: list[Tensor]) -> Tensor:
    """(cells,): the posterior's mean of what cells are worth, under the likeliest of these priors and noises.

    Args:
        seen: (k, cells) which cells showed, less their mean.
        values: (k,) the answers, less their mean.
        priors: covariances (cells, cells).
    """
    best, found = -torch.inf, torch.zeros(seen.shape[1], device=seen.device)
    seen, values = seen.double(), values.double()
    for prior in priors:
        across = prior.double() @ seen.T
        gram = seen @ across
        scale = gram.diagonal().mean()
        roots, turns = torch.linalg.eigh(gram / scale)
        turned = turns.T @ values
        for noise in NOISES:
            spread = roots.clamp_min(0) + noise
            likelihood = -len(values) * (turned.square() / spread).mean().log() - spread.log().sum()
            if likelihood > best:
                best, found = float(likelihood), (across @ (turns @ (turned / spread)) / scale).float()
    return found
