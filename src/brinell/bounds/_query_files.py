"""A question of robustness as a text in VNN-LIB 2.0, which `_queries` and outside verifiers read.

The query asks for an error: an input of a box at which another score is at least as large as that of the true class. No such
input exists where the network is robust.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np

from brinell.core.record import Array

NETWORK = "N"
"""Name of the network."""


def robustness_query(low: Array, high: Array, label: int, classes: int, comment: str) -> str:
    """The text of a query about inputs between `low` and `high` (*shape) float64, the true class, and a line at the beginning."""
    scores = [f"Y{_shape([k], 0)}" for k in range(classes)]
    lines = [f"; {' '.join(comment.split())}", "(vnnlib-version <2.0>)"]
    ports = f"(declare-input X Real {_shape(low.shape)}) (declare-output Y Real {_shape([classes])})"
    lines.append(f"(declare-network {NETWORK} {ports})")
    for index in product(*map(range, low.shape)):
        name = f"X{_shape(index, 0)}"
        lines += [f"(assert (>= {name} {_number(low[index])}))", f"(assert (<= {name} {_number(high[index])}))"]
    rivals = " ".join(f"(>= {scores[k]} {scores[label]})" for k in range(classes) if k != label)
    return "\n".join([*lines, f"(assert (or {rivals}))"]) + "\n"


def _shape(sides: Sequence[int], batch: int = 1) -> str:
    return f"[{','.join(map(str, (batch, *sides)))}]"


def _number(value: float) -> str:
    """A number that is read back exactly, without an exponent, which the language does not have."""
    return np.format_float_positional(value, trim="0")
