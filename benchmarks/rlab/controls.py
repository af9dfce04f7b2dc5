"""Random searches that place the very patches and distorted values that RLAB places: the controls
at equal distortion and budget.

Square (Andriushchenko et al. 2020, section 3): a window of patches takes one version of one
distortion; windows shrink on its schedule. Sparse-RS (Croce et al. 2022, section 3): a share of the
patches is swapped for others of random versions, likewise. Both keep what lowers the margin, begin
with the budget filled at random, and clear patches at random where it would be exceeded. With
`closer` they go on after a success until the queries are spent, each time within a smaller
distance, as RLAB's `refine`.
"""

from typing import Any

import measure
import torch
from black_box import Bench
from torch import Tensor

from brinell.core.ledger import Ledger
from brinell.core.losses import margin
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.rlab.distort import CLEAN
from brinell.rlab.episodes import PACE, SHRINK
from rlab.common import Outcome, outcome
from rlab.search import Assignment

START = 0.25
"""Share of the patches that the first windows hold."""
SWAPPED = 0.3
"""Share of what stands that Sparse-RS swaps at first."""


class Restricted:
    """Square's random search, in ever smaller windows, over which patches carry distorted values
    within an L2 budget.
    """

    name = "square"

    def __init__(
        self, ledger: Ledger, rng: Streams, attack: Any, steps: int, *, closer: bool = False
    ) -> None:
        self.oracle, self.batch, self.steps, self.closer = (
            ledger.oracle(),
            ledger.batch,
            steps,
            closer,
        )
        batch, threat = ledger.batch, ledger.threat
        self.radius = threat.eps.clone()
        self.grid: PatchGrid = attack.grid(threat.domain)
        self.variants = attack.variants(threat.domain)
        self.state = Assignment(self.grid, batch, threat, self.variants, rng.fold("bank"))
        # One generator for each clip, so that clips do not depend on their company.
        self.chance = [
            torch.Generator().manual_seed(int(key) & (2**62 - 1))
            for key in rng.fold("control").keys
        ]
        self.squares = torch.zeros(len(batch), len(self.grid))
        self.best = torch.full((len(batch),), torch.inf)

    def __call__(self) -> None:
        """Until every sample is fooled, or with `closer` in any case, until the steps are spent."""
        rows, open_ = (
            torch.arange(len(self.batch)),
            self.oracle.affordable if self.closer else self.oracle.active,
        )
        for step in range(self.steps):
            rows = rows[open_(self.batch.ids[rows])]
            if not len(rows):
                return
            halvings = sum(step > self.steps * share for share in PACE)
            plans = [self._plan(row, halvings, first=step == 0) for row in rows.tolist()]
            most = max(len(patches) for patches, _ in plans)
            patches = torch.full((len(rows), most), len(self.grid))
            variants = torch.full((len(rows), most), CLEAN)
            for index, (numbers, versions) in enumerate(plans):
                patches[index, : len(numbers)], variants[index, : len(numbers)] = numbers, versions
            x = self.state.candidates(rows, patches, variants)
            lead = -margin(self.oracle.scores(self.batch.ids[rows], x), self.batch.y[rows])
            improved = lead < self.best[rows]
            self.best[rows[improved]] = lead[improved]
            self.state.edit(rows[improved], patches[improved], variants[improved])
            for index in improved.nonzero().flatten().tolist():
                numbers, versions = plans[index]
                self.squares[rows[index], numbers] = self._cost(int(rows[index]), numbers, versions)
            fooled = rows[improved & (lead < 0)]
            self.radius[fooled] = SHRINK * self.squares[fooled].sum(1).sqrt()
            self.best[fooled] = (
                torch.inf
            )  # what must be cleared to fit is found out by the next question

    def _plan(self, row: int, halvings: int, *, first: bool) -> tuple[Tensor, Tensor]:
        """Patches and what they are to carry: a window of one version, and whatever must go for it."""
        rng = self.chance[row]
        window = self._window(1.0 if first else START * 0.5**halvings, rng)
        window = window[torch.randperm(len(window), generator=rng)]
        return self._fitted(
            row, window, torch.randint(len(self.variants), (1,), generator=rng).expand(len(window))
        )

    def _fitted(self, row: int, window: Tensor, version: Tensor) -> tuple[Tensor, Tensor]:
        """As many of the patches, in their order, as fit into the budget, and CLEAN for whatever
        must go for them, at random.
        """
        rng = self.chance[row]
        cost = self._cost(row, window, version)
        room = float(self.radius[row]) ** 2 * (1 - 1e-5)
        fits = cost.cumsum(0) <= room
        window, version, cost = window[fits], version[fits], cost[fits]
        removable = self.squares[row].clone()
        removable[window] = 0
        order = removable.nonzero().flatten()
        order = order[torch.randperm(len(order), generator=rng)]
        kept_mask = removable[order].cumsum(0) <= room - float(cost.sum())
        cleared = order[~kept_mask]
        return torch.cat([window, cleared]), torch.cat(
            [version, torch.full((len(cleared),), CLEAN)]
        )

    def _window(self, share: float, rng: torch.Generator) -> Tensor:
        """About this share of all patches: a block of the lattice, anywhere."""
        lattice = self.grid.lattice
        side = share ** (1 / len(lattice))
        block = torch.ones(lattice, dtype=torch.bool)
        for axis, count in enumerate(lattice):
            length = max(1, round(side * count))
            first = int(torch.randint(count - length + 1, (1,), generator=rng))
            interval = (torch.arange(count) >= first) & (torch.arange(count) < first + length)
            block &= interval.reshape(
                [-1 if dimension == axis else 1 for dimension in range(len(lattice))]
            )
        return block.flatten().nonzero().flatten()

    def _cost(self, row: int, patches: Tensor, versions: Tensor) -> Tensor:
        """Squared L2 of each; patches do not overlap, so that they add up."""
        rows, places, cache = (
            torch.full((len(patches),), row),
            self.grid.members[patches],
            self.state.inputs,
        )
        values = cache.values(
            rows, versions.clamp_min(0)[:, None].expand_as(places), places, self.grid.channels
        )
        clean = cache.values(rows, torch.full_like(places, CLEAN), places, self.grid.channels)
        change = (values - clean) * self.grid.not_repeated[patches, None]
        return torch.where(versions == CLEAN, 0.0, change.flatten(1).square().sum(1))


class Sparse(Restricted):
    """Sparse-RS's random search over the same: a share of what stands is given up, and others are
    drawn in its place.
    """

    name = "sparse-rs"

    def _plan(self, row: int, halvings: int, *, first: bool) -> tuple[Tensor, Tensor]:
        """As many new patches as stand, times a share that falls; they take the room of others at
        random.
        """
        rng, count = self.chance[row], len(self.grid)
        standing = int((self.squares[row] > 0).sum())
        swapped = count if first else max(1, round(SWAPPED * 0.5**halvings * standing))
        free = (self.squares[row] == 0).nonzero().flatten()
        new = free[torch.randperm(len(free), generator=rng)[:swapped]]
        return self._fitted(row, new, torch.randint(len(self.variants), (len(new),), generator=rng))


def restricted(
    bench: Bench,
    spec: str,
    eps: float,
    queries: int,
    seed: int,
    control: type[Restricted] = Restricted,
) -> Outcome:
    """A control with the patches and versions of the RLAB that `spec` names."""
    ledger = bench.open("l2", eps, queries - 1)
    rng = Streams.of(seed, ledger.batch.ids).fold(control.name)
    _, seconds = measure.timed(control(ledger, rng, measure.build_attack(spec), queries - 1))
    return outcome(ledger, bench.x, seconds)


CONTROLS = {"square": Restricted, "sparse-rs": Sparse}
