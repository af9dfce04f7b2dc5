"""Training on a set that `brinell benchmark` made, with the true labels of its examples.

The inputs are ready-made, so a step costs what one of plain training does, and the network learns
of attacks on an earlier state of itself. A set that was made from the data that the model is
audited on is refused.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Batch, Network, Threat
from brinell.defences._steps import LearnsTheWorst, WithoutBudget


@dataclass(frozen=True, kw_only=True)
class BenchmarkSet(WithoutBudget, LearnsTheWorst):
    """Learn the inputs of an adversarial benchmark set; as a rule mixed with `plain`."""

    path: str = ""
    """The folder that `brinell benchmark` wrote."""
    level: str = "adversarial"
    """Level of the set: adversarial, clean, or a multiple that the set holds."""

    def craft(self, network: Network, batch: Batch, threat: Threat, rng: torch.Generator) -> Tensor:
        """The samples of the set, which are ready-made."""
        return batch.x

    def spec(self) -> str:
        """The level of the set, as data."""
        return f"bench:{self.path}?level={self.level}"
