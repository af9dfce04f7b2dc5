"""The counterexamples of an audit that proofs begin with, and the inputs that a user is given."""

from pathlib import Path

import numpy as np
import pytest

from brinell.core.record import Records
from brinell.reports.examples import closest_rows
from brinell.store import rows
from brinell.store.run import Run

RNG = np.random.default_rng(7)
STAGES = ("fgsm", "pgd", "square")
SAMPLES = 9


@pytest.fixture
def run(monkeypatch):
    """A run whose stages broke some samples each, at budgets and in sizes drawn at random."""
    stage, sample_id = (part.ravel() for part in np.meshgrid(STAGES, range(SAMPLES), indexing="ij"))
    is_robust = RNG.random(len(stage)) < 0.4
    records = rows.build(
        Records,
        len(stage),
        model="net",
        sample_id=sample_id,
        label=0,
        clean_pred=0,
        clean_confidence=1.0,
        attack=stage,
        distance="linf",
        unit=1.0,
        outcome="broken",
        broken=np.ma.masked_where(is_robust, RNG.choice([0.1, 0.2, 0.3], len(stage))),
        linf=np.ma.masked_where(is_robust, RNG.permutation(len(stage)) / 100),
    )
    monkeypatch.setattr(
        Run, "adversarial", lambda self, model, attack, ids: {n: (attack, n) for n in ids}
    )
    return Run(path=Path(), manifest={}, rows=records)


def first_by(run, column, **limits):
    """By brute force the stage of each sample with the smallest value, of several the first."""
    best = {}
    for stage in limits.get("stages", STAGES):
        of_stage = rows.take(run.rows, run.rows.attack == stage)
        for sample, value, eps in zip(
            of_stage.sample_id.tolist(), getattr(of_stage, column), of_stage.broken, strict=True
        ):
            is_broken = eps is not np.ma.masked and eps <= limits.get("limit", 1.0)
            if is_broken and (sample not in best or value < best[sample][0]):
                best[sample] = value, stage
    return {sample: (stage, sample) for sample, (_, stage) in best.items()}


@pytest.mark.parametrize("repetition", range(3))
def test_the_nearest_input_of_all_stages_is_taken(run, repetition):
    nearest = rows.take(run.rows, closest_rows(run.rows, "net", "linf"))
    assert run.inputs_of(nearest) == first_by(run, "linf")


@pytest.mark.parametrize("repetition", range(3))
def test_the_input_of_the_smallest_budget_is_taken(run, repetition):
    assert run.inputs_of(run.closest("net")) == first_by(run, "broken")
    within = run.closest("net", limit=0.2)
    assert run.inputs_of(within) == first_by(run, "broken", limit=0.2)
    of_pgd = run.closest("net", attack="pgd")
    assert run.inputs_of(of_pgd) == first_by(run, "broken", stages=("pgd",))
    assert np.array_equal(of_pgd.sample_id, np.unique(of_pgd.sample_id))
    assert not len(run.closest("another").sample_id)
