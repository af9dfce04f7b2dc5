"""The simulation of runs in shards: times that can be added by hand, and the recorded run itself."""

import random

import numpy as np
import pytest

from _helpers import Recorder, run_audit, threshold
from benchmarks.simulate import Machine, Stage, recorded, resample, simulate

PLAIN = Machine(overhead=0.0, spread=0.0, begin=0.0)


def stage(n, seconds=1.0):
    """Each sample is attacked at level 1 and broken, then at level 0, where it holds."""
    answers = {(sample, 1): (1, False, seconds) for sample in range(n)}
    return Stage({sample: 1 for sample in range(n)}, answers | {(sample, 0): (2, True, seconds) for sample in range(n)})


@pytest.mark.parametrize(("workers", "expected"), [(1, 64.0), (2, 32.0), (4, 16.0), (8, 16.0)])
def test_groups_of_eight_for_so_many(workers, expected):
    """32 samples, two seconds each: four groups, and so no use for more than four."""
    outlook = simulate([stage(32)], workers, 4, 512, PLAIN, random.Random(0))
    assert outlook.seconds == pytest.approx(expected) and outlook.busy == pytest.approx(64) and outlook.groups == 8


def test_stages_wait_for_each_other():
    outlook = simulate([stage(8), stage(8)], 4, 1, 512, PLAIN, random.Random(0))
    assert outlook.seconds == pytest.approx(32)


def test_what_claims_batches_and_starts_cost():
    machine = Machine(overhead=0.5, spread=0.0, begin=10.0, half=8.0)
    outlook = simulate([stage(8)], 1, 1, 512, machine, random.Random(0), clean=3.0)
    assert outlook.seconds == pytest.approx(10 + 3 + 2 * (2 * 8 + 0.5))


def test_processes_that_fail_are_waited_for():
    machine = Machine(overhead=0.0, spread=0.0, begin=0.0, failures=60.0, lease=30.0, restart=5.0)
    outlook = simulate([stage(32)], 2, 4, 512, machine, random.Random(3))
    calm = simulate([stage(32)], 2, 4, 512, PLAIN, random.Random(3))
    assert outlook.failures and outlook.seconds > calm.seconds + 5 and outlook.groups == calm.groups + outlook.failures


def test_a_run_says_what_was_done(tmp_path):
    x = np.random.default_rng(0).uniform(0.1, 0.45, (20, 2)).astype(np.float32)
    run = run_audit(tmp_path / "run", Recorder(threshold(0.5)), x, np.zeros(20, int), eps="0.1:0.3:3", attack=("pgd?steps=2",))
    rows = run.records()
    stages, clean = recorded(rows, "recorder")
    assert len(stages) == 1 and len(stages[0].start) == 20
    work_seconds = sum(seconds for _, _, seconds in stages[0].answers.values())
    assert work_seconds == pytest.approx(float(rows.seconds[rows.attack != "clean"].sum())) and clean > 0
    outlook = simulate(stages, 1, 1, 512, PLAIN, random.Random(0))
    assert outlook.seconds == pytest.approx(work_seconds)
    doubled = resample(stages, 40, 2.0, random.Random(0))
    assert len(doubled[0].start) == 40 and max(doubled[0].start) == 39
