"""What an audit knows of each sample between two stages."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from brinell.core.record import Outcome, Records

Array = np.ndarray[Any, Any]


@dataclass
class State:
    """What is known of each sample of a model; arrays of length n, in the order of the plan's ids."""

    target: Array | None
    """(n,) target classes; None where any wrong class counts."""
    clean_pred: Array
    clean_confidence: Array
    correct: Array
    failed: Array
    """Which samples could not be judged in the first check."""
    broken: Array
    """Index of the smallest level that any attack so far broke the sample at; the number of levels for none."""
    clean_margin: Array
    """Lead of the true class on the clean input, in logits."""
    nearest: Array
    """Largest lead of a wrong class that the attacks came to which failed at the budget now open; minus the clean margin before
    the first."""
    last: Array
    """The same of the stage just before; minus infinity where it did not attack, or did not fail."""

    @classmethod
    def of(cls, clean: Records, levels: Array, *, targeted: bool) -> "State":
        """What the rows of the first check (n) say, before the first of the stages over `levels`."""
        return cls(
            target=np.ma.getdata(clean.target) if targeted else None,
            clean_pred=clean.clean_pred,
            clean_confidence=clean.clean_confidence,
            correct=clean.outcome == Outcome.CORRECT,
            failed=clean.outcome == Outcome.FAILED,
            broken=np.full(len(clean), len(levels)),
            clean_margin=-np.ma.getdata(clean.best_margin),
            nearest=np.ma.getdata(clean.best_margin).copy(),
            last=np.full(len(clean), -np.inf),
        )

    def note(self, parts: Iterable[Records], ids: Array, levels: Array) -> Array:
        """Take in what the rows of a stage say; returns the positions of the samples that it fooled, each as often as it did.

        Args:
            parts: all rows of the stage, in any number of pieces.
            ids: (n,) the samples, ascending.
            levels: the positive budgets, ascending.
        """
        before, founds = self.nearest, [np.zeros(0, np.int64)]
        self.last = np.full(len(ids), -np.inf)
        for records in parts:
            at, outcome = np.searchsorted(ids, records.sample_id), records.outcome
            fooled, margin = outcome == Outcome.FOOLED, records.best_margin
            np.minimum.at(self.broken, at[fooled], np.searchsorted(levels, records.eps[fooled]))
            failed = (outcome == Outcome.SURVIVED) & ~np.ma.getmaskarray(margin)
            self.last[at[failed]] = np.ma.getdata(margin)[failed]
            founds.append(at[fooled])
        found = np.concatenate(founds)
        self.nearest = np.maximum(before, self.last)
        # What came near at a larger budget says nothing of this one; a minimal attack does not tell where it failed.
        self.nearest[found] = np.where(np.isinf(self.last[found]), before[found], self.last[found])
        return found
