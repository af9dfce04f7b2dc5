"""Training against RLAB: distortions on the most sensitive patches, beside the clean inputs.

Each batch is a round: RLAB attacks the network as it is, by its scores alone (Sarkar et al. 2023,
arXiv 2310.18626, and 2024, arXiv 2403.18985), and the network learns from what was found and from
the clean inputs alike. An input that was not fooled is learned at the largest margin that was
reached. Every query is a forward of the training and is counted as one.

Deviations from the attack: few queries an input, neither refinement nor clean-up, and greedy
choices without surrogates; on images with the shipped prior.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core.attack import open_questions
from brinell.core.contracts import Access, Batch, Distortion, Domain, Network, Streams, Threat
from brinell.core.model import ModelInfo
from brinell.core.patches import AXES, PatchGrid, sides
from brinell.core.settings import Count
from brinell.defences._steps import OnGradients
from brinell.distortions.gaussian_noise import GaussianNoise
from brinell.rlab.agent import DEFAULT, choose_policy, find_agent
from brinell.rlab.distort import SEVERITIES, variants
from brinell.rlab.episodes import Placement, Rules
from brinell.rlab.search import run_episodes


class NetworkScores:
    """The network in training as a model that gives scores."""

    access = Access.SCORES
    info = ModelInfo()
    name = "the network in training"

    def __init__(self, network: Network, domain: Domain, classes: int) -> None:
        self.predict = network
        self.domain = domain
        self.classes = classes

    def digest(self) -> str:
        """Nothing that lasts: the weights change with each step."""
        return ""


@dataclass(frozen=True, kw_only=True)
class RLAB(OnGradients):
    """Learn clean inputs, and what RLAB makes of them by queries to the present network."""

    distortions: tuple[Distortion, ...] = field(
        default=(GaussianNoise(),), metadata={"plugin": "distortion"}
    )
    """Names of the distortions to place on patches, joined by +."""
    patch: int | str = 0
    """Side of a patch in values, or one for each axis; 0: 64, 16 x 16 or 8**3 patches in all."""
    steps: Count = 20
    """Queries of RLAB about each input at most, after the one about the clean input."""
    draws: Count = 4
    """Versions of each random distortion to choose from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.distortions:
            raise ValueError("there are no distortions: name at least one")

    def craft(self, network: Network, batch: Batch, threat: Threat, rng: torch.Generator) -> Tensor:
        """What RLAB finds within the budget; where it fools nothing, the strongest input."""
        with torch.no_grad():
            classes = network(batch.x[:1]).shape[1]

        # One stream for each sample, from the generator of the training.
        keys = torch.randint(-(2**62), 2**62, (len(batch),), generator=rng, device=batch.x.device)
        # It keeps the strongest input of each sample, fooled or not.
        ledger = open_questions(
            NetworkScores(network, threat.domain, classes),
            Batch.of(batch.x, batch.y),
            threat,
            access=Access.SCORES,
            anywhere=False,  # within eps, until a sample is fooled
            batch_size=len(batch),
            strongest=True,
        )

        domain = threat.domain.free
        if self.patch:
            grid = PatchGrid(domain.shape, sides(self.patch, AXES[domain.kind]))
        else:
            grid = PatchGrid.usual(domain)
        agent = find_agent(choose_policy(DEFAULT, domain.kind).name)
        placement = Placement(
            grid=grid,
            variants=variants(self.distortions, domain, SEVERITIES, self.draws),
            rules=Rules(steps=self.steps, refine=0),
            prior=agent.prior,
            slots=len(batch),
        )
        run_episodes(
            ledger.oracle(),
            ledger.batch,
            ledger.threat,
            placement,
            Streams(keys),
            agent.policy(placement.choices),
        )
        return ledger.strongest

    def loss(self, network: Network, batch: Batch, x_adv: Tensor) -> Tensor:
        """(n,) the mean of the cross-entropies of the clean and of the distorted inputs."""
        clean = F.cross_entropy(network(batch.x), batch.y, reduction="none")
        distorted = F.cross_entropy(network(x_adv), batch.y, reduction="none")
        return (clean + distorted) / 2

    def safer(self) -> str:
        """Nothing is known to be safer: the search follows no gradient that could be masked."""
        return ""

    def cost(self) -> tuple[int, int]:
        """The queries about the clean input and the steps at most, and the update of two inputs."""
        return self.steps + 3, 2
