"""Outputs of a model beside the classes of the data: one by which it rejects inputs, and others."""

from typing import Any

import numpy as np

from brinell.core.checks import EXTRA
from brinell.core.contracts import Remark
from brinell.core.intervals import wilson
from brinell.core.record import CLEAN, Outcome, Records

Array = np.ndarray[Any, Any]
SHARE = 0.1
"""Share of the fooled samples above which one such class is told of. Of the classes of a network that knows many more than the
data has, none attracts as many by itself."""


def rejected(clean_pred: Array, reject: int | None) -> list[Remark]:
    """How many clean inputs (n,) a model rejects, as a remark; nothing where it has no reject class."""
    if reject is None:
        return []
    k, n = int((clean_pred == reject).sum()), len(clean_pred)
    share = f" ({100 * k / n:.1f} %)" if n else ""
    text = (
        f"{k} of {n} clean inputs{share} are rejected (class {reject}) and count as not correct; no rejected input is a success"
    )
    return [Remark("rejected", text)]


def beyond_labels(records: Records, model: str, known: int) -> dict[str, str]:
    """The warning about the class from `known` on that most fooled samples are taken for, if that is a share that matters."""
    mine = records.model == model
    fooled = mine & (records.outcome == Outcome.FOOLED) & ~np.ma.getmaskarray(records.adv_pred)
    first = np.unique(records.sample_id[fooled], return_index=True)[1]
    seen = np.ma.getdata(records.adv_pred)[fooled][first]
    extra, counts = np.unique(seen[seen >= known], return_counts=True)
    if not len(extra):
        return {}
    top, k = int(extra[counts.argmax()]), int(counts.max())
    interval = wilson(k, len(seen))
    if interval is None or interval.low <= SHARE:
        return {}
    clean = int((np.ma.getdata(records.clean_pred)[mine & (records.attack == CLEAN)] == top).sum())
    text = (
        f"{k} of {len(seen)} adversarial inputs and {clean} clean ones are taken for class {top}, which the data has not: if the "
        f"model rejects inputs by it, give --reject-class {top}, and such an input is no success; otherwise it is a class as any"
    )
    return {EXTRA: text}
