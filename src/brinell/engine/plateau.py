"""Check of where attacks ended: whether robust samples lie on plateaus of the margin.

An attack that stands where the margin is flat ends there, however near the boundary is: the sample
was not attacked further, which is no evidence of robustness. A short attack leads into the budget
of each robust sample, and the gain that the gradient promises there is compared with the margin
that is still missing: not the gain within the budget, since deep in its class a sound model
promises little for a small one, but that on the whole way to the nearest input of another class.
If even the steepest way makes less than `FLAT` of what is missing, the margin falls somewhere else
than where the attack is, and not by its gradient.

Pintor et al. 2022 (Indicators of attack failure) name attacks that stop on plateaus, and look at
the loss along the steps of one attack. No source for the comparison with the way is known.
"""

import torch
from torch import Tensor

from brinell import plugins
from brinell.core.attack import attack
from brinell.core.checks import Code, Finding
from brinell.core.contracts import Attack
from brinell.core.model import Access, Model
from brinell.core.oracle import Batch
from brinell.core.streams import Streams
from brinell.core.threat import Threat, size
from brinell.engine.context import CheckContext, NotMadeError

SAMPLES = 24
"""Largest number of robust samples of which the ends are looked at."""
STEPS = 8
"""Steps of the attack that leads there."""
FLAT = 0.1
"""Share of the missing margin that the gradient promises on the way to another class, below which a
sample lies on a plateau: sound networks promise half of it at least (docs/results/checks.md)."""
LIMIT = 0.05
"""Share of the robust samples that may lie on one."""
NORMS = ("linf", "l2", "l1")
"""Distances by which a gradient promises something by the way."""
FEWEST = 5
"""Fewest samples of a first look."""
UNDECIDED = "no attack has ended yet"


def check_plateaus(
    model: Model, batch: Batch, threat: Threat, right_inputs: Batch, rng: Streams, batch_size: int
) -> tuple[Finding, int, int]:
    """The finding on robust samples, with ids 0 to n-1, and the forwards and backwards that it cost.

    `right_inputs` are of all classes, from which the way to another class is taken.
    """
    if model.access < Access.GRADIENTS:
        raise NotMadeError(f"the model gives {model.access.name.lower()} only")
    if threat.distance.name not in NORMS:
        raise NotMadeError(f"a gradient promises nothing by the way in {threat.distance.name}")

    climb: Attack = plugins.build("attack", "apgd", {"loss": "margin", "steps": STEPS})
    ledger, _ = attack(model, batch, threat, climb, rng, batch_size=batch_size, strongest=True)

    ids = (~ledger.fooled).nonzero()[:, 0]
    k = 0
    if len(ids):
        answer = ledger.oracle().gradient(ids, ledger.movable(ledger.strongest)[ids])
        k = int(are_flat(threat, batch.select(ids), answer.grad, answer.loss, right_inputs).sum())

    finding = Finding.of_share(
        Code.PLATEAU,
        k,
        len(ids),
        LIMIT,
        f"on {k} of {len(ids)} robust samples an attack ends on a plateau: its gradient promises less "
        f"than {100 * FLAT:.0f} % of the missing margin on the whole way to another class",
        "there the sample was not attacked further; rely on attacks by labels (--attack ray-s)",
        fewest=1,
    )
    return finding, int(ledger.costs.forwards.sum()), int(ledger.costs.backwards.sum())


def first_look(context: CheckContext) -> Finding:
    """The finding where the steps of another check end on no plateau; attacks decide the rest."""
    # The steps of the check of misleading gradients, whose ends are with the samples that it took:
    # all, or those of its first look.
    look = context if context.few is None or context.ends is not None else context.few
    if look.ends is None or len(look.ends[0]) < FEWEST or look.distance.name not in NORMS:
        raise NotMadeError(UNDECIDED)
    ids, grad, margin = look.ends
    # Of the threat only the distance and the domain are read: its eps stands for nothing.
    threat = Threat(distance=look.distance, eps=margin, domain=look.model.domain)
    if bool(are_flat(threat, look.clean.select(ids), grad, margin, context.clean).any()):
        raise NotMadeError(UNDECIDED)
    text = f"of {len(ids)} samples that a short attack leaves robust none lies on a plateau there"
    return Finding(code=Code.PLATEAU, passed=True, text=text, figure=0.0, limit=LIMIT)


def are_flat(
    threat: Threat, batch: Batch, grad: Tensor, margin: Tensor, right_inputs: Batch
) -> Tensor:
    """(n,) bool: which samples lie on a plateau, by gradients (n, *shape) and margins (n,) there."""
    # What a unit of distance promises; margins of robust samples are negative.
    slope = (grad * threat.distance.ascent(grad)).flatten(1).sum(1).nan_to_num(0.0)
    return slope * way_to_others(threat, batch.x, batch.y, right_inputs) < FLAT * -margin


def way_to_others(threat: Threat, x: Tensor, y: Tensor, right_inputs: Batch) -> Tensor:
    """(n,): distance of inputs (n, *shape) from the nearest of `right_inputs` of another class than theirs
    (n,); where there is none, to the farthest corner of the bounds.
    """
    low, high = threat.domain.bounds(x)
    way = size(threat.distance, torch.where(x - low > high - x, low, high), x)
    for row in range(len(x)):
        rivals = right_inputs.x[right_inputs.y != y[row]]
        if len(rivals):
            way[row] = size(threat.distance, rivals, x[row].expand_as(rivals)).amin()
    return way
