"""What small networks that are trained here have in common."""

import torch
from torch import nn


def initial(network: nn.Module, rng: torch.Generator) -> None:
    """Give a network its first weights, on the CPU: those of layers by He et al. 2015, biases 0."""
    network.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in network.parameters():
            if tensor.ndim > 1:
                nn.init.kaiming_uniform_(tensor, nonlinearity="relu", generator=rng)
            else:
                tensor.zero_()
