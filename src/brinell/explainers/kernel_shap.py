"""KernelSHAP on patches: Shapley values from a weighted linear model of the class probability.

Lundberg & Lee 2017, A unified approach to interpreting model predictions, section 4.1. Subsets are
drawn in pairs with their complements. Their sizes follow the weight of the Shapley kernel, so the
regression weighs all subsets equally. Solving for the last patch makes the values of input and
baseline exact. Deviations: the regression has a small ridge, because a patch has few queries, and
the blurred input replaces hidden patches.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from brinell.core.contracts import KINDS, Access, Batch, Domain, Oracle, Streams
from brinell.core.settings import Checked, Positive, Range
from brinell.explainers._asking import class_probability, hidden_fill, masked_values, places_of


@dataclass(frozen=True, kw_only=True)
class KernelSHAP(Checked):
    """Shapley values of patches by weighted regression (KernelSHAP)."""

    subsets: Annotated[int, Range("[2, inf)")] = 498
    """Subsets of patches, one query each; an even number."""
    patches: Annotated[int, Range("[2, inf)")] = 49
    """Approximate number of patches."""
    ridge: Positive = 1e-3
    """Ridge of the regression, as a share of the number of subsets."""

    access = Access.SCORES
    domains = frozenset(KINDS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.subsets % 2:
            raise ValueError(
                f"subsets is {self.subsets}; it must be even, since each is asked "
                "about with its complement"
            )

    def __call__(self, oracle: Oracle, batch: Batch, domain: Domain, rng: Streams) -> Tensor:
        """Shapley values as maps, (n, *places). Costs `subsets` + 2 forwards."""
        places = places_of(domain)
        of_place = _patch_of(places, self.patches).to(batch.x.device)
        count = int(of_place.max()) + 1
        fill = hidden_fill(batch.x, domain)
        subsets = self._subsets(rng, count)
        # Nothing and everything are asked about too: the values of all places must add up to their
        # difference.
        # The first two coalitions, which `_shapley` counts on.
        ends = torch.tensor([[0.0], [1.0]], device=batch.x.device).expand(2, count)
        coalitions = torch.cat([ends.expand(len(batch), 2, count), subsets], 1)

        def masks(first: int, last: int) -> Tensor:
            """(n, last - first, *places): the masks of these numbers."""
            return coalitions[:, first:last, of_place].reshape(len(batch), -1, *places)

        answers = masked_values(
            oracle, batch, domain, coalitions.shape[1], masks, fill, class_probability
        )
        values = torch.cat([part for _, part in answers], 1)
        worth = _shapley(subsets, values, self.ridge)
        return worth[:, of_place].reshape(len(batch), *places)

    def _subsets(self, rng: Streams, patches: int) -> Tensor:
        """Random subsets, (n, subsets, patches) of 0 and 1, each followed by its complement."""
        sizes = torch.arange(1, patches, device=rng.keys.device)
        weight = 1.0 / (sizes * (patches - sizes))
        upto = (weight / weight.sum()).cumsum(0)
        # Sizes by the weight of the Shapley kernel, members at random.
        half = self.subsets // 2
        size = 1 + torch.searchsorted(upto, rng.fold("size").uniform(half)).clamp_max(patches - 2)
        rank = rng.fold("members").uniform(half, patches).argsort(-1).argsort(-1)
        subset = (rank < size[..., None]).float()
        return torch.stack([subset, 1 - subset], 2).flatten(1, 2)


def _patch_of(places: tuple[int, ...], patches: int) -> Tensor:
    """The patch of each place, (places,) int64, flat; about `patches` patches of equal sides."""
    per_axis = max(1, round(patches ** (1 / len(places))))
    number = torch.zeros(places, dtype=torch.int64)
    for axis, length in enumerate(places):
        count = min(per_axis, length)
        patch_index = torch.arange(length) * count // length
        number = number * count + patch_index.reshape(-1, *[1] * (len(places) - axis - 1))
    return number.flatten()


def _shapley(subsets: Tensor, values: Tensor, ridge: float) -> Tensor:
    """Shapley value of each patch, (n, patches).

    They add up to the value of all patches minus the value of none.

    Args:
        subsets: (n, k, patches) of 0 and 1.
        values: (n, 2 + k): the values of no patch, of all patches, and of these subsets.
        ridge: added to the diagonal of the Gram matrix, in shares of k.
    """
    empty = values[:, :1]
    full = values[:, 1:2]
    subset_values = values[:, 2:]

    # The last patch gets what is left of the difference; the others are regressed.
    last = subsets[..., -1:]
    # With the last worth `full - empty - others`, its column moves to the side of the answers.
    features = (subsets[..., :-1] - last).double()
    target = (subset_values - empty - last[..., 0] * (full - empty)).double()
    gram = features.mT @ features
    gram.diagonal(dim1=1, dim2=2).add_(ridge * subsets.shape[1])
    first = torch.linalg.solve(gram, (features.mT @ target[..., None]))[..., 0]
    rest = (full - empty).double() - first.sum(1, keepdim=True)
    return torch.cat([first, rest], 1).float()
