"""The grid of states, and what is counted in it, against references that look up row by row."""

import numpy as np
import pytest

from brinell.analysis.grid import (
    ABSENT,
    NOT_RUN,
    RIGHT,
    UNJUDGED,
    WRONG,
    Grid,
    eps_index,
    finished,
    grid,
    ran,
    stage_label,
    stage_title,
    worst_case,
)
from brinell.core.record import BROKEN, ROBUST, Outcome

EPS, STAGES = [0.0, 0.1, 0.2, 0.4], ("apgd-ce", "square", "fab")


def state_of(outcome):
    """The state of a cell."""
    if outcome == "skipped":
        return NOT_RUN
    return WRONG if Outcome(outcome) in BROKEN else RIGHT if Outcome(outcome) in ROBUST else UNJUDGED


def random_run(synthetic, seed):
    """Records of two models in any order, some of them lost, with any outcomes; ids have gaps."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 9)
    parts = [synthetic.records(model, labels, EPS, np.full((3, 9), np.inf), stages=STAGES) for model in "mo"]
    rows = synthetic.join(*parts)
    above = rows.attack != "clean"
    outcomes = rng.choice([str(each) for each in Outcome], len(rows)).astype(object)
    rows = synthetic.change(rows, above, outcome=outcomes[above])
    clean = rng.choice(["correct", "misclassified", "failed"], len(rows), p=(0.7, 0.2, 0.1)).astype(object)
    rows = synthetic.change(rows, ~above, outcome=clean[~above])
    rows = synthetic.change(rows, rows.sample_id >= 0, sample_id=rows.sample_id * 7 + 2)
    rows = synthetic.keep(rows, rng.permutation(len(rows))[: int(0.8 * len(rows))])
    return rows, synthetic.manifest(["m", "o"], EPS, 9, ["a", "b", "c"], stages=STAGES)


def test_states_are_those_of_the_rows(synthetic):
    for seed in range(10):
        rows, manifest = random_run(synthetic, seed)
        manifest["skipped"] = [{"model": "m", "stage": "fab", "reason": ""}, {"model": "o", "stage": "square", "reason": ""}]
        cells = grid(rows, manifest, "m")
        names = ("attack", "sample_id", "eps", "outcome", "label")
        mine = [row for row in zip(*(getattr(rows, name).tolist() for name in ("model", *names)), strict=True) if row[0] == "m"]
        assert cells.ids.tolist() == sorted({row[2] for row in mine}) and cells.stages == STAGES and cells.model == "m"
        assert dict(zip(cells.ids.tolist(), cells.labels.tolist(), strict=True)) == {row[2]: row[5] for row in mine}
        table = {(attack, sample, eps): state_of(outcome) for _, attack, sample, eps, outcome, _ in mine}
        for j, sample in enumerate(cells.ids.tolist()):
            clean = table.get(("clean", sample, 0.0), ABSENT)
            assert cells.clean[j] == clean
            for i, stage in enumerate(STAGES):
                absent = NOT_RUN if stage == "fab" else ABSENT
                expected = [clean, *(table.get((stage, sample, eps), absent) for eps in EPS[1:])]
                assert cells.states[i, j].tolist() == expected


def reference_worst(clean, states):
    """The worst of a sample at one eps, from its states under each stage."""
    if clean == WRONG or WRONG in states:
        return WRONG
    if clean == RIGHT and RIGHT in states and not {UNJUDGED, ABSENT} & set(states):
        return RIGHT
    return UNJUDGED


def random_cells(seed):
    rng = np.random.default_rng(seed)
    states = rng.choice(5, (3, 12, 4), p=(0.2, 0.5, 0.05, 0.2, 0.05)).astype(np.int8)
    clean = rng.choice(5, 12, p=(0.2, 0.7, 0.05, 0.0, 0.05)).astype(np.int8)
    ids = np.arange(12)
    return Grid(model="m", ids=ids, labels=ids, clean=clean, stages=STAGES, eps=np.array(EPS), states=states)


def test_the_worst_case_is_that_of_each_cell():
    for seed in range(10):
        cells = random_cells(seed)
        for stages in ([0], [0, 1], [2, 0], [0, 1, 2]):
            worst = worst_case(cells, stages)
            for j, k in np.ndindex(worst.shape):
                assert worst[j, k] == reference_worst(cells.clean[j], cells.states[stages, j, k].tolist())
        nothing = worst_case(cells, [])
        assert (nothing[:, 1:] == UNJUDGED).all() and nothing.dtype == np.int8
        assert nothing[:, 0].tolist() == [state if state <= RIGHT else UNJUDGED for state in cells.clean]


def test_a_stage_is_finished_where_no_row_is_missing_that_it_had_to_make():
    """And it decides for later stages only then."""
    for seed in range(40):
        cells = random_cells(seed)
        expected, decided = [], {(j, k) for j in range(12) for k in range(4) if cells.clean[j] != RIGHT}
        for states in cells.states:
            expected.append(all((j, k) in decided for j, k in np.ndindex(states.shape) if states[j, k] == ABSENT))
            if expected[-1]:
                decided |= {(j, k) for j, k in np.ndindex(states.shape) if states[j, k] == WRONG}
        assert finished(cells) == expected
        above = cells.states[:, :, 1:]
        assert ran(cells) == [bool((states != NOT_RUN).any()) for states in above] == [True] * 3
        cells.states[1, :, 1:] = NOT_RUN
        assert ran(cells) == [True, False, True]


def test_positions_of_budgets():
    eps = np.array([0.0, 1e-3, 0.1, 0.3])
    near = np.array([0.3, 0.1 * (1 + 5e-10), 0.1 * (1 - 5e-10), 1e-3, 0.0, 0.1 * (1 + 5e-9), 0.2, 0.4, -1.0, 0.29])
    assert eps_index(eps, near).tolist() == [3, 2, 2, 1, 0, -1, -1, -1, -1, -1]
    assert eps_index(np.array([]), near[:2]).tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("stage", "label", "title"),
    [
        ({"name": "pgd?steps=3"}, "pgd?steps=3", "pgd?steps=3"),
        ({"name": "a", "label": "PGD", "kept_to": "those that are left"}, "PGD", "PGD, those that are left"),
    ],
)
def test_names_of_stages(stage, label, title):
    assert (stage_label(stage), stage_title(stage)) == (label, title)
