"""The attack's own mask: the patches that RLAB keeps distorted when the model is wrong.

Sarkar et al. 2024, Benchmark generation framework with customizable distortions: the trace of the
attack explains the decision. Patches that stay distorted after the refinement and the clean-up come
first, among them those whose sensitivity is larger (`rlab.sensitivity`). All other places are equal
and come last; the map is constant where the attack finds no adversarial input.

Deviation: the papers' mask is a set; the order within it is ours, since measures need one.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import KINDS, Access, Batch, Domain, Oracle, Streams, Threat
from brinell.core.patches import PatchGrid
from brinell.core.settings import Checked, Count
from brinell.distances.l2 import L2
from brinell.distortions.gaussian_noise import GaussianNoise
from brinell.explainers._asking import places_of
from brinell.rlab.agent import choose_policy, find_agent
from brinell.rlab.distort import variants
from brinell.rlab.episodes import Placement, Rules
from brinell.rlab.refine import CleanUp
from brinell.rlab.search import run_episodes

DRAWS, SLOTS = 16, 128
"""Versions of the noise to choose from, and samples that advance together, as in the attack."""


@dataclass(frozen=True, kw_only=True)
class RLABMask(Checked):
    """The attack's own mask: the patches that RLAB keeps."""

    steps: Count = 300
    """Queries until the attack gives a sample up, refinement included."""

    access = Access.SCORES
    domains = frozenset(KINDS)

    def __call__(self, oracle: Oracle, batch: Batch, domain: Domain, rng: Streams) -> Tensor:
        """Maps, (n, *places): above 0 on patches that the attack keeps, 0 elsewhere."""
        n, device = len(batch), batch.x.device
        grid = PatchGrid.usual(domain)
        agent = find_agent(choose_policy("default", domain.kind).name).to(device)
        placement = Placement(
            grid=grid,
            variants=variants((GaussianNoise(),), domain, severities=(), draws=DRAWS),
            rules=agent.rules(Rules(steps=self.steps, refine=None)),
            prior=agent.prior,
            slots=SLOTS,
        )
        threat = Threat(
            distance=L2(), eps=torch.full((n,), torch.inf, device=device), domain=domain
        )
        policy = agent.policy(placement.choices)
        outcomes = run_episodes(oracle, batch, threat, placement, rng, policy, clean=CleanUp())

        # The rank of a patch by its sensitivity decides among those that the attack keeps.
        # Samples without an episode have no sensitivity.
        sensitivity = outcomes.map.nan_to_num(0.0).amax(2)
        rank = sensitivity.argsort(1).argsort(1).to(batch.x.dtype) / len(grid)
        scores = (outcomes.closest >= 0) * (1 + rank)
        # Where fewer patches lie over a place, `covers` names one behind the last: it scores 0.
        padded = torch.cat([scores, torch.zeros(n, 1, device=device)], 1)
        maps = padded[:, grid.covers.to(device)].amax(2)
        return maps.reshape(n, *places_of(domain))
