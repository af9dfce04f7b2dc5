"""PPO and A2C: actor-critic policy gradients for a policy that chooses several options at once.

PPO: Schulman, Wolski, Dhariwal, Radford & Klimov 2017, Proximal policy optimization algorithms,
equations 7 and 9 and algorithm 1. A2C (`a2c`): Mnih et al. 2016, Asynchronous methods for deep
reinforcement learning, section 4 and algorithm S3, without the asynchrony: one gradient step on a
short rollout of all slots.

Deviations:
- The policy of each branch is Plackett-Luce: options are drawn without replacement, in order
  (`sampling.likelihood`).
- PPO normalises advantages within each batch and clips gradients, which the paper does not mention
  and its code does. In A2C `gae_lambda` may be below the paper's 1.
- Episodes that were cut off are continued by the value of their last state.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brinell.rlab.interface import Environment
from brinell.rlab.rollout import Rollout, Rollouts
from brinell.rlab.sampling import likelihood
from brinell.rlab.training import require


@dataclass(frozen=True, kw_only=True)
class PolicyGradientSettings:
    """How the policy learns; the defaults are PPO's, those of A2C come from `a2c`."""

    gamma: float = 0.99
    """Discount of one step."""
    gae_lambda: float = 0.95
    """How far advantages look ahead: 0 one step, 1 to the end of the rollout."""
    length: int = 128
    """Steps of all slots in one round."""
    epochs: int = 10
    """How often each step is learned from."""
    batch_size: int | None = 64
    """Steps of single slots in one gradient step; None for all of the round, in their order."""
    learning_rate: float = 3e-4
    """Of Adam, or of RMSprop without `ratio_clip`."""
    ratio_clip: float | None = 0.2
    """How far the probability of an action may move before its advantage stops counting; None for
    the plain gradient of A2C."""
    entropy: float = 0.0
    """Weight of the entropy."""
    value: float = 0.5
    """Weight of the squared error of the value."""
    normalise: bool = True
    """Bring the advantages of each batch to mean 0 and deviation 1."""
    clip: float = 0.5
    """Largest norm of a gradient."""

    def __post_init__(self) -> None:
        require(self, length=1, epochs=1, entropy=0, value=0)
        require(self, 1, gamma=0, gae_lambda=0)
        require(self, learning_rate=None, clip=None)
        if self.batch_size is not None:
            require(self, batch_size=1)
        if self.ratio_clip is not None:
            require(self, ratio_clip=None)


def a2c(**changes: Any) -> PolicyGradientSettings:
    """The settings of A2C, with these changes."""
    usual = {"gae_lambda": 1.0, "length": 5, "epochs": 1, "batch_size": None, "learning_rate": 7e-4}
    return PolicyGradientSettings(**usual | {"ratio_clip": None, "normalise": False} | changes)


def surrogate(change: Tensor, gain: Tensor, ratio_clip: float) -> Tensor:
    """(m,): equation 7, of log-probabilities now less what they were (m,), and of advantages (m,).

    Nothing is gained by moving the ratio of probabilities further than the clip from 1.
    """
    ratio = change.exp()
    return torch.minimum(ratio * gain, ratio.clamp(1 - ratio_clip, 1 + ratio_clip) * gain)


class PolicyGradient:
    """PPO or A2C at work on one environment."""

    def __init__(self, settings: PolicyGradientSettings, network: nn.Module, environment: Environment, seed: int) -> None:
        """Begin with fresh episodes."""
        self.settings, self.network, self.environment = settings, network, environment
        parameters, rate = network.parameters(), settings.learning_rate
        self._optimizer: torch.optim.Optimizer
        if settings.ratio_clip is None:
            self._optimizer = torch.optim.RMSprop(parameters, lr=rate, alpha=0.99, eps=1e-5, foreach=True)
        else:
            self._optimizer = torch.optim.Adam(parameters, lr=rate, eps=1e-5, fused=True)
        self._rollouts = Rollouts(environment, network, settings.length, seed)
        self.tally = self._rollouts.tally

    def advance(self) -> None:
        """A rollout, then passes over it in batches."""
        settings = self.settings
        rollout = self._rollouts.collect(settings.gamma, settings.gae_lambda)
        count = len(rollout.advantage)
        if not count:
            return
        before = likelihood(rollout.heads, rollout.observation.allowed, rollout.action)[0]
        updates: list[tuple[Tensor, dict[str, Tensor]]] = []
        for _ in range(settings.epochs):
            if settings.batch_size is None:
                updates.append(self._update(rollout, before))
                continue
            for rows in torch.split(self._rollouts.shuffled(count), settings.batch_size):
                updates.append(self._update(rollout.select(rows), before[rows]))
        losses, parts = zip(*updates, strict=True)
        self.tally.learned(losses, {name: [one[name] for one in parts] for name in parts[0]})

    def _update(self, batch: Rollout, before: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """One gradient step; its loss, and the parts of it."""
        settings, gain, clip = self.settings, batch.advantage, self.settings.ratio_clip
        if settings.normalise and len(gain) > 1:
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        heads = self.network(batch.observation.features)
        log_prob, entropy = likelihood(heads, batch.observation.allowed, batch.action)
        change = log_prob - before
        policy = -(log_prob * gain if clip is None else surrogate(change, gain, clip)).mean()
        value, spread = F.mse_loss(heads.value, batch.returns), entropy.mean()
        loss = policy + settings.value * value - settings.entropy * spread
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip)
        self._optimizer.step()
        parts = {"policy": policy, "value": value, "entropy": spread}
        if clip is not None:
            change = change.detach()
            ratio = change.exp()
            parts |= {"kl": (ratio - 1 - change).mean(), "clipped": ((ratio - 1).abs() > clip).to(loss.dtype).mean()}
        return loss.detach(), {name: part.detach() for name, part in parts.items()}
