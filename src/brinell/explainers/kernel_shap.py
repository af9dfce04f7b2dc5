"""KernelSHAP on patches: the weighted linear model of what subsets of patches are worth.

Lundberg & Lee 2017, A unified approach to interpreting model predictions, section 4.1. Subsets are drawn in pairs with their
complements, their sizes in proportion to the Shapley kernel's weight, so that the regression weighs all alike; the values of
input and baseline are kept exactly, by solving for the last patch. Deviations: the regression has a small ridge, because there
are about as many questions as patches; what is hidden is the blurred input.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import KINDS, Access, Batch, Domain, Oracle, Streams
from brinell.core.settings import above_zero, at_least
from brinell.explainers._asking import answered, class_probability, hidden_by, places_of

__all__ = ["KernelSHAP"]


@dataclass(frozen=True, kw_only=True)
class KernelSHAP:
    """Shapley values of patches by weighted regression (KernelSHAP)."""

    subsets: int = 498
    """Subsets of patches, a question each; an even number."""
    patches: int = 49
    """Patches, about."""
    ridge: float = 1e-3
    """Ridge of the regression, in shares of the subsets."""

    access = Access.SCORES
    domains = frozenset(KINDS)

    def __post_init__(self) -> None:
        at_least(self, subsets=2, patches=2)
        above_zero(self, "ridge")
        if self.subsets % 2:
            raise ValueError(f"subsets is {self.subsets}; it must be even, since each is asked about with its complement")

    def __call__(self, oracle: Oracle, batch: Batch, domain: Domain, rng: Streams) -> Tensor:
        """(n, *places). Asks `subsets` questions, and two about all patches and none."""
        places = places_of(domain)
        of_place = _patch_of(places, self.patches).to(batch.x.device)
        many = int(of_place.max()) + 1
        fill = hidden_by(batch.x, domain)
        chosen = self._subsets(rng, many)
        ends = torch.tensor([[0.0], [1.0]], device=batch.x.device).expand(2, many)
        asked = torch.cat([ends.expand(len(batch), 2, many), chosen], 1)

        def masks(first: int, last: int) -> Tensor:
            return asked[:, first:last, of_place].reshape(len(batch), -1, *places)

        parts = [values for _, values in answered(oracle, batch, domain, asked.shape[1], masks, fill, class_probability)]
        worth = _shapley(chosen, torch.cat(parts, 1), self.ridge)
        return worth[:, of_place].reshape(len(batch), *places)

    def _subsets(self, rng: Streams, many: int) -> Tensor:
        """(n, subsets, many) of 0 and 1: a subset, then its complement."""
        sizes = torch.arange(1, many, device=rng.keys.device)
        weight = 1.0 / (sizes * (many - sizes))
        upto = (weight / weight.sum()).cumsum(0)
        half = self.subsets // 2
        size = 1 + torch.searchsorted(upto, rng.fold("size").uniform(half)).clamp_max(many - 2)
        rank = rng.fold("members").uniform(half, many).argsort(-1).argsort(-1)
        subset = (rank < size[..., None]).float()
        return torch.stack([subset, 1 - subset], 2).flatten(1, 2)


def _patch_of(places: tuple[int, ...], patches: int) -> Tensor:
    """(places,) int64, flat: the patch that each place belongs to, of about so many of equal sides."""
    along = max(1, round(patches ** (1 / len(places))))
    number = torch.zeros(places, dtype=torch.int64)
    for axis, length in enumerate(places):
        count = min(along, length)
        here = torch.arange(length) * count // length
        number = number * count + here.reshape(-1, *[1] * (len(places) - axis - 1))
    return number.flatten()


def _shapley(chosen: Tensor, values: Tensor, ridge: float) -> Tensor:
    """(n, many): worth of each patch, which add up to the difference between all of them and none.

    Args:
        chosen: (n, k, many) of 0 and 1.
        values: (n, 2 + k): of none, of all, and of these subsets.
        ridge: added to the diagonal, in shares of k.
    """
    none, every, rest = values[:, :1], values[:, 1:2], values[:, 2:]
    last = chosen[..., -1:]
    features = (chosen[..., :-1] - last).double()
    target = (rest - none - last[..., 0] * (every - none)).double()
    gram = features.mT @ features
    gram.diagonal(dim1=1, dim2=2).add_(ridge * chosen.shape[1])
    first = torch.linalg.solve(gram, (features.mT @ target[..., None]))[..., 0]
    return torch.cat([first, (every - none).double() - first.sum(1, keepdim=True)], 1).float()
