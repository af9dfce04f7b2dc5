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
    records = run.records_in_place()
    fooled = np.flatnonzero((records.outcome == Outcome.FOOLED) & (records.model == source.name))
    ids, eps, labels = records.sample_id[fooled], records.eps[fooled], records.label[fooled]
    order = np.lexsort((ids, eps))
    order = order[np.sort(np.unique(ids[order], return_index=True)[1])]  # of each sample its closest find
    most = max(1, min(SAMPLES, BYTES // (4 * int(np.prod(plan.dataset.domain.shape)))))
    turns = [
        (turn, label, row)
        for label in np.unique(labels).tolist()
        for turn, row in enumerate(order[labels[order] == label][:most].tolist())
    ]
    kept = [int(ids[row]) for _, _, row in sorted(turns)[:most]]
    if kept:
        inputs = plan.dataset.load(kept).numpy()
        run.save_clean(clean_cell(plan, source), dict(zip(kept, inputs, strict=True)))
