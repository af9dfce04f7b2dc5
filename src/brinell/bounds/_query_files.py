"""Questions of robustness as texts in VNN-LIB, which `_queries` and outside verifiers read.

The query asks for an error: an input of a box at which another score is at least as large as that of the true class. No such
input exists where the network is robust.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Literal

import numpy as np

from brinell.core.record import Array

__all__ = ["NETWORK", "Version", "robustness_query"]

NETWORK = "N"
"""Name of the network in VNN-LIB 2.0."""
Version = Literal["1.0", "2.0"]
"""Version of the language."""


def robustness_query(version: Version, low: Array, high: Array, label: int, classes: int, comment: str) -> str:
    """The text of a query.

    Args:
        version: version of the language.
        low: (*shape) float64: least values of the inputs.
        high: (*shape) float64: largest values.
        label: the true class.
        classes: number of scores.
        comment: a line at the beginning.
    """
    return "\n".join([f"; {' '.join(comment.split())}", *_statements(version, low, high, label, classes)]) + "\n"


def _statements(version: Version, low: Array, high: Array, label: int, classes: int) -> Iterator[str]:
    """The lines of a query."""
    indices = list(product(*map(range, low.shape)))
    if version == "2.0":
        yield "(vnnlib-version <2.0>)"
        ports = f"(declare-input X Real {_shape(low.shape)}) (declare-output Y Real {_shape([classes])})"
        yield f"(declare-network {NETWORK} {ports})"
        inputs = [f"X{_shape(index, 0)}" for index in indices]
        scores = [f"Y{_shape([k], 0)}" for k in range(classes)]
    else:
        inputs = [f"X_{k}" for k in range(len(indices))]
        scores = [f"Y_{k}" for k in range(classes)]
        yield from (f"(declare-const {name} Real)" for name in (*inputs, *scores))
    for name, least, most in zip(inputs, low.flatten().tolist(), high.flatten().tolist(), strict=True):
        yield f"(assert (>= {name} {_number(least)}))"
        yield f"(assert (<= {name} {_number(most)}))"
    form = "(>= {} {})" if version == "2.0" else "(and (>= {} {}))"
    rivals = " ".join(form.format(scores[k], scores[label]) for k in range(classes) if k != label)
    yield f"(assert (or {rivals}))"


def _shape(sides: Sequence[int], batch: int = 1) -> str:
    """A shape or an index of a single sample."""
    return f"[{','.join(map(str, (batch, *sides)))}]"


def _number(value: float) -> str:
    """A number that is read back exactly, without an exponent, which the language does not have."""
    return np.format_float_positional(value, trim="0")
