"""How many inputs the model of a run is shown at once, where its device has less memory than was thought."""

import gc
from collections.abc import Callable
from typing import TypeVar

import torch

from brinell.core.errors import MemoryShortError
from brinell.core.model import Remark

Made = TypeVar("Made")


class Room:
    """The size of the batches: what was asked for until memory is short, then a half of it from there on.

    A sample's results do not depend on its company, so that half of a batch gives what the whole one would have given. What was
    computed when memory ran out is lost, and is not in the counts of the records.

    Args:
        size: the most inputs that the model is shown at once.
        told: given a remark each time that this becomes fewer.
    """

    def __init__(self, size: int, told: Callable[[Remark], None]) -> None:
        self.size, self._asked, self._told = size, size, told

    @property
    def short(self) -> bool:
        """Whether memory was short so far."""
        return self.size < self._asked

    def fit(self, work: Callable[[], Made]) -> Made:
        """What `work` returns, which looks at `size` and is called again with a smaller one while memory is short, down to 1."""
        while True:
            try:
                return work()
            except (MemoryShortError, torch.OutOfMemoryError) as error:
                if self.size == 1:
                    if isinstance(error, MemoryShortError):
                        raise
                    raise MemoryShortError(f"an attack on one input alone does not fit into memory: {error}") from error
            # Only here, since the error held what the failed attempt had in memory.
            gc.collect()
            torch.cuda.empty_cache()
            before, self.size = self.size, self.size // 2
            self._told(
                Remark(
                    f"batch-{self.size}", f"memory was short for batches of {before} inputs: from there on they hold {self.size}"
                )
            )
