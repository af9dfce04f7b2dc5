"""Replay memory: it keeps every state once, joined to the state that followed it by its row.

Rows are reused in turn, so a state outlives all that came before it, and the state that a kept row leads to is kept as well.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from brinell.core.errors import RequestError
from brinell.rlab.interface import Action, Observation, mapped

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
    """(b,): 1, but 0 for rows that are no transition."""


class Replay:
    """The latest transitions of all slots, within a bound on rows and on bytes."""

    def __init__(self, observation: Observation, action: Action, *, capacity: int, memory: int, half: bool) -> None:
        """Size the memory by any observation and action: at most `capacity` rows and `memory` bytes.

        With `half` float32 features are kept in 16 bits.

        Raises:
            RequestError: the bounds leave no room for four observations of every slot.
        """

        def kept_as(tensor: Tensor) -> torch.dtype:
            return torch.float16 if half and tensor.dtype == torch.float32 else tensor.dtype

        slots, device = len(observation.allowed[0]), observation.allowed[0].device
        like = observation, tuple(tensor.to(torch.int32) for tensor in action)
        sizes: list[int] = []
        mapped(lambda one: sizes.append(one[0].numel() * kept_as(one).itemsize), like)
        row = sum(sizes) + 4 + 8
        self.capacity = min(capacity, memory // row)
        if self.capacity < 4 * slots:
            raise RequestError(
                f"a replay memory of {self.capacity} turns ({row} bytes each) is too small for {slots} slots; "
                f"capacity must be at least {4 * slots} and memory {4 * slots * row} bytes"
            )
        self._like: Observation = mapped(lambda one: one[:0], observation)
        self.columns: tuple[Observation, Action] = mapped(
            lambda one: torch.empty(self.capacity, *one.shape[1:], dtype=kept_as(one), device=device), like
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
            here = rows.clamp(min=0)
            following = self.following.index_select(0, here)
            on = (rows >= 0) & (following != OPEN)
            reward = torch.addcmul(reward, discount * on, self.reward.index_select(0, here))
            discount = torch.where(on, discount * gamma, discount)
            rows = torch.where(on, following, rows)
        return reward, discount * (rows >= 0), rows

    @staticmethod
    def _put(columns: Any, rows: Tensor, new: Any, slots: Tensor) -> None:
        def put(column: Tensor, tensor: Tensor) -> None:
            column.index_copy_(0, rows, (tensor if len(slots) == len(tensor) else tensor.index_select(0, slots)).to(column.dtype))

        mapped(put, columns, new)

    def _observation(self, rows: Tensor) -> Observation:
        found: Observation = mapped(lambda column, like: column.index_select(0, rows).to(like.dtype), self.columns[0], self._like)
        return found
