"""What is known about the sensitivity of patches before the first query, learned from queries about other inputs.

It has two parts, both of the covariance that `rlab.posterior` starts from: how much energy the gradient has on a patch, as a
function of the content of the patch and its surroundings (one small network, the same for every patch), and how the channels of
the gradient go together.
"""

import torch
from torch import Tensor, nn

from brinell.core.patches import PatchGrid
from brinell.rlab.content import FEATURES

WIDTH = 32
LEAST = 0.02
"""Energy of a patch that is taken for insensitive, so that it is still tried."""


class Prior(nn.Module):
    """Energies and channel covariance for inputs of so many `channels`, 0 for any; unfitted, every patch and channel is alike."""

    covariance: Tensor

    def __init__(self, channels: int = 0, seed: int = 0) -> None:
        super().__init__()
        first = torch.Generator().manual_seed(seed)
        self.network = nn.Sequential(
            linear(FEATURES, WIDTH, first), nn.ReLU(), linear(WIDTH, WIDTH, first), nn.ReLU(), linear(WIDTH, 1)
        )
        self.root = nn.Parameter(torch.eye(channels))

    def shares(self, content: Tensor) -> Tensor:
        """(n, patches, FEATURES) to (n, patches): energies with mean 1 over the patches of an input."""
        energies: Tensor = self.network(content)[..., 0].softmax(1) * content.shape[1]
        return energies

    @torch.no_grad()
    def energies(self, content: Tensor) -> Tensor:
        """(n, patches): energies as an attack uses them, none of them zero."""
        return self.shares(content).clamp_min(LEAST)

    def channel_covariance(self) -> Tensor:
        """(channels, channels): of trace `channels`."""
        square = self.root @ self.root.T
        return square * (len(square) / square.trace().clamp_min(1e-12))

    @torch.no_grad()
    def covariance_for(self, channels: int) -> Tensor | None:
        """The covariance for inputs of so many channels, with a little of the identity; None where it was fitted on others."""
        if not channels or self.root.shape[0] != channels:
            return None
        return (1 - LEAST) * self.channel_covariance() + LEAST * torch.eye(channels, device=self.root.device)


def to_places(energy: Tensor, grid: PatchGrid) -> Tensor:
    """(n, patches) to (n, places): the mean over the patches that cover a place."""
    covers = grid.covers.to(energy.device)
    real = covers < len(grid)
    padded = torch.cat([energy, torch.zeros_like(energy[:, :1])], 1)
    return padded[:, covers].sum(2) / real.sum(1)


def linear(inputs: int, outputs: int, generator: torch.Generator | None = None) -> nn.Linear:
    """A linear layer: uniform weights within 1 / sqrt(inputs) from the generator, zeros without one."""
    layer = nn.Linear(inputs, outputs, device="meta")  # `to_empty` would import sympy: more than a second
    layer.weight, layer.bias = (nn.Parameter(torch.zeros(values.shape)) for values in (layer.weight, layer.bias))
    if generator is not None:
        with torch.no_grad():
            for values in (layer.weight, layer.bias):
                values.uniform_(-(inputs**-0.5), inputs**-0.5, generator=generator)
    return layer
