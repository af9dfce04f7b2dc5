"""The samples and adversarial inputs of a run on which copies of the model are asked after the attacks."""

import numpy as np
import torch

from brinell.core.oracle import Batch
from brinell.core.record import Array, Outcome, Records
from brinell.core.streams import Streams
from brinell.engine.audited_model import AuditedModel
from brinell.engine.consistency import evenly_spaced
from brinell.engine.fresh_copy import EXAMPLES, SURVIVORS, Points
from brinell.engine.state import State
from brinell.store import rows


def collect_points(audited: AuditedModel, state: State) -> tuple[Points, Streams]:
    """Robust samples and adversarial inputs of the run, both spread over the data, and one stream for each robust sample."""
    plan = audited.plan
    is_right = state.correct & (state.clean_pred == plan.labels)
    robust = np.flatnonzero(is_right & (state.broken == len(plan.levels)) & (plan.units > 0))
    index = robust[evenly_spaced(len(robust), SURVIVORS)] if len(robust) and len(plan.levels) else robust[:0]
    ids = plan.ids[index]
    x = audited.load(ids)
    survivors = Batch(
        ids=torch.arange(len(x), device=x.device), x=x, y=torch.as_tensor(plan.labels[index], device=x.device).long()
    )
    largest = plan.levels[-1] if len(plan.levels) else 0.0
    radius = torch.as_tensor(largest * plan.units[index], dtype=torch.float32, device=x.device)
    inputs, rows = _examples(audited)
    margins = np.ma.filled(rows.adv_margin.astype(np.float64), np.nan)
    if plan.targeting is not None or plan.threshold is not None or audited.source.reject is not None:
        margins = np.full(len(margins), np.nan)
    points = Points(
        survivors=survivors,
        radius=radius,
        examples=torch.as_tensor(np.stack(inputs), device=x.device) if inputs else torch.zeros_like(x[:0]),
        labels=torch.as_tensor(np.asarray(rows.label), device=x.device).long(),
        classes=torch.as_tensor(np.ma.getdata(rows.adv_pred), device=x.device).long(),
        margins=torch.as_tensor(margins, dtype=torch.float32, device=x.device),
    )
    return points, Streams.of(plan.request.seed, torch.as_tensor(ids, device=x.device)).fold("fresh copies")


def _examples(audited: AuditedModel) -> tuple[list[Array], Records]:
    """The closest adversarial inputs of some samples, and the row of each."""
    run, name = audited.run, audited.source.name
    records = run.records_in_place()
    fooled = np.flatnonzero((records.model == name) & (records.outcome == Outcome.FOOLED))
    ids, eps = records.sample_id[fooled], records.eps[fooled]
    order = np.lexsort((eps, ids))
    order = order[np.unique(ids[order], return_index=True)[1]]  # the row at the smallest budget of each sample
    rows_ = rows.take(records, fooled[order[evenly_spaced(len(order), EXAMPLES)]] if len(order) else fooled)
    inputs: dict[int, Array] = {}
    for attack in np.unique(rows_.attack.astype(str)):
        inputs |= run.adversarial(name, str(attack), rows_.sample_id[rows_.attack == attack].tolist())
    held = np.array([int(sample) in inputs for sample in rows_.sample_id], dtype=bool)
    rows_ = rows.take(rows_, np.flatnonzero(held))
    return [inputs[int(sample)] for sample in rows_.sample_id], rows_
