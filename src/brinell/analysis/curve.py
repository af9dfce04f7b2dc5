"""The state of each sample under each stage at each eps, as it follows from the rows of a run.

All else is counting in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from brinell.core.record import CLEAN, Outcome, Records
from brinell.core.record import Array as Array
from brinell.store.rows import take

WRONG, RIGHT, UNJUDGED, NOT_RUN = range(4)
"""States of a cell: broken, robust, failed, and skipped for this model."""
WORDS = ("broken", "robust", "failed", "skipped")
"""The states as words."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """States of one model's cells: samples by id, stages in the order of the run, eps ascending."""

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
    """The cells of `model`, which follow from its rows.

    A sample is broken at every budget from the smallest one at which this stage or an earlier one
    broke it, and robust below it as far as the stage ran on it or spared it. At eps 0 the clean
    inputs take the place of attacks.
    """
    records = take(records, np.flatnonzero(records.model == model))
    attack = records.attack.astype(str)
    eps = np.asarray(manifest["eps"], dtype=np.float64)

    # The states of the untouched inputs.
    first = np.flatnonzero(attack == CLEAN)
    first = first[np.argsort(records.sample_id[first])]
    ids = records.sample_id[first]
    labels = records.label[first]
    outcome = records.outcome[first].astype(str)
    clean = np.full(len(ids), UNJUDGED, np.int8)
    clean[np.isin(outcome, [str(Outcome.CORRECT), str(Outcome.UNMET)])] = RIGHT
    clean[np.isin(outcome, [str(Outcome.MISCLASSIFIED), str(Outcome.MET)])] = WRONG

    # Stage by stage; a separate one does not count what was broken before it.
    rows_of = {
        str(stage["name"]): np.flatnonzero(attack == stage["name"]) for stage in manifest["stages"]
    }
    skipped = {s["stage"] for s in manifest.get("skipped", []) if s["model"] == model}
    states = np.full((len(rows_of), len(ids), len(eps)), NOT_RUN, np.int8)
    before = np.full(len(ids), np.inf)
    for i, stage in enumerate(manifest["stages"]):
        part = take(records, rows_of[str(stage["name"])])
        index = np.searchsorted(ids, part.sample_id)
        broken = np.full(len(ids), np.inf)
        broken[index] = np.ma.filled(part.broken, np.inf)
        below = np.full(len(ids), RIGHT, np.int8)
        below[index[part.outcome == Outcome.FAILED]] = UNJUDGED
        is_separate = bool(stage.get("turn", {}).get("alone"))
        smallest = broken if is_separate else np.minimum(broken, before)
        # A budget that equals the smallest one counts as it, whatever its last digit.
        is_broken = eps * (1 + 1e-9) >= smallest[:, None]
        if stage["name"] not in skipped:
            states[i] = np.where(is_broken, WRONG, below[:, None])
            # Nothing is attacked that was not right from the start: it keeps its clean state.
            states[i, clean != RIGHT] = clean[clean != RIGHT, None]
        before = np.minimum(before, broken)

    states[:, :, eps == 0] = clean[None, :, None]
    return Grid(
        model=model,
        ids=ids,
        labels=labels,
        clean=clean,
        stages=tuple(rows_of),
        eps=eps,
        states=states,
    )


def dense_table(records: Records, manifest: Mapping[str, Any]) -> dict[str, Array]:
    """The table sample x attack x eps of all models as columns (rows,).

    `state` is one of `WORDS`.
    """
    columns: dict[str, list[Array]] = {
        name: [] for name in ("model", "sample_id", "label", "attack", "eps", "state")
    }

    for model in manifest["models"]:
        cells = grid(records, manifest, str(model["name"]))
        places = np.indices(cells.states.shape).reshape(3, -1)
        stage, sample, budget = places
        columns["model"].append(np.full(len(sample), cells.model, dtype=object))
        columns["sample_id"].append(cells.ids[sample])
        columns["label"].append(cells.labels[sample])
        columns["attack"].append(np.array([*cells.stages, ""], dtype=object)[stage])
        columns["eps"].append(cells.eps[budget])
        columns["state"].append(np.array(WORDS, dtype=object)[cells.states.ravel()])

    return {name: np.concatenate(values) for name, values in columns.items()}


def eps_index(eps: Array, values: Array) -> Array:
    """(rows,) position of each value in the ascending `eps` to 1 part in 10^9, -1 for none."""
    if not len(eps):
        return np.full(len(values), -1)
    upper = np.clip(np.searchsorted(eps, values), 0, len(eps) - 1)
    lower = np.maximum(upper - 1, 0)
    nearest = np.where(np.abs(eps[lower] - values) < np.abs(eps[upper] - values), lower, upper)
    return np.where(np.isclose(eps[nearest], values, rtol=1e-9, atol=1e-15), nearest, -1)


def ran(cells: Grid) -> list[int]:
    """Positions of the stages that can run on the model."""
    above = cells.states[:, :, cells.eps > 0]
    # Without a sample or a budget no cell says that the stage was skipped.
    return [
        i for i, states in enumerate(above) if not (states.size and bool((states == NOT_RUN).all()))
    ]


def worst_case(cells: Grid, stages: Sequence[int] | None = None) -> Array:
    """The worst that `stages` (positions; by default all that ran) did to each sample.

    Returns:
        (samples, budgets) int8: WRONG where the model is wrong on the untouched input or any stage
            broke the sample; RIGHT where it is robust in every stage that ran; UNJUDGED where a
            stage failed on it. Without stages nothing is judged above eps 0.
    """
    stages = ran(cells) if stages is None else stages
    clean = np.repeat(cells.clean[:, None], len(cells.eps), axis=1)
    if not len(stages):
        # Without an attack, the initially wrong ones alone would make a rate of 0 over a handful.
        is_judged = (cells.eps == 0)[None, :] & (clean <= RIGHT)
        return np.where(is_judged, clean, UNJUDGED).astype(np.int8)

    states = cells.states[list(stages)]
    wrong = (states == WRONG).any(axis=0) | (clean == WRONG)
    right = (states == RIGHT).any(axis=0) & (clean == RIGHT) & ~(states == UNJUDGED).any(axis=0)
    return np.where(wrong, WRONG, np.where(right, RIGHT, UNJUDGED)).astype(np.int8)


def stage_label(stage: Mapping[str, Any]) -> str:
    """Readable name of a stage in a manifest, without its restriction to some samples."""
    return str(stage.get("label", stage["name"]))


def stage_title(stage: Mapping[str, Any]) -> str:
    """Readable name of a stage, with its restriction to some samples and its condition."""
    return ", ".join(filter(None, (stage_label(stage), str(stage.get("kept_to", "")))))
