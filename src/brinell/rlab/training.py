"""What all trainers share: the loop around their rounds, and the count of episodes."""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from brinell.core.errors import ContractError
from brinell.rlab.interface import Environment, Observation, Progress

EPISODES = 100
"""Over how many episodes returns are averaged."""


class Trainer(Protocol):
    """An algorithm at work on one environment, which begins with fresh episodes in all slots. It advances by rounds."""

    @property
    def environment(self) -> Environment:
        """Where it acts."""

    @property
    def tally(self) -> "Tally":
        """What it has done so far."""

    def advance(self) -> None:
        """One round: some steps of all slots, then the updates that they pay for."""


def learn(trainer: Trainer, *, steps: int | None = None, seconds: float | None = None, every: int = 1000) -> Iterator[Progress]:
    """Advance by whole rounds until `steps` of single slots or `seconds` are spent, or the environment runs out of work.

    There is a report every so many steps, and always one at the end.
    """
    began, tally = time.monotonic(), trainer.tally
    reported = tally.steps
    while bool(trainer.environment.alive.any()) and (steps is None or tally.steps < steps):
        if seconds is not None and time.monotonic() - began >= seconds:
            break
        trainer.advance()
        if tally.steps >= reported + every:
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

    def count(self, reward: Tensor, alive: Tensor, ended: Tensor) -> bool:
        """Note one step of all slots: what it paid, who took part, whose episode it ended. Whether it ended any."""
        self.steps += int(alive.sum())
        self._running[0] += reward
        self._running[1] += alive
        which = ended.nonzero()[:, 0]
        if not len(which):
            return False
        self.episodes += len(which)
        self._ended.extend((value, length) for value, length in self._running[:, which].T.tolist())
        self._running[:, which] = 0
        return True

    def learned(self, losses: Sequence[Tensor], terms: Mapping[str, Sequence[Tensor]]) -> None:
        """Note the gradient steps of a round by their losses, and the means of what else was watched.

        Raises:
            ContractError: a loss is not finite, so the features, the rewards or the network are
                not.
        """
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
    """Where the network's parameters are."""
    return next(network.parameters()).device


def require(settings: Any, at_most: float = float("inf"), **least: float | None) -> None:
    """Hold settings to their ranges: each from its least value, or above 0 where that is None, to `at_most`, and finite.

    Raises:
        ValueError: a setting is out of range.
    """
    for name, low in least.items():
        value = getattr(settings, name)
        fits = value > 0 if low is None else value >= low
        if not fits or value > at_most or value == float("inf"):
            bounds = "above 0" if low is None else f"at least {low}" if at_most == float("inf") else f"from {low} to {at_most:g}"
            raise ValueError(f"{name} is {value}; it must be {bounds}, and finite")


def first_observation(environment: Environment) -> Observation:
    """Fresh episodes in all slots."""
    return environment.reset(torch.ones_like(environment.alive))
