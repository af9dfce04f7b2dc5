"""Batch sizes that shrink when the device runs out of memory."""

from collections.abc import Callable
from typing import TypeVar

from brinell.core.data import Remark
from brinell.core.errors import MemoryShortError, one_line, option
from brinell.core.memory import is_memory_short, release_memory

Result = TypeVar("Result")


class BatchSizer:
    """A batch size that halves each time memory runs out.

    A sample's results do not depend on the other samples of its batch, so smaller batches give the
    same results. Work that was interrupted by the lack of memory is lost and does not appear in the
    counts of the records. Each halving calls `on_reduction` with a remark.
    """

    def __init__(self, size: int, on_reduction: Callable[[Remark], None]) -> None:
        self.size, self._on_reduction = size, on_reduction

    def fit(self, work: Callable[[], Result]) -> Result:
        """Call `work`, which reads `size`; halve the size and call it again while memory runs out,
        down to size 1.
        """
        while True:
            try:
                return work()
            except (MemoryShortError, RuntimeError) as error:
                if not isinstance(error, MemoryShortError) and not is_memory_short(error):
                    raise
                if self.size == 1:
                    if isinstance(error, MemoryShortError):
                        raise
                    raise MemoryShortError(
                        "an attack on one input alone does not fit into memory "
                        f"({one_line(error)}): try "
                        f"{option('device', 'cpu')}, or one with more memory; "
                        "what was computed is kept"
                    ) from error
            # Outside the except block, because the error references the memory of the failed
            # attempt.
            release_memory()
            previous, self.size = self.size, self.size // 2
            self._on_reduction(
                Remark(
                    f"batch-{self.size}",
                    f"memory was short for batches of {previous} inputs: from "
                    f"there on they hold {self.size}",
                )
            )
