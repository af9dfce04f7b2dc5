"""Several models as one: the mean of their logits.

Dong et al. 2018, Boosting adversarial attacks with momentum, section 3.3, equation 7, with equal weights: of the three fusions
that it compares, that of logits makes the examples that transfer best.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from brinell.core.errors import RequestError
from brinell.core.model import Access, Model, ModelInfo


class Ensemble:
    """A model whose logits are the mean of those of its members, which are ready to be asked."""

    def __init__(self, members: Sequence[Model]) -> None:
        """Join the members.

        Args:
            members: models over one domain.

        Raises:
            RequestError: they tell different numbers of classes apart.
        """
        if len({one.classes for one in members}) > 1:
            told = ", ".join(f"{one.name} {one.classes}" for one in members)
            raise RequestError(f"models that tell different numbers of classes apart cannot be attacked as one: {told}")
        self._members = tuple(members)
        self.name = "+".join(one.name for one in members)
        self.domain, self.classes = members[0].domain, members[0].classes
        self.access = Access(min(one.access for one in members))
        self.info = ModelInfo(answers="logits")

    def predict(self, x: Tensor) -> Tensor:
        """(n, *shape) to the mean of the members' logits (n, classes)."""
        return torch.stack([one.predict(x) for one in self._members]).mean(0)

    def digest(self) -> str:
        """Over those of the members."""
        told = " ".join(one.digest() for one in self._members)
        return hashlib.blake2b(told.encode(), digest_size=16).hexdigest()
