"""Subproblems of a margin: the inputs on which arguments of ReLU have given signs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from brinell.bounds._bounding import Relaxation
from brinell.bounds._graph import Activation
from brinell.bounds._relaxations import ActivationLines, Relaxed, relax
from brinell.bounds._rows import LinearForms
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
        bound = a.new_full((1,), -torch.inf, dtype=torch.float64)
        return cls(root, a, signs, Optimised(bound, slopes={}, multipliers={}))

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def lower(self) -> Tensor:
        """(parts,) lower bounds of the margin."""
        return self.best.lower

    def select(self, index: Tensor) -> "Subproblems":
        """The parts at some positions."""
        # All tensors have the parts along the first axis.
        signs, best = tree_map(lambda value: value[index], (self.signs, self.best))
        return replace(self, signs=signs, best=best)

    def joined(self, parts: "Subproblems") -> "Subproblems":
        """These parts, and then others of the same margin."""
        pairs = (self.signs, self.best), (parts.signs, parts.best)
        signs, best = tree_map(lambda first, second: torch.cat([first, second]), *pairs)
        return replace(self, signs=signs, best=best)

    def bounded(self, steps: int) -> "Subproblems":
        """The same parts with bounds, which are never below those of the part that was split."""
        before = self.best
        # Slopes and multipliers of the whole part are a good start for its halves.
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
        """The relaxation of each part: that of the root, with ranges that its signs cut."""
        state = self.root.select(torch.zeros(len(self), dtype=torch.long, device=self.a.device))
        for k, sign in self.signs.items():
            # A split of sign s says that the argument lies on that side of 0.
            argument = self.root.graph.nodes[k].arguments[0]
            low, high = state.ranges[argument]
            state.ranges[argument] = (
                torch.where(sign > 0, low.clamp(min=0), low),
                torch.where(sign < 0, high.clamp(max=0), high),
            )
        return state

    def _rows(self) -> LinearForms:
        """The margin, once for each part."""
        a = self.a.expand(len(self), -1).clone()
        return LinearForms(a, torch.arange(len(self), device=self.a.device))

    def _float_signs(self) -> dict[int, Tensor]:
        return {k: sign.to(self.a.dtype) for k, sign in self.signs.items()}

    @torch.no_grad()
    def branched(self) -> "tuple[Subproblems, Subproblems]":
        """Each part split in two at one open sign, and the parts without open signs.

        The sign is that of the neuron whose line loses most.
        """
        none = self.select(torch.zeros(0, dtype=torch.long, device=self.a.device))
        if not self.signs:
            return none, self

        loss, sizes = self._losses()
        is_open = loss.amax(1) > 0
        if not bool(is_open.all()):
            # With all signs known the network is linear there, and the bound is the minimum.
            exact = self.select((~is_open).nonzero()[:, 0])
            if not bool(is_open.any()):
                return none, exact
            halves, _ = self.select(is_open.nonzero()[:, 0]).branched()
            return halves, exact

        # Of the few largest losses, the split with the better weaker half is taken.
        neurons = loss.topk(min(CANDIDATES, loss.shape[1]), dim=1).indices
        scores = torch.stack([self._weaker_half(neuron, sizes) for neuron in neurons.T])
        neuron = neurons.gather(1, scores.argmax(0)[:, None])[:, 0]
        halves = self._with_sign(neuron, sizes, 1).joined(self._with_sign(neuron, sizes, -1))
        return halves, none

    def _losses(self) -> tuple[Tensor, list[int]]:
        """(parts, neurons): what the line of each neuron loses at most; neurons of each layer."""
        nodes = self.root.graph.nodes
        state = self._state()
        lines: dict[int, Relaxed] = {}
        # The lines with the slopes of the best bound: those decide what a split can win.
        for k in self.signs:
            operation = nodes[k].operation
            assert isinstance(operation, Activation)
            argument = state.ranges[nodes[k].arguments[0]]
            lines[k] = relax(operation, argument, self.best.slopes[k])

        coefficients: dict[int, Tensor] = {}
        penalties = {k: self.best.multipliers[k] * sign for k, sign in self._float_signs().items()}
        last = len(nodes) - 1
        state.backward_bound(last, self._rows(), lines, penalties, record=coefficients)

        losses = []
        # A neuron whose line loses most is the one whose split narrows the bound most.
        for k in self.signs:
            loss = _loss(lines[k], coefficients[k], state, nodes[k].arguments[0])
            losses.append(loss.flatten(1))
        return torch.cat(losses, 1), [loss.shape[1] for loss in losses]

    def _weaker_half(self, neuron: Tensor, sizes: list[int]) -> Tensor:
        """(parts,): the weaker bound of the two halves that a split makes, without optimisation.

        `neuron` (parts,) counts through all layers, whose numbers of neurons are `sizes`.
        """
        first = self._with_sign(neuron, sizes, 1).bounded(steps=0)
        second = self._with_sign(neuron, sizes, -1).bounded(steps=0)
        return torch.minimum(first.lower, second.lower)

    def _with_sign(self, neuron: Tensor, sizes: list[int], sign: int) -> "Subproblems":
        """The halves in which the arguments of neurons (parts,) have a sign."""
        flat = torch.cat([part.flatten(1) for part in self.signs.values()], 1).clone()
        flat[torch.arange(len(flat), device=flat.device), neuron] = sign
        parts = zip(self.signs.items(), torch.split(flat, sizes, 1), strict=True)
        signs = {k: part.reshape(before.shape) for (k, before), part in parts}
        return replace(self, signs=signs)


def _loss(lines: Relaxed, a: Tensor, state: Relaxation, argument: int) -> Tensor:
    """(parts, *shape): what the line of each neuron loses at most, 0 where its sign is known."""
    assert isinstance(lines, ActivationLines)
    low, high = state.ranges[argument]
    negative = (-a).clamp(min=0)
    positive = a.clamp(min=0)
    # The line above is off by its shift at most, at 0; the one below at one of the ends.
    above = negative * lines.high_shift
    below = positive * torch.maximum((1 - lines.low_slope) * high, -lines.low_slope * low)
    return torch.where((low < 0) & (high > 0), torch.maximum(above, below), 0.0)
