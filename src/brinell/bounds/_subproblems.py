"""Subproblems of a margin: the inputs on which arguments of ReLU have given signs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from brinell.bounds._bounding import Relaxation
from brinell.bounds._graph import Activation
from brinell.bounds._relaxations import Lines, Relaxed, relax
from brinell.bounds._rows import Rows
from brinell.bounds._slopes import Optimised, optimise

CANDIDATES = 3
"""Neurons whose split is tried."""


@dataclass(frozen=True, eq=False)
class Subproblems:
    """Subproblems with their bounds."""

    root: Relaxation
    """The relaxation of the one sample before any split."""
    a: Tensor
    """(classes,) the margin."""
    signs: Mapping[int, Tensor]
    """(parts, *shape) int8 by ReLU: 1 where its argument is at least 0, -1 where it is at most
    0, 0 where it is not split."""
    best: Optimised
    """Bounds with slopes and multipliers."""

    @classmethod
    def of(cls, root: Relaxation, a: Tensor) -> "Subproblems":
        """All inputs as one part, without a bound."""
        signs = {
            k: torch.zeros(1, *spec.shape, dtype=torch.int8, device=a.device)
            for k, spec in enumerate(root.graph.nodes)
            if isinstance(spec.operation, Activation) and spec.operation.has_slopes
        }
        return cls(
            root, a, signs, Optimised(a.new_full((1,), -torch.inf, dtype=torch.float64), {}, {})
        )

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def lower(self) -> Tensor:
        """(parts,) lower bounds of the margin."""
        return self.best.lower

    def select(self, index: Tensor) -> "Subproblems":
        signs, best = tree_map(lambda value: value[index], (self.signs, self.best))
        return replace(self, signs=signs, best=best)

    def joined(self, parts: "Subproblems") -> "Subproblems":
        pairs = (self.signs, self.best), (parts.signs, parts.best)
        signs, best = tree_map(lambda first, second: torch.cat([first, second]), *pairs)
        return replace(self, signs=signs, best=best)

    def bounded(self, steps: int) -> "Subproblems":
        """The same parts with bounds, which are never below those of the part that was split."""
        before = self.best
        best = optimise(
            self._state(),
            self._rows(),
            steps=steps,
            rate=0.3,
            signs=self._float_signs(),
            start=before,
        )
        return replace(self, best=best._replace(lower=torch.maximum(best.lower, before.lower)))

    def _state(self) -> Relaxation:
        state = self.root.select(torch.zeros(len(self), dtype=torch.long, device=self.a.device))
        for k, sign in self.signs.items():
            argument = self.root.graph.nodes[k].arguments[0]
            low, high = state.ranges[argument]
            state.ranges[argument] = (
                torch.where(sign > 0, low.clamp(min=0), low),
                torch.where(sign < 0, high.clamp(max=0), high),
            )
        return state

    def _rows(self) -> Rows:
        return Rows(
            self.a.expand(len(self), -1).clone(), torch.arange(len(self), device=self.a.device)
        )

    def _float_signs(self) -> dict[int, Tensor]:
        return {k: sign.to(self.a.dtype) for k, sign in self.signs.items()}

    @torch.no_grad()
    def branched(self) -> "tuple[Subproblems, Subproblems]":
        """Each part with an open sign split in two at the neuron whose line loses most, and the
        parts without open signs.
        """
        none = self.select(torch.zeros(0, dtype=torch.long, device=self.a.device))
        if not self.signs:
            return none, self
        state = self._state()
        losses = []
        sizes = []
        lines: dict[int, Relaxed] = {}
        for k in self.signs:
            argument = self.root.graph.nodes[k].arguments[0]
            operation = self.root.graph.nodes[k].operation
            assert isinstance(operation, Activation)
            lines[k] = relax(operation, state.ranges[argument], self.best.slopes[k])
        coefficients: dict[int, Tensor] = {}
        extra = {k: self.best.multipliers[k] * sign for k, sign in self._float_signs().items()}
        state.backward_bound(
            len(self.root.graph.nodes) - 1, self._rows(), lines, extra, record=coefficients
        )
        for k in self.signs:
            losses.append(
                _loss(
                    lines[k], coefficients[k], state, self.root.graph.nodes[k].arguments[0]
                ).flatten(1)
            )
            sizes.append(losses[-1].shape[1])
        loss = torch.cat(losses, 1)
        is_open = loss.amax(1) > 0
        if not bool(is_open.all()):
            exact = self.select((~is_open).nonzero()[:, 0])
            return (
                self.select(is_open.nonzero()[:, 0]).branched()[0] if bool(is_open.any()) else none
            ), exact
        neurons = loss.topk(min(CANDIDATES, loss.shape[1]), dim=1).indices
        scores = torch.stack([self._weaker_half(neuron, sizes) for neuron in neurons.T])
        neuron = neurons.gather(1, scores.argmax(0)[:, None])[:, 0]
        halves = [self._with_sign(neuron, sizes, sign) for sign in (1, -1)]
        return halves[0].joined(halves[1]), none

    def _weaker_half(self, neuron: Tensor, sizes: list[int]) -> Tensor:
        """(parts,): the weaker bound of the two halves that a split makes, without optimisation.

        `neuron` (parts,) counts through all layers, whose numbers of neurons are `sizes`.
        """
        return torch.minimum(
            *(self._with_sign(neuron, sizes, sign).bounded(steps=0).lower for sign in (1, -1))
        )

    def _with_sign(self, neuron: Tensor, sizes: list[int], sign: int) -> "Subproblems":
        flat = torch.cat([part.flatten(1) for part in self.signs.values()], 1).clone()
        flat[torch.arange(len(flat), device=flat.device), neuron] = sign
        parts = zip(self.signs.items(), torch.split(flat, sizes, 1), strict=True)
        signs = {k: part.reshape(before.shape) for (k, before), part in parts}
        return replace(self, signs=signs)


def _loss(lines: Relaxed, a: Tensor, state: Relaxation, argument: int) -> Tensor:
    """(parts, *shape): how much the line of each neuron can lose at most, 0 where its sign is
    known.
    """
    assert isinstance(lines, Lines)
    low, high = state.ranges[argument]
    negative = (-a).clamp(min=0)
    positive = a.clamp(min=0)
    above = negative * lines.high_shift
    below = positive * torch.maximum((1 - lines.low_slope) * high, -lines.low_slope * low)
    return torch.where((low < 0) & (high > 0), torch.maximum(above, below), 0.0)
