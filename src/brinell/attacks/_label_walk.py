"""Adversarial inputs on their way to the clean ones by labels alone: starts,
bisections, normals.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from brinell.attacks._shared import cosines, noise_squares
from brinell.core.contracts import Batch, Oracle, Streams, Threat
from brinell.core.domain import Domain
from brinell.core.norms import l2, per_sample

BLOCK = 32
"""Noisy inputs of each sample that are drawn together; it is part of what a seed means."""
BISECTIONS = 16
"""The most queries of a bisection with smooth noise."""
REACH = 0.03
"""How far smooth noise lies from the boundary point, as a share of its distance."""
ROOM = 2**24
"""Values of noisy inputs that are held at once; samples beyond that are attacked one group after
another."""

Draw = Callable[[Streams, int], Tensor]
"""`draw(rng, count)`: (n, count, *shape) noise, `count` for each sample."""
Path = Callable[[Tensor, Tensor], Tensor]
"""`path(place, rows)`: (k, *shape) inputs of these rows (k,), each at its place (k,) of a way."""


class SmoothNoise:
    """Normal noise of the lowest frequencies: a share of them along each axis but the channels.

    The values of a vector have no order, so that all of its frequencies are drawn.
    """

    def __init__(self, domain: Domain, share: float) -> None:
        self._shape = domain.shape
        self._waves: list[Tensor] = []
        if domain.kind != "vector" and share < 1:
            self._waves = [cosines(side)[: math.ceil(share * side)] for side in domain.grid]
        # Each channel has a random weight for each product of waves of the axes.
        sides = [len(wave) for wave in self._waves] or domain.grid
        self._weights = (math.prod(domain.shape) // math.prod(domain.grid), *sides)

    def __call__(self, rng: Streams, count: int) -> Tensor:
        """(n, count, *shape): random weights of the waves, summed up along one axis
        after another.
        """
        noise = rng.normal(count, *self._weights)
        # Axis 3 is the first that still holds weights: what is summed up goes to the end.
        for wave in self._waves:
            noise = torch.tensordot(noise, wave.to(noise.device), dims=([3], [0]))
        return noise.reshape(len(rng), count, *self._shape)

    def halvings(self) -> int:
        """Queries of a bisection that ends as near to the boundary as noise at REACH moves an input
        along the normal.

        An input farther off than that hides from most of the noise on which side it lies.
        """
        # Of noise as long as REACH the part along the normal is REACH / sqrt(weights) as a rule,
        # and the last interval is at most half of it.
        needed = 1 + math.ceil(math.log2(math.sqrt(math.prod(self._weights)) / REACH))
        return min(BISECTIONS, needed)


class LabelWalk:
    """Inputs that the model gets wrong, in an attack that sees labels alone.

    Each method asks only about samples with queries left.
    """

    def __init__(
        self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams, draw: Draw
    ) -> None:
        self.batch = batch
        self.distance = threat.distance
        self.domain = threat.domain
        self.x = batch.x
        """(n, *shape): where the walk is, adversarial once it has a start."""
        self.reach = torch.zeros_like(threat.eps)
        """(n,): how far noisy inputs lie from `x`, set by the attack."""
        self._oracle = oracle
        self._rng = rng
        self._draw = draw

    @classmethod
    def groups(
        cls, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams, draw: Draw, starts: int
    ) -> "Iterator[LabelWalk]":
        """Walks of groups of samples whose noisy inputs fit into memory, each from its start."""
        size = max(1, ROOM // (BLOCK * batch.x[0].numel()))
        for rows in torch.split(torch.arange(len(batch), device=batch.x.device), size):
            walk = cls(oracle, batch.select(rows), threat.select(rows), rng.select(rows), draw)
            if walk._start(starts):
                yield walk

    def affordable(self) -> Tensor:
        """(n,) bool: samples with queries left."""
        return self._oracle.active(self.batch.ids)

    def fooled(self, rows: Tensor, x: Tensor) -> Tensor:
        """(k,) bool: whether the model is wrong about `x`, of the samples in these rows (k,)."""
        return self._oracle.labels(self.batch.ids[rows], x) != self.batch.y[rows]

    def size(self) -> Tensor:
        """(n,): how far the walk is from the clean inputs."""
        return self.distance.size(self.x - self.batch.x)

    def select(self, keep: Tensor) -> bool:
        """Keep some samples; returns False if none is left."""
        if not keep.all():
            self.batch = self.batch.select(keep)
            self._rng = self._rng.select(keep)
            self.x = self.x[keep]
            self.reach = self.reach[keep]
        return bool(keep.any())

    def _start(self, tries: int) -> bool:
        """Go to misclassified noise; samples without any are dropped, False if none is left."""
        success = torch.zeros_like(self.batch.ids, dtype=torch.bool)
        self.x = self.batch.x.clone()
        for trial in range(tries):
            # Samples that found a start wait; their queries are worth more on the walk.
            rows = (~success & self.affordable()).nonzero()[:, 0]
            if not len(rows):
                break
            # Streams of the trial: another sample's success changes no noise.
            streams = self._rng.select(rows).fold(f"start {trial}")
            noise = noise_squares(self.domain, streams, trial, self.x)
            wrong = self.fooled(rows, noise)
            self.x[rows[wrong]] = noise[wrong]
            success[rows[wrong]] = True
        return self.select(success)

    def bisect(self, path: Path, right: Tensor, wrong: Tensor, halvings: int) -> Tensor:
        """(n,): the misclassified places of a way that are nearest to its boundary.

        Place `right` (n,) is classified correctly and `wrong` (n,) is not, whichever comes first.
        """
        for _ in range(halvings):
            rows = self.affordable().nonzero()[:, 0]
            if not len(rows):
                break
            middle = (right[rows] + wrong[rows]) / 2
            # The half goes on whose ends have different labels.
            is_wrong = self.fooled(rows, path(middle, rows))
            wrong = wrong.index_copy(0, rows, torch.where(is_wrong, middle, wrong[rows]))
            right = right.index_copy(0, rows, torch.where(is_wrong, right[rows], middle))
        return wrong

    def descend(self, halvings: int) -> None:
        """Move each input to the boundary on its segment to the clean one.

        In Linf changes are cut off in place of scaled.
        """
        offset = self.x - self.batch.x
        size = self.size()

        def path(share: Tensor, rows: Tensor) -> Tensor:
            """Inputs at shares of the way: 0 is the clean input, 1 where the walk is."""
            # In Linf the way shrinks the largest changes first, as in HopSkipJump; else all in
            # proportion.
            if self.distance.name == "linf":
                points = self.distance.project(offset[rows], share * size[rows])
            else:
                points = offset[rows] * per_sample(share, offset)
            return self.domain.clamp(points + self.batch.x[rows])

        share = self.bisect(path, torch.zeros_like(size), torch.ones_like(size), halvings)
        # At a share of 1 nothing nearer was found; those inputs stay, without a rounding.
        self.move(path, share, share < 1)

    def move(self, path: Path, place: Tensor, mask: Tensor) -> None:
        """Go to places (n,) of a way, the samples of a mask (n,)."""
        rows = torch.arange(len(place), device=place.device)
        self.x = torch.where(per_sample(mask, self.x), path(place, rows), self.x)

    def normal(self, number: int, count: int) -> Tensor:
        """(n, *shape): towards wrong labels, off the boundary, from those of `count` noisy inputs.

        Chen et al. 2020, HopSkipJumpAttack, eq. 16. It has any length. `number` is that of the
        estimate, by which its random numbers differ from those of others.
        """
        n = len(self.x)
        reach = self.reach.clamp_min(1e-12)
        # Sums over the noisy inputs: of their changes, of changes times signs, of signs,
        # and how many.
        changes = torch.zeros_like(self.x)
        weighted = torch.zeros_like(self.x)
        signs = torch.zeros_like(reach)
        answers = torch.zeros_like(reach)

        for block, start in enumerate(range(0, count, BLOCK)):
            size = min(BLOCK, count - start)
            noise = self._draw(self._rng.fold(number).fold(block), size).flatten(0, 1)
            rows = torch.arange(n, device=noise.device).repeat_interleave(size)
            noise *= per_sample(reach[rows] / l2(noise), noise)
            probes = self.domain.clamp(noise.add_(self.x[rows]))
            able = self._oracle.active(self.batch.ids[rows])
            if not able.any():
                break

            # 1 where the label is wrong, -1 where it is right, 0 where no query was left.
            index = able.nonzero()[:, 0]
            answered = probes if len(index) == len(rows) else probes[index]
            sign = torch.zeros(len(rows), device=noise.device)
            sign[index] = 1 - 2 * (~self.fooled(rows[index], answered)).float()
            change = probes.sub_(self.x[rows]).reshape(n, size, -1)
            sign = sign.reshape(n, 1, size)
            weight = able.float().reshape(n, 1, size)
            weighted += (sign @ change).reshape(weighted.shape)
            changes += (weight @ change).reshape(changes.shape)
            signs += sign.sum((1, 2))
            answers += weight.sum((1, 2))

        mean = signs / answers.clamp_min(1)
        # If all labels agree, the baseline would leave nothing: the mean of the noise itself,
        # towards or away.
        baseline = torch.where(mean.abs() < 1, mean, 0.0)
        return weighted - per_sample(baseline, changes) * changes
