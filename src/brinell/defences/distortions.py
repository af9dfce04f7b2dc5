"""Training on distorted inputs, by the distortions that audits place on patches.

Each sample of a batch gets one distortion, at one severity, drawn again in every step.
docs/reference/distortions.md describes the distortions and their severities.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from brinell.core.contracts import Batch, Distortion, Network, Streams, Threat
from brinell.defences._steps import LearnsTheWorst, WithoutBudget
from brinell.rlab.distort import SEVERITIES, distorted


@dataclass(frozen=True, kw_only=True)
class Distortions(WithoutBudget, LearnsTheWorst):
    """Learn inputs that are distorted as a whole, each by one of several distortions."""

    distortions: tuple[Distortion, ...] = field(default=(), metadata={"plugin": "distortion"})
    """Names of the distortions, joined by +; by default all that apply to the kind of data."""
    severities: tuple[int, ...] = SEVERITIES
    """Severities that may be drawn, from 1 to 5."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "severities", tuple(self.severities))  # JSON makes a list of them
        if not self.severities or any(severity not in SEVERITIES for severity in self.severities):
            raise ValueError(f"severities are {self.severities}: they are some of 1 to 5")

    def craft(self, network: Network, batch: Batch, threat: Threat, rng: torch.Generator) -> Tensor:
        """A distortion and a severity for each sample; the budget plays no part."""
        x = batch.x.clone()
        device = batch.x.device
        n = len(x)
        severities = torch.tensor(self.severities, device=device)
        choice = torch.randint(max(1, len(self.distortions)), (n,), generator=rng, device=device)
        severity = severities[torch.randint(len(severities), (n,), generator=rng, device=device)]
        # One key for each sample: all random numbers of its distortion come from it.
        keys = torch.randint(-(2**62), 2**62, (n,), generator=rng, device=device)

        for number, distortion in enumerate(self.distortions):
            rows = (choice == number).nonzero()[:, 0]
            draws = distortion.draws(threat.domain.shape)
            # A distortion with a fixed number of draws is one of these, as in an attack.
            draw = keys[rows].remainder(draws) if draws else torch.zeros_like(rows)
            if len(rows):
                x[rows] = distorted(
                    distortion,
                    batch.x[rows],
                    severity[rows],
                    Streams(keys[rows]),
                    domain=threat.domain,
                    draw=draw,
                )

        return x
