"""Measures whether robustness generalises to changes that the training did not use: another norm, and every distortion.

Each row counts pairs of answers of the model before and after, on the same samples. PGD with 20 steps attacks in the other norm
and gives an upper
bound on robust accuracy there. Distortions cover whole inputs at severity 3.
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
from brinell.distortions._shared import suite_of
from brinell.rlab.variants import distorted
from brinell.studies.harden.records import SEVERITY, STEPS, distortion_row_name, pgd_row_name
from brinell.training.checks import is_correct
from brinell.training.recipe import Recipe, TrainedNetwork

OTHER_NORM = {"linf": "l2", "l2": "linf"}
Transform = Callable[[TrainedNetwork], Tensor]
"""Maps a network to the (n, *shape) inputs on which it is evaluated."""


def other_eps(norm: str, eps: float, domain: Domain) -> float:
    """A budget in the other norm of about the same difficulty: for L2, a quarter of half the diagonal of the Linf cube.

    For CIFAR-10 at Linf 8/255 it is 0.43, and for MNIST at 0.3 it is 2.1; the field uses 0.5 and 2.
    """
    ratio = math.sqrt(math.prod(domain.free.shape)) / 4
    return eps * ratio if norm == "linf" else eps / ratio


def measure(
    before: TrainedNetwork,
    after: TrainedNetwork,
    x: Tensor,
    y: Tensor,
    ids: Tensor,
    domain: Domain,
    recipe: Recipe,
    learned_distortions: Collection[str],
    *,
    norm: str,
    eps: float,
    seed: int,
) -> list[dict[str, Any]]:
    """Count the correct answers of both networks under every distortion and under PGD in both norms.

    Args:
        before: the network before the training.
        after: the network after the training.
        x: (n, *shape) clean inputs.
        y: (n,) their classes.
        ids: (n,) int64 positions in the data, which seed each sample's random stream.
        domain: the input domain.
        recipe: the training recipe.
        learned_distortions: distortions of the stored examples that the training used.
        norm: the norm of the training.
        eps: the training budget.
        seed: random seed.

    Returns:
        For each change its name, whether the training used it, and the counts of pairs.
    """
    trained_types = {type(distortion) for part in recipe.parts for distortion in getattr(part, "distortions", ())}
    rows = []
    for name in plugins.names("distortion"):
        distortion = plugins.build("distortion", name, {})
        fits = domain.kind in distortion.domains and distortion.access == Access.LABELS
        if fits and suite_of(distortion) == "calibrated":
            rng = Streams.of(seed, ids).fold(name)
            inputs = distorted(distortion, x, SEVERITY, rng, domain=domain)
            trained = type(distortion) in trained_types or name in learned_distortions
            row = _row(distortion_row_name(name), trained, before, after, lambda _, s=inputs: s, y)  # type: ignore[misc]
            rows.append(row | {"distortion": name})
    for distance, radius in ((norm, eps), (OTHER_NORM[norm], other_eps(norm, eps, domain))):
        attacked = _attacked(x, y, domain, distance, radius, seed)
        rows.append(_row(pgd_row_name(distance, radius), recipe.budgeted and distance == norm, before, after, attacked, y))
    return rows


def _attacked(x: Tensor, y: Tensor, domain: Domain, norm: str, eps: float, seed: int) -> Transform:
    attack = plugins.build("defence", "pgd", {"steps": STEPS})
    distance = plugins.build("distance", norm, {})

    def transform(network: TrainedNetwork) -> Tensor:
        """The inputs attacked against this network."""
        batch = Batch(ids=torch.arange(len(x), device=x.device), x=x, y=y)
        threat = Threat(distance=distance, eps=torch.full((len(x),), eps, device=x.device), domain=domain)
        with network.evaluation_mode():
            examples: Tensor = attack.craft(network.predict, batch, threat, torch.Generator(x.device).manual_seed(seed))
        return examples

    return transform


def _row(name: str, seen: bool, before: TrainedNetwork, after: TrainedNetwork, transform: Transform, y: Tensor) -> dict[str, Any]:
    """Counts of right answers before and after the training under a transform."""
    old, new = (is_correct(network, transform(network), y) for network in (before, after))
    counts = {"both": old & new, "only_after": new & ~old, "only_before": old & ~new, "neither": ~(old | new)}
    return {"name": name, "seen": seen} | {key: int(value.sum()) for key, value in counts.items()}
