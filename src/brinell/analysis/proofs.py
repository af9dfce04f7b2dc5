"""Rates between proofs and attacks: of a certification, and of an audit that was certified."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import Field

from brinell.analysis.curve import eps_index
from brinell.analysis.folder_result import Result
from brinell.analysis.results import ModelResult, Rate
from brinell.analysis.robust_accuracy import rate
from brinell.core.errors import RequestError
from brinell.core.record import Array
from brinell.store import rows
from brinell.store.proofs import CERTIFIED, FAILED, OPEN, PROOFS, TABLE, TOOL, Outcomes
from brinell.store.run import inner_folder


class Band(Result):
    """The two bounds of robust accuracy over the budgets."""

    certified: list[Rate]
    """Share of samples that are proven robust: never above the truth. A verification repeats these
    proofs."""
    with_verifiers: list[Rate] = Field(default=[], exclude_if=lambda rates: not rates)
    """The share with the proofs of outside verifiers, which no verification repeats; empty without
    any."""
    robust: list[Rate]
    """Share of samples that no attack broke: never below the truth."""
    open: list[Rate]
    """Share of samples that are neither proven nor broken."""


def band_of(table: Outcomes, levels: Array) -> Band:
    """The rates of some rows; `with_verifiers` stays empty."""
    certified = []
    robust = []
    undecided = []
    for level in levels.tolist():
        outcome = table.outcome[table.eps == level].astype(str)
        certified.append(rate_of(outcome == CERTIFIED, outcome, level))
        robust.append(rate_of(np.isin(outcome, (CERTIFIED, OPEN)), outcome, level))
        undecided.append(rate_of(outcome == OPEN, outcome, level))
    return Band(certified=certified, robust=robust, open=undecided)


def of_tools(table: Outcomes) -> Array:
    """(rows,) bool: proofs of outside verifiers."""
    is_of_tool = np.char.startswith(table.method.astype(str), TOOL)
    return np.asarray((table.outcome == CERTIFIED) & is_of_tool)


def without_tools(table: Outcomes) -> Outcomes:
    """Rows as they are without outside verifiers, whose proofs no verification repeats."""
    return replace(table, outcome=np.where(of_tools(table), OPEN, table.outcome))


def rate_of(counted: Array, outcome: Array, eps: float) -> Rate:
    """The share of samples that count, among those that could be valid."""
    valid = outcome != FAILED
    k = int((counted & valid).sum())
    return rate(k, int(valid.sum()), eps=eps, missing=int((~valid).sum()))


def with_proofs(result: ModelResult, run: Path | str) -> ModelResult:
    """The figures of the one model of an audit, with those of the proofs in its folder if any."""
    folder = inner_folder(Path(run), PROOFS)
    if folder is None:
        return result

    table = without_tools(TABLE.read(folder).rows)
    levels = np.unique(table.eps)
    positions = eps_index(levels, np.array(result.eps))
    if (positions < 0).any():
        raise _misfit(run)
    levels = levels[positions]
    band = band_of(table, levels)

    # Every robust sample is proven or open, or the proofs are of another audit.
    pairs = zip(band.certified, band.open, result.robust_accuracy, strict=True)
    for certified, undecided, robust in pairs:
        if certified.k + undecided.k != robust.k or certified.n != robust.n:
            raise _misfit(run)

    classes = []
    for of_class in result.per_class:
        part = rows.take(table, table.label == of_class.class_)
        classes.append(of_class.model_copy(update={"certified": band_of(part, levels).certified}))
    return result.model_copy(
        update={"certified": band.certified, "open": band.open, "per_class": classes}
    )


def _misfit(run: Path | str) -> RequestError:
    """The error of proofs that are not of this audit."""
    folder = Path(run) / PROOFS
    return RequestError(
        f"{folder} holds proofs of other samples, budgets or attacks than those "
        f"of {run}: take it away"
    )
