"""Searches that probe each candidate before they act, for comparison with an agent that predicts
its effect.

Two of them, the same loop with other settings. `published()` is the loop that the authors of arXiv
2310.18626 released: each step probes every patch and keeps the best two, judged by the probability
dilution of the true class. `TreeSearch(depth=d)` tries all sets of up to d moves, makes the first
of the best set and tries again: the O(N**d) search whose cost look-ahead by a sensitivity map is
said to avoid.

Every probe is a query, and one that succeeds ends the search; nothing is ever taken away.

Deviations from the release:
- A patch gets one variant, made once, so that what was probed is what is applied; there masks are
  drawn anew for both.
- Patches with a distortion are not probed again; there noise is added to them once more.
- Distortions are scaled as a whole to the budget, as the agent's are; the release knows none.
- The search ends with the first probe that succeeds; there the best patches are applied first.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from brinell.core.oracle import Batch, Oracle
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.rlab.distort import CLEAN, DistortedInputs, Variant

Worth = Literal["margin", "dilution"]
LINE = 0.9
"""Probability above which the dilution is a straight line."""


@dataclass(frozen=True, kw_only=True)
class TreeSearch:
    """How far a search looks ahead, and what it looks at."""

    depth: int = 1
    """Largest number of moves in a set. A step costs as many queries as there are sets of at
    most this size."""
    adds: int = 1
    """Moves that a step makes, the best ones on different patches; more than 1 only at depth 1."""
    steps: int = 1000
    """Steps until a sample is given up."""
    worth: Worth = "margin"
    """What is compared: the margin in logits, or the probability dilution of the true class."""
    batch_size: int = 128
    """Probes of a sample that are shown to the model at once."""


def published(steps: int = 4000) -> TreeSearch:
    """The loop of the authors' release, one probe at a time."""
    return TreeSearch(adds=2, steps=steps, worth="dilution", batch_size=1)


def dilution(logits: Tensor, y: Tensor) -> Tensor:
    """(n,): 1 / log10 p of the true class over its value at certainty; from -1 (p = 1) to 0 (p =
    0), a line above `LINE`.
    """
    p = logits.softmax(1).gather(1, y[:, None])[:, 0].clamp(1e-12, 1)
    slope = -math.log(10) / (LINE * math.log(LINE) ** 2)
    at_line = 1 / math.log10(LINE)
    end = at_line + slope * (1 - LINE)
    curve = 1 / p.clamp_max(LINE).log10()
    return -torch.where(p > LINE, at_line + slope * (p - LINE), curve) / end


class Searched(NamedTuple):
    """Result of each sample."""

    success: Tensor
    """(n,) bool."""
    variant: Tensor
    """(n, patches) int64: what stood when the criterion was met or the search given up, CLEAN
    for nothing."""
    steps: Tensor
    """(n,): steps that were begun."""


def search(
    oracle: Oracle,
    batch: Batch,
    threat: Threat,
    rng: Streams,
    *,
    grid: PatchGrid,
    variants: tuple[Variant, ...],
    settings: TreeSearch,
) -> Searched:
    """Search sample by sample.

    Args:
        oracle: where the model is asked.
        batch: the samples.
        threat: distance and budgets.
        rng: a stream for each sample.
        grid: the patches.
        variants: the variants that may be placed. A move is a patch with one of them, so their
            number multiplies the cost.
        settings: how far it looks.
    """
    ends = [
        _SampleSearch(
            oracle, batch.select(row), threat.select(row), rng.select(row), grid, variants, settings
        ).run()
        for row in torch.split(torch.arange(len(batch), device=batch.x.device), 1)
    ]
    return Searched(*(torch.cat(column) for column in zip(*ends, strict=True)))


class Assignment:
    """What stands on the patches of a batch; edits are lists of patches (m, k), filled up with
    `len(grid)`, and variants.
    """

    def __init__(
        self,
        grid: PatchGrid,
        batch: Batch,
        threat: Threat,
        variants: tuple[Variant, ...],
        rng: Streams,
    ) -> None:
        self.grid, rows = grid, torch.arange(len(batch), device=batch.x.device)
        self.inputs = DistortedInputs(len(batch), threat.domain, variants, batch.x.device)
        self.inputs.put(rows, batch.x, rng)
        self.variant, self.x = (
            torch.full((len(batch), len(grid)), CLEAN, device=batch.x.device),
            batch.x.clone(),
        )

    def after(self, rows: Tensor, patches: Tensor, variants: Tensor) -> Tensor:
        """(m, patches): the assignments after edits of the samples `rows` (m,)."""
        padded = torch.cat([self.variant[rows], torch.full_like(rows, CLEAN)[:, None]], 1)
        return padded.scatter(1, patches, variants)[:, :-1]

    def candidates(self, rows: Tensor, patches: Tensor, variants: Tensor) -> Tensor:
        """(m, *shape): the inputs after edits; the state stays as it is."""
        return self.inputs.render(rows, self.after(rows, patches, variants), self.grid)

    def edit(self, rows: Tensor, patches: Tensor, variants: Tensor) -> None:
        """Make the edits of distinct samples part of the state."""
        self.x[rows], self.variant[rows] = (
            self.candidates(rows, patches, variants),
            self.after(rows, patches, variants),
        )


class _SampleSearch:
    """The search on one sample."""

    def __init__(
        self,
        oracle: Oracle,
        batch: Batch,
        threat: Threat,
        rng: Streams,
        grid: PatchGrid,
        variants: tuple[Variant, ...],
        settings: TreeSearch,
    ) -> None:
        self.oracle, self.batch, self.threat, self.settings = oracle, batch, threat, settings
        self.grid, self.kinds = grid, len(variants)
        self.assignment = Assignment(grid, batch, threat, variants, rng.fold("filters"))
        self.reached = False

    def run(self) -> tuple[Tensor, Tensor, Tensor]:
        """Steps until the criterion is reached, nothing is left to add, or the budget is spent."""
        device = self.batch.x.device
        self.ask(self.assignment.x)
        step = 0
        while step < self.settings.steps and not self.reached:
            free = (self.assignment.variant[0] == CLEAN).nonzero()[:, 0]
            if not len(free):
                break
            step += 1
            moves = (free[:, None] * self.kinds + torch.arange(self.kinds, device=device)).flatten()
            selected = self.look(moves)
            if selected is None:
                break
            self.apply(selected)
            if len(selected) > 1 and not self.reached:
                # Moves were probed one by one, so what they come to together is not known.
                self.ask(self.assignment.x)
        success = torch.tensor([self.reached], device=device)
        return success, self.assignment.variant.clone(), torch.tensor([step], device=device)

    def look(self, moves: Tensor) -> Tensor | None:
        """The moves (k,) to make; None where the budget ran out.

        Ends with those that meet the criterion.
        """
        single_worth = torch.full((len(self.grid) * self.kinds,), -torch.inf, device=moves.device)
        best, first = -torch.inf, moves[:1]
        for size in range(1, self.settings.depth + 1):
            for part in self.sets(moves, size):
                worth = self.ask(self.after(part))
                if self.reached:
                    return part[len(worth) - 1]
                if len(worth) < len(part):
                    return None
                if size == 1:
                    single_worth[part[:, 0]] = worth
                if float(worth.max()) > best:
                    best = float(worth.max())
                    members = part[worth.argmax()]
                    first = members[single_worth[members].argmax()][None]
        return first if self.settings.adds == 1 else self.top(single_worth)

    def sets(self, moves: Tensor, size: int) -> Iterator[Tensor]:
        """All sets (m, size) of moves on different patches, a few at a time; the order of moves
        plays no part.
        """
        combinations = itertools.combinations(moves.tolist(), size)
        distinct = (
            combination
            for combination in combinations
            if len({move // self.kinds for move in combination}) == size
        )
        while part := list(itertools.islice(distinct, self.settings.batch_size)):
            yield torch.tensor(part, device=moves.device)

    def top(self, worth: Tensor) -> Tensor:
        """(k,): the best moves on different patches."""
        best_moves = worth.view(len(self.grid), self.kinds).max(1)
        patches = best_moves.values.topk(
            min(self.settings.adds, int((best_moves.values > -torch.inf).sum()))
        ).indices
        return patches * self.kinds + best_moves.indices[patches]

    def apply(self, moves: Tensor) -> None:
        """Make moves (k,) part of the state."""
        row = torch.zeros(1, dtype=torch.int64, device=moves.device)
        self.assignment.edit(row, (moves // self.kinds)[None], (moves % self.kinds)[None])

    def after(self, sets: Tensor) -> Tensor:
        """(m, *shape): the inputs after sets (m, k) of moves."""
        rows = torch.zeros(len(sets), dtype=torch.int64, device=sets.device)
        return self.assignment.candidates(rows, sets // self.kinds, sets % self.kinds)

    def ask(self, x: Tensor) -> Tensor:
        """Score of inputs (m, *shape), up to the first that meets the criterion or the last within
        the budget.
        """
        ids = self.batch.ids.expand(len(x))
        ids = ids[self.oracle.affordable(ids)]
        x, y = x[: len(ids)], self.batch.y.expand(len(ids))
        if not len(ids):
            return torch.zeros(0, device=x.device)
        threat = replace(self.threat, eps=self.threat.eps.expand(len(ids)))
        x = threat.project(x, self.batch.x.expand_as(x))
        logits = self.oracle.scores(ids, x)
        margin = self.threat.criterion.select(torch.zeros_like(y)).margin(logits, y, x)
        successes = (margin > 0).nonzero()[:, 0]
        if len(successes):
            self.reached, first = True, int(successes[0]) + 1
            logits, y, margin = logits[:first], y[:first], margin[:first]
        return dilution(logits, y) if self.settings.worth == "dilution" else margin
