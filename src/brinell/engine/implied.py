"""The rows of a stage that follow from others: what it did not attack, and why."""

from typing import Any

import numpy as np

from brinell.core.record import Outcome, Records
from brinell.engine.cascade import Stage
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.shard import null_or
from brinell.engine.state import State
from brinell.store import rows

Array = np.ndarray[Any, Any]


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
