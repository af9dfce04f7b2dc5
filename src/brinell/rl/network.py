"""The network of a policy: one small network that looks at each patch, the same for all, and pooled heads for the whole input.

So one policy serves grids of any size and of one, two or three dimensions. Value and advantages are the dueling form of the
papers' agent (Wang et al. 2016, Dueling network architectures); PPO and A2C read the advantages as logits.
"""

import torch
from torch import Tensor, nn

from brinell.rl.env import PATCH_FEATURES, WHOLE_FEATURES
from brinell.rl.interface import Heads


class PatchNetwork(nn.Module):
    """Features of a turn to `Heads` for adding, removing and the choice of a filter.

    Args:
        families: options of the filter branch; 1 where there is no choice.
        width: units of each layer.
    """

    def __init__(self, families: int = 1, width: int = 48) -> None:
        super().__init__()
        self.families, self.width = families, width
        self.look = nn.Sequential(
            nn.Linear(PATCH_FEATURES + WHOLE_FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.pool = nn.Sequential(nn.Linear(2 * width + WHOLE_FEATURES, width), nn.ReLU())
        self.patch = nn.Linear(width, 2)
        self.shift = nn.Linear(width, 2 * width)
        self.value = nn.Linear(width, 1)
        self.family = nn.Linear(width, families)
        for head in (self.patch, self.value, self.family, self.shift):
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)

    def forward(self, features: dict[str, Tensor]) -> Heads:
        """`patch` (n, patches, PATCH_FEATURES) and `whole` (n, WHOLE_FEATURES) to value and three branches."""
        patch, whole = features["patch"].float(), features["whole"].float()
        wide = whole[:, None].expand(-1, patch.shape[1], -1)
        seen = self.look(torch.cat([patch, wide], 2))
        pooled = self.pool(torch.cat([seen.mean(1), seen.amax(1), whole], 1))
        scale, offset = self.shift(pooled)[:, None].chunk(2, 2)
        add, remove = self.patch(seen * (1 + scale) + offset).unbind(2)
        return Heads(self.value(pooled)[:, 0], (add, remove, self.family(pooled)))


__all__ = ["PatchNetwork"]
