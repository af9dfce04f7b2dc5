"""What an alarm changes: which of the stages that wait for one run, and whose gradients they follow.

A stage may wait for a condition (`when=`), and may follow another gradient than the model's own (`gradient=`). Both are decided
by the checks and by what earlier stages found, so that a run that goes on decides alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

import torch

from brinell.core.checks import GOOD, Code
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

When = Literal["masked", "blind", "random", "suspected"]
"""masked: a check says that gradients mislead, or attacks that need them cannot run. blind: the gradient is missing or wrong, and
no repair was found that finite differences agree with. random: the model answers the same input differently each time. suspected:
an attack without gradients broke a sample that those with them did not; a find of a stage that waited for this is reason to
spend the full budget (masked)."""
WHEN: frozenset[str] = frozenset(get_args(When))

Source = Literal["own", "repaired", "surrogate"]
"""Whose gradient a stage follows: the model's own, the same with the identity or a fitted network in the place of what breaks it
(BPDA), or that of the model that `--surrogate` names."""
SOURCES: frozenset[str] = frozenset(get_args(Source))

BROKEN: frozenset[str] = frozenset({Code.ZERO, Code.MISMATCH, Code.MISLEADING, Code.UNCONSTRAINED})
"""Failed checks after which a way around the gradient is looked for."""
MENDED: frozenset[str] = BROKEN | {Code.REJECTION}
"""Those that a way around settles, where finite differences agree with it."""
CLIMB = 8
"""Steps by which repairs are compared."""


@dataclass(frozen=True)
class Repair:
    """A model that answers as another does, with a gradient that leads where its own does not."""

    model: Model
    way: str
    """What stands in for what, such as "the identity for module 1"."""
    text: str
    """What was done and what it gained, in one line."""
    disagreement: float
    """What finite differences say of the new gradient: 0 is perfect, 1 is chance."""


def find_repair(
    model: Model,
    batch: Batch,
    distance: Distance,
    eps: float,
    rng: Streams,
    *,
    batch_size: int,
    dropped: repair.Dropped = lambda way: None,
) -> tuple[Repair | None, int, int]:
    """The best way around a gradient that is missing or wrong; None where there is none that leads.

    Of several the one is taken along which a few steps within the budget raise the margin most. Finite differences then tell
    whether it is the gradient of the answers, which one straight through a rounding never is, however well it leads.

    Args:
        model: the model.
        batch: inputs that it classifies correctly, with ids 0 to n-1.
        distance: norm of `eps`.
        eps: the largest budget, above 0; infinite where there is none.
        rng: one stream per sample.
        batch_size: the most inputs shown to the model at once.
        dropped: told of ways that were given up since the model fails with them, each with the reason.

    Returns:
        The repair, and the forwards and backwards that the search cost.
    """
    faults = repair.culprits(model, batch.x, dropped)
    tried = dict(repair.candidates(model, batch.x, faults, dropped))
    if not tried:
        return None, 0, 0
    budget = torch.full((len(batch),), min(eps, extent(distance, model.domain)), device=batch.x.device)
    threat = Threat(distance=distance, eps=budget, domain=model.domain)
    whole = replace(threat, eps=torch.full_like(budget, extent(distance, model.domain)))
    forwards = backwards = 0
    climbed, agreed = {}, {}
    for text, other in {"": model, **tried}.items():
        climb, check = (Ledger(other, batch, one, batch_size=batch_size, minimal=True) for one in (threat, whole))
        tell = partial(_tell, dropped, text)
        climbed[text], agreed[text] = _climb(climb, tell), disagreement_of(check, distance, eps, rng, tell)
        for ledger in (climb, check):
            forwards, backwards = forwards + int(ledger.costs.forwards.sum()), backwards + int(ledger.costs.backwards.sum())
    best = max(tried, key=lambda text: climbed[text])
    if not climbed[best] > 0:
        return None, forwards, backwards
    told = (
        f"attacked with {best} (BPDA): {CLIMB} steps raise the margin by {climbed[best]:.3g} in the mean, by {climbed['']:.3g} "
        f"along the model's own gradient; finite differences disagree by {agreed[best]:.2f}, {agreed['']:.2f} before"
    )
    return Repair(tried[best], best, told, agreed[best]), forwards, backwards


def _tell(dropped: repair.Dropped, way: str, why: str) -> None:
    """Tell why a way was given up; that the model's own gradient fails is what its checks say."""
    if way:
        dropped(f"{way}: {why}")


def smooth_rejection(
    model: Model,
    before: Repair | None,
    batch: Batch,
    distance: Distance,
    eps: float,
    rng: Streams,
    reject: int,
    *,
    batch_size: int,
    dropped: repair.Dropped = lambda way: None,
) -> tuple[Repair | None, int, int]:
    """A smooth rule in the place of a reject class that is decided without a slope; what there was `before` where none fits.

    The other arguments are those of `find_repair`, and `reject` is the class; the second value are the forwards and backwards.
    """
    base = model if before is None else before.model
    try:
        looked, first = rejection.look(base, batch, distance, eps, reject, batch_size=batch_size)
    except ModelError as error:
        dropped(f"a smooth rule fitted to the rejections ({one_line(error, 120)})")
        return before, 0, 0
    rule = rejection.fitted(looked, reject)
    spent = int(first.costs.forwards.sum()), int(first.costs.backwards.sum())
    if rule is None:
        return before, *spent
    made = rejection.Smoothed(base, rule)
    whole = torch.full((len(batch),), extent(distance, model.domain), device=batch.x.device)
    threat = Threat(distance=distance, eps=whole, domain=model.domain, criterion=NotRejected(reject))
    ledger = Ledger(made, batch, threat, batch_size=batch_size, minimal=True)
    way = "a smooth rule fitted to the rejections" + (f" and {before.way}" if before is not None else "")
    disagreement = disagreement_of(ledger, distance, eps, rng, partial(_tell, dropped, way))
    told = (
        f"attacked with {way}: it judges at most {100 * rule.wrong:.0f} % of the accepted or of the rejected inputs otherwise; "
        f"finite differences disagree by {disagreement:.2f}"
    )
    cost = int(ledger.costs.forwards.sum()), int(ledger.costs.backwards.sum())
    return Repair(made, way, told, disagreement), spent[0] + cost[0], spent[1] + cost[1]


def _climb(ledger: Ledger, dropped: repair.Dropped) -> float:
    """The mean rise of the margin after a few steps along the gradient within the budget; minus infinity where there is none."""
    oracle, batch, threat = ledger.oracle(), ledger.batch, ledger.threat

    def climb() -> float:
        x = batch.x
        first = oracle.loss(batch.ids, x)
        for _ in range(CLIMB):
            grad = oracle.gradient(batch.ids, x).grad
            step = threat.distance.ascent(grad) * per_sample(2.5 / CLIMB * threat.eps, x)
            x = threat.project(x + step, batch.x)
        return float((oracle.loss(batch.ids, x) - first).mean())

    risen = repair.attempted(climb, "climbing", dropped)  # a stand-in may not fit what the model is given next
    return -torch.inf if risen is None else risen


def disagreement_of(ledger: Ledger, distance: Distance, eps: float, rng: Streams, dropped: repair.Dropped) -> float:
    """What the closer look says of a gradient; infinite where it cannot be had."""
    oracle, batch, domain = ledger.oracle(), ledger.batch, ledger.threat.domain

    def look() -> float:
        grad = oracle.gradient(batch.ids, batch.x).grad
        check = GradientCheck(oracle, batch, grad, distance=distance, eps=eps, domain=domain, rng=rng.fold("differences"))
        return check.look().disagreement if bool((grad != 0).any()) else 1.0

    found = repair.attempted(look, "finite differences", dropped)
    return torch.inf if found is None else found


def conditions(failed: Mapping[str, str], *, incomplete: bool, masking: frozenset[str], repaired: Repair | None) -> set[str]:
    """Which of `When` hold after the checks, by the `failed` ones and their codes, and by the repair that was found.

    `incomplete` says whether stages that wait for nothing cannot run on the model; `masking` are codes that mean that gradients
    mislead.
    """
    found = set()
    mended = repaired is not None and repaired.disagreement <= GOOD
    if incomplete or failed.keys() & (masking - MENDED if mended else masking):
        found.add("masked")
    if failed.keys() & {Code.ZERO, Code.MISMATCH} and not mended:
        found.add("blind")
    if Code.RANDOM in failed:
        found.add("random")
    return found
