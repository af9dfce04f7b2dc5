"""Layers whose first weights come from a given seed and never from the global generator."""

import torch
from torch import nn


def seeded(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator of its own."""
    return torch.Generator(device).manual_seed(seed)


def linear(inputs: int, outputs: int, generator: torch.Generator | None = None) -> nn.Linear:
    """A linear layer: uniform weights within 1 / sqrt(inputs) from the generator, zeros without one."""
    layer = nn.Linear(inputs, outputs, device="meta")  # `to_empty` would import sympy: more than a second
    layer.weight, layer.bias = (nn.Parameter(torch.zeros(values.shape)) for values in (layer.weight, layer.bias))
    if generator is not None:
        with torch.no_grad():
            for values in (layer.weight, layer.bias):
                values.uniform_(-(inputs**-0.5), inputs**-0.5, generator=generator)
    return layer
