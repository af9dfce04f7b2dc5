"""Consequences of an alarm: which of the waiting stages run, and whose gradients they follow.

A stage may wait for a condition (`when=`), and may follow another gradient than the model's own (`gradient=`). The checks and the
results of earlier stages decide both, so a resumed run decides the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

import torch

from brinell.core.checks import COARSE, DECIDING_SCORES, DETACHED, GOOD, Code
from brinell.core.criterion import NotRejected
from brinell.core.errors import ModelError, one_line
from brinell.core.ledger import Ledger
from brinell.core.model import Model
from brinell.core.norms import per_sample
from brinell.core.oracle import Batch
from brinell.core.streams import Streams
from brinell.core.threat import Distance, Threat, extent
from brinell.engine import rejection, repair
from brinell.engine.gradient_check import GradientCheck

When = Literal["masked", "blind", "random", "suspected", "detached"]
"""masked: a check says that gradients mislead, or attacks that need them cannot run. blind: the gradient is missing or wrong, and
no repair was found that finite differences agree with. random: the model answers the same input differently each time. suspected:
an attack without gradients broke a sample that those with them did not; a find of a stage that waited for this is reason to
spend the full budget (masked). detached: the scores do not tell how near the decision boundary is, so labels alone lead."""
WHEN: frozenset[str] = frozenset(get_args(When))

Source = Literal["own", "repaired", "surrogate"]
"""The gradient that a stage follows. own: the model's. repaired: the model's, with the identity or a fitted network in place of
the operations that break it (BPDA). surrogate: that of the model given by `--surrogate`."""
SOURCES: frozenset[str] = frozenset(get_args(Source))

GRADIENT_FAILURES: frozenset[str] = frozenset({Code.ZERO, Code.MISMATCH, Code.MISLEADING, Code.UNCONSTRAINED})
"""Failed checks that start the search for a repair of the gradient."""
REPAIRABLE: frozenset[str] = GRADIENT_FAILURES | DETACHED | {Code.REJECTION}
"""Failed checks that a repair resolves if finite differences agree with its gradient."""
CLIMB_STEPS = 8
"""Number of gradient steps by which repairs are compared."""


@dataclass(frozen=True)
class Repair:
    """A model with the same answers and a gradient that attacks can follow."""

    model: Model
    substitute: str
    """Description of the substitution, such as "the identity for module 1"."""
    text: str
    """One line that describes the repair and its gain."""
    disagreement: float
    """Disagreement of finite differences with the new gradient: 0 is perfect, 1 is chance."""

    @property
    def decides(self) -> bool:
        """True if it shows the scores that decide, and finite differences agree with their gradient."""
        return self.substitute == DECIDING_SCORES and self.disagreement <= GOOD


def find_repair(
    model: Model,
    batch: Batch,
    distance: Distance,
    eps: float,
    rng: Streams,
    *,
    batch_size: int,
    on_drop: repair.DropHandler = lambda description: None,
) -> tuple[Repair | None, int, int]:
    """Find the best repair of a gradient that is missing or wrong; None if no repair raises the margin.

    Of several repairs, the one wins whose gradient raises the margin most in a few steps within the budget. Finite differences
    then measure whether it is the gradient of the answers. A gradient that passes straight through a rounding never is, even if
    it raises the margin.

    Args:
        model: the model.
        batch: inputs that it classifies correctly, with ids 0 to n-1.
        distance: norm of `eps`.
        eps: the largest budget, above 0; infinite where there is none.
        rng: one stream per sample.
        batch_size: the most inputs shown to the model at once.
        on_drop: called with each repair that is given up because the model fails with it, and the reason.

    Returns:
        The repair, and the forwards and backwards that the search cost.
    """
    faults = repair.find_culprits(model, batch.x, on_drop)
    repairs = dict(repair.repair_candidates(model, batch.x, faults, on_drop))
    if not repairs:
        return None, 0, 0
    budget = torch.full((len(batch),), min(eps, extent(distance, model.domain)), device=batch.x.device)
    threat = Threat(distance=distance, eps=budget, domain=model.domain)
    full_threat = replace(threat, eps=torch.full_like(budget, extent(distance, model.domain)))
    forwards = backwards = 0
    rises, disagreements = {}, {}
    for text, candidate in {"": model, **repairs}.items():
        climb, check = (
            Ledger(candidate, batch, ledger_threat, batch_size=batch_size, minimal=True)
            for ledger_threat in (threat, full_threat)
        )
        report = partial(_report_drop, on_drop, text)
        rises[text], disagreements[text] = _climb(climb, report), disagreement_of(check, distance, eps, rng, report)
        for ledger in (climb, check):
            forwards, backwards = forwards + int(ledger.costs.forwards.sum()), backwards + int(ledger.costs.backwards.sum())
    best = max(repairs, key=lambda text: rises[text])
    if not rises[best] > 0:
        return None, forwards, backwards
    message = (
        f"attacked with {best} (BPDA): {CLIMB_STEPS} steps raise the margin by {rises[best]:.3g} in the mean, "
        f"by {rises['']:.3g} along the model's own gradient; finite differences disagree by {disagreements[best]:.2f}, "
        f"{disagreements['']:.2f} before"
    )
    return Repair(repairs[best], best, message, disagreements[best]), forwards, backwards


def _report_drop(on_drop: repair.DropHandler, description: str, reason: str) -> None:
    """Report why a repair was dropped; the empty description stands for the model's own gradient, which its checks report."""
    if description:
        on_drop(f"{description}: {reason}")


def smooth_reject_class(
    model: Model,
    previous: Repair | None,
    batch: Batch,
    distance: Distance,
    eps: float,
    rng: Streams,
    reject: int,
    *,
    batch_size: int,
    on_drop: repair.DropHandler = lambda description: None,
) -> tuple[Repair | None, int, int]:
    """Replace a reject class that has no slope by a smooth rule; return the `previous` repair if no rule fits.

    The other arguments are those of `find_repair`; `reject` is the reject class. The last two values are the forwards and
    backwards that it cost.
    """
    base = model if previous is None else previous.model
    try:
        path, path_ledger = rejection.follow_gradient(base, batch, distance, eps, reject, batch_size=batch_size)
    except ModelError as error:
        on_drop(f"a smooth rule fitted to the rejections ({one_line(error, 120)})")
        return previous, 0, 0
    rule = rejection.fit_rule(path, reject)
    path_cost = int(path_ledger.costs.forwards.sum()), int(path_ledger.costs.backwards.sum())
    if rule is None:
        return previous, *path_cost
    smoothed = rejection.SmoothRejection(base, rule)
    radius = torch.full((len(batch),), extent(distance, model.domain), device=batch.x.device)
    threat = Threat(distance=distance, eps=radius, domain=model.domain, criterion=NotRejected(reject))
    ledger = Ledger(smoothed, batch, threat, batch_size=batch_size, minimal=True)
    substitute = "a smooth rule fitted to the rejections" + (f" and {previous.substitute}" if previous is not None else "")
    disagreement = disagreement_of(ledger, distance, eps, rng, partial(_report_drop, on_drop, substitute))
    message = (
        f"attacked with {substitute}: it judges at most {100 * rule.error:.0f} % of the accepted or of the rejected inputs "
        f"otherwise; finite differences disagree by {disagreement:.2f}"
    )
    cost = int(ledger.costs.forwards.sum()), int(ledger.costs.backwards.sum())
    return Repair(smoothed, substitute, message, disagreement), path_cost[0] + cost[0], path_cost[1] + cost[1]


def _climb(ledger: Ledger, on_drop: repair.DropHandler) -> float:
    """Mean rise of the margin after `CLIMB_STEPS` steps along the gradient within eps; minus infinity if the model fails."""
    oracle, batch, threat = ledger.oracle(), ledger.batch, ledger.threat

    def climb() -> float:
        """Mean rise of the loss after a few gradient steps from the clean inputs."""
        x = batch.x
        first = oracle.loss(batch.ids, x)
        for _ in range(CLIMB_STEPS):
            grad = oracle.gradient(batch.ids, x).grad
            step = threat.distance.ascent(grad) * per_sample(2.5 / CLIMB_STEPS * threat.eps, x)
            x = threat.project(x + step, batch.x)
        return float((oracle.loss(batch.ids, x) - first).mean())

    rise = repair.attempt(climb, "climbing", on_drop)  # a stand-in may not fit what the model is given next
    return -torch.inf if rise is None else rise


def disagreement_of(ledger: Ledger, distance: Distance, eps: float, rng: Streams, on_drop: repair.DropHandler) -> float:
    """Disagreement of finite differences with the gradient; infinity if the model fails, 1 if the gradient is zero."""
    oracle, batch, domain = ledger.oracle(), ledger.batch, ledger.threat.domain

    def measure() -> float:
        """Disagreement of the gradient with finite differences; 1 if the gradient is zero everywhere."""
        grad = oracle.gradient(batch.ids, batch.x).grad
        check = GradientCheck(oracle, batch, grad, distance=distance, eps=eps, domain=domain, rng=rng.fold("differences"))
        return check.full_check().disagreement if bool((grad != 0).any()) else 1.0

    disagreement = repair.attempt(measure, "finite differences", on_drop)
    return torch.inf if disagreement is None else disagreement


def conditions(
    failed: Mapping[str, str],
    *,
    incomplete: bool,
    masking: frozenset[str],
    repaired: Repair | None,
    labels_only: bool = False,
) -> set[str]:
    """The conditions of `When` that hold after the checks.

    `failed` maps the codes of failed checks to their texts; `incomplete` is true if some stages without a condition cannot run on
    the model; `masking` are the codes that mean that gradients mislead; `labels_only` is true for a model without scores.
    """
    active = set()
    is_repaired = repaired is not None and repaired.disagreement <= GOOD
    decides = repaired is not None and repaired.decides
    remaining = masking - REPAIRABLE | (frozenset() if decides else DETACHED)
    if incomplete or failed.keys() & (remaining if is_repaired else masking):
        active.add("masked")
    if failed.keys() & {Code.ZERO, Code.MISMATCH} and not is_repaired:
        active.add("blind")
    if Code.RANDOM in failed:
        active.add("random")
    if labels_only or (failed.keys() & (DETACHED | COARSE) and not decides):
        active.add("detached")
    return active
