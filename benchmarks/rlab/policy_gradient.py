"""PPO and A2C: actor-critic policy gradients for a policy that chooses several options at once.

PPO: Schulman, Wolski, Dhariwal, Radford & Klimov 2017, Proximal policy optimization algorithms,
equations 7 and 9 and algorithm 1. A2C (`a2c`): Mnih et al. 2016, Asynchronous methods for deep
reinforcement learning, section 4 and algorithm S3, without the asynchrony: one gradient step on a
short rollout of all slots.

Deviations:
- The policy of each branch is Plackett-Luce: options are drawn without replacement, in order
  (`likelihood`).
- PPO normalises advantages within each batch and clips gradients, which the paper does not mention
  and its code does. In A2C `gae_lambda` may be below the paper's 1.
- Episodes that were cut off are continued by the value of their last state.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brinell.rlab.dqn import Tally, device_of, first_observation, require
from brinell.rlab.interface import Action, Environment, Heads, Observation, mapped
from brinell.rlab.policies import best, gumbel
from brinell.rlab.train import Learner

LOW = -1e9
"""A logit that leaves nothing of an option."""


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


class Rollout(NamedTuple):
    """m steps of single slots, in no order that matters. Overwritten by the next rollout."""

    observation: Observation
    heads: Heads
    """Outputs of the network at the time of the action."""
    action: Action
    advantage: Tensor
    """(m,): how much better the action was than the network expected."""
    returns: Tensor
    """(m,): what the value should have been."""

    def select(self, rows: Tensor) -> "Rollout":
        """The chosen steps."""
        selection: Rollout = mapped(lambda tensor: tensor[rows], self)
        return selection


def advantages(reward: Tensor, value: Tensor, after: Tensor, finished: Tensor, gamma: float, gae_lambda: float) -> Tensor:
    """Generalised advantage estimation (Schulman et al. 2016, High-dimensional continuous control, equation 16).

    Args:
        reward: (T, n).
        value: (T, n), of the states acted in.
        after: (T, n), of the states after the action: 0 where the episode terminated, the last
            state's own where it was cut off.
        finished: (T, n) bool: True if the episode ends with this step.
        gamma: discount of a step.
        gae_lambda: 0 looks one step ahead, 1 to the end of the rollout.
    """
    errors = reward + gamma * after - value
    decay = gamma * gae_lambda * (~finished).to(errors.dtype)
    gains, last = torch.empty_like(errors), torch.zeros_like(errors[0])
    for step in reversed(range(len(errors))):
        last = torch.addcmul(errors[step], decay[step], last)
        gains[step] = last
    return gains


class Rollouts:
    """Runs an environment with a network's policy, one rollout after another."""

    def __init__(self, environment: Environment, network: nn.Module, length: int, seed: int) -> None:
        """Begin the first episodes; each rollout is `length` steps of all slots."""
        self._environment, self._network, self._length = environment, network, length
        self._generator = torch.Generator(device_of(network)).manual_seed(seed)
        self._observation = first_observation(environment)
        self.tally = Tally(environment.alive)
        observation, slots = self._observation, len(environment.alive)
        self._observations: Observation = mapped(lambda tensor: tensor.new_empty(length, *tensor.shape), observation)
        self._heads = Heads(self._float(slots), tuple(self._float(*mask.shape) for mask in observation.allowed))
        self._actions = tuple(
            mask.new_empty(length, slots, choices, dtype=torch.int64)
            for mask, choices in zip(observation.allowed, environment.choices, strict=True)
        )
        self._reward, self._last = self._float(slots), self._float(slots)
        self._alive, self._ended = (torch.empty_like(self._reward, dtype=torch.bool) for _ in range(2))

    def _float(self, *shape: int) -> Tensor:
        return torch.empty(self._length, *shape, device=self._generator.device)

    @torch.no_grad()
    def collect(self, gamma: float, gae_lambda: float) -> Rollout:
        """One rollout."""
        self._last.zero_()
        noise = [
            gumbel(torch.rand(logits.shape, generator=self._generator, device=logits.device)) for logits in self._heads.branches
        ]
        for step in range(self._length):
            self._step(step, [draws[step] for draws in noise])
        value = self._heads.value
        following = torch.cat([value[1:], self._network(self._observation.features).value[None]])
        after = torch.where(self._ended, self._last, following)
        advantage = advantages(self._reward, value, after, self._ended, gamma, gae_lambda)
        steps = Rollout(self._observations, self._heads, self._actions, advantage, advantage + value)
        rollout: Rollout = mapped(lambda tensor: tensor.flatten(0, 1), steps)
        alive = self._alive.flatten()
        return rollout if bool(alive.all()) else rollout.select(alive)

    def _step(self, step: int, noise: list[Tensor]) -> None:
        """Act once in all slots, and note everything."""
        environment, observation = self._environment, self._observation
        heads: Heads = self._network(observation.features)
        action = best(
            (logits + draw for logits, draw in zip(heads.branches, noise, strict=True)), observation, environment.choices
        )
        self._keep(step, (self._observations, self._heads), (observation, heads))
        self._alive[step] = environment.alive
        _, reward, terminated, truncated = after = environment.step(action)
        # Only now: the environment may have replaced choices without effect.
        self._keep(step, self._actions, action)
        self._reward[step], self._observation = reward, after.observation
        finished = torch.logical_or(terminated, truncated, out=self._ended[step])
        if self.tally.count(reward, self._alive[step], finished):
            cut = truncated & ~terminated
            if cut.any():
                self._last[step, cut] = self._network(
                    {name: feature[cut] for name, feature in after.observation.features.items()}
                ).value
            self._observation = environment.reset(finished)

    @staticmethod
    def _keep(step: int, buffers: Any, new: Any) -> None:
        mapped(lambda buffer, tensor: buffer[step].copy_(tensor), buffers, new)

    def shuffled(self, count: int) -> Tensor:
        """0 to count-1 in random order."""
        return torch.randperm(count, generator=self._generator, device=self._generator.device)


def likelihood(heads: Heads, allowed: Sequence[Tensor], action: Action) -> tuple[Tensor, Tensor]:
    """Log-probabilities of ordered choices, and entropies, both (n,) and summed over independent branches.

    Plackett-Luce: each choice is a softmax over what is still there. The entropy is the sum of
    those softmaxes' entropies along the given choices. For one choice it is exact; for more its
    mean over sampled choices is the entropy of the whole (chain rule), and its gradient lacks the
    term by which earlier choices change what later ones choose from.
    """
    log_prob, entropy = torch.zeros_like(heads.value), torch.zeros_like(heads.value)
    for logits, can, choices in zip(heads.branches, allowed, action, strict=True):
        terms = (_first if choices.shape[1] == 1 else _ordered)(logits, can, choices)
        log_prob, entropy = log_prob + terms[0], entropy + terms[1]
    return log_prob, entropy


def _first(logits: Tensor, can: Tensor, choices: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy of one choice."""
    is_chosen, options = choices[:, 0] >= 0, choices.clamp(min=0)
    # A low number and not -inf: rows where nothing is allowed stay finite, in the gradient too.
    logs = logits.masked_fill(~can, LOW).log_softmax(1)
    entropy = -(logs.exp() * logs).sum(1)
    return logs.gather(1, options)[:, 0].masked_fill(~is_chosen, 0), entropy.masked_fill(~is_chosen, 0)


def _ordered(logits: Tensor, can: Tensor, choices: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy of several choices, without a loop over them.

    With weights w that sum to 1, choice j is a softmax over what was never chosen and choices j,
    j+1, ...: sums from the end. In double precision, since those may be far below the weights of
    the first choices.
    """
    is_chosen, options = choices >= 0, choices.clamp(min=0)
    logs = logits.double().masked_fill(~can, LOW).log_softmax(1)
    weights = logs.exp()
    # One option more, for what was not chosen to be written to.
    was_chosen = torch.zeros(len(can), can.shape[1] + 1, dtype=torch.bool, device=can.device)
    was_chosen = was_chosen.scatter(1, torch.where(is_chosen, choices, can.shape[1]), True)[:, :-1]
    log, weight = logs.gather(1, options), weights.gather(1, options).masked_fill(~is_chosen, 0)
    total = _from_end(weight) + weights.masked_fill(was_chosen, 0).sum(1, keepdim=True)
    surprise = _from_end(weight * log) + (weights * logs).masked_fill(was_chosen, 0).sum(1, keepdim=True)
    total = total.clamp(min=torch.finfo(total.dtype).tiny)
    log_prob, entropy = log - total.log(), total.log() - surprise / total
    return (
        log_prob.masked_fill(~is_chosen, 0).sum(1).to(logits.dtype),
        entropy.masked_fill(~is_chosen, 0).sum(1).to(logits.dtype),
    )


def _from_end(values: Tensor) -> Tensor:
    """(n, k): the sum of each value and those after it."""
    return values.flip(1).cumsum(1).flip(1)


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
        self.tally.learned(losses, {name: [part[name] for part in parts] for name in parts[0]})

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


def _learner(name: str, settings: PolicyGradientSettings) -> Learner:
    return Learner(name, 1.0, lambda network, environment, _, seed: PolicyGradient(settings, network, environment, seed))


LEARNERS = {
    "ppo": _learner("ppo", PolicyGradientSettings(length=16, epochs=3, batch_size=256, gamma=0.98, learning_rate=1e-3)),
    "a2c": _learner("a2c", a2c(gamma=0.98, gae_lambda=0.95, length=8)),
}
"""By the names that the studies use."""
