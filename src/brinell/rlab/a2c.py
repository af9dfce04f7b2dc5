"""A2C: advantage actor-critic, all slots in step.

Mnih et al. 2016, Asynchronous methods for deep reinforcement learning, section 4 and algorithm S3, without the asynchrony: one
gradient step on a short stretch of play of all slots.

Deviations:
- The policy of each branch is Plackett-Luce: picks without replacement, in order (`picks.likelihood`).
- Advantages may look ahead less far than to the end of the stretch (`gae_lambda`; 1 is the paper's).
- Episodes that were cut off are continued by the value of their last state.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from brinell.rlab.interface import Environment
from brinell.rlab.policies import Learned
from brinell.rlab.rollout import Player
from brinell.rlab.sampling import likelihood
from brinell.rlab.training import require


@dataclass(frozen=True, kw_only=True)
class A2CSettings:
    """How A2C learns."""

    gamma: float = 0.99
    """Discount of one step."""
    gae_lambda: float = 1.0
    """How far advantages look ahead: 0 one step, 1 to the end of the stretch."""
    length: int = 5
    """Steps of all slots in one round, which is one gradient step."""
    learning_rate: float = 7e-4
    """Of RMSprop."""
    entropy: float = 0.0
    """Weight of the entropy."""
    value: float = 0.5
    """Weight of the squared error of the value."""
    clip: float = 0.5
    """Largest norm of a gradient."""

    def __post_init__(self) -> None:
        require(self, length=1, entropy=0, value=0)
        require(self, 1, gamma=0, gae_lambda=0)
        require(self, learning_rate=None, clip=None)


class A2C:
    """A2C at work on one environment."""

    def __init__(self, settings: A2CSettings, network: nn.Module, environment: Environment, seed: int) -> None:
        """Begin with fresh episodes."""
        self.settings, self.network, self.environment = settings, network, environment
        self._optimizer = torch.optim.RMSprop(network.parameters(), lr=settings.learning_rate, alpha=0.99, eps=1e-5, foreach=True)
        self._player = Player(environment, network, settings.length, seed)
        self.tally = self._player.tally

    @property
    def policy(self) -> Learned:
        """The likeliest picks."""
        return Learned(network=self.network, picks=self.environment.picks)

    def advance(self) -> None:
        """A stretch of play, then one gradient step on all of it."""
        settings = self.settings
        rollout = self._player.play(settings.gamma, settings.gae_lambda)
        if not len(rollout.advantage):
            return
        heads = self.network(rollout.turn.features)
        log_prob, entropy = likelihood(heads, rollout.turn.allowed, rollout.action)
        policy, spread = -(log_prob * rollout.advantage).mean(), entropy.mean()
        value = F.mse_loss(heads.value, rollout.returns)
        loss = policy + settings.value * value - settings.entropy * spread
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip)
        self._optimizer.step()
        parts = {"policy": policy, "value": value, "entropy": spread}
        self.tally.learned([loss.detach()], {name: [part.detach()] for name, part in parts.items()})
