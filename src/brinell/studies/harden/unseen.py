"""Whether robustness carries over to what was not trained on: another norm, and every distortion of such inputs.

Each row is the model before and after on the same samples, as counts of pairs. The other norm is attacked by PGD
of twenty steps, which bounds its robust accuracy from above; distortions are laid over whole inputs at severity 3.
"""

import math
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor

from brinell import plugins
from brinell.core.domain import Domain
from brinell.core.model import Access
from brinell.core.oracle import Batch
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.distortions._published import Published
from brinell.rlab.variants import distorted
from brinell.studies.harden.records import SEVERITY, STEPS, attacked_by, distorted_by
from brinell.training.checks import correct
from brinell.training.recipe import Recipe, Trained

OTHER = {"linf": "l2", "l2": "linf"}
Changed = Callable[[Trained], Tensor]
"""A network to the (n, *shape) inputs that it is shown."""


def other_eps(norm: str, eps: float, domain: Domain) -> float:
    """A budget in the other norm of about the same difficulty: in L2 a quarter of half the diagonal of the Linf cube.

    It is 0.43 for CIFAR-10 at 8/255 in Linf and 2.1 for MNIST at 0.3, where the field takes 0.5 and 2.
    """
    ratio = math.sqrt(math.prod(domain.free.shape)) / 4
    return eps * ratio if norm == "linf" else eps / ratio


def measure(
    before: Trained,
    after: Trained,
    x: Tensor,
    y: Tensor,
    ids: Tensor,
    domain: Domain,
    recipe: Recipe,
    made_by: Collection[str],
    *,
    norm: str,
    eps: float,
    seed: int,
) -> list[dict[str, Any]]:
    """What both networks get right of inputs that were changed in ways that were not trained on, and in those that were.

    Args:
        before: the network as it was.
        after: the network as it is.
        x: (n, *shape) clean inputs.
        y: (n,) their classes.
        ids: (n,) int64 positions in the data, by which streams are told apart.
        domain: where they live.
        recipe: what was trained with.
        made_by: names of the distortions that ready-made inputs were made by, which were learned.
        norm: the norm of the training.
        eps: its budget.
        seed: of what is drawn.

    Returns:
        For each change its name, whether it was trained on, and counts of pairs.
    """
    placed = {type(one) for part in recipe.parts for one in getattr(part, "distortions", ())}
    found = []
    for name in plugins.names("distortion"):
        one = plugins.build("distortion", name, {})
        if domain.kind in one.domains and one.access == Access.LABELS and not isinstance(one, Published):
            rng = Streams.of(seed, ids).fold(name)
            shown = distorted(one, x, SEVERITY, rng, domain=domain)
            seen = type(one) in placed or name in made_by
            row = _row(distorted_by(name), seen, before, after, lambda _, s=shown: s, y)  # type: ignore[misc]
            found.append(row | {"distortion": name})
    for distance, radius in ((norm, eps), (OTHER[norm], other_eps(norm, eps, domain))):
        shown_by = _attacked(x, y, domain, distance, radius, seed)
        found.append(_row(attacked_by(distance, radius), recipe.budgeted and distance == norm, before, after, shown_by, y))
    return found


def _attacked(x: Tensor, y: Tensor, domain: Domain, norm: str, eps: float, seed: int) -> Changed:
    attack = plugins.build("defence", "pgd", {"steps": STEPS})
    distance = plugins.build("distance", norm, {})

    def changed(network: Trained) -> Tensor:
        batch = Batch(ids=torch.arange(len(x), device=x.device), x=x, y=y)
        threat = Threat(distance=distance, eps=torch.full((len(x),), eps, device=x.device), domain=domain)
        with network.attacked():
            made: Tensor = attack.craft(network.predict, batch, threat, torch.Generator(x.device).manual_seed(seed))
        return made

    return changed


def _row(name: str, seen: bool, before: Trained, after: Trained, changed: Changed, y: Tensor) -> dict[str, Any]:
    old, new = (correct(one, changed(one), y) for one in (before, after))
    counts = {"both": old & new, "only_after": new & ~old, "only_before": old & ~new, "neither": ~(old | new)}
    return {"name": name, "seen": seen} | {key: int(value.sum()) for key, value in counts.items()}
