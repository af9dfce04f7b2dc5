"""FAB: the shortest way over the boundary, by projecting onto the linearised boundary again and again.

Croce & Hein 2020, Minimally distorted adversarial examples with a fast adaptive boundary attack, Algorithm 1 and section 3; the
targeted version as in section 4.2 of Croce & Hein 2020, Reliable evaluation of adversarial robustness with an ensemble of
diverse parameter-free attacks: one run towards each of the most likely other classes of the clean input.

Evaluations. The paper tests each new point (one forward), steps back from it where it is adversarial, and linearises the model
at what comes of it (a forward and a backward). Where few points of a sample are adversarial, testing first wastes a forward, and
one query does both here; only if the point is adversarial after all, another gradient is asked for, after the step back. On
robust networks four to six of ten points are adversarial and one does not tell the next, so each sample's own rate decides, which
saves 3 to 6 % of the cost. The iterates stay those of the paper, each sample goes at its own pace so that queries stay full, and
the last point is tested only.

Deviations:
- No final search on the segment to the clean input (section 3.2 of the paper); neither has the authors' AutoAttack.
- Adversarial means that another class leads by more than float32 rounding, which is what the ledger counts.
- Untargeted, the boundaries to the 99 most likely other classes of the clean input are looked at, in models of more than 100
  classes: each costs a backward per iteration.
- With `stop_at_eps` a sample leaves once it has been fooled within eps; in AutoAttack it does so between targets and restarts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from brinell.core import norms
from brinell.core.batch import Batch
from brinell.core.contracts import Family
from brinell.core.domain import KINDS, Kind
from brinell.core.hyperplane import PROJECT
from brinell.core.ledger import ROUNDING, Desk
from brinell.core.losses import margin
from brinell.core.norms import per_sample
from brinell.core.streams import Streams
from brinell.core.target import Access
from brinell.core.threat import Threat

__all__ = ["FAB"]

MOST_RIVALS = 99
"""The most classes whose boundaries an untargeted iteration looks at."""
DUAL = {"linf": norms.l1, "l2": norms.l2, "l1": norms.linf}
"""The norm of a gradient by which a difference of logits becomes a distance."""
BACKWARD = 1.2
"""What a backward costs, in forwards."""
BLOCK = 2**17
"""How many values of an iterate are worked on at once on a CPU, so that they stay in its cache."""
HELD = 2**26
"""How many values of gradients are held at once; beyond that, samples are attacked one group after another."""


@dataclass(frozen=True, kw_only=True)
class FAB:
    """Fast adaptive boundary attack, towards one class after another or, with `targets=0`, towards the nearest boundary."""

    targets: int = 9
    """Most likely other classes to aim at, one after another, fewer where there are fewer; 0 for the nearest boundary of all."""
    steps: int = 100
    """Iterations of each run."""
    restarts: int = 1
    """Runs towards each target: the first from the clean input, the others from random points near it."""
    alpha_max: float = 0.1
    """Largest weight of the step from the clean input against the step from the current point."""
    eta: float = 1.05
    """Overshoot: how much further than the linearised boundary a step goes."""
    beta: float = 0.9
    """Step back: from an adversarial point go on at this share of its way from the clean input."""
    stop_at_eps: bool = False
    """Let go of a sample once it is fooled within eps, instead of looking for its closest adversarial input."""

    access: ClassVar[Access] = Access.GRADIENTS
    distances: ClassVar[frozenset[str]] = frozenset({"linf", "l2", "l1"})
    domains: ClassVar[frozenset[Kind]] = frozenset(KINDS)
    family: ClassVar[Family] = "minimal"

    def __post_init__(self) -> None:
        if self.steps < 1 or self.restarts < 1 or self.targets < 0:
            raise ValueError(
                f"steps is {self.steps}, restarts {self.restarts} and targets {self.targets}; at least 1, 1 and 0 are needed"
            )
        if not 0 <= self.alpha_max <= 1 or not 0 <= self.beta <= 1:
            raise ValueError(f"alpha_max is {self.alpha_max} and beta {self.beta}; both must lie between 0 and 1")
        if not self.eta >= 1:
            raise ValueError(f"eta is {self.eta}; below 1 no step reaches the boundary")

    def cost(self, classes: int) -> tuple[int, int]:
        """A run tests and linearises each point, at most every other one twice; the last is tested only."""
        rivals, chosen = min(self.targets or MOST_RIVALS, classes - 1), self._chooses(classes)
        runs, abreast = (rivals, 1) if self.targets else (1, rivals)
        runs *= self.restarts
        return int(chosen) + 2 * self.steps * runs, (self.steps + self.steps // 2) * runs * abreast

    def _chooses(self, classes: int) -> bool:
        """Whether the rivals depend on the logits of the clean input."""
        return classes - 1 > (1 if self.targets else MOST_RIVALS)

    def __call__(self, ledger: Desk, batch: Batch, threat: Threat, rng: Streams) -> None:
        """Run towards each target, with restarts, in groups of samples whose gradients fit into memory."""
        abreast = 1 if self.targets else min(MOST_RIVALS, ledger.classes - 1)
        held = max(1, HELD // (abreast * batch.x[0].numel()))
        for rows in torch.split(torch.arange(len(batch), device=batch.ids.device), held):
            self._attack(ledger, batch.select(rows), threat.select(rows), rng.select(rows))

    def _attack(self, ledger: Desk, batch: Batch, threat: Threat, rng: Streams) -> None:
        rivals = self._rivals(ledger, batch)
        best = torch.full_like(threat.eps, torch.inf)
        for number, run in enumerate(torch.split(rivals, 1 if self.targets else rivals.shape[1], dim=1)):
            for restart in range(self.restarts):
                stands = ledger.standing(batch.ids, self.stop_at_eps).nonzero()[:, 0]
                if not len(stands):
                    return
                walk = _Walk(self, batch.select(stands), threat.select(stands), run[stands], stands, best)
                if restart:
                    walk.start(rng.select(stands).fold(f"{number} {restart}"))
                self._run(ledger, walk)

    def _rivals(self, ledger: Desk, batch: Batch) -> Tensor:
        """(n, k): the classes to aim at, the most likely ones first where not all are taken at once."""
        count = min(self.targets or MOST_RIVALS, ledger.classes - 1)
        if self._chooses(ledger.classes):
            scores = ledger.scores(batch.ids, batch.x).scatter(1, batch.y[:, None], -torch.inf)
            return scores.topk(count, dim=1).indices
        others = torch.arange(count, device=batch.y.device)
        return others + (others >= batch.y[:, None])

    def _run(self, ledger: Desk, walk: "_Walk") -> None:
        """Each sample goes at its own pace: where a surprise costs one more query, the others do not wait."""
        # Testing first costs a forward more where the point is not adversarial, and saves a query for gradients where it is.
        worth = 1 / (1 + BACKWARD * walk.rivals.shape[1])
        while walk.keep(ledger.standing(walk.batch.ids, self.stop_at_eps)):
            first = (walk.rate > worth) | (walk.step == self.steps)
            rows = (first & ~walk.settled).nonzero()[:, 0]
            if len(rows):
                walk.judge(rows, ledger.scores(walk.batch.ids[rows], walk.x[rows]))
                if not walk.keep(ledger.standing(walk.batch.ids, self.stop_at_eps) & (walk.step < self.steps)):
                    return
            answer = ledger.differences(walk.batch.ids, walk.x, walk.rivals)
            rows = (~walk.settled).nonzero()[:, 0]
            back = walk.judge(rows, answer.logits[rows])
            walk.advance(answer.lead, answer.grad, stay=back)


class _Walk:
    """Where the samples of a run stand, in the symbols of Algorithm 1."""

    def __init__(self, settings: FAB, batch: Batch, threat: Threat, rivals: Tensor, rows: Tensor, best: Tensor) -> None:
        self.settings, self.batch, self.threat, self.rivals, self.rows = settings, batch, threat, rivals, rows
        self.best = best
        """u, the distance of the closest adversarial input, of all samples; `rows` (n,) says which are in this run."""
        self.x = batch.x.clone()
        self.step = torch.zeros_like(rows)
        """(n,): i, how many iterations each sample has made."""
        self.rate = torch.full_like(threat.eps, 0.5)
        """(n,): share of the latest points that were adversarial, a running mean over about ten."""
        self.settled = torch.ones_like(rows, dtype=torch.bool)
        """(n,): whether x is where the next iteration starts: judged, and after the step back if there was one."""

    def start(self, rng: Streams) -> None:
        """Line 5: a random point at half of min(u, eps) from the clean input."""
        size = torch.minimum(self.best[self.rows], self.threat.eps) / 2
        delta = self.threat.distance.direction(rng, tuple(self.x.shape[1:]))
        self.x = self.threat.domain.clamp(delta.mul_(per_sample(size, delta)).add_(self.batch.x))

    def keep(self, stands: Tensor) -> bool:
        """Let go of the samples that do not stand; whether any does."""
        if not stands.all():
            self.batch, self.threat = self.batch.select(stands), self.threat.select(stands)
            for name in ("rivals", "rows", "x", "step", "rate", "settled"):
                setattr(self, name, getattr(self, name)[stands])
        return len(self.rows) > 0

    def judge(self, at: Tensor, logits: Tensor) -> Tensor:
        """Lines 11 to 14: note which of the points `at` are adversarial, and step back from those. Which they are."""
        wrong = margin(logits, self.batch.y[at]) > ROUNDING * logits.abs().amax(1)
        self.rate[at] = torch.lerp(self.rate[at], wrong.float(), 0.1)
        self.settled[at] = True
        back = at[wrong]
        if len(back):
            x0 = self.batch.x[back]
            delta = self.x[back] - x0
            rows = self.rows[back]
            self.best[rows] = torch.minimum(self.best[rows], self.threat.distance.size(delta))
            self.x[back] = self.threat.domain.clamp(delta.mul_(self.settings.beta).add_(x0))
        return back

    def advance(self, lead: Tensor, grad: Tensor, stay: Tensor) -> None:
        """Lines 7 to 10: one step towards the nearest boundary of the linearised model, for all but the samples in `stay`."""
        value, normal = _nearest(lead, grad, DUAL[self.threat.distance.name])
        held = self.x[stay]
        size = len(self.x) if self.x.is_cuda else max(1, BLOCK // self.x[0].numel())
        for start in range(0, len(self.x), size):
            part = slice(start, start + size)
            self.x[part] = self._moved(self.x[part], self.batch.x[part], value[part], normal[part])
        self.x[stay] = held
        self.step += 1
        self.settled.fill_(False)
        self.step[stay] -= 1
        self.settled[stay] = True

    def _moved(self, x: Tensor, x0: Tensor, value: Tensor, normal: Tensor) -> Tensor:
        """Equations 6 to 9: both projections onto the plane, overshot and mixed by their lengths."""
        distance, domain, eta = self.threat.distance, self.threat.domain, self.settings.eta
        low, high = domain.bounds(x)
        project = PROJECT[distance.name]
        way = x0 - x
        step = project(x, normal, -value, low, high)
        step_0 = project(x0, normal, -value - (normal * way).flatten(1).sum(1), low, high)
        length, length_0 = distance.size(step), distance.size(step_0)
        alpha = (length / (length + length_0).clamp_min(1e-30)).clamp_max(self.settings.alpha_max)
        # (1 - alpha) (x + eta step) + alpha (x0 + eta step_0)
        toward = way.add_(step_0.sub_(step), alpha=eta).mul_(per_sample(alpha, x))
        return domain.clamp(toward.add_(step, alpha=eta).add_(x))


def _nearest(lead: Tensor, grad: Tensor, dual: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Line 6: the difference (n,) and its gradient (n, *shape) to the class whose linearised boundary is nearest."""
    if grad.shape[1] == 1:
        return lead[:, 0], grad[:, 0]
    slopes = dual(grad.flatten(0, 1)).reshape(lead.shape)
    rows = torch.arange(len(lead), device=lead.device)
    nearest = (lead.abs() / slopes.clamp_min(1e-30)).argmin(1)
    return lead[rows, nearest], grad[rows, nearest]
