"""The audit itself, on targets whose whole curve is known: one row per cell, the right outcome in
each, at the least cost.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from _helpers import Recorder, asked_elsewhere, mlp, rows_of, run_audit, states_of, threshold
from _refusals import refused
from brinell.core.domain import Domain
from brinell.core.errors import ContractError, ModelError
from brinell.core.record import CLEAN, COLUMNS, has_broken
from brinell.models._torch_model import TorchModel
from brinell.testing import linear_problem

LEVELS = [0.05, 0.1, 0.15, 0.2]
EPS = "0.05,0.1,0.15,0.2"
# Margins 0.12, 0.02, 0.30, wrong from the start, 0.19.
X = np.array([[0.38, 0.1], [0.48, 0.3], [0.20, 0.5], [0.55, 0.7], [0.31, 0.9]], dtype=np.float32)
Y = np.zeros(5, dtype=int)
B, R = "broken", "robust"
FIRST = [[R, R, B, B], [B, B, B, B], [R, R, R, R], [B, B, B, B], [R, R, R, B]]


def table(run, attack, model="recorder"):
    """The state of each sample at each level."""
    states = states_of(run)
    return [
        [states[model, attack, sample, level] for level in LEVELS]
        for sample in sorted({key[2] for key in states})
    ]


def facts(run, attack, *columns, model="recorder"):
    """By sample of the rows of a stage, some columns."""
    rows = run.rows
    of_stage = np.flatnonzero((rows.attack == attack) & (rows.model == model))
    values = zip(
        *(np.ma.asarray(getattr(rows, name))[of_stage].tolist() for name in columns), strict=True
    )
    return dict(zip(rows.sample_id[of_stage].tolist(), values, strict=True))


def recorder(**settings):
    return Recorder(threshold(0.5), **settings)


def test_every_outcome_by_hand(tmp_path):
    run = run_audit(tmp_path / "run", recorder(), X, Y, eps=EPS, attack=("fgsm", "bim?steps=3"))
    assert table(run, "fgsm") == table(run, "bim?steps=3") == FIRST
    columns = ("attacked", "broken", "outcome")
    assert facts(run, "fgsm", *columns) == {
        0: (0.2, 0.15, "broken"),
        1: (0.2, 0.05, "broken"),
        2: (0.2, None, "survived"),
        4: (0.2, 0.2, "broken"),
    }
    assert facts(run, "bim?steps=3", *columns) == {
        0: (0.1, None, "survived"),
        2: (0.2, None, "survived"),
        4: (0.15, None, "survived"),
    }
    clean = {sample: outcome for sample, (outcome,) in facts(run, CLEAN, "outcome").items()}
    assert clean == {0: "correct", 1: "correct", 2: "correct", 3: "misclassified", 4: "correct"}


def test_every_column_by_hand(tmp_path):
    """Sample 0 is 0.12 from the boundary: FGSM wins at 0.2, and the find is moved to 0.15, the
    smallest budget that holds one.
    """
    run = run_audit(tmp_path / "run", recorder(), X[:1], Y[:1], eps=EPS, attack=("fgsm",))
    columns = dict(zip(COLUMNS, facts(run, "fgsm", *COLUMNS)[0], strict=True))
    z = 10 * (0.38 + 0.15 - 0.5)
    confidence = 1 / (1 + np.exp(-2 * z))
    assert (
        columns["label"] == 0
        and columns["clean_pred"] == 0
        and columns["adv_pred"] == 1
        and columns["quantised_pred"] == 1
    )
    assert columns["clean_confidence"] == pytest.approx(1 / (1 + np.exp(-2.4)), rel=1e-5)
    assert columns["adv_confidence"] == pytest.approx(confidence, rel=1e-4)
    assert columns["adv_margin"] == pytest.approx(2 * z, rel=1e-4)
    assert columns["margin"] == pytest.approx(20 * (0.38 + 0.1 - 0.5), rel=1e-4), (
        "what was left at 0.1, where the attack failed"
    )
    # The second value has no gradient and does not move.
    assert [columns[norm] for norm in ("linf", "l2", "l1", "l0")] == pytest.approx(
        [0.15, 0.15, 0.15, 1], rel=1e-5
    )
    assert columns["quantised_within"] is True and columns["unit"] == 1
    # At 0.2 gradient, look, and two bisecting looks at 0.1 and 0.15, of which the second forward
    # won first; at 0.1 two more.
    assert (columns["forwards"], columns["backwards"], columns["queries_to_success"]) == (6, 2, 2)
    stored = run.adversarial("recorder", "fgsm", [0])[0]
    np.testing.assert_allclose(stored, [0.53, 0.1], rtol=1e-5)


def test_what_the_records_say_is_what_the_model_was_asked(tmp_path):
    model = recorder()
    run = run_audit(tmp_path / "run", model, X, Y, eps=EPS, attack=("fgsm", "bim?steps=3"))
    records = run.rows
    probe_forwards = run.manifest["probes"]["recorder"][
        "forwards"
    ]  # for the checks before the attacks, outside the records
    asked = records.forwards.sum() + records.judge_forwards.sum() + probe_forwards
    assert model.queries + asked_elsewhere(run) == asked


margins = st.lists(st.integers(-10, 40), min_size=1, max_size=12)


@settings(max_examples=4)
@given(
    margins, st.integers(1, 5), st.lists(st.integers(1, 30), min_size=1, max_size=8, unique=True)
)
def test_the_whole_curve_is_known(tmp_path_factory, margins, batch_size, levels):
    """Samples at whole hundredths and a half from the boundary, budgets at whole hundredths: broken
    where eps is larger.
    """
    margins = [margin / 100 + 0.005 for margin in margins]
    x = np.array([[0.5 - margin, 0.5] for margin in margins], dtype=np.float32)
    eps = ",".join(f"{level}/100" for level in levels)
    out = tmp_path_factory.mktemp("run")
    run = run_audit(
        out,
        recorder(),
        x,
        [0] * len(x),
        eps=eps,
        attack=("fgsm", "bim?steps=2"),
        batch_size=batch_size,
    )
    states = states_of(run)
    assert len(states) == 2 * len(x) * len(levels)
    for (_, _, sample, level), state in states.items():
        assert (state == B) == (margins[sample] < level)
    assert not (out / ".parts").exists()


# The sweep against separate runs


def strong_problem(kind, norm):
    """A linear problem with levels between its margins, none within a tenth of one."""
    problem = linear_problem(kind, norm, n=40)
    order = problem.margin.sort().values
    levels = [float(order[i] + order[i + 1]) / 2 for i in (4, 14, 24, 34)]
    clear = torch.stack([(problem.margin / level - 1).abs() > 0.1 for level in levels]).all(0)
    return problem, levels, clear


def test_a_sweep_equals_separate_runs_and_the_exact_curve(tmp_path):
    attack = ("apgd-ce?steps=15",)
    problem, levels, clear = strong_problem("image", "linf")
    x, y, margin = (
        problem.batch.x[clear].numpy(),
        problem.batch.y[clear].numpy(),
        problem.margin[clear],
    )
    assert len(x) > 10

    def broken(name, eps):
        states = states_of(run_audit(tmp_path / name, problem.model, x, y, eps=eps, attack=attack))
        return {key[2:] for key, state in states.items() if state == B}

    swept = broken("sweep", ",".join(f"{level:.9f}" for level in levels))
    assert swept == set().union(
        *(broken(f"one-{i}", f"{level:.9f}") for i, level in enumerate(levels))
    )
    assert swept == {
        (i, round(level, 9)) for i in range(len(x)) for level in levels if margin[i] < level
    }


# What must not matter


INEXACT = ("seconds", *(name for name, column in COLUMNS.items() if column.kind == "float32"))


def audit_mlp(out, **request):
    module = mlp(8, 3, seed=1)
    model = TorchModel(module, Domain(kind="vector", shape=(8,)), 3, name="mlp")
    x = torch.rand(20, 8, generator=torch.Generator().manual_seed(5))
    y = module(x).argmax(1).numpy()
    y[::7] = (y[::7] + 1) % 3
    settings = {"eps": "0.02:0.2:4", "attack": ("pgd?steps=4", "apgd-dlr?steps=6")} | request
    return run_audit(out, model, x.numpy(), y, **settings)


def test_batch_and_group_size_do_not_matter(tmp_path):
    runs = [audit_mlp(tmp_path / str(size), batch_size=size) for size in (3, 128)]
    rows = [rows_of(run.rows, without=INEXACT) for run in runs]
    assert rows[0] == rows[1]
    records = runs[0].rows
    assert 5 < len(set(records.sample_id[has_broken(records)].tolist())) < 20
    for attack in ("pgd?steps=4", "apgd-dlr?steps=6"):
        stored = [run.adversarial("mlp", attack, range(20)) for run in runs]
        assert stored[0].keys() == stored[1].keys()
        for sample, array in stored[0].items():
            np.testing.assert_allclose(stored[1][sample], array, atol=1e-5)


def test_the_same_run_twice_is_the_same_to_the_bit(tmp_path):
    first, two = (audit_mlp(tmp_path / name) for name in "ab")
    assert rows_of(first.rows) == rows_of(two.rows)
    arrays = [name for name in first.manifest["files"] if name.startswith("arrays/")]
    assert arrays and all(
        first.manifest["files"][name] == two.manifest["files"][name] for name in arrays
    )


def test_several_models_are_as_each_alone(tmp_path):
    def models():
        return recorder(name="near"), Recorder(threshold(0.71), name="far")

    joint_run = run_audit(tmp_path / "both", models(), X, Y, eps=EPS, attack=("fgsm",))
    single_runs = [
        run_audit(tmp_path / model.name, model, X, Y, eps=EPS, attack=("fgsm",))
        for model in models()
    ]
    assert rows_of(joint_run.rows) == sorted(
        rows_of(single_runs[0].rows) + rows_of(single_runs[1].rows), key=str
    )
    assert [model["name"] for model in joint_run.manifest["models"]] == ["near", "far"]
    assert table(joint_run, "fgsm", "near") == FIRST
    assert table(joint_run, "fgsm", "far")[3] == [R, R, R, B]


# Ends of the range


def test_eps_zero_alone(tmp_path):
    model = recorder()
    run = run_audit(tmp_path / "run", model, X, Y, eps="0", attack=("fgsm",))
    records = run.rows
    probe_forwards = run.manifest["probes"]["recorder"]["forwards"]
    assert records.attack.tolist() == [CLEAN] * 5 and model.queries == 5 + probe_forwards, (
        "beyond a look each, and those of the checks"
    )
    assert run.manifest["eps"] == [0.0]


def test_query_budget_holds_for_attack_and_bisection(tmp_path_factory, subtests):
    for queries in [1, 2, 3, 5]:
        with subtests.test(str((queries,))):
            tmp_path = tmp_path_factory.mktemp("row")
            run = run_audit(
                tmp_path / "run",
                recorder(),
                X,
                Y,
                eps=EPS,
                attack=("fgsm", "bim?steps=3"),
                queries=queries,
            )
            records = run.rows
            attacked = np.ma.filled(records.attacked, 0.2)
            attacks = 2 + np.round(
                (attacked - np.where(has_broken(records), records.broken, attacked)) / 0.05
            )
            assert (records.forwards <= queries * attacks).all()
            if queries == 1:
                assert not has_broken(records).any()
            if (
                queries == 3
                # One bisecting look each: sample 0 stays at 0.2 since 0.1 fails, and at 0.15 since
                # 0.05 does.
            ):
                assert table(run, "fgsm")[0] == [R, R, B, B]


# A minimal attack, and attacks that do not fit

USER_ATTACKS = """
from dataclasses import dataclass
from typing import ClassVar

import torch

from brinell.core.losses import margin
from brinell.core.model import Access


@dataclass(frozen=True, kw_only=True)
class Bisect:
    \"\"\"Bisects along the sign of the gradient.\"\"\"

    access: ClassVar = Access.GRADIENTS
    distances: ClassVar = frozenset({"linf"})
    domains: ClassVar = frozenset({"vector"})
    family: ClassVar = "minimal"
    targeted: ClassVar = False

    def cost(self, classes):
        return 11, 1

    def __call__(self, ledger, batch, threat, rng):
        sign = ledger.gradient(batch.ids, batch.x, margin).grad.sign()
        low, high = torch.zeros(len(batch)), torch.ones(len(batch))
        for _ in range(10):
            middle = (low + high) / 2
            x = threat.domain.clamp(batch.x + (middle * threat.eps)[:, None] * sign)
            wrong = ledger.labels(batch.ids, x) != batch.y
            low, high = torch.where(wrong, low, middle), torch.where(wrong, middle, high)


@dataclass(frozen=True, kw_only=True)
class OnlyImages(Bisect):
    \"\"\"Cannot run on vectors.\"\"\"

    domains: ClassVar = frozenset({"image"})


@dataclass(frozen=True, kw_only=True)
class Cheats(Bisect):
    \"\"\"Leaves its budget.\"\"\"

    family: ClassVar = "budgeted"

    def __call__(self, ledger, batch, threat, rng):
        ledger.labels(batch.ids, threat.domain.clamp(batch.x + 2 * threat.eps[:, None]))
"""


@pytest.fixture
def attack_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(USER_ATTACKS)
    return file


def test_a_minimal_attack_gives_the_curve_in_one_run(tmp_path, attack_file):
    spec = f"{attack_file}:Bisect"
    model = recorder()
    run = run_audit(tmp_path / "run", model, X, Y, eps=EPS, attack=(spec, "fgsm"))
    assert table(run, spec) == table(run, "fgsm") == FIRST
    assert facts(run, spec, "forwards") == dict.fromkeys((0, 1, 2, 4), (11,))
    # The find is as close as the attack brought it, not moved to a budget.
    assert facts(run, spec, "linf")[0][0] == pytest.approx(0.12, abs=0.001)


def test_an_attack_that_does_not_fit_has_no_rows(tmp_path, attack_file):
    spec = f"{attack_file}:OnlyImages"
    run = run_audit(tmp_path / "run", recorder(), X, Y, eps=EPS, attack=(spec, "fgsm"))
    assert table(run, spec) == [["skipped"] * 4] * 5 and facts(run, spec, "outcome") == {}
    assert table(run, "fgsm") == FIRST
    assert run.manifest["skipped"] == [
        {"model": "recorder", "stage": spec, "reason": "it works on image inputs, not on a vector"}
    ]


def test_an_attack_that_cheats_stops_the_run(tmp_path, attack_file):
    with pytest.raises(ContractError, check=refused("core.ledger.Ledger._check_reach")):
        run_audit(tmp_path / "run", recorder(), X, Y, eps=EPS, attack=(f"{attack_file}:Cheats",))


# As stored


def test_success_of_quantised_examples(tmp_path):
    """Eleven levels, boundary at 0.42: an example at 0.43 is stored as 0.4, which does not fool;
    one at 0.46 as 0.5, beyond eps.
    """
    domain = Domain(kind="vector", shape=(2,), levels=11)
    model = Recorder(threshold(0.42), domain)
    x = np.array([[0.4, 0.5]], dtype=np.float32)
    outcomes = {}
    for eps in ("0.03", "0.06", "0.1"):
        run = run_audit(tmp_path / eps, model, x, [0], eps=eps, attack=("fgsm",), domain=domain)
        records = run.rows
        row = has_broken(records)
        outcomes[eps] = (
            records.adv_pred[row].tolist()
            + records.quantised_pred[row].tolist()
            + records.quantised_within[row].tolist()
        )
        # Inside 0.06 the find is stored as 0.4, where it is none: then the nearest level is looked
        # at too.
        assert records.judge_forwards[row].tolist() == [2 if eps == "0.06" else 1]
    assert outcomes == {"0.03": [1, 0, True], "0.06": [1, 1, False], "0.1": [1, 1, True]}


# Models that answer what cannot be judged


def test_answers_that_cannot_be_judged(tmp_path_factory, subtests):
    for function, message in [
        (lambda x: x * torch.nan, "answered NaN or infinity"),
        (lambda x: x / 0, "answered NaN or infinity"),
        (lambda x: x[:, :1], r"model recorder answered \(5, 1\) to 5 inputs, not \(5, 2\)"),
        (
            lambda x: torch.where(x[:, :1] > 0.56, torch.nan, 1.0) * threshold(0.5)(x),
            "NaN or infinity",
        ),
    ]:
        with subtests.test(str((function, message))):
            tmp_path = tmp_path_factory.mktemp("row")
            with pytest.raises(ModelError, match=message):
                run_audit(tmp_path / "run", Recorder(function), X, Y, eps=EPS, attack=("fgsm",))


def test_the_gallery_keeps_clean_inputs_of_the_fooled(tmp_path):
    run = run_audit(tmp_path / "run", recorder(), X, Y, eps=EPS, attack=("fgsm",))
    gallery = run.clean()
    assert sorted(gallery) == [0, 1, 4]
    for sample, array in gallery.items():
        np.testing.assert_array_equal(array, X[sample])
