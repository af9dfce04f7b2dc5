"""The mask of RLAB for explanation: many patches at once are shown and hidden, and a posterior says what each is worth.

The published mask is the trace of the attack, patch by patch (Sarkar et al. 2024, Benchmark generation framework with
customizable distortions). A map of single patches says little about a decision that rests on several (docs/explain.md), so here
a question is about half of the input: what shows grows from the blurred input, and its complement is trimmed from the whole one.
The answers of all questions together give the posterior of a linear model, whose prior says that cells near each other, and that
look alike, matter alike (`explainers._cells`). The first questions are draws from that prior, so that they follow the picture at
several scales; later ones are draws from the posterior (Thompson 1933), which ask where the decision lies.

Deviations from the attack's posterior (`rlab.posterior`): what a cell is worth is one number and not a gradient, its prior is
not independent from place to place, and all answers are weighed at once. No answer is about a distortion.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import KINDS, Access, Batch, Domain, Oracle, Streams
from brinell.core.settings import at_least
from brinell.explainers._asking import answered, class_log_probability, hidden_by
from brinell.explainers._cells import Cells, covariance

__all__ = ["RLAB"]

LENGTHS = (0.25, 0.12, 0.06)
NOISE = 0.3
MOST_CELLS = 784


@dataclass(frozen=True, kw_only=True)
class RLAB:
    """Posterior of what patches are worth, from growing and trimming many at once (RLAB)."""

    questions: int = 384
    """Questions about each input, half of them about what shows and half about its complement."""
    colour: float = 0.5
    """How much the look of cells counts: spread of mean colours within which they are alike, in shares of the input's own."""

    access = Access.SCORES
    domains = frozenset(KINDS)

    def __post_init__(self) -> None:
        at_least(self, questions=4, colour=0)

    def __call__(self, oracle: Oracle, batch: Batch, domain: Domain, rng: Streams) -> Tensor:
        """(n, *places). Asks `questions` questions."""
        cells = Cells.over(domain, MOST_CELLS)
        prior = covariance(batch.x, domain, cells, LENGTHS, self.colour)
        root = torch.linalg.cholesky(prior)
        fill = hidden_by(batch.x, domain)
        pairs = self.questions // 2
        worth = rng.normal(pairs, len(cells)) @ root.mT
        size = (len(cells) * (0.2 + 0.6 * rng.fold("share").uniform(pairs))).round()
        chosen = (worth.argsort(-1, descending=True).argsort(-1) < size[..., None]).float()
        shown = torch.stack([chosen, 1 - chosen], 2).flatten(1, 2)

        def masks(first: int, last: int) -> Tensor:
            return cells.maps(shown[:, first:last])

        parts = [found for _, found in answered(oracle, batch, domain, 2 * pairs, masks, fill, class_log_probability)]
        return cells.maps(_posterior_mean(prior, shown, torch.cat(parts, 1))[:, None])[:, 0]


def _posterior_mean(prior: Tensor, shown: Tensor, values: Tensor) -> Tensor:
    """(n, cells): what each cell is expected to be worth once these answers are known."""
    features = (shown - shown.mean(1, keepdim=True)).double()
    target = (values - values.mean(1, keepdim=True)).double()
    across = prior.double() @ features.mT
    gram = features @ across
    scale = gram.diagonal(dim1=1, dim2=2).mean(1)
    eye = torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device)
    weights = torch.linalg.solve(gram + (NOISE * scale)[:, None, None] * eye, target[..., None])
    found: Tensor = (across @ weights)[..., 0].float()
    return found
