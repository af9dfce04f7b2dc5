"""Records of one model as a dense grid of states: stage x sample x eps. Everything else is counting in this grid."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from brinell.core.record import BROKEN, CLEAN, ROBUST, Outcome, Records
from brinell.core.record import Array as Array

WRONG, RIGHT, UNJUDGED, NOT_RUN, ABSENT = range(5)
"""States of a cell: broken, robust, failed, skipped for this model, and no row (a run that is not finished)."""

BLOCK = 1 << 16
"""Rows that are worked on at a time."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """States of one model's cells; samples ascend by id, stages are in the order of the run, eps ascend."""

    model: str
    ids: Array
    """(samples,) int64."""
    labels: Array
    """(samples,) int32."""
    clean: Array
    """(samples,) int8 states of the untouched inputs."""
    stages: tuple[str, ...]
    eps: Array
    """(budgets,) float64."""
    states: Array
    """(stages, samples, budgets) int8."""


def grid(records: Records, manifest: Mapping[str, Any], model: str) -> Grid:
    """The cells of `model`; at eps 0 the clean inputs replace attacks without rows.

    Records may be of any number of models. Rows at an eps that the manifest does not name are left out.
    """
    rows_of_model = records.model == model
    sample_id = records.sample_id[rows_of_model]
    ids, first = np.unique(sample_id, return_index=True)
    labels = records.label[rows_of_model][first]
    eps = np.asarray(manifest["eps"], dtype=np.float64)
    samples = _in_blocks(lambda block: np.searchsorted(ids, block), sample_id, np.int32)
    del sample_id, first
    column = _in_blocks(lambda block: eps_index(eps, block), records.eps[rows_of_model], np.int32)
    attack, state = records.attack[rows_of_model], _states(records.outcome)[rows_of_model]

    clean = np.full(len(ids), ABSENT, np.int8)
    is_clean = attack == CLEAN
    clean[samples[is_clean]] = state[is_clean]

    stages = tuple(str(stage["name"]) for stage in manifest["stages"])
    skipped = {s["stage"] for s in manifest.get("skipped", []) if s["model"] == model}
    states = np.full((len(stages), len(ids), len(eps)), ABSENT, np.int8)
    for i, stage in enumerate(stages):
        if stage in skipped:
            states[i] = NOT_RUN
        rows = (attack == stage) & (column >= 0)
        states[i, samples[rows], column[rows]] = state[rows]
    zero = eps == 0
    at_zero = states[:, :, zero]
    states[:, :, zero] = np.where((at_zero == ABSENT) | (at_zero == NOT_RUN), clean[None, :, None], at_zero)
    return Grid(model=model, ids=ids, labels=labels, clean=clean, stages=stages, eps=eps, states=states)


def _in_blocks(place: Callable[[Array], Array], values: Array, kind: type) -> Array:
    """`place` applied to the values (n,) block by block, as its temporary arrays are several times as large as the values."""
    result: Array = np.empty(len(values), kind)
    for start in range(0, len(values), BLOCK):
        result[start : start + BLOCK] = place(values[start : start + BLOCK])
    return result


def eps_index(eps: Array, values: Array) -> Array:
    """(rows,) position of each value in the ascending `eps`, compared to 1 part in 10^9; -1 for values not among them."""
    if not len(eps):
        return np.full(len(values), -1)
    upper = np.clip(np.searchsorted(eps, values), 0, len(eps) - 1)
    lower = np.maximum(upper - 1, 0)
    nearest = np.where(np.abs(eps[lower] - values) < np.abs(eps[upper] - values), lower, upper)
    return np.where(np.isclose(eps[nearest], values, rtol=1e-9, atol=1e-15), nearest, -1)


def _states(outcome: Array) -> Array:
    state = np.full(len(outcome), UNJUDGED, np.int8)
    for value in BROKEN:
        state[outcome == value.value] = WRONG
    for value in ROBUST:
        state[outcome == value.value] = RIGHT
    state[outcome == Outcome.SKIPPED.value] = NOT_RUN
    return state


def ran(cells: Grid) -> list[bool]:
    """For each stage, True if it ran on at least one sample at an eps above 0."""
    above = cells.states[:, :, cells.eps > 0]
    return [not (states.size and bool((states == NOT_RUN).all())) for states in above]


def finished(cells: Grid) -> list[bool]:
    """For each stage, True if every sample that was left to it has a row: classified correctly and not broken earlier."""
    decided = np.repeat((cells.clean != RIGHT)[:, None], len(cells.eps), axis=1)
    flags = []
    for states in cells.states:
        flags.append(not bool(((states == ABSENT) & ~decided).any()))
        if flags[-1]:
            decided = decided | (states == WRONG)
    return flags


def worst_case(cells: Grid, stages: Sequence[int]) -> Array:
    """The worst that `stages` (positions) did to each sample.

    Returns:
        (samples, budgets) int8: WRONG where the model is wrong on the untouched input or any stage broke the sample; RIGHT
        where it is robust in every stage that ran; UNJUDGED where a stage failed on it. Without stages nothing is judged above
        eps 0.
    """
    clean = np.repeat(cells.clean[:, None], len(cells.eps), axis=1)
    if not len(stages):
        # Without an attack, the initially wrong ones alone would make a rate of 0 over a handful.
        return np.where((cells.eps == 0)[None, :] & (clean <= RIGHT), clean, UNJUDGED).astype(np.int8)
    states = cells.states[list(stages)]
    wrong = (states == WRONG).any(axis=0) | (clean == WRONG)
    right = (states == RIGHT).any(axis=0) & (clean == RIGHT)
    doubt = ((states == UNJUDGED) | (states == ABSENT)).any(axis=0)
    return np.where(wrong, WRONG, np.where(right & ~doubt, RIGHT, UNJUDGED)).astype(np.int8)


def stage_label(stage: Mapping[str, Any]) -> str:
    """Readable name of a stage in a manifest, without its restriction to some samples."""
    return str(stage.get("label", stage["name"]))


def stage_title(stage: Mapping[str, Any]) -> str:
    """Readable name of a stage, with its restriction to some samples and the condition that it waits for."""
    return ", ".join(filter(None, (stage_label(stage), str(stage.get("kept_to", "")))))
