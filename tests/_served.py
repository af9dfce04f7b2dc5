"""Models behind the test server, and inputs for them."""

import numpy as np
import torch

from brinell.core.domain import Domain
from brinell.models.http import Http

VECTOR = Domain(kind="vector", shape=(2,))
IMAGE = Domain(kind="image", shape=(3, 2, 4), levels=256)
QUICK = {"backoff": 0.001, "timeout": 5.0, "retries": 4}


def linear(x):
    """Logits x0 - x1, x1 - x0 and 0 of vectors, exact in float32."""
    lead = x[:, 0] - x[:, 1]
    return np.stack([lead, -lead, np.zeros_like(lead)], 1).astype(np.float32)


def total(x):
    """Two logits of inputs of any shape: the sum of each one's values, weighted so that their order
    shows, and its negative.
    """
    flat = x.reshape(len(x), -1).astype(np.float64)
    z = flat @ np.arange(1, flat.shape[1] + 1)
    return np.stack([z, -z], 1).astype(np.float32)


def open_model(url, domain=VECTOR, **options):
    return Http(path=url, **(QUICK | options))(domain)


def random_inputs(n, domain=VECTOR, seed=1):
    return torch.rand(n, *domain.shape, generator=torch.Generator().manual_seed(seed))
