"""What an attack changed in a row of a table: the columns that moved most, in their own units."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup

from brinell.core.record import Array

SHOWN = 5
"""Columns that are listed."""


def changes(domain: Mapping[str, Any], clean: Array, adversarial: Array) -> dict[str, Markup]:
    """The columns that moved most between two rows (D,): each view as a list in HTML."""
    columns = domain["columns"]
    zero, one = (np.array([column[at] for column in columns], dtype=np.float64) for at in (1, 2))
    delta = np.asarray(adversarial, np.float64) - np.asarray(clean, np.float64)
    rows = [int(row) for row in np.argsort(-np.abs(delta), kind="stable") if delta[row] != 0][:SHOWN]
    more = int((delta != 0).sum()) - len(rows)
    before, after = (zero + (one - zero) * np.asarray(x, np.float64) for x in (clean, adversarial))
    texts = {
        "clean": [f"{before[row]:.4g}" for row in rows],
        "perturbation": [f"{after[row] - before[row]:+.3g}" for row in rows],
        "adversarial": [f"{after[row]:.4g}" for row in rows],
    }
    return {view: _list([str(columns[row][0]) for row in rows], values, more) for view, values in texts.items()}


def _list(names: list[str], values: list[str], more: int) -> Markup:
    items = [Markup("<dt>{}</dt><dd>{}</dd>").format(name, value) for name, value in zip(names, values, strict=True)]
    rest = Markup("<dt>and {} more</dt>").format(more) if more > 0 else Markup("")
    return Markup('<dl class="changes">{}{}</dl>').format(Markup("").join(items), rest)
