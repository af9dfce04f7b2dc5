"""Changes of inputs under which a network is measured before and after a training: distortions, PGD
and RLAB.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from brinell import plugins
from brinell.core import norms
from brinell.core.attack import attack
from brinell.core.contracts import Distortion, Domain
from brinell.core.model import Model
from brinell.core.oracle import Batch
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.rlab.distort import distorted
from brinell.training.checks import is_correct
from brinell.training.recipe import TrainedNetwork

OTHER_NORM = {"linf": "l2", "l2": "linf"}


class Changed(NamedTuple):
    """The inputs of a batch after a change."""

    x: Tensor
    """(n, *shape)."""
    queries: Tensor | None = None
    """(n,) until the first success, all of them where there is none; None if nothing is asked."""


Change = Callable[[Batch, Model], Changed]
"""Changes samples for a model."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Changes of the inputs of a domain; each draws from the seed and the numbers of
    the samples.
    """

    domain: Domain
    seed: int

    def distort(
        self, batch: Batch, model: Model, *, name: str, distortion: Distortion, severity: int
    ) -> Changed:
        """A distortion of whole inputs."""
        rng = Streams.of(self.seed, batch.ids).fold(name)
        return Changed(distorted(distortion, batch.x, severity, rng, domain=self.domain))

    def climb(self, batch: Batch, model: Model, *, norm: str, eps: float, steps: int) -> Changed:
        """PGD on the cross-entropy."""
        rng = torch.Generator(batch.x.device).manual_seed(self.seed)
        pgd = plugins.build("defence", "pgd", {"steps": steps})
        network = TrainedNetwork.of(model)
        with network.evaluation_mode():
            return Changed(pgd.craft(network.predict, batch, self._threat(batch, norm, eps), rng))

    def search(self, batch: Batch, model: Model, *, eps: float, queries: int) -> Changed:
        """The closest success of RLAB in L2; the clean input where there is none."""
        rlab = plugins.build("attack", "rlab", {"steps": queries, "clean_up": False})
        rng = Streams.of(self.seed, batch.ids).fold("rlab")
        samples = Batch.of(batch.x, batch.y)
        with TrainedNetwork.of(model).evaluation_mode():
            ledger, _ = attack(model, samples, self._threat(batch, "l2", eps), rlab, rng)

        # The query about the clean input precedes the steps; where there is no success all of them
        # were asked.
        asked = torch.where(ledger.fooled, ledger.best.first_success, queries + 1)
        fooled = norms.per_sample(ledger.fooled, batch.x)
        return Changed(torch.where(fooled, ledger.best.closest, batch.x), asked.double())

    def _threat(self, batch: Batch, norm: str, eps: float) -> Threat:
        budgets = torch.full((len(batch),), eps, device=batch.x.device)
        return Threat(distance=plugins.build("distance", norm), eps=budgets, domain=self.domain)


def answers(batch: Batch, model: Model, changed: Changed, name: str) -> dict[str, Array]:
    """What the model says after a change, as columns (n,): whether it is right, by `name`, the L2
    distance, and the queries where any are asked.
    """
    columns = {
        name: is_correct(TrainedNetwork.of(model), changed.x, batch.y),
        f"l2_{name}": norms.l2(changed.x - batch.x),
    }
    if changed.queries is not None:
        columns[f"queries_{name}"] = changed.queries
    return {column: values.cpu().numpy() for column, values in columns.items()}


def other_eps(norm: str, eps: float, domain: Domain) -> float:
    """A budget in the other norm of about the same difficulty: for L2, a quarter of half the
    diagonal of the Linf cube.

    For CIFAR-10 at Linf 8/255 it is 0.43, and for MNIST at 0.3 it is 2.1; the field uses 0.5 and 2.
    """
    # Half the diagonal of a cube of half side 1 in d dimensions is sqrt(d).
    ratio = math.sqrt(math.prod(domain.free.shape)) / 4
    return eps * ratio if norm == "linf" else eps / ratio
