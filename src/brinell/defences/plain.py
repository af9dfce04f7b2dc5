"""Plain training on clean inputs: the baseline of the other recipes, and a part of mixtures."""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Batch, Network, Threat
from brinell.defences._steps import LearnsTheWorst, WithoutBudget


@dataclass(frozen=True, kw_only=True)
class Plain(WithoutBudget, LearnsTheWorst):
    """Learn the inputs as they are."""

    def craft(self, network: Network, batch: Batch, threat: Threat, rng: torch.Generator) -> Tensor:
        """The clean inputs."""
        return batch.x
