"""State of each sample between two stages, and the rows that follow from it without an attack."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from brinell.core.record import Array, Outcome, Records
from brinell.core.streams import Streams
from brinell.engine.cascade import Stage
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.shard import column_or_null
from brinell.store import rows

LEAST_SHARE = 32
"""A share of the samples of a run is that of at least so many."""


@dataclass
class State:
    """State of each sample of a model; arrays of length n, in the order of the plan's ids."""

    target: Array | None
    """(n,) target classes; None where any wrong class counts."""
    clean_pred: Array
    clean_confidence: Array
    correct: Array
    """(n,) bool: samples that attacks may break: the model is right on them, or they do not meet a criterion of probability."""
    failed: Array
    """(n,) bool: samples that could not be judged in the clean check."""
    broken: Array
    """Index of the smallest level that any attack so far broke the sample at; the number of levels for none."""
    clean_margin: Array
    """Lead of the true class on the clean input, in logits."""
    nearest: Array
    """Largest lead of a wrong class that attacks reached which failed at the current budget; minus the clean margin before the
    first attack."""
    last: Array
    """The same for the previous stage; minus infinity if it did not attack the sample, or broke it."""

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
            clean_margin=-np.ma.getdata(clean.best_margin),
            nearest=np.ma.getdata(clean.best_margin).copy(),
            last=np.full(len(clean), -np.inf),
        )

    def update(self, parts: Iterable[Records], ids: Array, levels: Array) -> Array:
        """Update the state with the rows of a stage; return the positions of fooled samples, once per row.

        The `ids` (n,) and the positive `levels` ascend.
        """
        nearest, positions = self.nearest, [np.zeros(0, np.int64)]
        self.last = np.full(len(ids), -np.inf)
        for records in parts:
            index, outcome = np.searchsorted(ids, records.sample_id), records.outcome
            fooled, margin = outcome == Outcome.FOOLED, records.best_margin
            np.minimum.at(self.broken, index[fooled], np.searchsorted(levels, records.eps[fooled]))
            failed = (outcome == Outcome.SURVIVED) & ~np.ma.getmaskarray(margin)
            self.last[index[failed]] = np.ma.getdata(margin)[failed]
            positions.append(index[fooled])
        fooled_index = np.concatenate(positions)
        self.nearest = np.maximum(nearest, self.last)
        # What came near at a larger budget says nothing of this one; a minimal attack does not tell where it failed.
        self.nearest[fooled_index] = np.where(np.isinf(self.last[fooled_index]), nearest[fooled_index], self.last[fooled_index])
        return fooled_index


def is_open(outcome: Array) -> Array:
    """(n,) bool: clean rows of samples that attacks may break, by their outcomes."""
    return np.asarray(np.isin(outcome.astype(str), [str(Outcome.CORRECT), str(Outcome.UNMET)]))


def draw_shares(plan: Plan, stage: Stage) -> Array:
    """(n,) random number from 0 to 1 per sample, independent of the other samples; a stage attacks those below its share.

    In small runs they are smaller, so that a share is `LEAST_SHARE` samples at least.
    """
    draws = Streams.of(plan.request.seed, torch.as_tensor(plan.ids)).fold(f"share {stage.name}").uniform().numpy()
    return np.asarray(draws * min(1.0, len(plan.ids) * stage.turn.share / LEAST_SHARE))


def spared_samples(plan: Plan, stage: Stage, state: State, *, waits: bool) -> Array:
    """(n,) bool: samples that this stage spares, by its turn; all if its condition does not hold."""
    is_spared = stage.turn.spared_samples(
        state.clean_margin, state.nearest, state.last, draw=draw_shares(plan, stage), waits=waits
    )
    return np.asarray(is_spared | (plan.units == 0))


def implied_rows(
    plan: Plan,
    source: ModelSource,
    stage: Stage,
    state: State,
    broken: Array,
    spared: Array | None,
    failed: Array | None = None,
    index: Array | None = None,
) -> Records:
    """Rows that follow without an attack of this stage; `spared` None means that the stage cannot run.

    Args:
        plan: the plan of the run.
        source: the model.
        stage: the stage.
        state: the state before the stage; arrays are aligned with the samples of the run.
        broken: (n,) the smallest level at which each sample is broken after it.
        spared: (n,) bool: samples that it did not attack.
        failed: (n,) the level at which it failed on each.
        index: (m,) positions of the samples whose rows are made; all by default.
    """
    count = len(plan.levels)
    index = np.arange(len(plan.ids)) if index is None else index
    level = np.tile(np.arange(count), len(index))
    sample = np.repeat(index, count)
    outcome = np.full(len(sample), "", dtype=object)
    if spared is None:
        outcome[:] = str(Outcome.SKIPPED)
    else:
        outcome[level < broken[sample] - 1] = str(Outcome.SURVIVED_ABOVE)
        if failed is not None:
            outcome[level < failed[sample]] = str(Outcome.FAILED)
        outcome[spared[sample]] = str(Outcome.SPARED)
        outcome[level >= state.broken[sample]] = str(Outcome.FOOLED_BEFORE)
    outcome[~state.correct[sample]] = str(Outcome.MISCLASSIFIED if plan.threshold is None else Outcome.MET)
    outcome[state.failed[sample]] = str(Outcome.FAILED)
    has_row = outcome != ""
    sample, level, outcome = sample[has_row], level[has_row], outcome[has_row]
    return rows.build(
        Records,
        len(sample),
        model=source.name,
        sample_id=plan.ids[sample],
        label=plan.labels[sample],
        target=column_or_null(state.target, sample),
        clean_pred=state.clean_pred[sample],
        clean_confidence=state.clean_confidence[sample],
        attack=stage.name,
        distance=plan.distance.name,
        eps=plan.levels[level],
        radius=plan.levels[level] * plan.units[sample],
        outcome=outcome,
    )
