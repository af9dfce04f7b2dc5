"""The shown margin on the way to the decision boundary: known answers, and scores made at random
that decide or do not.
"""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from _helpers import VECTOR, Recorder, batch_of, distance, mlp, plan_of, run_plan, threshold
from brinell.core.checks import Code
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.core.model import Access
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.engine import boundary
from brinell.engine.checks import BEFORE_ATTACKS
from brinell.engine.context import CheckContext, NotMadeError

CUBE = Domain(kind="vector", shape=(6,))
CLASSES = 4


def label(z):
    return F.one_hot(z.argmax(1), z.shape[1]).float()


def network(seed):
    return mlp(6, CLASSES, seed)


def inputs(seed, n=64, features=6):
    return torch.rand(n, features, generator=torch.Generator().manual_seed(seed))


def oracle_of(function, x, domain=CUBE, classes=CLASSES):
    """An oracle, its ledger, the model, the batch of what it answers, and the answers."""
    model = Recorder(function, domain, classes)
    with torch.no_grad():
        logits = function(x)
    batch = batch_of(x, logits.argmax(1))
    ledger = Ledger(
        model,
        batch,
        Threat(distance=distance("linf"), eps=torch.ones(len(x)), domain=domain),
        minimal=True,
    )
    return ledger.oracle(), ledger, model, ledger.batch, logits


def check(function, x, domain=CUBE, classes=CLASSES):
    oracle, _, _, batch, logits = oracle_of(function, x, domain, classes)
    return boundary.check_margin(
        oracle, batch, logits, domain.free, Streams.of(0, batch.ids), free=domain.movable is None
    )


def crossings(function, x, classes=CLASSES):
    oracle, _, _, batch, logits = oracle_of(function, x, classes=classes)
    return boundary.find_crossings(
        oracle,
        boundary.lines_between(oracle, batch, logits, free=True),
        boundary.lead(logits).median(),
    )


# Known answers


def test_a_linear_margin_reaches_zero():
    x = torch.tensor([[0.1, 0.5], [0.9, 0.2], [0.3, 0.7], [0.8, 0.1]])
    oracle, ledger, model, batch, logits = oracle_of(threshold(0.5), x, VECTOR, 2)
    lines = boundary.lines_between(oracle, batch, logits, free=True)
    crossing = boundary.find_crossings(oracle, lines, boundary.lead(logits).median())
    assert (
        len(crossing.before) == 4
        and float(torch.stack([crossing.before, crossing.after]).amax()) <= boundary.CLOSE
    )
    assert not crossing.jumps().any() and float(crossing.steep().amax()) == 0
    assert sorted(crossing.classes[:, 0].tolist()) == [0, 0, 1, 1]
    assert int(ledger.costs.forwards.sum()) == model.queries <= 5 * 4


def test_the_bracket_holds_the_boundary():
    """A lead of 1 on one side and of 3 on the other: no secant finds it, halving does."""
    x = torch.tensor([[0.0], [1.0]]).repeat(8, 1)

    def function(x):
        return torch.where(x < 0.3, torch.tensor([1.0, 0.0]), torch.tensor([0.0, 3.0]))

    oracle, _, model, batch, logits = oracle_of(function, x, Domain(kind="vector", shape=(1,)), 2)
    boundary.find_crossings(
        oracle, boundary.lines_between(oracle, batch, logits, free=True), torch.tensor(1.0)
    )
    questions = torch.cat(model.calls)[:, 0]
    assert (
        0.3 - 1e-5 < float(questions[questions < 0.3].max())
        and float(questions[questions >= 0.3].min()) < 0.3 + 1e-5
    )


def test_where_all_inputs_are_of_one_class_lines_lead_to_others():
    x = inputs(0) / 2 + 0.5
    assert check(network(0), inputs(0, 6)).passed is None, "few lines can fail and not pass"
    finding = check(lambda x: torch.cat([x[:, :1], 0.4 - 0 * x[:, :1]], 1), x, classes=2)
    assert finding.passed is True and "all of one class" in finding.text
    assert (
        check(lambda x: label(torch.cat([x[:, :1], 0.4 - 0 * x[:, :1]], 1)), x, classes=2).passed
        is False
    )
    with pytest.raises(NotMadeError, match="the inputs and random ones are of one class"):
        check(lambda x: torch.cat([x[:, :1] + 1, x[:, :1]], 1), x, classes=2)


# Made at random


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), scale=st.floats(-30, 30), power=st.sampled_from([0.5, 1.0, 2.0]))
def test_scores_that_decide_pass(seed, scale, power):
    net = network(seed % 50)
    with torch.no_grad():
        centre = net(inputs(1)).mean(0)
    x = inputs(seed)

    def function(x):
        z = net(x) - centre
        return 10.0**scale * z.sign() * z.abs() ** power

    finding = check(function, x)
    assert finding.passed is not False, finding.text


@settings(max_examples=8)
@given(
    seed=st.integers(0, 10**6),
    weight=st.floats(0, 0.2),
    base=st.floats(0.5, 20),
    slope=st.floats(-0.4, 30),
    scale=st.floats(-20, 20),
)
def test_scores_that_do_not_decide_fail(seed, weight, base, slope, scale):
    """The class of the network with a lead of another origin, whatever its size."""
    net, x = network(seed % 50), inputs(seed)
    if len(net(x).argmax(1).unique()) < 2:
        return

    def function(x):
        z, confidence = net(x), base + slope * x.mean(1, keepdim=True)
        return 10.0**scale * (
            weight * base * z / (z.abs().amax(1, keepdim=True) + 1) + label(z) * confidence
        )

    assert check(function, x).passed is False


def test_scores_that_change_in_steps_tell_nothing():
    """Sums of many stumps, as trees and forests answer: every boundary is a step."""
    generator, x = torch.Generator().manual_seed(3), inputs(3)
    flat = x.flatten(1)
    features = torch.randint(flat.shape[1], (60,), generator=generator)
    cuts, votes = torch.rand(60, generator=generator), torch.randn(60, CLASSES, generator=generator)

    def stumps(x):
        return (x.flatten(1)[:, features] > cuts).float() @ votes

    with pytest.raises(NotMadeError, match="change in steps"):
        check(stumps, x)


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6))
def test_a_single_class_is_seen_and_named(seed):
    net, x = network(seed % 50), inputs(seed)
    classes, counts = net(x).argmax(1).unique(return_counts=True)
    if len(classes) < 3 or counts.min() < 3:
        return
    fault = int(classes[seed % len(classes)])

    def function(x):
        z = net(x)
        return z + label(z) * 5 * (z.argmax(1) == fault)[:, None]

    finding = check(function, x)
    assert finding.passed is False and f"class {fault} leads" in finding.text


def test_a_cliff_is_no_slope():
    """The lead is continuous and reaches its height within a small distance of the boundary."""
    for width in [0.02, 2e-3, 1e-4]:

        def function(x, width=width):
            z = network(0)(x)
            top = z.topk(2, 1).values
            return 0.01 * z + label(z) * 5 * ((top[:, :1] - top[:, 1:]) / width).tanh()

        finding = check(function, inputs(0))
        assert finding.passed is False and "of the way to the decision boundary" in finding.text


# Of the samples that attacks left


def survivors(function, x, model_access=Access.GRADIENTS, *, is_first=False):
    model = Recorder(function, CUBE, CLASSES)
    model.access = model_access
    batch = batch_of(x, [0] * len(x))
    context = CheckContext(
        model, batch, distance("linf"), torch.inf, Streams.of(0, batch.ids), batch_size=16
    )
    look = partial(boundary.margin_of, description=boundary.LEFT, is_first=is_first)
    (finding,) = context.make({Code.BOUNDARY: look})
    assert model.queries == context.costs[0] and max(len(call) for call in model.calls) <= 16
    return finding


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), access=st.sampled_from([Access.GRADIENTS, Access.SCORES]))
def test_robust_samples_of_a_healthy_network_pass(seed, access):
    assert survivors(network(seed % 50), inputs(seed, 20), access).passed is not False


def flagged(x):
    """Inputs of which the last value, which decides nothing, marks a fifth."""
    return x[:, 5:] > 0.8


def network_with_a_fault():
    net = network(0)
    with torch.no_grad():
        net[1].weight[:, 5] = 0

    def function(x):
        z = net(x)
        return z + label(z) * 20 * flagged(x)

    return function


def test_the_way_to_an_adversarial_example_is_asked_about():
    x = inputs(0)
    function = network_with_a_fault()
    marked = x[flagged(x)[:, 0]]
    crossed = marked.clone()
    crossed[:, :5] = 1 - crossed[:, :5]
    changed = function(crossed).argmax(1) != function(marked).argmax(1)
    healthy = x[~flagged(x)[:, 0]]
    for is_first, (robust, examples) in zip((True, False), boundary.AFTER_ATTACKS, strict=True):
        parts = healthy[:robust], marked[changed][:examples], crossed[changed][:examples]
        assert survivors(function, torch.cat(parts), is_first=is_first).passed is False


def test_a_run_checks_what_its_attacks_left(tmp_path):
    function, x = network_with_a_fault(), inputs(0)
    healthy = Recorder(network(0), CUBE, CLASSES)
    for name, subject, passed in (
        ("faulty", Recorder(function, CUBE, CLASSES), False),
        ("healthy", healthy, True),
    ):
        plan = plan_of(
            subject,
            x,
            subject.function(x).argmax(1),
            eps="0.02",
            attack=("fgsm", "square?steps=20"),
        )
        run = run_plan(plan, tmp_path / name)
        records = {record["code"]: record for record in run.manifest["checks"]["recorder"]}
        assert records[Code.BOUNDARY]["passed"] is passed
        assert passed is False or boundary.LEFT in records[Code.BOUNDARY]["text"]
        before = subject.queries
        repetition = run_plan(plan, tmp_path / name, resume=True).manifest["checks"]
        assert repetition == run.manifest["checks"]
        assert (
            passed is False or subject.queries == before
        )  # the scores that decide are sought again


# Among the other checks


def test_it_takes_scores_that_are_the_same_each_time():
    x = inputs(0)
    for access, noise, verdict in [
        (Access.GRADIENTS, 0, True),
        (Access.SCORES, 0, True),
        (Access.LABELS, 0, None),
        (3, 1, None),
    ]:
        model = Recorder(
            lambda x, noise=noise: network(0)(x) + noise * torch.randn(len(x), CLASSES),
            CUBE,
            CLASSES,
        )
        model.access = Access(access)
        batch = batch_of(x, network(0)(x).argmax(1))
        context = CheckContext(model, batch, distance("linf"), 0.1, Streams.of(0, batch.ids))
        context.make({code: BEFORE_ATTACKS[code] for code in (Code.RANDOM, Code.BOUNDARY)})
        assert context.findings[Code.BOUNDARY].passed is verdict
