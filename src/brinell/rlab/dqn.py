"""DQN: dueling double deep Q-learning for actions that choose several options.

Mnih et al. 2015, Human-level control through deep reinforcement learning; van Hasselt, Guez & Silver 2016, Deep reinforcement
learning with double Q-learning, equation 4; Wang et al. 2016, Dueling network architectures, equation 9; Tavakoli, Pardo &
Kormushev 2018, Action branching architectures, section 4; n-step returns as in Hessel et al. 2018, Rainbow.

Deviations:
- An action chooses several options from each branch without replacement and has one Q (`policies.worth`), not one for each
  branch: what the options pay together is learned from their common reward, and the best action is still found by sorting each
  branch.
- n-step returns are not corrected for exploration on the way, as in Rainbow.
- Updates begin after a number of steps, and their number in a round does not depend on the slots.

The replay memory keeps every state once, joined to the state that followed it by its row. Rows are reused in turn, so a state
outlives all that came before it, and the state that a kept row leads to is kept as well.
"""

import copy
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brinell.core.errors import ContractError, RequestError
from brinell.rlab.interface import Action, Environment, Heads, Observation, Progress, mapped
from brinell.rlab.policies import best, gumbel, worth

EPISODES = 100
"""Over how many episodes returns are averaged."""
END = -1
"""In place of the next row: the episode terminated."""
OPEN = -2
"""In place of the next row: nothing was done in this state yet, or nothing ever will be, as the last of a truncated episode."""


class Sample(NamedTuple):
    """Transitions over up to n steps."""

    observation: Observation
    """The states in which they begin."""
    action: Action
    reward: Tensor
    """(b,): discounted sum of the rewards on the way."""
    discount: Tensor
    """(b,): what a unit of value at the end of the way is worth at its beginning; 0 where the episode terminated."""
    later: Observation
    """The states at the end of the way; anything where the discount is 0."""
    weight: Tensor
    """(b,): 1 for transitions, 0 for other rows."""


class Replay:
    """The latest transitions of all slots, within a bound on rows and on bytes."""

    def __init__(self, observation: Observation, action: Action, *, capacity: int, memory: int, half: bool) -> None:
        """Size the memory by any observation and action: at most `capacity` rows and `memory` bytes.

        With `half` float32 features are kept in 16 bits.

        Raises:
            RequestError: the bounds leave no room for four observations of every slot.
        """

        def kept_as(tensor: Tensor) -> torch.dtype:
            """Type in which a feature is stored."""
            return torch.float16 if half and tensor.dtype == torch.float32 else tensor.dtype

        slots, device = len(observation.allowed[0]), observation.allowed[0].device
        template = observation, tuple(tensor.to(torch.int32) for tensor in action)
        sizes: list[int] = []
        mapped(lambda part: sizes.append(part[0].numel() * kept_as(part).itemsize), template)
        row = sum(sizes) + 4 + 8
        self.capacity = min(capacity, memory // row)
        if self.capacity < 4 * slots:
            raise RequestError(
                f"a replay memory of {self.capacity} turns ({row} bytes each) is too small for {slots} slots; "
                f"capacity must be at least {4 * slots} and memory {4 * slots * row} bytes"
            )
        self._template: Observation = mapped(lambda part: part[:0], observation)
        self.columns: tuple[Observation, Action] = mapped(
            lambda part: torch.empty(self.capacity, *part.shape[1:], dtype=kept_as(part), device=device), template
        )
        """The states, and what was done in them."""
        for choices in self.columns[1]:
            # States in which nothing was done are sampled too, with weight 0: their entries
            # must be a possible action.
            choices.fill_(-1)
        self.reward = torch.zeros(self.capacity, device=device)
        self.following = torch.empty(self.capacity, dtype=torch.int64, device=device)
        self.taken = 0
        """Rows taken since the beginning."""

    def __len__(self) -> int:
        return min(self.taken, self.capacity)

    def add(self, observation: Observation, mask: Tensor) -> Tensor:
        """Keep the observations of the slots in `mask` (n,); their rows (n,) int64, END for the other slots."""
        slots = mask.nonzero()[:, 0]
        begin = self.taken % self.capacity
        rows = torch.arange(begin, begin + len(slots), device=mask.device)
        if begin + len(slots) > self.capacity:
            rows %= self.capacity
        self.taken += len(slots)
        self._put(self.columns[0], rows, observation, slots)
        self.following.index_fill_(0, rows, OPEN)
        return rows if len(rows) == len(mask) else torch.full_like(mask, END, dtype=torch.int64).index_copy_(0, slots, rows)

    def link(self, rows: Tensor, action: Action, reward: Tensor, after: Tensor) -> None:
        """Make transitions of `rows` (n,): what was done, what it paid, and the row it led to. Skips END."""
        slots = (rows >= 0).nonzero()[:, 0]
        rows = rows.index_select(0, slots)
        self._put(self.columns[1], rows, action, slots)
        self.reward.index_copy_(0, rows, reward.index_select(0, slots))
        self.following.index_copy_(0, rows, after.index_select(0, slots))

    def sample(self, size: int, n_step: int, gamma: float, generator: torch.Generator) -> Sample:
        """Transitions drawn uniformly.

        Args:
            size: b, the number of transitions.
            n_step: longest way. Ways end early where the episode does, and at the present.
            gamma: discount of a step.
            generator: where the draws come from.
        """
        uniform = torch.rand(size, generator=generator, device=self.reward.device)
        rows = (uniform * len(self)).to(torch.int64).clamp(max=len(self) - 1)
        weight = (self.following.index_select(0, rows) != OPEN).to(uniform.dtype)
        reward, discount, last = self._way(rows, n_step, gamma)
        action = tuple(column.index_select(0, rows).long() for column in self.columns[1])
        return Sample(self._observation(rows), action, reward, discount, self._observation(last.clamp(min=0)), weight)

    def _way(self, rows: Tensor, n_step: int, gamma: float) -> tuple[Tensor, Tensor, Tensor]:
        """Discounted rewards, discount and row at the end of up to `n_step` steps from each row."""
        reward, discount = self.reward.new_zeros(len(rows)), self.reward.new_ones(len(rows))
        for _ in range(n_step):
            valid = rows.clamp(min=0)
            following = self.following.index_select(0, valid)
            on = (rows >= 0) & (following != OPEN)
            reward = torch.addcmul(reward, discount * on, self.reward.index_select(0, valid))
            discount = torch.where(on, discount * gamma, discount)
            rows = torch.where(on, following, rows)
        return reward, discount * (rows >= 0), rows

    @staticmethod
    def _put(columns: Any, rows: Tensor, new: Any, slots: Tensor) -> None:
        def put(column: Tensor, tensor: Tensor) -> None:
            """Write new rows into one column."""
            column.index_copy_(0, rows, (tensor if len(slots) == len(tensor) else tensor.index_select(0, slots)).to(column.dtype))

        mapped(put, columns, new)

    def _observation(self, rows: Tensor) -> Observation:
        observation: Observation = mapped(
            lambda column, template: column.index_select(0, rows).to(template.dtype), self.columns[0], self._template
        )
        return observation


@dataclass(frozen=True, kw_only=True)
class DQNSettings:
    """How DQN learns."""

    gamma: float = 0.99
    """Discount of one step."""
    n_step: int = 3
    """Rewards that are summed before the rest is estimated."""
    learning_rate: float = 5e-4
    """Of Adam."""
    batch_size: int = 128
    """Transitions of one gradient step."""
    collect: int = 1
    """Steps of all slots in one round."""
    updates: int = 1
    """Gradient steps in one round."""
    warm_up: int = 1000
    """Steps of single slots before the first gradient step, all of them exploring as at the start."""
    target_every: int = 500
    """Gradient steps from one copy of the network to the next."""
    epsilon_start: float = 1.0
    """Probability, at first, that a branch acts at random."""
    epsilon_end: float = 0.05
    """The same in the end."""
    epsilon_steps: int = 20_000
    """Steps of single slots until then; from step 0 to there it falls linearly, after the warm-up."""
    temperature: float = 0.0
    """Above 0: options that are not random are drawn in proportion to exp(advantage / temperature)."""
    double: bool = True
    """The network chooses, its copy values. False: the copy does both."""
    dueling: bool = True
    """Value and advantages. False: outputs are Q themselves, and the value is not used."""
    huber: float = 1.0
    """Error above which the loss grows linearly."""
    clip: float = 10.0
    """Largest norm of a gradient."""
    capacity: int = 100_000
    """Most states in the replay memory."""
    memory: int = 2**30
    """Most bytes in the replay memory."""
    half: bool = True
    """Keep float32 features in 16 bits; they must be within 65504."""

    def __post_init__(self) -> None:
        require(self, n_step=1, batch_size=1, collect=1, updates=1, target_every=1, warm_up=0, epsilon_steps=0, temperature=0)
        require(self, 1, gamma=0, epsilon_start=0, epsilon_end=0)
        require(self, learning_rate=None, huber=None, clip=None)

    def epsilon(self, steps: int) -> float:
        """The probability of a random action after so many steps."""
        if steps < self.warm_up:
            return self.epsilon_start
        share = min(1.0, steps / self.epsilon_steps) if self.epsilon_steps else 1.0
        return self.epsilon_start + share * (self.epsilon_end - self.epsilon_start)


@torch.no_grad()
def target_of(sample: Sample, network: nn.Module, target: nn.Module, choices: tuple[int, ...], settings: DQNSettings) -> Tensor:
    """(b,): what Q should be: the rewards on the way, and the copy's value of the best action at its end."""
    later = sample.later
    heads: Heads = target(later.features)
    chooser: Heads = network(later.features) if settings.double else heads
    future = worth(heads, later.allowed, best(chooser.branches, later, choices), settings.dueling)
    return sample.reward + sample.discount * future


class DQN:
    """DQN at work on one environment."""

    def __init__(self, settings: DQNSettings, network: nn.Module, environment: Environment, seed: int) -> None:
        """Begin with fresh episodes."""
        self.settings, self.network, self.environment = settings, network, environment
        self._parameters = list(network.parameters())
        self._target = copy.deepcopy(network).requires_grad_(False)
        self._optimizer = torch.optim.Adam(self._parameters, lr=settings.learning_rate, fused=True)
        self._generator = torch.Generator(device_of(network)).manual_seed(seed)
        self._observation = first_observation(environment)
        self.tally = Tally(environment.alive)
        branches = zip(self._observation.allowed, environment.choices, strict=True)
        self._replay = Replay(
            self._observation,
            tuple(allowed.new_zeros(len(allowed), k) for allowed, k in branches),
            capacity=settings.capacity,
            memory=settings.memory,
            half=settings.half,
        )
        self._age = 0
        self._rows = self._replay.add(self._observation, environment.alive)

    def advance(self) -> None:
        """`collect` steps of all slots, then `updates` gradient steps."""
        for _ in range(self.settings.collect):
            self._collect()
        if self.tally.steps >= self.settings.warm_up:
            updates = [self._update() for _ in range(self.settings.updates)]
            losses, values = zip(*updates, strict=True)
            self.tally.learned(losses, {"q": values})
            self.tally.terms["epsilon"] = self.settings.epsilon(self.tally.steps)

    @torch.no_grad()
    def _collect(self) -> None:
        """One step of all slots, into the replay memory."""
        alive = self.environment.alive.clone()
        action = self._explore()
        step = self.environment.step(action)
        finished = step.terminated | step.truncated
        after = self._replay.add(step.observation, alive & ~step.terminated)
        self._replay.link(self._rows, action, step.reward, after)
        self._observation, self._rows = step.observation, after
        if self.tally.count(step.reward, alive, finished):
            self._observation = self.environment.reset(finished)
            fresh = self._replay.add(self._observation, finished & self.environment.alive)
            self._rows = torch.where(finished, fresh, after)

    def _explore(self) -> Action:
        """The best actions, or random ones: an independent draw decides for each branch of each slot."""
        epsilon, temperature = self.settings.epsilon(self.tally.steps), self.settings.temperature
        keys = [self._uniform(*allowed.shape) for allowed in self._observation.allowed]
        if epsilon < 1:
            heads: Heads = self.network(self._observation.features)
            for branch, outputs in enumerate(heads.branches):
                if temperature:
                    outputs = outputs / temperature + gumbel(self._uniform(*outputs.shape))
                keys[branch] = torch.where(self._uniform(len(outputs), 1) < epsilon, keys[branch], outputs)
        return best(keys, self._observation, self.environment.choices)

    def _uniform(self, *shape: int) -> Tensor:
        """Uniform random numbers."""
        return torch.rand(*shape, generator=self._generator, device=self._generator.device)

    def _update(self) -> tuple[Tensor, Tensor]:
        """One gradient step; its loss and the mean Q."""
        settings = self.settings
        sample = self._replay.sample(settings.batch_size, settings.n_step, settings.gamma, self._generator)
        expected = target_of(sample, self.network, self._target, self.environment.choices, settings)
        q = worth(self.network(sample.observation.features), sample.observation.allowed, sample.action, settings.dueling)
        loss = (F.huber_loss(q, expected, reduction="none", delta=settings.huber) * sample.weight).mean()
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self._parameters, settings.clip)
        self._optimizer.step()
        self._age += 1
        if self._age == settings.target_every:
            self._target.load_state_dict(self.network.state_dict())
            self._age = 0
        return loss.detach(), q.detach().mean()


class Trainer(Protocol):
    """An algorithm at work on one environment, which begins with fresh episodes in all slots. It advances by rounds."""

    @property
    def environment(self) -> Environment:
        """Environment of the training."""

    @property
    def tally(self) -> "Tally":
        """Progress of the training so far."""

    def advance(self) -> None:
        """One round: some steps of all slots, then the updates that they pay for."""


def learn(
    trainer: Trainer, *, steps: int | None = None, seconds: float | None = None, interval: int = 1000
) -> Iterator[Progress]:
    """Advance by whole rounds until `steps` of single slots or `seconds` are spent, or the environment runs out of work.

    There is a report every so many steps, and always one at the end.
    """
    began, tally = time.monotonic(), trainer.tally
    reported = tally.steps
    while bool(trainer.environment.alive.any()) and (steps is None or tally.steps < steps):
        if seconds is not None and time.monotonic() - began >= seconds:
            break
        trainer.advance()
        if tally.steps >= reported + interval:
            reported = tally.steps
            yield tally.progress(time.monotonic() - began)
    if tally.steps != reported:
        yield tally.progress(time.monotonic() - began)


class Tally:
    """Steps, episodes and returns of all slots."""

    def __init__(self, alive: Tensor) -> None:
        self.steps = self.updates = self.episodes = 0
        self.loss: float | None = None
        self.terms: dict[str, float] = {}
        self._ended: deque[tuple[float, float]] = deque(maxlen=EPISODES)
        # Double: a return is a sum of thousands of rewards.
        self._running = torch.zeros(2, len(alive), dtype=torch.float64, device=alive.device)

    def count(self, reward: Tensor, alive: Tensor, finished: Tensor) -> bool:
        """Count one step of all slots and return True if an episode finished.

        Args:
            reward: (slots,), the reward of each slot.
            alive: (slots,) bool, the slots that took part.
            finished: (slots,) bool, the slots whose episode finished.
        """
        self.steps += int(alive.sum())
        self._running[0] += reward
        self._running[1] += alive
        slots = finished.nonzero()[:, 0]
        if not len(slots):
            return False
        self.episodes += len(slots)
        self._ended.extend((value, length) for value, length in self._running[:, slots].T.tolist())
        self._running[:, slots] = 0
        return True

    def learned(self, losses: Sequence[Tensor], terms: Mapping[str, Sequence[Tensor]]) -> None:
        """Note the gradient steps of a round by their losses, which must be finite, and the means of what else was watched."""
        self.updates += len(losses)
        self.loss = float(torch.stack(list(losses)).mean())
        self.terms = {name: float(torch.stack(list(values)).mean()) for name, values in terms.items()}
        if not -torch.inf < self.loss < torch.inf:
            raise ContractError(
                f"the loss became {self.loss} at step {self.steps}: a feature, a reward or an output is not finite; "
                "mend that, or lower the learning rate"
            )

    def progress(self, seconds: float = 0.0) -> Progress:
        """One point of the training curve."""
        returns, lengths = zip(*self._ended, strict=True) if self._ended else ((), ())
        mean_return, mean_length = (sum(of) / len(of) if of else None for of in (returns, lengths))
        return Progress(seconds, self.steps, self.updates, self.episodes, mean_return, mean_length, self.loss, dict(self.terms))


def device_of(network: nn.Module) -> torch.device:
    """Device of the network's parameters."""
    return next(network.parameters()).device


def require(settings: Any, at_most: float = float("inf"), **least: float | None) -> None:
    """Hold settings to their ranges: each from its least value, or above 0 where that is None, to `at_most`, and finite."""
    for name, low in least.items():
        value = getattr(settings, name)
        fits = value > 0 if low is None else value >= low
        if not fits or value > at_most or value == float("inf"):
            bounds = "above 0" if low is None else f"at least {low}" if at_most == float("inf") else f"from {low} to {at_most:g}"
            raise ValueError(f"{name} is {value}; it must be {bounds}, and finite")


def first_observation(environment: Environment) -> Observation:
    """Fresh episodes in all slots."""
    return environment.reset(torch.ones_like(environment.alive))
