"""Values that may not change: what an attack sees of an input, what the model sees, and what that
is worth.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from _helpers import Recorder, batch_of, distance, ledger_settings, run_audit, threat_of
from _refusals import refused
from brinell import plugins
from brinell.core import norms
from brinell.core.domain import Column, Domain
from brinell.core.errors import ContractError
from brinell.core.ledger import Ledger
from brinell.core.losses import margin
from brinell.core.model import Access
from brinell.core.oracle import Batch
from brinell.core.record import has_broken
from brinell.core.streams import Streams
from brinell.core.threat import Threat, extent
from brinell.datasets._rhythm import with_rhythm
from brinell.models._torch_model import TorchModel
from brinell.store import rows
from brinell.testing.linear import LinearModel, linear_problem

AGE, SEX, INCOME = (
    Column("age", 0.0, 100.0),
    Column("sex", fixed=True, values=("f", "m")),
    Column("income", -1e4, 9e4),
)
DOMAIN = Domain(
    kind="vector",
    shape=(3,),
    low=(0.0, 0.0, 0.0),
    high=(1.0, 5000.0, 1.0),
    columns=(AGE, SEX, INCOME),
)


def test_what_attacks_see_of_a_domain():
    assert DOMAIN.movable.tolist() == [0, 2]
    free = DOMAIN.free
    assert (
        free.shape == (2,)
        and free.low == 0.0
        and free.high == 1.0
        and free.columns == (AGE, INCOME)
    )
    assert free.movable is None and free.free is free
    assert DOMAIN.part(torch.tensor([[0.1, 7.0, 0.3]])).tolist() == [pytest.approx([0.1, 0.3])]
    # A fixed column of thousands does not loosen the bounds of the others.
    assert DOMAIN.slack == pytest.approx(1e-6) and DOMAIN.rounding == 2.0**-24


def test_units_of_a_table():
    x = torch.tensor([[0.5, 3.0, 0.25]], dtype=torch.float64)
    assert DOMAIN.in_units(x).tolist() == [[50.0, 3.0, 15000.0]]
    plain = Domain(kind="vector", shape=(3,))
    assert plain.in_units(x) is x and plain.part(x) is x


LEAD, PACE = Column("II"), Column("pace", 0.0, 60.0, fixed=True)
TRACE = Domain(
    kind="signal", shape=(2, 3), low=(-5.0, 0.0), high=(5.0, 4.0), levels=11, columns=(LEAD, PACE)
)


def test_channels_of_a_signal():
    x = torch.tensor([[[0.4, 1.6, -2.0], [1.25, 1.25, 1.25]]])
    assert (
        TRACE.movable.tolist() == [0]
        and TRACE.free.shape == (1, 3)
        and (TRACE.free.low, TRACE.free.high) == (-5.0, 5.0)
    )
    assert torch.equal(TRACE.part(x), x[:, :1]) and TRACE.in_units(x)[0, 1].tolist() == [75.0] * 3
    stored = TRACE.round(x)
    assert stored.tolist() == [[[0.0, 2.0, -2.0], [1.25] * 3]] and x[0, 0, 1] == pytest.approx(
        1.6
    ), "what is fixed is not rounded"
    assert Domain.from_json(json.loads(json.dumps(TRACE.to_json()))) == TRACE
    # No change is as large as the width of a channel that cannot change.
    assert extent(distance("linf"), TRACE) == 10 and extent(distance("l2"), TRACE) == pytest.approx(
        10 * 3**0.5
    )


def test_a_module_is_asked_in_the_units_of_the_table():
    inputs = []

    class Sees(torch.nn.Module):
        def forward(self, x):
            inputs.append(x.detach().clone())
            return x[:, :2]

    x = torch.tensor([[0.5, 3.0, 0.25]])
    TorchModel(Sees(), DOMAIN, 2).predict(x)
    assert inputs[-1].tolist() == [[50.0, 3.0, 15000.0]]
    TorchModel(
        Sees(), DOMAIN, 2, preprocessing={"mean": [50.0, 3.0, 0.0], "std": 10.0, "axis": -1}
    ).predict(x)
    assert inputs[-1].tolist() == [[0.0, 0.0, 1500.0]]


@given(st.integers(1, 6), st.data())
def test_a_domain_comes_back_from_json(width, data):
    number = st.floats(-1e6, 1e6, allow_nan=False)
    columns = tuple(
        Column(
            name,
            *data.draw(st.tuples(number, number)),
            fixed=index > 0 and data.draw(st.booleans()),
            values=("a",) * index,
        )
        for index, name in enumerate("abcdef"[:width])
    )
    domain = Domain(kind="vector", shape=(width,), low=(-1.0,) * width, high=2.0, columns=columns)
    for candidate in (domain, domain.free, Domain(kind="image", shape=(3, 2, 2), levels=256)):
        assert Domain.from_json(json.loads(json.dumps(candidate.to_json()))) == candidate


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": (AGE, SEX)}, "2 columns for a vector of shape"),
        ({"columns": (SEX, SEX, SEX)}, "every column is fixed"),
        (
            {"kind": "image", "shape": (3, 1, 1)},
            "the values of a vector or the channels of a signal",
        ),
    ],
)
def test_columns_that_do_not_fit(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(DOMAIN, **changes)


# The ledger


def first_minus_third(x):
    z = 100 * (x[:, 0] - x[:, 2]) + x[:, 1]
    return torch.stack([z, -z], 1)


def of_two(eps=0.5, norm="linf", **settings):
    model = Recorder(first_minus_third, DOMAIN)
    batch = batch_of([[0.6, 7.0, 0.4], [0.9, 4000.0, 0.1]], [0, 0])
    return model, batch, Ledger(model, batch, threat_of(eps, norm, DOMAIN, n=2), **settings)


def test_the_model_sees_the_clean_value_beside_what_is_proposed():
    model, batch, ledger = of_two()
    assert ledger.batch.x.tolist() == [pytest.approx([0.6, 0.4]), pytest.approx([0.9, 0.1])]
    assert ledger.threat.domain == DOMAIN.free
    ids = torch.tensor([1, 0, 1])
    proposed = torch.tensor([[0.5, 0.3], [0.3, 0.7], [0.4, 0.6]])
    scores = ledger.oracle().scores(ids, proposed)
    full_inputs = torch.tensor([[0.5, 4000.0, 0.3], [0.3, 7.0, 0.7], [0.4, 4000.0, 0.6]])
    assert torch.equal(model.calls[-1], full_inputs) and torch.equal(
        scores, first_minus_third(full_inputs)
    )
    assert ledger.costs.forwards.tolist() == [1, 2]
    assert ledger.fooled.tolist() == [True, False]
    assert ledger.best.closest[0].tolist() == pytest.approx([0.3, 7.0, 0.7]), (
        "the find is a whole input"
    )
    assert ledger.best.distance[0] == pytest.approx(0.3)


def test_gradients_are_those_of_what_may_change():
    ledger = of_two()[2]
    oracle, ids = ledger.oracle(), torch.arange(2)
    answer = oracle.gradient(ids, ledger.batch.x, margin)
    assert answer.grad.tolist() == [[-200.0, 200.0]] * 2
    answer = oracle.differences(ids, ledger.batch.x, torch.ones(2, 1, dtype=torch.int64))
    assert answer.grad.tolist() == [[[-200.0, 200.0]]] * 2


def test_a_signal_is_judged_with_its_fixed_channel():
    x = torch.tensor([[[0.1, 0.2], [0.5, 0.5]], [[0.3, 0.4], [2.0, 2.0]]])
    batch = Batch(ids=torch.arange(2), x=x, y=torch.zeros(2, dtype=torch.int64))
    domain = replace(TRACE, shape=(2, 2), levels=None)

    def answer(x):
        z = x[:, 1, 0] - x[:, 0].sum(1)
        return torch.stack([z, -z], 1)

    model = Recorder(answer, domain)
    ledger = Ledger(model, batch, threat_of(0.5, "linf", domain, n=2))
    assert torch.equal(ledger.batch.x, x[:, :1]) and ledger.threat.domain == domain.free
    oracle, ids = ledger.oracle(), torch.tensor([1, 0])
    oracle.scores(ids, x[[1, 0], :1] + 0.25)
    assert torch.equal(model.calls[-1][:, 1], x[[1, 0], 1]) and ledger.fooled.tolist() == [
        True,
        False,
    ]
    assert torch.equal(ledger.best.closest[0], torch.tensor([[0.35, 0.45], [0.5, 0.5]]))
    assert oracle.gradient(ids, x[:, :1], margin).grad.tolist() == [[[2.0, 2.0]]] * 2
    assert (
        oracle.differences(ids, x[:, :1], torch.ones(2, 1, dtype=torch.int64)).grad.tolist()
        == [[[[2.0, 2.0]]]] * 2
    )
    with pytest.raises(ContractError, check=refused("core.ledger.Ledger.full_inputs")):
        oracle.scores(ids, x)


def test_whole_inputs_and_clean_ones_that_were_written_into_are_refused():
    _, batch, ledger = of_two()
    with pytest.raises(ContractError, check=refused("core.ledger.Ledger.full_inputs")):
        ledger.oracle().scores(torch.arange(2), batch.x)
    ledger.batch.x.zero_()
    with pytest.raises(ContractError, match="wrote into the clean inputs"):
        ledger.oracle().scores(torch.arange(2), ledger.batch.x.clone())


# Every attack

FAST = {"apgd": {"steps": 12}, "fmn": {"steps": 10}, "simba": {"steps": 40}, "fgsm": {}}
"""Attacks of every access and family: what is fixed is the ledger's matter, and none of them
sees it."""
FIXED = 3
"""Every so many columns one may not change."""


@pytest.mark.parametrize("name", FAST)
def test_no_attack_changes_what_is_fixed_nor_wastes_its_budget_there(name):
    """A linear model over columns of which some are fixed is one over the others: its margin in
    them is known.
    """
    attack = plugins.build("attack", name, FAST[name])
    for norm in sorted(attack.distances):
        problem = linear_problem("vector", norm, n=4)
        width = problem.model.domain.shape[0]
        columns = tuple(Column(str(index), fixed=index % FIXED == 0) for index in range(width))
        domain = replace(problem.model.domain, columns=columns)
        model = LinearModel(problem.model.weight, problem.model.bias, domain)
        free = torch.tensor([index for index in range(width) if index % FIXED])
        for factor in (0.95, 1.05):
            eps = torch.cat(
                [
                    factor
                    * _margin_in(
                        model, problem.batch.x[row : row + 1], problem.batch.y[row], free, norm
                    )
                    for row in range(4)
                ]
            )
            threat = Threat(distance=distance(norm), eps=eps, domain=domain)
            ledger = Ledger(
                model, problem.batch, threat, **ledger_settings(attack, norm), batch_size=3
            )
            attack(ledger.oracle(), ledger.batch, ledger.threat, Streams.of(0, problem.batch.ids))
            assert torch.equal(ledger.best.closest[:, ::FIXED], problem.batch.x[:, ::FIXED])
            if factor < 1:
                assert not ledger.fooled.any()
            elif attack.access == Access.GRADIENTS:
                assert ledger.fooled.all()


def _margin_in(model, x, y, free, norm):
    """(1,): the exact margin of a linear model in the columns that are free, the others being what
    they are in this sample.
    """
    fixed_values = x.clone()
    fixed_values[:, free] = 0
    bias = model.bias + fixed_values[0] @ model.weight.T
    part = LinearModel(model.weight[:, free], bias, Domain(kind="vector", shape=(len(free),)))
    return part.margin(x[:, free], y[None], norm)


# In an audit


def table_or_heartbeats(draw):
    """Data of values of which some are fixed, as table: and rhythm= describe them: the domain, and
    inputs (n, *shape).
    """
    if draw.random() < 0.5:
        levels = 256 if draw.random() < 0.5 else None
        domain = with_rhythm(
            Domain(kind="signal", shape=(int(draw.integers(1, 3)), 4), levels=levels)
        )
    else:
        fixed = draw.permutation([True, False, False, *(draw.random(3) < 0.5)]).tolist()
        columns = tuple(
            Column(f"column {number}", fixed=entry) for number, entry in enumerate(fixed)
        )
        domain = Domain(
            kind="vector",
            shape=(6,),
            high=tuple(9.0 if entry else 1.0 for entry in fixed),
            columns=columns,
        )
    x = torch.from_numpy(draw.random((32, *domain.shape))).float()
    return domain, domain.round(x * domain.bounds(x)[1])


@settings(max_examples=6)
@given(
    st.integers(0, 2**32),
    st.sampled_from([("fgsm", "linf"), ("apgd?steps=5", "l2"), ("square?steps=20", "linf")]),
)
def test_adversarial_examples_are_judged_as_whole_inputs(tmp_path_factory, seed, setting):
    """What stands in the rows is what the model says of whole inputs, and how far they are from
    whole clean ones."""
    (attack, norm), draw = setting, np.random.default_rng(seed)
    domain, x = table_or_heartbeats(draw)
    weight = (
        torch.from_numpy(draw.normal(size=(3, *domain.shape))).float() / domain.bounds(x)[1]
    ).flatten(1)
    model = LinearModel(
        weight, -weight @ x.flatten(1).mean(0), domain
    )  # undecided in the middle of the data
    run = run_audit(
        tmp_path_factory.mktemp("run"),
        model,
        x,
        model.predict(x).argmax(1),
        eps="0.9",
        attack=attack,
        norm=norm,
    )
    records = run.rows
    records = rows.take(records, has_broken(records))
    found, ids = run.adversarial("linear", attack, range(len(x))), records.sample_id.tolist()
    assert sorted(found) == sorted(ids) and ids
    clean, adversarial = x[ids], torch.from_numpy(np.stack([found[sample] for sample in ids]))
    fixed = [number for number, column in enumerate(domain.columns) if column.fixed]
    assert torch.equal(adversarial[:, fixed], clean[:, fixed]) and adversarial.shape == clean.shape
    logits, y = model.predict(adversarial), torch.from_numpy(np.asarray(records.label))
    expected = {
        name: getattr(norms, name)(adversarial - clean) for name in ("linf", "l2", "l1", "l0")
    }
    expected |= {
        "adv_pred": logits.argmax(1),
        "adv_confidence": logits.softmax(1).amax(1),
        "adv_margin": margin(logits, y),
    }
    if domain.levels is None:
        expected |= {"quantised_pred": logits.argmax(1), "quantised_within": torch.ones(len(ids))}
    for name, values in expected.items():
        np.testing.assert_allclose(
            getattr(records, name).astype(float), values, rtol=1e-4, atol=1e-5, err_msg=name
        )


def test_batches_of_others_keep_their_shape():
    batch = Batch(ids=torch.arange(1), x=torch.zeros(1, 2), y=torch.zeros(1, dtype=torch.int64))
    ledger = Ledger(Recorder(lambda x: x), batch, threat_of(0.1))
    assert ledger.batch is batch and ledger.full_inputs(batch.ids, batch.x) is batch.x
