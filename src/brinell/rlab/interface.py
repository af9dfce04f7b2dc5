"""Interfaces between algorithms, environments, networks and policies.

An environment advances n slots in lockstep; each slot runs one episode after another. An action chooses options from each branch
without replacement, in order: where branch 0 adds and branch 1 removes, an action is the dual action of RLAB (arXiv 2403.18985).
An ordinary discrete action space is one branch and one choice.

Slots whose episode has ended are not reset by themselves. A step answers with the state after it for these slots too, so that an
episode that was cut off can be bootstrapped from its last state; the next episode begins at `reset`.

Tensors of one environment and its network are on one device. An environment may overwrite the tensors of an observation at its
next `step` or `reset`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from brinell.core.streams import Streams

Action = tuple[Tensor, ...]
"""One (n, choices) int64 for each branch: positions among the options, -1 where nothing is chosen. No position twice in a row."""


class Observation(NamedTuple):
    """Observation of n slots, the input of a policy. Rows of slots without an episode hold anything finite."""

    features: dict[str, Tensor]
    """Each (n, ...): what the network reads."""
    allowed: tuple[Tensor, ...]
    """One (n, options) bool for each branch. If a row allows fewer options than are required, all allowed ones are chosen."""
    most: tuple[Tensor, ...] = ()
    """One (n,) int64 for each branch: how many choices count this time; none for all that the environment names.

    Choices beyond that number are not made, so no credit goes to what the environment would ignore.
    """


class Heads(NamedTuple):
    """Output of a network."""

    value: Tensor
    """(n,): the value of the state."""
    branches: tuple[Tensor, ...]
    """One (n, options) for each branch: advantages for DQN, logits for algorithms that learn a policy; anything finite where
    nothing is allowed."""


def mapped(change: Callable[..., Any], first: Any, *others: Any) -> Any:
    """`change` of the tensors at the same places in observations, heads and actions; the answers take the form of `first`."""
    if isinstance(first, Tensor):
        return change(first, *others)
    if isinstance(first, dict):
        return {name: mapped(change, part, *(other[name] for other in others)) for name, part in first.items()}
    parts_mapped = [mapped(change, *parts) for parts in zip(first, *others, strict=True)]
    return type(first)(*parts_mapped) if hasattr(first, "_fields") else tuple(parts_mapped)


class Step(NamedTuple):
    """Result of a step. Slots that had no episode report zeros."""

    observation: Observation
    """The state after the step, of ended slots too."""
    reward: Tensor
    """(n,) float32."""
    terminated: Tensor
    """(n,) bool: the episode ended in a state that has no future."""
    truncated: Tensor
    """(n,) bool: the episode was cut off, and its last state keeps its value, unless it also terminated there."""


class Environment(Protocol):
    """n episodes in lockstep."""

    @property
    def choices(self) -> tuple[int, ...]:
        """How many options each branch chooses in one step."""

    @property
    def alive(self) -> Tensor:
        """(n,) bool: slots with a running episode. False from an episode's end to its reset, and on if that found no work."""

    def reset(self, mask: Tensor) -> Observation:
        """Begin new episodes in the slots where `mask` (n,) bool holds; the observation of all slots."""

    def step(self, action: Action) -> Step:
        """Act in all slots that are alive; the rows of the others are ignored.

        Choices without effect may be replaced by -1 in `action`, in place: they are not learned from.
        """


class Policy(Protocol):
    """Chooses the actions."""

    def act(self, observation: Observation, rng: Streams) -> Action:
        """One option of each branch for each of n slots; `rng` has one stream for each slot, fresh at every step."""


class Progress(NamedTuple):
    """How far a trainer has come: one point of the training curve."""

    seconds: float
    """Wall time since this call began."""
    steps: int
    """Steps of single slots since the trainer was made."""
    updates: int
    """Gradient steps since the trainer was made."""
    episodes: int
    """Episodes that have ended."""
    mean_return: float | None
    """Mean undiscounted return of the last 100 episodes that ended; None before the first."""
    mean_length: float | None
    """Mean number of steps of the same episodes."""
    loss: float | None
    """Mean loss of the last round with updates; None before the first."""
    terms: dict[str, float]
    """Parts of that loss and what else the algorithm watches, by name."""
