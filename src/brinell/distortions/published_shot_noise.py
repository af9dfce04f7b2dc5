"""Shot noise as ImageNet-C and CIFAR-10-C define it (Hendrycks & Dietterich 2019, section 3)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._published import Published


@dataclass(frozen=True, kw_only=True)
class ShotNoise(Published):
    """Every value is the number of photons counted, so many on average where it is 1 (Poisson)."""

    small = (500, 250, 100, 75, 50)
    large = (60, 25, 12, 5, 3)

    def distort(self, x: Tensor, photons: float, rng: Streams) -> Tensor:
        counts = []
        for key, picture in zip(rng.keys.tolist(), x.cpu(), strict=True):
            generator = torch.Generator().manual_seed(key & (2**63 - 1))
            counts.append(torch.poisson(picture * photons, generator=generator))
        return torch.stack(counts).to(x.device) / photons
