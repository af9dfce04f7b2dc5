"""APGD: projected gradient ascent that halves its own step size when progress stalls.

Croce & Hein 2020, Reliable evaluation of adversarial robustness with an ensemble of diverse
parameter-free attacks, Algorithm 1 and section 3. With `targets` it is the targeted attack of
section 5: one run against each of the most likely other classes. In L1 it is Croce & Hein 2021,
Mind the box: l1-APGD for sparse adversarial attacks on image classifiers, Algorithm 1: sparse
steps, a projection onto ball and bounds at once, step sizes that follow the sparsity of the best
point, and section 3.2, a radius that shrinks from 3 eps to eps (`_sparse_steps`).

Deviations:
- A sample leaves in the iteration in which it is fooled; the paper runs all iterations and keeps
  the best point. The verdict is the same, since a fooled point is not given up.
- The last iterate is scored but its gradient is not taken: 1 backward less.
- With `random_start` (the default of the reference code) the first point is at distance eps from
  the clean input in a random direction; the paper leaves the start open. In L1 it is normal noise,
  projected, as in the authors' code.
- In L1 the point that a phase begins with takes the place of one of its iterations, so that a run
  costs no more for them. The first steps change a fifth of the values from a random start, too:
  MNIST cnn4_pgd at L1 8, 400 samples, 160 fooled, not 152.
- The first restart runs alone, and those that it leaves get all others side by side: few samples
  survive, and a batch of one costs nearly what one of four does. The same samples succeed as with
  one restart after another.
- The targets are ranked by the clean input's logits, asked for once; where there are fewer other
  classes, all are taken. They run side by side, so that batches stay full when few samples are
  active; a sample fooled towards one leaves with all its runs.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from brinell.attacks._apgd_steps import MOMENTUM, ApgdState, checkpoints
from brinell.attacks._shared import EveryKind
from brinell.attacks._sparse_steps import SparseState, phases, projected, reviews
from brinell.core.contracts import Access, Batch, Oracle, Streams, Threat
from brinell.core.criterion import Targeted
from brinell.core.losses import LOSSES, TARGETED
from brinell.core.norms import per_sample
from brinell.core.settings import Count, Whole

ROWS = 1024
"""Runs that go on side by side at most; it bounds memory and changes no result."""


@dataclass(frozen=True, kw_only=True)
class APGD(EveryKind):
    """Auto-PGD on the cross-entropy (`loss=ce`) or the difference of logits ratio (`loss=dlr`)."""

    loss: Literal["ce", "dlr", "margin"] = "ce"
    """Loss to raise: ce (cross-entropy), dlr (difference of logits ratio) or margin."""
    steps: Count = 100
    """Iterations of each restart."""
    restarts: Count = 1
    """Random starting points: the first one alone, then the others side by side on the samples
    that survive it."""
    random_start: bool = True
    """Start at distance eps in a random direction; otherwise at the clean input."""
    wide: bool = True
    """In L1: 30 % of the steps within 3 eps, 30 % within 2 eps, and only the rest within eps;
    otherwise all within eps."""
    targets: Whole = 0
    """Number of most likely other classes to attack, each in a separate run; 0 attacks
    untargeted."""

    access = Access.GRADIENTS
    distances = frozenset({"linf", "l2", "l1", "embedding"})
    family = "budgeted"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.restarts > 1 and not self.random_start:
            raise ValueError(
                "restarts without random_start repeat the same run; set "
                "restarts=1 or random_start=true"
            )
        # A targeted loss aims at a class, and an untargeted one would leave it again.
        if self.targets and self.loss not in TARGETED:
            raise ValueError(
                f"loss {self.loss} has no targeted form; with targets use {' or '.join(TARGETED)}"
            )

    def reach(self, distance: str) -> float:
        """Radius in which a run begins, as a multiple of eps: 3 in L1 if the run has phases."""
        return phases(self.steps, wide=self.wide)[0] if distance == "l1" else 1.0

    def cost(self, classes: int) -> tuple[int, int]:
        """One forward and backward at the start and each iterate; the last one is scored only.

        Targets are ranked by one forward more.
        """
        runs = self.restarts * (min(self.targets, classes - 1) or 1)
        return runs * (self.steps + 1) + (self.targets > 0), runs * self.steps

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """Run the first restart, then all others on the samples that survived it.

        Targets and restarts go side by side.
        """
        target = self._rivals(oracle, batch, threat) if self.targets else batch.y[:, None]
        # The first restart breaks most samples, so that the others run on the few that are left.
        for restarts in (range(1), range(1, self.restarts)):
            # One stream for each pair of a restart and a target.
            streams = [
                rng.fold(rank).fold(restart).keys
                for restart in restarts
                for rank in range(target.shape[1])
            ]

            runs = len(streams)
            # One row for each sample, target and restart, in portions that keep the memory of a run
            # in bounds.
            portion = max(1, ROWS // max(1, runs))

            # With one restart the second group is empty, and nothing runs.
            for start in range(0, len(batch) if runs else 0, portion):
                end = min(start + portion, len(batch))
                index = torch.arange(start, end, device=batch.ids.device)
                index = index[oracle.active(batch.ids[index])]
                if not len(index):
                    continue

                # Side by side, one restart costs a pass and not a pass for each target.
                rows = index.repeat_interleave(runs)
                keys = torch.stack([stream[index] for stream in streams], dim=1).reshape(-1)
                # As the streams go: all targets of a restart, then those of the next one.
                towards = target[index].repeat(1, len(restarts)).reshape(-1)
                self._run(oracle, batch.select(rows), threat.select(rows), Streams(keys), towards)

    def _rivals(self, oracle: Oracle, batch: Batch, threat: Threat) -> Tensor:
        """(n, targets): the most likely other classes of the clean inputs, or the target class."""
        if isinstance(threat.criterion, Targeted):
            return threat.criterion.classes[:, None]
        # The true class comes last in the ranking.
        logits = oracle.scores(batch.ids, batch.x).scatter(1, batch.y[:, None], -torch.inf)
        return logits.topk(min(self.targets, oracle.classes - 1), dim=1).indices

    def _run(
        self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams, target: Tensor
    ) -> None:
        """One run, each row towards its target (n,), which an untargeted attack does not use."""
        loss = TARGETED[self.loss] if self.targets else LOSSES[self.loss]
        # Losses towards a class take it behind the labels.
        extra: tuple[Tensor, ...] = (target,) if self.targets else ()
        sparse = threat.distance.name == "l1"
        radii = phases(self.steps, wide=sparse and self.wide)
        # The first phase begins with the run, by `_start` below.
        starts = set(radii) - {0}
        marks = reviews(self.steps, radii) if sparse else set(checkpoints(self.steps))

        enlarged = replace(threat, eps=radii[0] * threat.eps)
        x = self._start(batch, enlarged, rng)
        answer = oracle.gradient(batch.ids, x, loss, *extra)
        state: ApgdState | SparseState
        if sparse:
            state = SparseState(batch.x, x, answer.loss, answer.grad, enlarged.eps)
        else:
            # Algorithm 1 begins with steps across the whole ball.
            state = ApgdState(x, answer.loss, answer.grad, step_size=2 * threat.eps)
        last = 0  # steps that were done at the last review

        for k in range(self.steps):
            active = oracle.remaining(batch.ids)
            if active is not None:
                batch = batch.select(active)
                threat = threat.select(active)
                extra = tuple(value[active] for value in extra)
                enlarged = enlarged.select(active)
                state.select(active)
                if not len(batch):
                    return

            # A phase begins with the best point so far, projected into its smaller ball.
            begins = k in starts
            if begins:
                enlarged = replace(threat, eps=radii[k] * threat.eps)
                x_next = projected(state.x_max, batch.x, enlarged)
            else:
                x_next = state.move(batch.x, enlarged, momentum=MOMENTUM if k else 1.0)
            # The last point is asked about only to be judged, which needs no gradient.
            if k == self.steps - 1:
                oracle.scores(batch.ids, x_next)
                return

            answer = oracle.gradient(batch.ids, x_next, loss, *extra)
            if begins:
                state = SparseState(
                    batch.x, x_next, answer.loss, answer.grad, enlarged.eps, dense=False
                )
            else:
                state.arrive(x_next, answer.loss, answer.grad)
            if k + 1 in marks:
                state.review(k + 1 - last)
                last = k + 1

    def _start(self, batch: Batch, threat: Threat, rng: Streams) -> Tensor:
        """(n, *shape): where a run begins."""
        x = batch.x
        if not self.random_start:
            return x
        # The authors of APGD in L1 project Gaussian noise (Croce & Hein 2021).
        if threat.distance.name == "l1":
            low, high = threat.domain.bounds(x)
            noise = rng.normal(*x.shape[1:]).mul_(high - low)
            return projected(noise.add_(x), x, threat)
        start = threat.distance.direction(rng, tuple(x.shape[1:]))
        return threat.project(start.mul_(per_sample(threat.eps, x)).add_(x), x)
