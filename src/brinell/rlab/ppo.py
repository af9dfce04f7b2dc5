"""PPO: the clipped surrogate of a policy that picks several at once.

Schulman, Wolski, Dhariwal, Radford & Klimov 2017, Proximal policy optimization algorithms, equations 7 and 9 and algorithm 1.

Deviations:
- The policy of each branch is Plackett-Luce: picks without replacement, in order (`picks.likelihood`).
- Advantages are normalised within each batch, and gradients clipped, which the paper does not mention and its code does.
- Episodes that were cut off are continued by the value of their last state.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brinell.rlab.interface import Environment
from brinell.rlab.policies import Learned
from brinell.rlab.rollout import Player, Rollout
from brinell.rlab.sampling import likelihood
from brinell.rlab.training import require


@dataclass(frozen=True, kw_only=True)
class PPOSettings:
    """How PPO learns."""

    gamma: float = 0.99
    """Discount of one step."""
    gae_lambda: float = 0.95
    """How far advantages look ahead: 0 one step, 1 to the end of the stretch."""
    length: int = 128
    """Steps of all slots in one round."""
    epochs: int = 10
    """How often each step is learned from."""
    batch_size: int = 64
    """Steps of single slots in one gradient step."""
    learning_rate: float = 3e-4
    """Of Adam."""
    ratio_clip: float = 0.2
    """How far the probability of an action may move before its advantage stops counting."""
    entropy: float = 0.0
    """Weight of the entropy."""
    value: float = 0.5
    """Weight of the squared error of the value."""
    normalise: bool = True
    """Bring the advantages of each batch to mean 0 and deviation 1."""
    clip: float = 0.5
    """Largest norm of a gradient."""

    def __post_init__(self) -> None:
        require(self, length=1, epochs=1, batch_size=1, entropy=0, value=0)
        require(self, 1, gamma=0, gae_lambda=0)
        require(self, learning_rate=None, ratio_clip=None, clip=None)


def surrogate(change: Tensor, gain: Tensor, ratio_clip: float) -> Tensor:
    """(m,): equation 7. Nothing is gained by moving a probability further than the clip in the direction that the gain asks for.

    Args:
        change: (m,) log-probability of each action now, less what it was.
        gain: (m,) advantages.
        ratio_clip: how far the ratio of probabilities may move from 1.
    """
    ratio = change.exp()
    return torch.minimum(ratio * gain, ratio.clamp(1 - ratio_clip, 1 + ratio_clip) * gain)


class PPO:
    """PPO at work on one environment."""

    def __init__(self, settings: PPOSettings, network: nn.Module, environment: Environment, seed: int) -> None:
        """Begin with fresh episodes."""
        self.settings, self.network, self.environment = settings, network, environment
        self._optimizer = torch.optim.Adam(network.parameters(), lr=settings.learning_rate, eps=1e-5, fused=True)
        self._player = Player(environment, network, settings.length, seed)
        self.tally = self._player.tally

    @property
    def policy(self) -> Learned:
        """The likeliest picks."""
        return Learned(network=self.network, picks=self.environment.picks)

    def advance(self) -> None:
        """A stretch of play, then several passes over it in batches."""
        settings = self.settings
        rollout = self._player.play(settings.gamma, settings.gae_lambda)
        if not len(rollout.advantage):
            return
        log_prob = likelihood(rollout.heads, rollout.turn.allowed, rollout.action)[0]
        losses: list[Tensor] = []
        terms: dict[str, list[Tensor]] = {"policy": [], "value": [], "entropy": [], "kl": [], "clipped": []}
        for _ in range(settings.epochs):
            for rows in torch.split(self._player.shuffled(len(log_prob)), settings.batch_size):
                loss, parts = self._update(rollout.select(rows), log_prob[rows])
                losses.append(loss)
                for name, part in parts.items():
                    terms[name].append(part)
        self.tally.learned(losses, terms)

    def _update(self, batch: Rollout, before: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """One gradient step; its loss, and the parts of it."""
        settings, gain = self.settings, batch.advantage
        if settings.normalise and len(gain) > 1:
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        heads = self.network(batch.turn.features)
        log_prob, entropy = likelihood(heads, batch.turn.allowed, batch.action)
        change = log_prob - before
        policy = -surrogate(change, gain, settings.ratio_clip).mean()
        value, spread = F.mse_loss(heads.value, batch.returns), entropy.mean()
        loss = policy + settings.value * value - settings.entropy * spread
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip)
        self._optimizer.step()
        with torch.no_grad():
            ratio = change.exp()
            kl, clipped = (ratio - 1 - change).mean(), ((ratio - 1).abs() > settings.ratio_clip).to(loss.dtype).mean()
        parts = {"policy": policy, "value": value, "entropy": spread, "kl": kl, "clipped": clipped}
        return loss.detach(), {name: part.detach() for name, part in parts.items()}
