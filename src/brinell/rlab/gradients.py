"""The gradient at each clean input, for distortions that need it. It is computed once for each sample."""

import torch
from torch import Tensor

from brinell.core.batch import Batch
from brinell.core.oracle import Oracle


class Gradients:
    """Gradients of the criterion's margin at the samples of a batch. Each costs its sample one forward and one backward."""

    def __init__(self, oracle: Oracle, batch: Batch) -> None:
        self._oracle, self._batch = oracle, batch
        self._known = torch.zeros(len(batch), dtype=torch.bool, device=batch.x.device)
        self._held = torch.zeros(0)

    def __call__(self, sample: Tensor) -> Tensor:
        """(m, *shape): of the samples at these positions (m,) in the batch."""
        if not len(self._held):
            self._held = torch.zeros_like(self._batch.x)
        new = torch.unique(sample[~self._known[sample]])
        if len(new):
            batch = self._batch.select(new)
            self._held[new] = self._oracle.gradient(batch.ids, batch.x, None).grad
            self._known[new] = True
        return self._held[sample]
