"""Replay memory: it keeps every state once, joined to the state that followed it by its row.

Rows are reused in turn, so a state outlives all that came before it, and the state that a kept row
leads to is kept as well.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from brinell.core.errors import RequestError
from brinell.rlab.interface import Action, Observation

END = -1
"""In place of the next row: the episode terminated."""
OPEN = -2
"""In place of the next row: nothing was done in this state yet, or nothing ever will be, as the
last of a truncated episode."""


class Sample(NamedTuple):
    """Transitions over up to n steps."""

    rows: Tensor
    """(b,) where they begin."""
    observation: Observation
    """The states in which they begin."""
    action: Action
    reward: Tensor
    """(b,): discounted sum of the rewards on the way."""
    discount: Tensor
    """(b,): what a unit of value at the end of the way is worth at its beginning; 0 where the
    episode terminated."""
    later: Observation
    """The states at the end of the way; anything where the discount is 0."""
    weight: Tensor
    """(b,): importance weights, at most 1; 0 for rows that are no transition."""


class Replay:
    """The latest transitions of all slots, within a bound on rows and on bytes."""

    def __init__(
        self, observation: Observation, action: Action, *, capacity: int, memory: int, half: bool, prioritised: bool
    ) -> None:
        """Size the memory by any observation and action: at most `capacity` rows and `memory` bytes.

        With `half` float32 features are kept in 16 bits; with `prioritised` there are priorities.

        Raises:
            RequestError: the bounds leave no room for four observations of every slot.
        """
        slots, device = len(observation.allowed[0]), observation.allowed[0].device
        like = _columns(observation) | {f"action.{branch}": tensor.to(torch.int32) for branch, tensor in enumerate(action)}
        self._types = {name: tensor.dtype for name, tensor in observation.features.items()}
        kinds = {name: torch.float16 if half and tensor.dtype == torch.float32 else tensor.dtype for name, tensor in like.items()}
        row = sum(tensor[0].numel() * kinds[name].itemsize for name, tensor in like.items()) + 4 + 8 + 4
        self.capacity = min(capacity, memory // row)
        if self.capacity < 4 * slots:
            raise RequestError(
                f"a replay memory of {self.capacity} turns ({row} bytes each) is too small for {slots} slots; "
                f"capacity must be at least {4 * slots} and memory {4 * slots * row} bytes"
            )
        self._columns = {
            name: torch.empty(self.capacity, *tensor.shape[1:], dtype=kinds[name], device=device) for name, tensor in like.items()
        }
        for branch in range(len(action)):
            # States in which nothing was done are sampled too, with weight 0: their entries
            # must be a possible action.
            self._columns[f"action.{branch}"].fill_(-1)
        self.reward = torch.zeros(self.capacity, device=device)
        self.following = torch.empty(self.capacity, dtype=torch.int64, device=device)
        self.priority = torch.zeros(self.capacity, device=device)
        self._branches, self._limited, self._prioritised = len(action), len(observation.most), prioritised
        self._highest = 1.0
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
        for name, tensor in _columns(observation).items():
            self._put(name, rows, tensor, slots)
        self.following.index_fill_(0, rows, OPEN)
        if self._prioritised:
            self.priority.index_fill_(0, rows, 0.0)
        return rows if len(rows) == len(mask) else torch.full_like(mask, END, dtype=torch.int64).index_copy_(0, slots, rows)

    def link(self, rows: Tensor, action: Action, reward: Tensor, after: Tensor) -> None:
        """Make transitions of `rows` (n,): what was done, what it paid, and the row it led to. Skips END."""
        slots = (rows >= 0).nonzero()[:, 0]
        rows = rows.index_select(0, slots)
        for branch, choices in enumerate(action):
            self._put(f"action.{branch}", rows, choices, slots)
        self.reward.index_copy_(0, rows, reward.index_select(0, slots))
        self.following.index_copy_(0, rows, after.index_select(0, slots))
        if self._prioritised:
            self.priority.index_fill_(0, rows, self._highest)

    def sample(self, size: int, n_step: int, gamma: float, generator: torch.Generator, importance: float | None) -> Sample:
        """Transitions drawn uniformly, or in proportion to their priorities.

        Args:
            size: b, the number of transitions.
            n_step: longest way. Ways end early where the episode does, and at the present.
            gamma: discount of a step.
            generator: where the draws come from.
            importance: None draws uniformly. A number draws by priority and corrects for it by
                weights of this exponent (Schaul, Quan, Antonoglou & Silver 2016, Prioritized
                experience replay, section 3.4).
        """
        uniform = torch.rand(size, generator=generator, device=self.reward.device)
        if importance is None:
            rows = (uniform * len(self)).to(torch.int64).clamp(max=len(self) - 1)
            weight = (self.following.index_select(0, rows) != OPEN).to(uniform.dtype)
        else:
            shares = self.priority[: len(self)].to(torch.float64).cumsum(0)
            rows = torch.searchsorted(shares, uniform * shares[-1], right=True).clamp(max=len(self) - 1)
            # A uniform number that was rounded up can land on the last row, which may be no
            # transition.
            known, chosen = self.following[rows] != OPEN, self.priority[rows]
            weight = torch.where(known, chosen, 1.0).pow(-importance)
            weight = (weight / weight.max()).masked_fill(~known, 0)
        reward, discount, last = self._way(rows, n_step, gamma)
        action = tuple(self._take(f"action.{branch}", rows).long() for branch in range(self._branches))
        return Sample(rows, self._observation(rows), action, reward, discount, self._observation(last.clamp(min=0)), weight)

    def prioritise(self, rows: Tensor, priority: Tensor) -> None:
        """New priorities (b,), above 0, for sampled rows. Rows that are no transition keep their 0."""
        self.priority[rows] = torch.where(self.following[rows] != OPEN, priority, 0.0)
        self._highest = max(self._highest, float(priority.max()))

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

    def _put(self, name: str, rows: Tensor, tensor: Tensor, slots: Tensor) -> None:
        column = self._columns[name]
        column.index_copy_(0, rows, (tensor if len(slots) == len(tensor) else tensor.index_select(0, slots)).to(column.dtype))

    def _observation(self, rows: Tensor) -> Observation:
        features = {name: self._take(f"feature.{name}", rows).to(dtype) for name, dtype in self._types.items()}
        allowed = tuple(self._take(f"allowed.{branch}", rows) for branch in range(self._branches))
        return Observation(features, allowed, tuple(self._take(f"most.{branch}", rows) for branch in range(self._limited)))

    def _take(self, name: str, rows: Tensor) -> Tensor:
        return self._columns[name].index_select(0, rows)


def _columns(observation: Observation) -> dict[str, Tensor]:
    columns = {f"feature.{name}": tensor for name, tensor in observation.features.items()}
    columns |= {f"allowed.{branch}": tensor for branch, tensor in enumerate(observation.allowed)}
    return columns | {f"most.{branch}": tensor for branch, tensor in enumerate(observation.most)}
