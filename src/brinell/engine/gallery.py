"""Which clean inputs a run keeps for the gallery of its report."""

import numpy as np

from brinell.core.record import Outcome
from brinell.engine.cells import clean_cell
from brinell.engine.plan import ModelSource, Plan
from brinell.store.run import Run

BYTES = 16 * 2**20
SAMPLES = 24


def keep(plan: Plan, source: ModelSource, run: Run) -> None:
    """Keep the clean inputs of some fooled samples, class by class in turn, the closest finds first."""
    records = run.records()
    fooled = np.flatnonzero((records.outcome == Outcome.FOOLED) & (records.model == source.name))
    order = fooled[np.lexsort((records.sample_id[fooled], records.eps[fooled]))]
    turns: dict[int, int] = {}
    ranked: dict[int, tuple[int, int]] = {}
    for row in order.tolist():
        sample, label = int(records.sample_id[row]), int(records.label[row])
        if sample not in ranked:
            ranked[sample] = (turns.get(label, 0), label)
            turns[label] = turns.get(label, 0) + 1
    size = 4 * int(np.prod(plan.dataset.domain.shape))
    kept = sorted(ranked, key=lambda sample: ranked[sample])[: max(1, min(SAMPLES, BYTES // size))]
    if kept:
        inputs = plan.dataset.load(kept).numpy()
        run.save_clean(clean_cell(plan, source), dict(zip(kept, inputs, strict=True)))
