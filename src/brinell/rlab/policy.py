"""Policies: greedy, and by a network; and how each chooses k of many options without replacement.

Rows never depend on one another. A row that allows nothing has no choices and no influence.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from brinell.core.streams import Streams
from brinell.rlab.episodes import (
    ENERGY,
    PATCH_FEATURES,
    REMOVAL,
    WHOLE_FEATURES,
    Action,
    Observation,
)
from brinell.rlab.prior import linear


class Heads(NamedTuple):
    """Output of a network."""

    value: Tensor
    """(n,): the value of the state."""
    branches: tuple[Tensor, ...]
    """One (n, options) for each branch: advantages; anything finite where nothing is allowed."""


FREELY = 3.0
"""Logit by which any distortion is preferred to a certain one before anything is learned."""
SHARP = 20.0
"""Logits for a removal that is predicted to gain 1."""


@dataclass(frozen=True, kw_only=True)
class Greedy:
    """The control without training: adds by the prior's energy, removes by prediction.

    Patches are added in proportion to their energy; those are removed that are predicted to help
    most.
    """

    choices: tuple[int, ...]
    """How many options each branch chooses."""

    def act(self, observation: Observation, rng: Streams) -> Action:
        """Patches by energy, without replacement; removals by prediction; any distortion."""
        patch = observation.features["patch"]
        adds, removals, family = observation.allowed
        keys = patch[..., ENERGY] + gumbel(rng.fold("add").uniform(adds.shape[1]))
        any_distortion = torch.zeros(len(family), 1, dtype=torch.int64, device=family.device)
        return (
            top(keys, adds, self.choices[0]),
            top(patch[..., REMOVAL], removals, self.choices[1]),
            any_distortion,
        )


@dataclass(frozen=True, kw_only=True)
class Learned:
    """Acts by a network: the options of the highest outputs, or a sample."""

    network: nn.Module
    """Answers features with `Heads`; where a branch has other options than it was trained for,
    the first one is taken."""
    choices: tuple[int, ...]
    """How many options each branch chooses."""
    temperature: float = 0.0
    """0 takes the options of the highest outputs; above 0 they are drawn in proportion to
    exp(output / temperature)."""

    @torch.no_grad()
    def act(self, observation: Observation, rng: Streams) -> Action:
        """One pass of the network for all slots."""
        keys = list(self.network(observation.features).branches)
        for branch, allowed in enumerate(observation.allowed):
            if keys[branch].shape != allowed.shape:
                # Trained for other distortions: any of these.
                missing = allowed.shape[1] - 1
                keys[branch] = functional.pad(keys[branch][:, :1], (0, missing), value=-torch.inf)
            if self.temperature:
                chance = gumbel(rng.fold(branch).uniform(allowed.shape[1]))
                keys[branch] = keys[branch] / self.temperature + chance
        return best(keys, observation, self.choices)


class PatchNetwork(nn.Module):
    """Features of an observation to `Heads` for adding, removing and the choice of a distortion.

    One small network serves all patches, with pooled heads for the whole input, so that one policy
    serves grids of any size and of one, two or three dimensions. Value and advantages are the
    dueling form of the papers' agent (Wang et al. 2016, Dueling network architectures).

    Args:
        families: options of the distortion branch; 1 if there is a single one.
        width: units of each layer.
        scale: factor of the outputs: 1 for logits, a typical advantage for DQN. The greedy policy's
            ranking and the learned outputs are both measured in it, so that one learning rate and
            one temperature suit every reward.
        seed: seed of the initial weights. Those of the heads are zero, so that the network begins
            as `Greedy`.
    """

    def __init__(
        self, families: int = 1, width: int = 48, scale: float = 1.0, seed: int = 0
    ) -> None:
        super().__init__()
        self.scale = scale
        self.families = families
        self.width = width
        first = torch.Generator().manual_seed(seed)

        # Each patch by itself with the whole input; then all patches pooled.
        self.look = nn.Sequential(
            linear(PATCH_FEATURES + WHOLE_FEATURES, width, first),
            nn.ReLU(),
            linear(width, width, first),
            nn.ReLU(),
        )
        self.pool = nn.Sequential(linear(2 * width + WHOLE_FEATURES, width, first), nn.ReLU())

        # The pooled features shift and scale those of a patch.
        self.patch = linear(width, 2)
        self.shift = linear(width, 2 * width)
        self.value = linear(width, 1)
        self.family = linear(width, families)

    def forward(self, features: dict[str, Tensor]) -> Heads:
        """`patch` (n, patches, PATCH_FEATURES) and `whole` (n, WHOLE_FEATURES) to `Heads`."""
        patch = features["patch"].float()
        whole_features = features["whole"].float()
        wide = whole_features[:, None].expand(-1, patch.shape[1], -1)
        embedding = self.look(torch.cat([patch, wide], 2))

        # What all patches have in common.
        # Not amax: along a middle axis it takes ten times as long as this, in both directions.
        most = functional.adaptive_max_pool1d(embedding.transpose(1, 2), 1)[..., 0]
        pooled = self.pool(torch.cat([embedding.mean(1), most, whole_features], 1))

        # What is learned is added to what the linear model says without learning.
        scale, offset = self.shift(pooled)[:, None].chunk(2, 2)
        learned = self.patch(embedding * (1 + scale) + offset)
        physics = torch.stack([patch[..., ENERGY], patch[..., REMOVAL] * SHARP], 2)
        add, remove = (self.scale * (learned + physics)).unbind(2)
        family = self.family(pooled)
        family = self.scale * torch.cat([family[:, :1] + FREELY, family[:, 1:]], 1)
        return Heads(self.value(pooled)[:, 0], (add, remove, family))


def top(keys: Tensor, allowed: Tensor, choices: int) -> Tensor:
    """(n, choices) int64: the allowed options with the highest `keys` (n, options).

    The highest come first; -1 stands where none is left.
    """
    k = min(choices, keys.shape[1])
    best = keys.masked_fill(~allowed, -torch.inf).topk(k, dim=1).indices
    best = torch.where(allowed.gather(1, best), best, -1)
    return best if k == choices else functional.pad(best, (0, choices - k), value=-1)


def gumbel(uniform: Tensor) -> Tensor:
    """Standard Gumbel variables from uniform ones in [0, 1), finite for every one of them.

    The `top` of logits plus these is a sample of the Plackett-Luce distribution, in order (Kool,
    van Hoof & Welling 2019, Stochastic beams and where to find them, section 2.3). Values below
    2**-24 count as that, which is less than torch resolves.
    """
    return -(-uniform.clamp(2.0**-24, 1 - 2.0**-24).log()).log()


def best(keys: Iterable[Tensor], observation: Observation, choices: Sequence[int]) -> Action:
    """The choices with the largest keys in each branch, at most `observation.most`.

    Keys of a network maximise `worth`.
    """
    action = tuple(
        top(*entries) for entries in zip(keys, observation.allowed, choices, strict=True)
    )
    if not observation.most:
        return action

    # Choices beyond the number that counts this time are not made.
    ranks = [torch.arange(choice.shape[1], device=choice.device) for choice in action]
    return tuple(
        choice.masked_fill(rank >= most[:, None], -1)
        for choice, rank, most in zip(action, ranks, observation.most, strict=True)
    )


def worth(heads: Heads, allowed: Sequence[Tensor], action: Action) -> Tensor:
    """(n,): Q of composite actions: the value plus the mean of the choices' advantages.

    The mean is over all choices of all branches.

    Advantages are measured from their mean over the allowed options of the branch (Wang et al.
    2016, Dueling network architectures, equation 9; Tavakoli, Pardo & Kormushev 2018, Action
    branching architectures, equation 1). Tavakoli et al. give each branch a separate Q and average
    their errors; here the action has one Q, which is exact if effects add up.

    Without any choices Q is the value.
    """
    masks = [(choices >= 0).to(heads.value.dtype) for choices in action]
    counts = (choice.sum(1) for choice in masks)
    count = sum(counts, start=torch.zeros_like(heads.value)).clamp(min=1)

    total = heads.value
    for outputs, mask, choices, real in zip(heads.branches, allowed, action, masks, strict=True):
        # The sum over the choices of an advantage less the mean advantage of the branch.
        share = torch.zeros_like(outputs).scatter_add_(1, choices.clamp(min=0), real)
        share -= mask * (real.sum(1) / mask.sum(1).clamp(min=1))[:, None]
        total = total + (outputs * share).sum(1) / count
    return total
