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
        self.size = size
        self._on_reduction = on_reduction

    def fit(self, work: Callable[[], Result]) -> Result:
        """Call `work`, which reads `size`; halve the size and call it again while memory runs out,
        down to size 1.
        """
        while True:
            try:
                return work()
            except (MemoryShortError, RuntimeError) as error:
                self.halve(error)
            # Outside the except block, because the error references the memory of the failed
            # attempt.
            release_memory()

    def halve(self, error: Exception) -> None:
        """Halve the size because of an error.

        Raises:
            MemoryShortError: the size is 1.
            Exception: the error itself, if it is about something else than memory.
        """
        is_ours = isinstance(error, MemoryShortError)
        if not is_ours and not is_memory_short(error):
            raise error
        if self.size == 1:
            if is_ours:
                raise error
            raise MemoryShortError(
                f"an attack on one input alone does not fit into memory ({one_line(error)}): try "
                f"{option('device', 'cpu')}, or one with more memory; what was computed is kept"
            ) from error

        previous = self.size
        self.size //= 2
        text = (
            f"memory was short for batches of {previous} inputs: from there on they hold "
            f"{self.size}"
        )
        self._on_reduction(Remark(f"batch-{self.size}", text))
