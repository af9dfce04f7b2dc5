"""A second set of a ledger's books, by which it sees that somebody else wrote into the first."""

from typing import Any

import torch
from torch import Tensor

COUNTS = ("forwards", "backwards", "first_success", "distance", "best_margin")
"""What changes with every answer: small, and held against its copy before the next one."""
FOUND = ("closest", "answer")
"""What changes with a success: large, and held against its copy at the end."""


class Books:
    """Copies of what a ledger holds of each sample.

    Args:
        ledger: the ledger, before its first query.
    """

    def __init__(self, ledger: Any) -> None:
        self._counts = {name: getattr(ledger, name).clone() for name in COUNTS}
        self._found: dict[str, Tensor] = {}

    def agree(self, ledger: Any) -> Tensor:
        """A bool without axes: whether the counts are what they were after the last answer."""
        same = [(getattr(ledger, name) == kept).all() for name, kept in self._counts.items()]
        return torch.stack(same).all()

    def keep(self, ledger: Any) -> None:
        """Copy the counts, after an answer."""
        for name, kept in self._counts.items():
            kept.copy_(getattr(ledger, name))

    def note(self, found: Tensor, **values: Tensor) -> None:
        """Copy what was found for the samples `found` (m,): `closest` (m, *shape) and `answer` (m, classes)."""
        for name, rows in values.items():
            self._found[name][found] = rows

    def begin(self, **values: Tensor) -> None:
        """Copy what there was before the first success."""
        for name, rows in values.items():
            self._found.setdefault(name, rows.clone())

    def whole(self, ledger: Any) -> bool:
        """Whether everything is what the ledger itself wrote."""
        if not bool(self.agree(ledger)):
            return False
        return all(torch.equal(getattr(ledger, name), kept) for name, kept in self._found.items())
