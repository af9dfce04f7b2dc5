"""Which differences between a run and its replay deviate, and which contradict: one value of one row changed at a time."""

from dataclasses import replace

import numpy as np

from brinell.core.record import Outcome, columns_of
from brinell.store import rows
from brinell.store.run import Run
from brinell.studies.verification.comparison import CLEAR_COST, CLEAR_MARGIN, EXACT, NEAR, TOLERANCE, compare_rows

MARGIN = 2.0
"""The clean margin of every row."""


def part(audit_run, outcome):
    """Two rows of an attack with this outcome."""
    records = Run.open(audit_run).records()
    chosen = np.flatnonzero((records.outcome.astype(str) == outcome) & (records.attack.astype(str) != "clean"))[:2]
    return rows.take(records, chosen)


def changed(records, **values):
    """The second row with other values; None takes a value away."""
    columns = {}
    for name, value in values.items():
        column = getattr(records, name)
        column = (
            np.ma.masked_array(column.data.copy(), np.ma.getmaskarray(column).copy()) if np.ma.isMA(column) else column.copy()
        )
        if value is None:
            column[1] = np.ma.masked
        else:
            column = column.astype(object) if column.dtype.kind in "UO" else column
            column[1] = value
        columns[name] = column
    return replace(records, **columns)


def test_one_value_changed(audit_run):
    fooled, survived = part(audit_run, Outcome.BROKEN), part(audit_run, Outcome.SURVIVED)
    radius, margin = float(fooled.broken[1] * fooled.unit[1]), float(fooled.adv_margin[1])
    size, best = float(fooled.linf[1]), float(survived.margin[1])
    cost = int(survived.forwards[1])
    over, under = 1.02, 0.98
    tolerance, clear = TOLERANCE * MARGIN, CLEAR_MARGIN * MARGIN
    larger = int(np.ceil(cost / (1 - CLEAR_COST))) + 1
    cases = [  # records, change of the replay, whether it deviates, whether it contradicts
        (fooled, {}, False, False),
        (fooled, {"adv_margin": margin + over * tolerance}, True, False),
        (fooled, {"adv_margin": margin - over * tolerance}, True, False),
        (fooled, {"adv_margin": margin + under * tolerance}, False, False),
        (fooled, {"adv_margin": margin + over * clear}, True, True),
        (fooled, {"adv_margin": margin + under * clear}, True, False),
        (fooled, {"adv_margin": None}, True, True),
        (survived, {"margin": best - over * tolerance}, True, False),
        (survived, {"margin": best - over * clear}, True, True),
        (fooled, {"linf": size + over * TOLERANCE * max(size, radius)}, True, False),
        (fooled, {"linf": size + under * TOLERANCE * max(size, radius)}, False, False),
        (fooled, {"l2": float(fooled.l2[1]) * (1 + over * TOLERANCE)}, True, False),
        (fooled, {"adv_confidence": float(fooled.adv_confidence[1]) + over * TOLERANCE}, True, False),
        (fooled, {"adv_confidence": float(fooled.adv_confidence[1]) - under * TOLERANCE}, False, False),
        (fooled, {"adv_pred": int(fooled.adv_pred[1]) + 1}, True, False),
        (fooled, {"quantised_pred": None}, True, False),
        (fooled, {"queries_to_success": 99}, True, False),
        (survived, {"forwards": larger}, True, True),
        (survived, {"backwards": 1000}, True, True),
        (survived, {"judge_forwards": 1000}, True, False),
        (survived, {"outcome": Outcome.FAILED}, True, False),
        (survived, {"broken": 0.1, "adv_margin": over * NEAR * MARGIN, "margin": None}, True, True),
        (survived, {"broken": 0.1, "adv_margin": under * NEAR * MARGIN, "margin": None}, True, False),
        (fooled, {"broken": None, "adv_margin": None, "margin": -over * NEAR * MARGIN}, True, True),
        (fooled, {"broken": None, "adv_margin": None, "margin": -under * NEAR * MARGIN}, True, False),
        (fooled, {"attacked": 99.0}, True, False),
    ]
    wrong = []
    for records, change, deviates, contradicts in cases:
        comparison = compare_rows(records, changed(records, **change), np.full(2, MARGIN))
        got = comparison.deviates.tolist(), comparison.contradicting.tolist()
        if got != ([False, deviates], [False, contradicts]):
            wrong.append((change, got))
        columns = {name for name, rows_of_name in comparison.deviating.items() if rows_of_name.any()}
        if not columns <= set(change):
            wrong.append((change, columns))
    assert not wrong
    assert set(EXACT) < set(columns_of(fooled))
