"""Random models, judged by the mean of several looks; and precision, from the request to the
records.
"""

import numpy as np
import pytest
import torch

from _helpers import Recorder, cells_of, mlp, plan_of, run_audit, run_plan, threshold, verify
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.record import CLEAN, Records, has_broken
from brinell.engine.audit import plan_hash
from brinell.models._torch_model import TorchModel
from brinell.store import parquet
from brinell.store.parts import Parts


def make_inputs(n):
    """n inputs at 0.08 from the boundary, and n at 0.12: with a budget of 0.1 the lead ends at +0.4
    or -0.4.
    """
    return np.array(
        [[first, 0.1 + 0.02 * i] for first in (0.42, 0.38) for i in range(n)], dtype=np.float32
    )


X = make_inputs(8)
Y = np.zeros(16, dtype=int)
EPS = 0.1
NOISE = 0.4


class Noisy(Recorder):
    """Says class 1 where the first value is above `level`; noise on its logits or its input moves
    the lead by 0.4.
    """

    def __init__(self, place, level=0.5):
        draw = torch.Generator().manual_seed(7)

        def logits(x):
            noise = torch.randn(len(x), generator=draw) * NOISE
            if place == "input":
                return threshold(level)(x + noise[:, None] / 20)
            return threshold(level)(x) + torch.stack([-noise / 2, noise / 2], 1)

        super().__init__(logits, name=f"noisy {place}")


def fooled(run, attack):
    records = run.rows
    return records.sample_id[(records.attack == attack) & has_broken(records)].tolist()


@pytest.mark.parametrize("place", ["logits", "input"])
def test_the_mean_finds_what_one_look_calls_by_luck(tmp_path, place):
    """Beyond the boundary by a standard deviation of one look, which luck bridges in forty tries;
    by five of the mean of 30.
    """
    lucky = run_audit(tmp_path / "one", Noisy(place), X, Y, eps=str(EPS), attack=("bim?steps=40",))
    assert len([sample for sample in fooled(lucky, "bim?steps=40") if sample >= 8]) >= 6
    attack = "bim?steps=40&eot=30"
    mean = run_audit(tmp_path / "mean", Noisy(place), X, Y, eps=str(EPS), attack=(attack,))
    assert fooled(mean, attack) == list(range(8))


def test_a_noisy_gradient_is_followed_along_its_mean(tmp_path):
    """Twelve slopes of 1 under noise of 1.5: the sign of one look is wrong in every fourth, and
    FGSM loses half its way.
    """
    draw = torch.Generator().manual_seed(3)

    def logits(x):
        z = 10 * (x * (1 + 1.5 * torch.randn(x.shape, generator=draw))).sum(1) - 60 - 10
        return torch.stack([-z, z], 1)

    domain = Domain(kind="vector", shape=(12,))
    x, y = np.full((12, 12), 0.5, dtype=np.float32), np.zeros(12, dtype=int)
    results = {}
    for attack in ("fgsm", "fgsm?eot=100"):
        run = run_audit(
            tmp_path / attack[4:],
            Recorder(logits, domain),
            x,
            y,
            eps="0.3",
            attack=(attack,),
            domain=domain,
        )
        stored = run.adversarial("recorder", attack, range(12))
        results[attack] = np.mean([np.sign(array - 0.5).sum() for array in stored.values()])
    assert results["fgsm"] < 10 < 11.5 < results["fgsm?eot=100"]


def test_a_model_without_noise_has_the_same_verdict(tmp_path):
    single, three = (
        run_audit(
            tmp_path / str(eot),
            Recorder(threshold(0.5)),
            X,
            Y,
            eps="0:0.2:5",
            attack=(f"bim?steps=3{suffix}", f"fgsm{also}"),
        )
        for eot, suffix, also in ((1, "", ""), (3, "&eot=3", "?eot=3"))
    )
    names = dict(
        zip(("bim?steps=3&eot=3", "fgsm?eot=3", CLEAN), ("bim?steps=3", "fgsm", CLEAN), strict=True)
    )
    cost = {key: (f, b, j) for key, f, b, j in costs(single)}
    assert cells_of(single.rows) == {
        (model, names[attack], sample): outcome
        for (model, attack, sample), outcome in cells_of(three.rows).items()
    }
    for (model, attack, sample), *spent in costs(three):
        assert tuple(spent) == tuple(3 * passes for passes in cost[model, names[attack], sample])


def costs(run):
    columns = [cells_of(run.rows, name) for name in ("forwards", "backwards", "judge_forwards")]
    return [(key, *(column[key] for column in columns)) for key in columns[0]]


def stopped(monkeypatch, plan, out):
    """Carry out a plan until it is interrupted at the seventh unit of work."""
    write, calls = Parts.write, []

    def stop(self, key, answer):
        calls.append(answer.rows is not None)
        if sum(calls) == 7:
            raise KeyboardInterrupt
        return write(self, key, answer)

    with monkeypatch.context() as patch:
        patch.setattr(Parts, "write", stop)
        with pytest.raises(KeyboardInterrupt):
            run_plan(plan, out)


def test_a_random_run_that_was_stopped_goes_on(tmp_path, monkeypatch):
    """A resumed run keeps its results, because the model would answer with other numbers."""

    def plan():
        return plan_of(
            Noisy("input"),
            X,
            Y,
            eps="0.05:0.2:4",
            attack=("bim?steps=3&eot=4", "fgsm?eot=4"),
            batch_size=1,
        )

    stopped(monkeypatch, plan(), tmp_path / "run")
    groups = [
        parquet.load_rows(Records, file)
        for file in (tmp_path / "run" / ".parts").glob("1-01-*.parquet")
    ]
    found = {
        key: eps
        for records in groups
        for key, eps in cells_of(records, "broken").items()
        if eps is not None
    }
    assert found
    run = run_plan(plan(), tmp_path / "run", resume=True)
    broken = cells_of(run.rows, "broken")
    assert all(broken[key] <= eps for key, eps in found.items())


@pytest.mark.parametrize("place", ["logits", "input"])
def test_a_random_run_is_verified_by_the_mean(tmp_path, place):
    """Verification notices a shifted boundary in spite of noisy answers; of few samples it decides
    nothing, since a sign test does not see a tenth of them.
    """
    settings = {"eps": "0.05:0.2:4", "attack": ("bim?steps=4&eot=20",)}
    run = run_audit(tmp_path / "few", Noisy(place), X, Y, **settings)
    result = verify(run, plan_of(Noisy(place), X, Y, **settings))
    assert not result.problems and result.undecided

    x, y = make_inputs(24), np.zeros(48, dtype=int)
    run = run_audit(tmp_path / "run", Noisy(place), x, y, **settings)
    result = verify(run, plan_of(Noisy(place), x, y, **settings))
    assert result.passed, result
    problems = verify(run, plan_of(Noisy(place, level=0.6), x, y, **settings)).problems
    assert [
        problem.count
        for problem in problems
        if problem.description == "the stored input is no success"
    ] == [48]
    problems = verify(run, plan_of(Noisy(place, level=0.3), x, y, **settings)).problems
    assert [
        problem.count for problem in problems if "column clean_pred" in problem.description
    ] == [48]


# The stage and the plan


def test_the_plan_says_what_looks_and_checks_cost():
    def cost(**request):
        plan = plan_of(
            TorchModel(mlp(), Domain(kind="vector", shape=(6,)), 3),
            np.full((2, 6), 0.4),
            [0, 1],
            **request,
        )
        return plan.cost(plan.models[0], plan.stages[0])

    # Ten steps and a last look, and one look more to shrink the find, since there is one level.
    assert cost(attack=("pgd?steps=10",), eps="0.1") == (2 * 11, 2 * 10)
    assert cost(attack=("pgd?steps=10&eot=7",), eps="0.1") == (2 * 7 * 11, 2 * 7 * 10)
    assert cost(attack=("pgd?steps=10&eot=7",), eps="0.1,0.2") == (
        2 * 2 * 7 * (11 + 2),
        2 * 2 * 7 * 10,
    )
    assert cost(attack=("pgd?steps=10",), eps="0.1", precision="tf32") == (
        2 * (11 + 10),
        2 * (10 + 10),
    )
    assert cost(attack=("square?steps=10",), eps="0.1", precision="tf32") == (2 * 11, 0)


def test_a_budget_below_one_question_is_refused():
    with pytest.raises(
        RequestError, match=r"queries is 19, and fgsm\?eot=20 spends 20 on one question"
    ):
        plan_of(Recorder(threshold(0.5)), X, Y, attack=("fgsm", "fgsm?eot=20"), queries=19)


def test_cells_tell_looks_and_precision_apart():
    model = TorchModel(mlp(2, 2), Domain(kind="vector", shape=(2,)), 2)
    requests = [
        {"attack": ("fgsm",)},
        {"attack": ("fgsm?eot=2",)},
        {"attack": ("fgsm",), "precision": "tf32"},
    ]
    plans = [plan_of(model, X, Y, **request) for request in requests]
    assert len({plan_hash(plan) for plan in plans}) == 3
