"""The two networks of an AC-GAN for pictures: one draws, the other tells drawn from real and says
which class it sees.

Odena, Olah & Shlens 2017, Conditional image synthesis with auxiliary classifier GANs, in a size
that a processor can train. The generator is the small one of Radford, Metz & Chintala 2016 (DCGAN):
a linear layer, then transposed convolutions that double the sides. The critic's layers are held to
a small Lipschitz constant by spectral normalisation (Miyato et al. 2018), which takes the place of
batch norm there and costs next to nothing.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brinell.core.domain import Domain

SHRINKAGE = 4
"""By how much the generator's first picture is smaller than the input on each side."""
GAIN = 2.0
"""The largest singular value that a layer of the critic may have: half of what enters a leaky
rectifier is lost in it."""


def fits(domain: Domain) -> str:
    """Why no generator can be built for these inputs, or nothing."""
    if domain.kind != "image":
        return f"it draws images, not {domain.kind} inputs"
    if any(side % SHRINKAGE or side < 2 * SHRINKAGE for side in domain.shape[1:]):
        return (
            f"the sides of an image must be multiples of {SHRINKAGE}, {2 * SHRINKAGE} "
            f"at least, and these are {domain.shape[1:]}"
        )
    return ""


class Generator(nn.Module):
    """Latent (n, latent) standard normal and classes (n,) int64 to (n, C, H, W) inputs within the
    bounds of the domain.
    """

    def __init__(self, domain: Domain, classes: int, *, latent: int, width: int) -> None:
        super().__init__()
        channels, height, side = domain.shape
        self.classes, self.latent, self.width = classes, latent, width
        self.base = (2 * width, height // SHRINKAGE, side // SHRINKAGE)
        self.domain = domain
        self.spread = nn.Linear(latent + classes, math.prod(self.base), bias=False)
        self.norm1 = nn.BatchNorm2d(2 * width)
        self.grow1 = nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.grow2 = nn.ConvTranspose2d(width, width // 2, 4, stride=2, padding=1, bias=False)
        self.norm3 = nn.BatchNorm2d(width // 2)
        self.draw = nn.Conv2d(width // 2, channels, 3, padding=1)

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        """Inputs (n, C, H, W) from latents and classes."""
        conditioned = torch.cat([z, F.one_hot(y, self.classes).to(z.dtype)], 1)
        x = F.relu(self.norm1(self.spread(conditioned).reshape(-1, *self.base)))
        x = F.relu(self.norm2(self.grow1(x)))
        x = F.relu(self.norm3(self.grow2(x)))
        low, high = self.domain.bounds(x)
        return torch.sigmoid(self.draw(x)) * (high - low) + low


class Critic(nn.Module):
    """(n, C, H, W) inputs to (n, classes) logits, which the search uses; a second head tells drawn
    from real.

    The trunk and that head are spectrally normalised. The class head is not: it has to be as sure
    as the data lets it.
    """

    def __init__(self, domain: Domain, classes: int, *, width: int) -> None:
        super().__init__()
        channels, height, side = domain.shape
        # Two layers of stride 2 shrink the sides as much as the generator's two grow them.
        features = 2 * width * (height // SHRINKAGE) * (side // SHRINKAGE)
        self.domain = domain
        self.see1 = nn.Conv2d(channels, width, 4, stride=2, padding=1)
        self.see2 = nn.Conv2d(width, 2 * width, 4, stride=2, padding=1)
        self.see3 = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.name = nn.Linear(features, classes)
        self.real = nn.Linear(features, 1)

        # Spectral norms bound these layers; the one that names classes may be as steep as it needs.
        self.bounded: tuple[nn.Linear | nn.Conv2d, ...] = (
            self.see1,
            self.see2,
            self.see3,
            self.real,
        )
        self.left = [torch.ones(len(layer.weight)) for layer in self.bounded]
        """Vectors of the power iteration, which no file keeps."""

    def judge(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(n,) how real, and (n, classes) logits."""
        low, high = self.domain.bounds(x)
        x = (x - low) / (high - low) * 2 - 1  # from -1 to 1
        for layer in (self.see1, self.see2, self.see3):
            x = F.leaky_relu(layer(x), 0.2)
        return self.real(x.flatten(1))[:, 0], self.name(x.flatten(1))

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, classes) of inputs."""
        return self.judge(x)[1]

    @torch.no_grad()
    def bound(self) -> None:
        """Scale back each weight whose largest singular value, by one more step of the power
        iteration, is above `GAIN`.

        The weights themselves are scaled, after each update and only down, so that what is kept is
        a plain network. Miyato et al. scale them in each pass, and up as well.
        """
        for number, layer in enumerate(self.bounded):
            matrix = layer.weight.flatten(1)
            right = F.normalize(self.left[number].to(matrix.device) @ matrix, dim=0)
            left = self.left[number] = F.normalize(matrix @ right, dim=0)
            layer.weight.div_((left @ matrix @ right / GAIN).clamp_min(1.0))
