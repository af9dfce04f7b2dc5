"""Boundary walk: from a distant adversarial input along the boundary towards the clean input.

Scores that are honest near the boundary and mislead where the model is sure lead every attack
astray that starts at the clean input. This one takes gradients on the boundary alone, and
everywhere else it asks only on which side an input lies. After Brendel et al. 2019, Accurate,
reliable and fast robustness evaluation: a start that the model gets wrong, then steps along the
boundary that shorten the distance, with the normal from the gradient.

Each step aims between the boundary point and the clean input's projection onto the linearised
boundary (`_hyperplane`), lifted off the boundary by half of what is left to gain. The way there and
on to the clean input crosses the boundary, where the next step begins; secants and halvings find
the place. So a step never makes the distance longer, and a wrong gradient costs a step.

Deviations:
- The paper solves for the best step in a trust region around the boundary point. Here the search on
  the way finds how far the linear model holds.
- Restarts aim at the classes that score highest at the closest point so far, one after another,
  since a walk ends at the nearest point of one stretch of the boundary. The paper starts from
  inputs of other classes; squares of noise depend on no other sample.
- Where noise is not adversarial, as for most target classes, long steps along the gradient lead on
  from it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.attacks._hyperplane import PROJECT
from brinell.attacks._shared import EveryKind, noise_squares
from brinell.core import norms
from brinell.core.contracts import Access, Batch, Oracle, Streams, Threat
from brinell.core.criterion import Targeted
from brinell.core.norms import per_sample
from brinell.core.settings import Count

PROBES = 6
"""Queries by which the boundary on a way is found."""
TRIES, ASCENTS, STRIDE = 12, 3, 0.2
"""Inputs tried as a start, how many of them follow the gradient from each that is noise, and by
which share of the bounds."""
LENGTHS = (1.0, 1.5, 2.5, 4.0, 8.0)
"""How far out a restart begins, in distances of the closest input so far."""

FAR = 2.0
"""A walk that stops at eps gives a sample up whose closest input is farther away than this
multiple of eps."""


@dataclass(frozen=True, kw_only=True)
class BoundaryWalk(EveryKind):
    """Walk along the decision boundary from far away, with gradients on the boundary alone."""

    steps: Count = 15
    """Steps of each walk."""
    restarts: Count = 8
    """Walks of each sample: the first from noise, the others towards one class after another."""
    stop_at_eps: bool = False
    """Let go of a sample once it is fooled within the smallest eps, instead of looking for its
    closest adversarial input."""

    access = Access.GRADIENTS
    distances = frozenset({"linf", "l2", "l1"})
    family = "minimal"

    def cost(self, classes: int) -> tuple[int, int]:
        """A start and the way from it, then a gradient and a way each step."""
        start = max(TRIES, 2 + len(LENGTHS))
        forwards = start + PROBES + self.steps * (1 + PROBES)
        return self.restarts * forwards, self.restarts * (TRIES + self.steps)

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """One walk after another, from noise or towards another class."""
        walk = _BoundaryPoints(oracle, batch, threat, self.stop_at_eps)
        may_choose = not isinstance(threat.criterion, Targeted)
        for restart in range(self.restarts):
            # Towards the classes in turn: another basin may come nearer than another noise.
            if may_choose and 0 < restart < oracle.classes - 1:
                walk.start_at_class()
            else:
                walk.start_at_noise(rng.fold(restart))
            # Straight to the clean input, asked about first in the middle (1 of 2).
            walk.share.fill_(1.0)
            walk.descend((walk.x + batch.x) / 2)
            for _ in range(self.steps):
                if not walk.step():
                    break


class _BoundaryPoints:
    """Adversarial inputs on their way to the clean ones."""

    def __init__(self, oracle: Oracle, batch: Batch, threat: Threat, stop_at_eps: bool) -> None:
        self.oracle = oracle
        self.batch = batch
        self.threat = threat
        self.stop_at_eps = stop_at_eps
        self.low, self.high = threat.domain.bounds(batch.x)

        self.x = batch.x
        self.closest = batch.x
        """(n, *shape): the adversarial input of this walk, and the closest one of all walks."""
        self.size = torch.full_like(threat.eps, torch.inf)
        """(n,): how far the closest one is away; infinite where none is known."""
        self.tried = torch.arange(oracle.classes, device=batch.y.device) == batch.y[:, None]
        """(n, classes) bool: the true class, and those that walks began at."""
        self.share = torch.ones_like(threat.eps)
        """(n,): where the last way crossed the boundary, 0 at its start and 2 at the clean
        input."""
        self.walks = torch.zeros_like(batch.y, dtype=torch.bool)
        """(n,): samples that a start was found for."""

    def open(self, mask: Tensor | None = None) -> Tensor:
        """The samples (k,) that are worth a query, of all or of those in a mask (n,)."""
        active = self.oracle.active(self.batch.ids, self.stop_at_eps)
        return (active if mask is None else active & mask).nonzero()[:, 0]

    def start_at_noise(self, rng: Streams) -> None:
        """Start at noise, or where long steps along the gradient lead from it."""
        x = self.batch.x.clone()
        grad = torch.zeros_like(self.batch.x)
        distant = torch.ones_like(self.size, dtype=torch.bool)
        for trial in range(TRIES):
            rows = self.open(distant)
            if not len(rows):
                break
            # Noise that is no success is followed uphill for a few steps before new noise is drawn.
            turn, ascents = divmod(trial, 1 + ASCENTS)
            if ascents:
                step = STRIDE * (self.high - self.low) * grad[rows].sign()
                x[rows] = self.threat.domain.clamp(x[rows] + step)
            else:
                x[rows] = noise_squares(self.threat.domain, rng.select(rows).fold(turn), turn, x)
            answer = self.oracle.gradient(self.batch.ids[rows], x[rows])
            grad[rows] = answer.grad
            # A margin above 0 is an error of the model: a start.
            distant[rows] = answer.loss <= 0

        # Samples without a new start go on at the closest input of earlier walks, if there is one.
        self.x = torch.where(per_sample(distant, self.closest), self.closest, x)
        self.walks = ~distant | self.size.isfinite()

    def start_at_class(self) -> None:
        """Start beyond the closest input, towards the likeliest class that no walk began at."""
        self.walks = torch.zeros_like(self.walks)
        close = self.size <= FAR * self.threat.eps if self.stop_at_eps else self.size.isfinite()
        rows = self.open(close)
        if not len(rows):
            return

        # The class that leads at the closest input has been walked to; the next one is tried.
        logits = self.oracle.scores(self.batch.ids[rows], self.closest[rows])
        classes = logits.scatter(1, self.batch.y[rows, None], -torch.inf).argmax(1)
        self.tried[rows, classes] = True
        rival = logits.masked_fill(self.tried[rows], -torch.inf).argmax(1)
        self.tried[rows, rival] = True
        # The scores may have been a sample's last query.
        open_ = self.oracle.active(self.batch.ids[rows], self.stop_at_eps)
        rows = rows[open_]
        rival = rival[open_]
        if not len(rows):
            return

        # From the clean input along the steepest way to that class, farther out until it is won.
        answer = self.oracle.differences(self.batch.ids[rows], self.closest[rows], rival[:, None])
        way = torch.zeros_like(self.x)
        way.index_copy_(0, rows, self.threat.distance.ascent(answer.grad[:, 0]))
        waits = torch.zeros_like(self.walks).index_fill_(0, rows, True)
        for length in LENGTHS:
            rows = self.open(waits)
            if not len(rows):
                return
            change = way[rows] * per_sample(length * self.size[rows], way)
            x = self.threat.domain.clamp(self.batch.x[rows] + change)
            beyond = self.oracle.loss(self.batch.ids[rows], x) > 0
            self.x = self.x.index_copy(0, rows[beyond], x[beyond])
            # A margin above 0 is won, and a walk begins there.
            self.walks[rows] = beyond
            waits[rows] = ~beyond

    def step(self) -> bool:
        """Go on to the nearest point of the linearised boundary; False if no sample is left."""
        rows = self.open(self.walks)
        if not len(rows):
            return False
        x = self.x[rows]
        clean = self.batch.x[rows]
        distance = self.threat.distance
        answer = self.oracle.gradient(self.batch.ids[rows], x)

        # By the linear model `gap` is the margin that the clean input lacks, and gap / slope its
        # distance from the boundary. Half of what is left to gain, as a margin again, lifts the
        # target beyond the boundary.
        slope = norms.DUAL[distance.name](answer.grad).clamp_min(1e-30)
        gap = ((answer.grad * (x - clean)).flatten(1).sum(1) - answer.loss).clamp_min(0)
        lift = (distance.size(x - clean) - gap / slope).clamp_min(0) * slope / 2
        target = clean + PROJECT[distance.name](clean, answer.grad, gap + lift, self.low, self.high)
        self.descend(self.batch.x.index_copy(0, rows, self.threat.domain.clamp(target)))
        return True

    def descend(self, middle: Tensor) -> None:
        """Go to the boundary on the way over `middle` (n, *shape) to the clean inputs."""
        start = self.x
        clean = self.batch.x

        def at(share: Tensor, rows: Tensor) -> Tensor:
            """(k, *shape): points of the way at shares (k,), 1 at `middle` and 2 at the end."""
            first = torch.lerp(start[rows], middle[rows], per_sample(share.clamp(max=1), clean))
            second = per_sample((share - 1).clamp(min=0), clean)
            return self.threat.domain.clamp(torch.lerp(first, clean[rows], second))

        # The last adversarial share and the first one that is not, with their margins: those of the
        # ends of the way are not known, and 0 and -1 stand for them.
        share = self.share.clone()
        interior = torch.zeros_like(self.share)
        outside = torch.full_like(self.share, 2.0)
        above = torch.zeros_like(share)
        below = torch.full_like(share, -1.0)

        for number in range(PROBES):
            rows = self.open(self.walks)
            if not len(rows):
                break
            answers = self.oracle.loss(self.batch.ids[rows], at(share[rows], rows))
            margin = torch.zeros_like(share).index_copy_(0, rows, answers)
            is_inside = margin > 0
            interior = torch.where(is_inside, share, interior)
            above = torch.where(is_inside, margin, above)
            outside = torch.where(is_inside, outside, share)
            below = torch.where(is_inside, below, margin)

            # Secants and halvings by turns; before both ends are known, far steps. A secant stops
            # at nine tenths, as it shall end on the adversarial side.
            part = (0.9 * above / (above - below)).clamp(0.05, 0.9) if number % 2 else 0.5
            estimate = interior + (outside - interior) * part
            further = torch.minimum(2 * share, (2 + share) / 2)
            share = torch.where(outside == 2, further, estimate)
            # Nothing but the start is adversarial yet: much nearer to it.
            share = torch.where(interior == 0, outside / 4, share)

        rows = torch.arange(len(share), device=share.device)
        self.x = torch.where(per_sample(self.walks, clean), at(interior, rows), self.x)
        # The next way is asked about first where this one crossed, away from both its ends.
        self.share = interior.clamp(1e-3, 1.5)
        size = self.threat.distance.size(self.x - clean)
        closer = self.walks & (size < self.size)
        self.size = torch.where(closer, size, self.size)
        self.closest = torch.where(per_sample(closer, clean), self.x, self.closest)
