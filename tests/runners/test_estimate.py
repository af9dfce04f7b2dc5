"""Estimates of the cost of a run, for models of known cost."""

import time

import numpy as np
import pytest

from _helpers import Recorder, plan_of, run_audit, threshold
from brinell.core.model import ModelInfo
from brinell.runners.estimate import estimate

N, ROW = 120, 1e-4
X = np.full((N, 2), 0.1, dtype=np.float32)
Y = np.zeros(N, dtype=int)


def slow(x):
    """Robust within 0.3, and every input takes 0.1 ms."""
    time.sleep(ROW * len(x))
    return threshold(0.5)(x)


def estimated(seconds, **request):
    plan = plan_of(Recorder(slow), X, Y, eps="0.1,0.2", **request)
    return plan, estimate(plan, plan.models[0], seconds)


@pytest.mark.parametrize("seconds", [0.5, 0.1])
def test_a_model_that_is_robust_costs_what_the_attacks_say(seconds):
    """Nothing breaks, so each sample costs each attack once; the pilot may or may not come to the second of them."""
    plan, cost = estimated(seconds, attack=("pgd?steps=20", "square?steps=60"), norm="l2")
    passes = [plan.cost_once(plan.models[0], stage) for stage in plan.stages]
    # Attacks ask about the clean input or not; a question more or less is none of the matter here.
    assert cost.passes == pytest.approx(N * sum(map(sum, passes)), rel=0.05)
    forwards_ = N * ROW * sum(forwards for forwards, _ in passes)
    assert 0.9 * forwards_ < sum(stage.seconds for stage in cost.stages) < 3 * forwards_, (
        "the rest is the attack's, on a busy machine"
    )
    assert cost.low <= cost.seconds <= cost.high and cost.samples < N


def test_memory_is_at_least_what_the_process_holds():
    block = np.ones(20_000_000)  # 153 MiB that were there before
    _, cost = estimated(0.1, attack=("fgsm",))
    assert cost.memory > block.nbytes and cost.memory < 64 * 2**30


def test_stages_that_wait_are_told_apart():
    plan, cost = estimated(1.0, attack=("fgsm", "pgd?steps=40&when=masked"))
    current, later = cost.stages
    assert current.expected and not later.expected
    assert later.forwards + later.backwards == N * sum(plan.cost_once(plan.models[0], plan.stages[1]))
    assert cost.alarm_seconds == later.seconds > 0 and cost.passes == current.forwards + current.backwards


def test_half_of_the_samples_break(tmp_path):
    """Every second sample is broken at once, and the others cost the whole attack: what the run spends, from a part of it."""
    x = X.copy()
    x[::2] = 0.45
    plan = plan_of(Recorder(threshold(0.5)), x, Y, eps="0.1", attack=("pgd?steps=20",))
    cost = estimate(plan, plan.models[0], 2.0)
    run = run_audit(tmp_path / "run", Recorder(threshold(0.5)), x, Y, eps="0.1", attack=("pgd?steps=20",))
    rows = run.records()
    passes = int(rows.forwards[rows.attack != "clean"].sum() + rows.backwards.sum())
    assert cost.passes == pytest.approx(passes, rel=0.15)


def test_a_model_on_another_machine_is_asked_nothing():
    class Server:
        pass

    model = Recorder(threshold(0.5))
    plan = plan_of(model, X, Y, eps="0.1", attack=("fgsm",))
    model.info = ModelInfo(server=Server())
    assert estimate(plan, plan.models[0], 1.0) is None and not model.queries
