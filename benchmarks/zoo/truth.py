"""The truth about a defended model: how many samples are robust against an attack that knows the
defence.

The gradient comes from the counterpart, whatever the defended model gives; the defended model
judges. The attack is none of the tool's, so that a fault there cannot hide itself: ascents in Linf
as APGD makes them (Croce & Hein 2020, Reliable evaluation, section 3) on the cross-entropy, on the
margin from several starts, and on the lead of each other class. It is an upper bound like that of
every attack.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.zoo.base import Base
from benchmarks.zoo.pair import Pair, generator

Loss = Callable[[Tensor, Tensor], Tensor]
"""(k, classes) logits and the (k,) rows of their samples to (k,), larger is more wrong."""
ANSWERS = 32
"""By the mean of how many answers a random defence is judged."""
MOMENTUM = 0.75
"""Share of a new step in APGD; the rest is the step before."""


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Judge of whether inputs fool the defended model."""

    pair: Pair
    base: Base
    random: bool
    """Judge by the class of a mean of answers."""

    def fooled(self, x: Tensor, rows: Tensor) -> Tensor:
        """(k,) bool of inputs for the samples `rows`: the class is wrong and not the rejection
        class.
        """
        with torch.no_grad():
            model = self.pair.judge or self.pair.defended
            if self.random:
                classes = (
                    torch.stack([model(x).softmax(1) for _ in range(ANSWERS)]).mean(0).argmax(1)
                )
            else:
                classes = model(x).argmax(1)
        return self.missed(classes, rows)

    def missed(self, classes: Tensor, rows: Tensor) -> Tensor:
        """(k,) bool of answers for the samples `rows`."""
        wrong = classes != self.base.y[rows]
        return wrong if self.pair.reject is None else wrong & (classes != self.pair.reject)


def budget(eps: str) -> float:
    """A budget as it is written on the command line: a number or a fraction."""
    above, _, below = eps.partition("/")
    return float(above) / float(below or 1)


def robust(
    pair: Pair, base: Base, eps: float, *, flaw: str, steps: int = 100, seed: int = 0
) -> Tensor:
    """(n,) bool: samples that are right and on which no adaptive attack succeeds within `eps`.

    If answers depend on the batch, all samples are attacked and judged as one batch, and its worst
    step counts.
    """
    judge, rng, all_rows = (
        Judge(pair=pair, base=base, random=flaw == "random"),
        generator(seed),
        torch.arange(len(base.y)),
    )
    with torch.no_grad():
        active = pair.defended(base.x).argmax(1) == base.y
    if flaw == "company":
        for loss in _losses(pair.counterpart, base, pair.reject)[:2]:
            fooled = _climb(
                pair.counterpart, judge, all_rows, eps, loss, min(steps, 40), rng, joint=True
            )
            active = min(active, ~fooled, key=lambda mask: int(mask.sum()))
        return active
    routes = [_Averaged(pair.counterpart, pair.draws, pair.spread, rng), *pair.surrogates]
    for route in routes:
        losses, long = _losses(route, base, pair.reject), steps
        if route is routes[0] and pair.draws > 1:
            losses, long = losses[:6], steps // 2
        for loss in losses:
            rows = active.nonzero()[:, 0]
            if len(rows):
                active[rows] = ~_climb(route, judge, rows, eps, loss, long, rng)
    return active


class _Averaged(nn.Module):
    """The mean answer of a model to inputs near by (EOT: Athalye et al. 2018, Synthesizing robust
    adversarial examples).
    """

    def __init__(self, net: nn.Module, draws: int, spread: float, rng: torch.Generator) -> None:
        super().__init__()
        self.net, self.draws, self.spread, self.rng = net, draws, spread, rng

    def forward(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, classes)."""
        if self.draws == 1:
            return self.net(x)
        noise = [
            self.spread * (2 * torch.rand(x.shape, generator=self.rng) - 1)
            for _ in range(self.draws)
        ]
        return torch.stack([self.net(x + shift) for shift in noise]).mean(0)


def _losses(route: nn.Module, base: Base, reject: int | None) -> list[Loss]:
    with torch.no_grad():
        logits = route(base.x)
    classes = logits.shape[1] if reject is None else reject
    rivals = (
        logits[:, :classes]
        .scatter(1, base.y[:, None], -torch.inf)
        .argsort(1, descending=True)[:, : classes - 1]
    )

    def true_logit(z: Tensor, rows: Tensor) -> Tensor:
        """Logit that another class must exceed: that of the true class or of the rejection class."""
        true = z.gather(1, base.y[rows][:, None])[:, 0]
        return true if reject is None else torch.maximum(true, z[:, reject])

    def entropy(z: Tensor, rows: Tensor) -> Tensor:
        return F.cross_entropy(z, base.y[rows], reduction="none")

    def margin(z: Tensor, rows: Tensor) -> Tensor:
        return z[:, :classes].scatter(1, base.y[rows][:, None], -torch.inf).amax(1) - true_logit(
            z, rows
        )

    def lead(rank: int) -> Loss:
        return lambda z, rows: z.gather(1, rivals[rows, rank][:, None])[:, 0] - true_logit(z, rows)

    return [entropy, margin, margin, *(lead(rank) for rank in range(classes - 1)), margin, margin]


def _climb(
    route: nn.Module,
    judge: Judge,
    rows: Tensor,
    eps: float,
    loss: Loss,
    steps: int,
    rng: torch.Generator,
    *,
    joint: bool = False,
) -> Tensor:
    """(k,) bool: which of the samples `rows` one ascent breaks; with `joint`, at its worst step."""
    clean = judge.base.x[rows]
    low, high = (clean - eps).clamp(0, 1), (clean + eps).clamp(0, 1)

    def slope(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Loss, its gradient and the answers."""
        leaf = x.detach().requires_grad_()
        answers = route(leaf)
        total = loss(answers, rows)
        return total.detach(), torch.autograd.grad(total.sum(), leaf)[0], answers.detach()

    def check_fooled(x: Tensor, answers: Tensor | None) -> Tensor:
        """Queries the defended model on the inputs that the route misclassifies, or on all inputs
        without answers.
        """
        if joint:
            return judge.fooled(x, rows)
        fooled, hopeful = torch.zeros(len(rows), dtype=torch.bool), slice(None)
        if answers is not None:
            hopeful = judge.missed(answers.argmax(1), rows).nonzero()[:, 0]
            if not len(hopeful):
                return fooled
        fooled[hopeful] = judge.fooled(x[hopeful], rows[hopeful])
        return fooled

    def worse(fooled: Tensor, latest: Tensor) -> Tensor:
        return max(fooled, latest, key=lambda mask: int(mask.sum())) if joint else fooled | latest

    x = low + (high - low) * torch.rand(clean.shape, generator=rng)
    before, (value, grad, answers) = x, slope(x)
    fooled = check_fooled(x, answers)
    best, best_value, best_grad = x, value, grad
    size, rises, window, since = (
        torch.full((len(rows), 1, 1, 1), 2 * eps),
        torch.zeros(len(rows)),
        round(0.22 * steps),
        0,
    )
    marked, halved = value.clone(), torch.zeros(len(rows), dtype=torch.bool)
    for _ in range(steps):
        plain = torch.min(torch.max(x + size * grad.sign(), low), high)
        momentum_step = x + MOMENTUM * (plain - x) + (1 - MOMENTUM) * (x - before)
        before, x, last = x, torch.min(torch.max(momentum_step, low), high), value
        value, grad, answers = slope(x)
        fooled = worse(fooled, check_fooled(x, answers))
        rises, since = rises + (value > last), since + 1
        up = value > best_value
        mask = up.view(-1, 1, 1, 1)
        best, best_grad, best_value = (
            torch.where(mask, x, best),
            torch.where(mask, grad, best_grad),
            value.maximum(best_value),
        )
        if since >= max(window, 1):
            stuck = (rises < 0.75 * since) | (~halved & (best_value <= marked))
            mask = stuck.view(-1, 1, 1, 1)
            size, x, grad = (
                torch.where(mask, size / 2, size),
                torch.where(mask, best, x),
                torch.where(mask, best_grad, grad),
            )
            before, value = torch.where(mask, best, before), torch.where(stuck, best_value, value)
            marked, halved, rises, since = best_value.clone(), stuck, torch.zeros(len(rows)), 0
            window = max(window - round(0.03 * steps), round(0.06 * steps))
    return worse(fooled, check_fooled(best, None))
