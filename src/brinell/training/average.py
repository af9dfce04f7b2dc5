"""A running average of the weights.

It is audited and kept, since it is more robust than the weights that it averages.

Izmailov et al. 2018, Averaging weights leads to wider optima and better generalization; with
exponentially falling weights, as in Gowal et al. 2020, Uncovering the limits of adversarial
training, section 4.4.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """An average of a module's weights that keeps a share `decay` at each step.

    Buffers are the latest.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.module = module
        self.decay = decay
        self.steps = 0
        self.state: dict[str, Tensor] = {
            name: value.detach().clone() for name, value in module.state_dict().items()
        }
        # The parameters by every name: a shared one has several in the state dict.
        self._latest = dict(module.named_parameters(remove_duplicate=False))

    @torch.no_grad()
    def update(self) -> None:
        """Add the current weights.

        Early on the average forgets faster, so that it does not lag behind.
        """
        self.steps += 1
        # At step k at most k / (10 + k) of the past stays, so early weights soon count little.
        decay = min(self.decay, self.steps / (10.0 + self.steps))
        for name, parameter in self._latest.items():
            self.state[name].lerp_(parameter, 1 - decay)

    @torch.no_grad()
    def full_state(self) -> dict[str, Tensor]:
        """A new state dict with the averaged weights and the latest buffers."""
        latest = self.module.state_dict()
        return {
            name: (value if name in self._latest else latest[name]).clone()
            for name, value in self.state.items()
        }


@contextmanager
def swap_state(module: nn.Module, state: dict[str, Tensor]) -> Iterator[None]:
    """Load another state dict into the module; the context restores the module when it ends."""
    original = {name: value.detach().clone() for name, value in module.state_dict().items()}
    module.load_state_dict(state)
    try:
        yield
    finally:
        module.load_state_dict(original)
