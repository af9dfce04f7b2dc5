"""Norms of perturbations, one value per sample. All take (n, *shape) and return (n,)."""

import torch
from torch import Tensor


def linf(delta: Tensor) -> Tensor:
    """Largest absolute change."""
    low, high = torch.aminmax(delta.flatten(1), dim=1)
    return torch.maximum(-low, high)


def l2(delta: Tensor) -> Tensor:
    """Euclidean length."""
    return torch.linalg.vector_norm(delta.flatten(1), dim=1)


def l1(delta: Tensor) -> Tensor:
    """Sum of absolute changes."""
    return torch.linalg.vector_norm(delta.flatten(1), ord=1, dim=1)


def l0(delta: Tensor) -> Tensor:
    """Number of values that changed at all, each channel counted."""
    return (delta.flatten(1) != 0).sum(1).to(delta.dtype)


def per_sample(values: Tensor, like: Tensor) -> Tensor:
    """A (n,) tensor reshaped to broadcast against `like` (n, *shape)."""
    return values.reshape(-1, *[1] * (like.ndim - 1))
