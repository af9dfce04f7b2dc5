"""What an audit knows of each sample between two stages, and what follows from it without an attack."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from brinell.core.record import Array, Outcome, Records
from brinell.core.streams import Streams
from brinell.engine.cascade import Stage
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.shard import null_or
from brinell.store import rows


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

        The `ids` (n,) and the positive `levels` ascend.
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


def draw(plan: Plan, stage: Stage) -> Array:
    """(n,) a number from 0 to 1 for each sample, its own whatever the others are."""
    return Streams.of(plan.request.seed, torch.as_tensor(plan.ids)).fold(f"share {stage.name}").uniform().numpy()


def spared(plan: Plan, stage: Stage, state: State, *, waits: bool) -> Array:
    """(n,) bool: which samples earlier stages left too far from the boundary for this one, or all where it waits in vain."""
    far = stage.turn.spared(state.clean_margin, state.nearest, state.last, draw=draw(plan, stage), waits=waits)
    return np.asarray(far | (plan.units == 0))


def implied(
    plan: Plan,
    source: ModelSource,
    stage: Stage,
    state: State,
    broken: Array,
    spared: Array | None,
    failed: Array | None = None,
    of: Array | None = None,
) -> Records:
    """The rows that follow from others, where this stage did not have to attack; no `spared` means it cannot run.

    Args:
        plan: what the run is.
        source: the model.
        stage: the stage.
        state: what was known before it; arrays are aligned with the samples of the run.
        broken: (n,) the smallest level at which each sample is broken after it.
        spared: (n,) bool: which samples it left alone.
        failed: (n,) the level at which it failed on each.
        of: (m,) positions of the samples whose rows are made; all by default.
    """
    count = len(plan.levels)
    of = np.arange(len(plan.ids)) if of is None else of
    level = np.tile(np.arange(count), len(of))
    at = np.repeat(of, count)
    outcome = np.full(len(at), "", dtype=object)
    if spared is None:
        outcome[:] = str(Outcome.SKIPPED)
    else:
        outcome[level < broken[at] - 1] = str(Outcome.SURVIVED_ABOVE)
        if failed is not None:
            outcome[level < failed[at]] = str(Outcome.FAILED)
        outcome[spared[at]] = str(Outcome.SPARED)
        outcome[level >= state.broken[at]] = str(Outcome.FOOLED_BEFORE)
    outcome[~state.correct[at]] = str(Outcome.MISCLASSIFIED)
    outcome[state.failed[at]] = str(Outcome.FAILED)
    chosen = outcome != ""
    at, level, outcome = at[chosen], level[chosen], outcome[chosen]
    return rows.build(
        Records,
        len(at),
        model=source.name,
        sample_id=plan.ids[at],
        label=plan.labels[at],
        target=null_or(state.target, at),
        clean_pred=state.clean_pred[at],
        clean_confidence=state.clean_confidence[at],
        attack=stage.name,
        distance=plan.distance.name,
        eps=plan.levels[level],
        radius=plan.levels[level] * plan.units[at],
        outcome=outcome,
    )
