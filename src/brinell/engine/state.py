"""State of each sample between two stages."""

from dataclasses import dataclass

import numpy as np
import torch

from brinell.core.record import Array, Outcome, Records, has_broken
from brinell.core.streams import Streams
from brinell.engine.cascade import Stage
from brinell.engine.plan import Plan

LEAST_SHARE = 24
"""A share of the samples of a run is that of at least so many."""


@dataclass
class State:
    """State of each sample of a model; arrays of length n, in the order of the plan's ids."""

    target: Array | None
    """(n,) target classes; None where any wrong class counts."""
    clean_pred: Array
    clean_confidence: Array
    correct: Array
    """(n,) bool: samples that attacks may break: the model is right on them, or they do not meet
    a criterion of probability."""
    failed: Array
    """(n,) bool: samples that could not be judged in the clean check."""
    broken: Array
    """Index of the smallest level that any attack so far broke the sample at; the number of
    levels for none."""
    clean_margin: Array
    """Lead of the true class on the clean input, in logits."""
    nearest: Array
    """Largest lead of a wrong class that attacks reached which failed at the current budget;
    minus the clean margin before the first attack."""
    last: Array
    """The same for the previous stage; minus infinity if it did not attack the sample, or broke
    it."""

    @classmethod
    def from_clean(cls, clean: Records, levels: Array, *, targeted: bool) -> "State":
        """State after the clean check, from its rows (n), before the first stage over `levels`."""
        return cls(
            target=np.ma.getdata(clean.target) if targeted else None,
            clean_pred=clean.clean_pred,
            clean_confidence=clean.clean_confidence,
            correct=is_open(clean.outcome),
            failed=clean.outcome == Outcome.FAILED,
            broken=np.full(len(clean), len(levels)),
            clean_margin=-np.ma.getdata(clean.margin),
            nearest=np.ma.getdata(clean.margin).copy(),
            last=np.full(len(clean), -np.inf),
        )

    def update(self, records: Records, ids: Array, levels: Array) -> Array:
        """Update the state with the rows of a stage; return the positions of the samples that it
        broke.

        The `ids` (n,) and the positive `levels` ascend.
        """
        # Positions of ascending values: each id and each level is among them.
        index = np.searchsorted(ids, records.sample_id)
        is_broken = has_broken(records)
        fooled = index[is_broken]
        level = np.searchsorted(levels, np.ma.getdata(records.broken)[is_broken])
        np.minimum.at(self.broken, fooled, level)

        self.last = np.full(len(ids), -np.inf)
        has_margin = ~np.ma.getmaskarray(records.margin)
        self.last[index[has_margin]] = np.ma.getdata(records.margin)[has_margin]
        before = self.nearest
        self.nearest = np.maximum(before, self.last)
        # What came near at a larger budget says nothing of this one; a minimal attack does not tell
        # where it failed.
        last = self.last[fooled]
        self.nearest[fooled] = np.where(np.isinf(last), before[fooled], last)
        return fooled


def is_open(outcome: Array) -> Array:
    """(n,) bool: clean rows of samples that attacks may break, by their outcomes."""
    return np.asarray(np.isin(outcome.astype(str), [str(Outcome.CORRECT), str(Outcome.UNMET)]))


def draw_shares(plan: Plan, stage: Stage) -> Array:
    """(n,) random number from 0 to 1 per sample, independent of the other samples; a stage attacks
    those below its share.

    In small runs they are smaller, so that a share is `LEAST_SHARE` samples at least.
    """
    streams = Streams.of(plan.request.seed, torch.as_tensor(plan.ids)).fold(f"share {stage.name}")
    draws = streams.uniform().numpy()
    return np.asarray(draws * min(1.0, len(plan.all_ids) * stage.turn.share / LEAST_SHARE))


def spared_samples(plan: Plan, stage: Stage, state: State, *, waits: bool) -> Array:
    """(n,) bool: samples that this stage spares, by its turn; all if its condition does not hold."""
    is_spared = stage.turn.spared_samples(
        state.clean_margin, state.nearest, state.last, draw=draw_shares(plan, stage), waits=waits
    )
    return np.asarray(is_spared | (plan.units == 0))
