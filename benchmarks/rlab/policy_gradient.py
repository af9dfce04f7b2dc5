"""PPO: an actor-critic policy gradient for a policy that chooses several options at once.

Schulman, Wolski, Dhariwal, Radford & Klimov 2017, Proximal policy optimization algorithms,
equations 7 and 9 and algorithm 1. The package has no second algorithm; this one is what DQN is
compared with in `matters.py`.

Deviations:
- The policy of each branch is Plackett-Luce: options are drawn without replacement, in order
  (`likelihood`).
- Advantages are normalised within each batch and gradients are clipped, which the paper does not
  mention and its code does.
- Episodes that were cut off are continued by the value of their last state.
- There is no bonus for entropy: what was drawn from the first weights on varies enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brinell.rlab.episodes import Action, Observation, mapped
from brinell.rlab.policy import Heads, best, gumbel
from brinell.rlab.search import PatchSearch

LOW = -1e9
"""A logit that leaves nothing of an option."""


@dataclass(frozen=True, kw_only=True)
class PPOSettings:
    """How the policy learns."""

    gamma: float = 0.98
    """Discount of one step, the same as DQN's."""
    gae_lambda: float = 0.95
    """How far advantages look ahead: 0 one step, 1 to the end of the rollout."""
    length: int = 16
    """Steps of all slots in one rollout."""
    epochs: int = 4
    """How often each step is learned from."""
    batch_size: int = 64
    """Steps of single slots in one gradient step."""
    learning_rate: float = 3e-4
    """Of Adam."""
    ratio_clip: float = 0.2
    """How far the probability of an action may move before its advantage stops counting."""
    value: float = 0.5
    """Weight of the squared error of the value."""
    gradient_clip: float = 0.5
    """Largest norm of a gradient."""


class Rollout(NamedTuple):
    """m steps of single slots, in no order that matters."""

    observation: Observation
    action: Action
    log_prob: Tensor
    """(m,): of the action, by the policy that took it."""
    advantage: Tensor
    """(m,): how much better the action was than the network expected."""
    returns: Tensor
    """(m,): what the value should have been."""


def clipped_gain(change: Tensor, gain: Tensor, ratio_clip: float) -> Tensor:
    """(m,): equation 7, of log-probabilities now less what they were (m,), and of advantages (m,).

    Nothing is gained by moving the ratio of probabilities further than the clip from 1.
    """
    ratio = change.exp()
    return torch.minimum(ratio * gain, ratio.clamp(1 - ratio_clip, 1 + ratio_clip) * gain)


def advantages(
    reward: Tensor, value: Tensor, after: Tensor, finished: Tensor, settings: PPOSettings
) -> Tensor:
    """(T, n): generalised advantage estimation (Schulman et al. 2016, High-dimensional continuous
    control, equation 16).

    Args:
        reward: (T, n).
        value: (T, n), of the states acted in.
        after: (T, n), of the states after the action: 0 where the episode terminated, that of the
            last state where it was cut off.
        finished: (T, n) bool: True if the episode ends with this step.
        settings: the discounts.
    """
    errors = reward + settings.gamma * after - value
    decay = settings.gamma * settings.gae_lambda * (~finished).to(errors.dtype)
    gains = torch.empty_like(errors)
    last = torch.zeros_like(errors[0])
    for step in reversed(range(len(errors))):
        last = errors[step] + decay[step] * last
        gains[step] = last
    return gains


def likelihood(heads: Heads, allowed: Sequence[Tensor], action: Action) -> Tensor:
    """(n,): log-probability of ordered choices, summed over independent branches.

    Plackett-Luce: each choice is a softmax over the options that are still there.
    """
    log_prob = torch.zeros_like(heads.value)
    for logits, mask, choices in zip(heads.branches, allowed, action, strict=True):
        log_prob = log_prob + _ordered(logits, mask, choices)
    return log_prob


def _ordered(logits: Tensor, allowed: Tensor, choices: Tensor) -> Tensor:
    """(n,): log-probability of several choices (n, k) of a branch, without a loop over them.

    With weights w that sum to 1, choice j is a softmax over what was never chosen and choices j,
    j+1, ...: sums from the end. In double precision, since those may be far below the weights of
    the first choices.
    """
    made = choices >= 0
    logs = logits.double().masked_fill(~allowed, LOW).log_softmax(1)
    weights = logs.exp()

    # One option more, to which choices that were not made are written.
    options = torch.where(made, choices, allowed.shape[1])
    chosen = torch.zeros(len(allowed), allowed.shape[1] + 1, dtype=torch.bool)
    chosen = chosen.to(allowed.device).scatter(1, options, True)[:, :-1]

    log = logs.gather(1, choices.clamp(min=0))
    weight = weights.gather(1, choices.clamp(min=0)).masked_fill(~made, 0)
    from_here = weight.flip(1).cumsum(1).flip(1)
    remaining = from_here + weights.masked_fill(chosen, 0).sum(1, keepdim=True)
    log_remaining = remaining.clamp(min=torch.finfo(remaining.dtype).tiny).log()
    return (log - log_remaining).masked_fill(~made, 0).sum(1).to(logits.dtype)


class PPO:
    """PPO at work on one environment. It begins with fresh episodes and advances by rollouts."""

    def __init__(
        self, settings: PPOSettings, network: nn.Module, environment: PatchSearch, seed: int
    ) -> None:
        self.settings, self.network, self.environment = settings, network, environment
        self._parameters = list(network.parameters())
        self._optimizer = torch.optim.Adam(self._parameters, lr=settings.learning_rate, eps=1e-5)
        self._generator = torch.Generator().manual_seed(seed)
        self._observation = environment.reset(torch.ones_like(environment.alive))
        self.steps = 0

    def learn(self, steps: int) -> None:
        """Advance by whole rollouts until `steps` of single slots are taken, or the environment
        runs out of work.
        """
        while self.steps < steps and bool(self.environment.alive.any()):
            rollout = self._collect()
            for _ in range(self.settings.epochs):
                order = torch.randperm(len(rollout.returns), generator=self._generator)
                for rows in torch.split(order, self.settings.batch_size):
                    batch: Rollout = mapped(lambda part, rows=rows: part[rows], rollout)
                    self._update(batch)

    @torch.no_grad()
    def _collect(self) -> Rollout:
        """Act so many times in all slots."""
        taken, rewards, ended, lasts, alive = [], [], [], [], []
        for _ in range(self.settings.length):
            alive.append(self.environment.alive.clone())
            observation = self._observation
            heads: Heads = self.network(observation.features)
            action = best(self._noisy(heads), observation, self.environment.choices)
            step = self.environment.step(action)
            # Only now: the environment replaces choices without effect by -1 in place.
            log_prob = likelihood(heads, observation.allowed, action)
            taken.append((observation, action, log_prob, heads.value))
            rewards.append(step.reward)
            self.steps += int(alive[-1].sum())

            # What an episode that was cut off would still be worth.
            finished, cut = step.terminated | step.truncated, step.truncated & ~step.terminated
            last = torch.zeros_like(step.reward)
            if bool(cut.any()):
                last = torch.where(cut, self.network(step.observation.features).value, last)
            lasts.append(last)
            ended.append(finished)
            self._observation = step.observation
            if bool(finished.any()):
                self._observation = self.environment.reset(finished)

        value = torch.stack([values for *_, values in taken])
        following = torch.cat([value[1:], self.network(self._observation.features).value[None]])
        finished = torch.stack(ended)
        after = torch.where(finished, torch.stack(lasts), following)
        advantage = advantages(torch.stack(rewards), value, after, finished, self.settings)
        columns = mapped(lambda *parts: torch.stack(parts), *(entry[:3] for entry in taken))
        rollout = Rollout(*columns, advantage, advantage + value)
        rows = torch.stack(alive)
        played: Rollout = mapped(lambda part: part[rows], rollout)
        return played

    def _noisy(self, heads: Heads) -> list[Tensor]:
        """Keys by which the largest are a sample of the policy."""
        return [
            logits + gumbel(torch.rand(logits.shape, generator=self._generator))
            for logits in heads.branches
        ]

    def _update(self, batch: Rollout) -> None:
        """One gradient step."""
        settings, gain = self.settings, batch.advantage
        if len(gain) > 1:
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        heads: Heads = self.network(batch.observation.features)
        change = likelihood(heads, batch.observation.allowed, batch.action) - batch.log_prob
        policy = -clipped_gain(change, gain, settings.ratio_clip).mean()
        loss = policy + settings.value * F.mse_loss(heads.value, batch.returns)
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self._parameters, settings.gradient_clip)
        self._optimizer.step()
