"""Work on many samples in portions, which are smaller where memory is short or the model fails."""

from collections.abc import Iterator

import numpy as np
import torch

from brinell.core.errors import BatchError, MemoryShortError, ModelError, SampleError
from brinell.core.memory import release_memory
from brinell.core.model import Model
from brinell.core.record import Array
from brinell.engine.batch_sizer import BatchSizer
from brinell.engine.group_attack import predict
from brinell.engine.plan import BATCHES

FAILURES = (SampleError, BatchError, MemoryShortError, RuntimeError)
"""Errors after which a portion may be worked on again."""


class Portions:
    """Iterates over positions (n,), portion after portion.

    The results of a sample do not depend on the others of its portion. So a portion for which
    memory is short comes again in smaller ones, and one on which the model fails in halves, down to
    the single samples on which it does. A `whole` is cut only where the model fails.
    """

    def __init__(
        self,
        index: Array,
        sizer: BatchSizer,
        model: Model,
        device: torch.device,
        *,
        whole: bool = False,
    ) -> None:
        self._waiting = [index]
        """Positions to work on, the next ones last."""
        self._sizer, self._model, self._device = sizer, model, device
        self._was_short = False
        self._whole = whole

    def __iter__(self) -> Iterator[Array]:
        while self._waiting:
            portion = self._waiting.pop()
            most = BATCHES * self._sizer.size
            if len(portion) > most and not self._whole:
                self._waiting.append(portion[most:])
                portion = portion[:most]

            # Not before: the error that was handled referenced the memory of the failed attempt.
            if self._was_short:
                release_memory()
                self._was_short = False
            yield portion

    def comes_again(self, portion: Array, error: Exception) -> bool:
        """True if a portion comes again after one of `FAILURES`.

        A single sample on which the model fails does not.

        Raises:
            Exception: the error, if smaller portions do not help.
        """
        if not isinstance(error, (SampleError, BatchError)):
            self._sizer.halve(error)
            self._was_short = True
            self._waiting.append(portion)
            return True

        if len(portion) > 1:
            first, second = np.split(portion, [len(portion) // 2])
            self._waiting += [second, first]
            return True
        # A model that fails on any input is at fault itself, and not the sample.
        if isinstance(error, BatchError) and not self._answers_other_inputs():
            raise error
        return False

    def _answers_other_inputs(self) -> bool:
        """True if the model answers an input that is none of the samples."""
        domain = self._model.domain
        x = domain.clamp(torch.zeros(1, *domain.shape, device=self._device))
        try:
            return bool(torch.isfinite(predict(self._model, x, 1)).all())
        except ModelError:
            return False
