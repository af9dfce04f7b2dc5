"""The grid of states, and what is counted in it, against references that look up row by row."""

import numpy as np
import pytest

from brinell.analysis.curve import (
    NOT_RUN,
    RIGHT,
    UNJUDGED,
    WORDS,
    WRONG,
    Grid,
    dense_table,
    eps_index,
    grid,
    ran,
    stage_label,
    stage_title,
    worst_case,
)

EPS, STAGES = [0.0, 0.1, 0.2, 0.4], ("apgd-ce", "square", "fab")


def random_run(synthetic, seed):
    """Records of two models in any order, with any outcomes; ids have gaps, and some samples were
    spared or failed.
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 9)
    distances = rng.choice([0.05, 0.15, 0.3, np.inf], (3, 9))
    distances[0, rng.random(9) < 0.2] = 0
    rows = synthetic.join(
        *(synthetic.records(model, labels, EPS, distances, stages=STAGES) for model in "mo")
    )
    robust = rows.outcome == "survived"
    for outcome in ("spared", "failed"):
        rows = synthetic.change(rows, robust & (rng.random(len(rows)) < 0.2), outcome=outcome)
    unjudged = rows.sample_id == rng.integers(9)
    rows = synthetic.keep(
        synthetic.change(rows, unjudged & (rows.attack == "clean"), outcome="failed"),
        ~unjudged | (rows.attack == "clean"),
    )
    rows = synthetic.change(rows, rows.sample_id >= 0, sample_id=rows.sample_id * 7 + 2)
    rows = synthetic.keep(rows, rng.permutation(len(rows)))
    return rows, synthetic.manifest(["m", "o"], EPS, 9, ["a", "b", "c"], stages=STAGES)


def expected_states(rows, model, skipped, alone=()):
    """By sample, its clean state, and by stage and sample the state at each eps, looked up row by
    row."""
    names = ("attack", "sample_id", "broken", "outcome")
    table = {
        (row[1], row[2]): row[3:]
        for row in zip(*(getattr(rows, name).tolist() for name in ("model", *names)), strict=True)
        if row[0] == model
    }
    clean = {
        sample: outcome for (attack, sample), (_, outcome) in table.items() if attack == "clean"
    }
    clean = {
        sample: {"correct": RIGHT, "misclassified": WRONG}.get(outcome, UNJUDGED)
        for sample, outcome in clean.items()
    }
    states, before = {}, dict.fromkeys(clean, np.inf)
    for stage in STAGES:
        for sample, state in clean.items():
            broken, outcome = table.get((stage, sample), (None, "spared"))
            below = UNJUDGED if outcome == "failed" else RIGHT
            broken = np.inf if broken is None else broken
            reached = broken if stage in alone else min(broken, before[sample])
            line = (
                [WRONG if eps >= reached else below for eps in EPS[1:]]
                if state == RIGHT
                else [state] * 3
            )
            states[stage, sample] = [state, *([NOT_RUN] * 3 if stage in skipped else line)]
            before[sample] = min(before[sample], broken)
    return clean, states


def test_states_follow_from_the_rows(synthetic):
    for seed in range(10):
        rows, manifest = random_run(synthetic, seed)
        manifest["skipped"] = [{"model": "m", "stage": "fab", "reason": ""}]
        manifest["stages"][1]["turn"] = {"alone": seed % 2 == 1}
        cells = grid(rows, manifest, "m")
        clean, states = expected_states(rows, "m", {"fab"}, alone={"square"} if seed % 2 else ())
        assert cells.ids.tolist() == sorted(clean) and cells.stages == STAGES and cells.model == "m"
        assert cells.clean.tolist() == [clean[sample] for sample in cells.ids.tolist()]
        for i, stage in enumerate(STAGES):
            for j, sample in enumerate(cells.ids.tolist()):
                assert cells.states[i, j].tolist() == states[stage, sample]


def test_the_dense_table_holds_every_cell_once(synthetic):
    rows, manifest = random_run(synthetic, 3)
    table = dense_table(rows, manifest)
    assert {len(column) for column in table.values()} == {2 * 9 * len(STAGES) * len(EPS)}
    cells = {model: grid(rows, manifest, model) for model in "mo"}
    for model, sample, label, attack, eps, state in zip(
        *(column.tolist() for column in table.values()), strict=True
    ):
        of_model = cells[model]
        row = of_model.ids.tolist().index(sample)
        assert label == of_model.labels[row]
        assert state == WORDS[of_model.states[STAGES.index(attack), row, EPS.index(eps)]]


def reference_worst(clean, states):
    """The worst of a sample at one eps, from its states under each stage."""
    if clean == WRONG or WRONG in states:
        return WRONG
    if clean == RIGHT and RIGHT in states and UNJUDGED not in states:
        return RIGHT
    return UNJUDGED


def random_cells(seed):
    rng = np.random.default_rng(seed)
    states = rng.choice(4, (3, 12, 4), p=(0.2, 0.5, 0.1, 0.2)).astype(np.int8)
    clean = rng.choice(3, 12, p=(0.2, 0.7, 0.1)).astype(np.int8)
    ids = np.arange(12)
    return Grid(
        model="m", ids=ids, labels=ids, clean=clean, stages=STAGES, eps=np.array(EPS), states=states
    )


def test_the_worst_case_is_that_of_each_cell():
    for seed in range(10):
        cells = random_cells(seed)
        for stages in ([0], [0, 1], [2, 0], [0, 1, 2]):
            worst = worst_case(cells, stages)
            for j, k in np.ndindex(worst.shape):
                assert worst[j, k] == reference_worst(
                    cells.clean[j], cells.states[stages, j, k].tolist()
                )
        nothing = worst_case(cells, [])
        assert (nothing[:, 1:] == UNJUDGED).all() and nothing.dtype == np.int8
        assert nothing[:, 0].tolist() == [
            state if state <= RIGHT else UNJUDGED for state in cells.clean
        ]


def test_stages_that_cannot_run_take_no_part():
    for seed in range(10):
        cells = random_cells(seed)
        assert ran(cells) == [0, 1, 2]
        cells.states[1, :, 1:] = NOT_RUN
        assert ran(cells) == [0, 2] and (worst_case(cells) == worst_case(cells, [0, 2])).all()


def test_positions_of_budgets():
    eps = np.array([0.0, 1e-3, 0.1, 0.3])
    near = np.array(
        [
            0.3,
            0.1 * (1 + 5e-10),
            0.1 * (1 - 5e-10),
            1e-3,
            0.0,
            0.1 * (1 + 5e-9),
            0.2,
            0.4,
            -1.0,
            0.29,
        ]
    )
    assert eps_index(eps, near).tolist() == [3, 2, 2, 1, 0, -1, -1, -1, -1, -1]
    assert eps_index(np.array([]), near[:2]).tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("stage", "label", "title"),
    [
        ({"name": "pgd?steps=3"}, "pgd?steps=3", "pgd?steps=3"),
        (
            {"name": "a", "label": "PGD", "kept_to": "those that are left"},
            "PGD",
            "PGD, those that are left",
        ),
    ],
)
def test_names_of_stages(stage, label, title):
    assert (stage_label(stage), stage_title(stage)) == (label, title)
