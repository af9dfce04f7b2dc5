"""Estimates of the cost of a run, for models of known cost by a clock that moves when they answer."""

import numpy as np
import pytest

from _helpers import Recorder, plan_of, run_audit, threshold
from brinell.core.model import ModelInfo
from brinell.engine import estimate as estimates
from brinell.engine.estimate import estimate

N, ROW = 60, 1e-4
X = np.full((N, 2), 0.1, dtype=np.float32)
Y = np.zeros(N, dtype=int)


@pytest.fixture(autouse=True)
def now(monkeypatch):
    """The time in seconds, which an answer moves by `ROW` an input."""
    now = [0.0]
    monkeypatch.setattr(estimates, "clock", lambda: now[0])
    return now


def model_of(now, x=X):
    """Robust within 0.3, and every input takes 0.1 ms."""

    def answer(x):
        now[0] += ROW * len(x)
        return threshold(0.5)(x)

    return Recorder(answer)


def estimated(now, seconds, x=X, **request):
    plan = plan_of(model_of(now), x, Y[: len(x)], **({"eps": "0.1,0.2"} | request))
    return plan, estimate(plan, plan.models[0], seconds)


def passes_of(cost):
    return sum(passes for passes, _ in cost.stages.values())


def test_a_model_that_is_robust_costs_what_the_attacks_say(now):
    """Nothing breaks, so each sample costs each attack once; the shorter pilot does not come to the second attack."""
    for seconds in (0.1, 0.02):
        plan, cost = estimated(now, seconds, attack=("pgd?steps=10", "square?steps=20"), norm="l2")
        passes = [plan.cost_once(plan.models[0], stage) for stage in plan.stages]
        # Attacks ask about the clean input or not; a question more or less is none of the matter here.
        assert passes_of(cost) == pytest.approx(N * sum(map(sum, passes)), rel=0.06)
        forwards = N * ROW * sum(forwards for forwards, _ in passes)
        assert sum(seconds for _, seconds in cost.stages.values()) == pytest.approx(forwards, rel=0.5)
        assert cost.seconds > sum(seconds for _, seconds in cost.stages.values()) and cost.samples < N


def test_memory_is_at_least_what_the_process_holds(now):
    block = np.ones(20_000_000)  # 153 MiB that were there before
    _, cost = estimated(now, 0.1, attack=("fgsm",))
    assert cost.memory > block.nbytes and cost.memory < 64 * 2**30


def test_stages_that_wait_are_left_out(now):
    plan, cost = estimated(now, 1.0, attack=("fgsm", "pgd?steps=40&when=masked"))
    assert list(cost.stages) == [plan.stages[0].name]


def test_half_of_the_samples_break(tmp_path, now, monkeypatch):
    """Every second sample is broken at once, and the others cost the whole attack: what the run spends, from all or a part."""
    x = X.copy()
    x[::2] = 0.45
    run = run_audit(tmp_path / "run", Recorder(threshold(0.5)), x, Y, eps="0.1", attack=("pgd?steps=20",))
    rows = run.records()
    passes = int(rows.forwards[rows.attack != "clean"].sum() + rows.backwards.sum())
    _, whole = estimated(now, 60.0, x=x, eps="0.1", attack=("pgd?steps=20",))
    assert whole.samples == N and passes_of(whole) == passes
    monkeypatch.setattr(estimates, "MAX_SAMPLES", 30)
    _, part = estimated(now, 60.0, x=x, eps="0.1", attack=("pgd?steps=20",))
    assert part.samples == 30 and passes_of(part) == pytest.approx(passes, rel=0.3)


def test_a_model_on_another_machine_is_asked_nothing(now):
    class Server:
        pass

    model = model_of(now)
    plan = plan_of(model, X, Y, eps="0.1", attack=("fgsm",))
    model.info = ModelInfo(server=Server())
    assert estimate(plan, plan.models[0], 1.0) is None and not model.queries
