"""The network of a policy: one small network for all patches, and pooled heads for the whole input.

So one policy serves grids of any size and of one, two or three dimensions. Value and advantages are
the dueling form of the papers' agent (Wang et al. 2016, Dueling network architectures); PPO and A2C
read the advantages as logits.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from brinell.rlab.env import ENERGY, PATCH_FEATURES, REMOVAL, WHOLE_FEATURES
from brinell.rlab.interface import Heads
from brinell.rlab.layers import linear, seeded


class PatchNetwork(nn.Module):
    """Features of an observation to `Heads` for adding, removing and the choice of a distortion.

    Args:
        families: options of the distortion branch; 1 where there is no choice.
        width: units of each layer.
        scale: what an output of 1 is worth: 1 for logits, a typical advantage for DQN. Both the
            greedy policy's ranking and what is learned beside it are measured in it, so that one
            learning rate and one temperature suit every reward.
        seed: of the first weights. Those of the heads are zero: so that it begins as
            `policies.Greedy`.
    """

    def __init__(self, families: int = 1, width: int = 48, scale: float = 1.0, seed: int = 0) -> None:
        super().__init__()
        self.scale = scale
        self.families, self.width, first = families, width, seeded(seed)
        self.look = nn.Sequential(
            linear(PATCH_FEATURES + WHOLE_FEATURES, width, first), nn.ReLU(), linear(width, width, first), nn.ReLU()
        )
        self.pool = nn.Sequential(linear(2 * width + WHOLE_FEATURES, width, first), nn.ReLU())
        self.patch, self.shift = linear(width, 2), linear(width, 2 * width)
        self.value, self.family = linear(width, 1), linear(width, families)

    def forward(self, features: dict[str, Tensor]) -> Heads:
        """`patch` (n, patches, PATCH_FEATURES) and `whole` (n, WHOLE_FEATURES) to value and three branches."""
        patch, whole = features["patch"].float(), features["whole"].float()
        wide = whole[:, None].expand(-1, patch.shape[1], -1)
        seen = self.look(torch.cat([patch, wide], 2))
        # Not amax: along a middle axis it takes ten times as long as this, in both directions.
        most = functional.adaptive_max_pool1d(seen.transpose(1, 2), 1)[..., 0]
        pooled = self.pool(torch.cat([seen.mean(1), most, whole], 1))
        scale, offset = self.shift(pooled)[:, None].chunk(2, 2)
        learned = self.patch(seen * (1 + scale) + offset)
        known = torch.stack([patch[..., ENERGY], patch[..., REMOVAL] * SHARP], 2)
        add, remove = (self.scale * (learned + known)).unbind(2)
        family = self.family(pooled)
        family = self.scale * torch.cat([family[:, :1] + FREELY, family[:, 1:]], 1)
        return Heads(self.value(pooled)[:, 0], (add, remove, family))


FREELY = 3.0
"""Logit by which any distortion is preferred to a certain one before anything is learned."""
SHARP = 20.0
"""Logits for a removal that is predicted to gain 1."""
