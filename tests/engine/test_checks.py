"""Broken defences each raise their check, healthy networks raise none, and every look is counted."""

from typing import NamedTuple

import numpy as np
import pytest
import scipy.stats
import torch

from _defences import Noisy, OneHot, Purifier, Quantised, Ripples, Scaled, Wrapper, WrongGradient
from _helpers import VECTOR, Recorder, batch_of, distance, load_network, mlp, run_audit, threshold
from brinell.analysis.robust_accuracy import summarise
from brinell.core.checks import TOO_FEW, Code, exact_test
from brinell.core.domain import Domain
from brinell.core.errors import ModelError
from brinell.core.model import Access
from brinell.core.streams import Streams
from brinell.datasets.digits import Digits
from brinell.engine import probes
from brinell.engine.adaptive import MASKING
from brinell.engine.checks import BEFORE_ATTACKS, check_answers
from brinell.engine.context import CheckContext
from brinell.models._torch_model import TorchModel
from brinell.models.digits_cnn import DigitsCnn

CODES = [code for code in Code if code in BEFORE_ATTACKS]
MEASURED = [
    Code.RANDOM,
    Code.GRADIENTS_INSIDE,
    Code.ZERO,
    Code.SATURATED,
    Code.MISLEADING,
    Code.MISMATCH,
    Code.UNCONSTRAINED,
]


def run_checks(model, x, y, eps=0.1, norm="linf", **options):
    """The looks at the inputs that the model is right about."""
    with torch.no_grad():
        right = torch.cat([model.predict(part) for part in x.split(32)]).argmax(1) == y
    batch = batch_of(x[right], y[right])
    with model.info.session(torch.device("cpu")):
        return made(model, batch, distance(norm), eps, Streams.of(0, batch.ids), **options)


class Results(NamedTuple):
    findings: list
    forwards: int
    backwards: int


def made(*args, **options):
    """All checks before the attacks and their cost."""
    context = CheckContext(*args, **options)
    return Results(context.make(BEFORE_ATTACKS), *context.costs)


def failed(results):
    return {finding.code for finding in results.findings if finding.passed is False}


@pytest.fixture(scope="module")
def digits():
    """The built-in network with 64 digits."""
    data = Digits()()
    return DigitsCnn()(data.domain), data.load(range(64)), torch.from_numpy(data.labels()[:64])


# Known answers


def context_of(function, x, eps=0.2):
    """What checks may ask of a model of two classes, all inputs of class 0."""
    batch = batch_of(x, [0] * len(x))
    return CheckContext(
        Recorder(function, VECTOR, 2), batch, distance("linf"), eps, Streams.of(0, batch.ids)
    )


def misled_on(function, x, eps=0.2):
    context = context_of(function, x, eps)
    failed, visible = probes.misled_samples(context)
    ledger = context.ledgers[0]
    costs = list(zip(ledger.costs.forwards.tolist(), ledger.costs.backwards.tolist(), strict=True))
    return failed.tolist(), visible.tolist(), costs


POINTS = [[0.05, 0.5], [0.2, 0.5], [0.44, 0.1], [0.3, 0.9]]


def test_a_linear_model_keeps_every_promise():
    """Within 0.2 of the boundary at 0.5 only 0.44 is: half of the budget leads across it, and
    nothing more is asked there.
    """
    failed, visible, costs = misled_on(threshold(0.5), POINTS)
    assert (failed, visible) == ([False] * 4, [True] * 4)
    # The gradient that the look is given, two steps, the walk (one look, six gradients), two steps
    # where it leads.
    assert costs == [(1 + 2 + 7 + 2, 1 + 6)] * 2 + [(1 + 2 + 1, 1), (1 + 2 + 7 + 2, 1 + 6)]


def test_a_gradient_that_points_away_keeps_none():
    class Away(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return -grad

    assert misled_on(lambda x: threshold(0.5)(Away.apply(x)), POINTS)[:2] == (
        [True] * 4,
        [True] * 4,
    )


def test_a_gradient_that_fails_further_on_is_found_there():
    """Up to 0.15 the model is linear, beyond it is flat, and the gradient does not say so."""

    def plateau(x):
        bent = torch.cat([x[:, :1].clamp(max=0.15), x[:, 1:]], 1)
        return threshold(0.5)(x + (bent - x).detach())

    failed, visible, _ = misled_on(plateau, [[0.02, 0.5], [0.02, 0.1]])
    assert (failed, visible) == ([True] * 2, [True] * 2)
    assert misled_on(plateau, [[0.02, 0.5], [0.02, 0.1]], eps=0.1)[0] == [False] * 2, (
        "within 0.1 it is linear"
    )


def test_the_attack_without_a_budget_by_hand():
    """0.25, 0.45 and 0.65 pass the boundary at 0.5: three looks, and a gradient before all but the
    first.
    """
    context = context_of(threshold(0.5), [[0.05, 0.5], [0.35, 0.5]])
    assert probes.unbroken_samples(context).tolist() == [False, False]
    costs = context.ledgers[1].costs
    assert costs.forwards.tolist() == [3 + 2, 1] and costs.backwards.tolist() == [2, 0]


def test_a_share_fails_beyond_what_chance_explains():
    """By hand: of 8 samples 2 are not beyond 5 % (probability 5.7 %), and 5 are (0.0015 %)."""
    assert (
        exact_test(2, 8, 0.05) == (False, pytest.approx(0.000372, rel=0.01))
        and exact_test(5, 8, 0.05)[0]
    )
    rng = np.random.default_rng(0)
    for _ in range(50):
        n, limit = int(rng.integers(1, 400)), float(rng.uniform(0.002, 0.6))
        k = int(rng.binomial(n, limit))
        tail = float(scipy.stats.binom.sf(k - 1, n, limit))
        failed, rate = exact_test(k, n, limit)
        assert failed == (tail <= 1e-3) and rate <= 1e-3


# Planted defences


PLANTED = {
    "random output": (Noisy, {Code.RANDOM}),
    "faintly random output": (lambda net: Noisy(net, 0.01), {Code.RANDOM}),
    "quantised input": (Quantised, {Code.ZERO, Code.UNCONSTRAINED}),
    "quantised in 256 levels": (lambda net: Quantised(net, 255), {Code.ZERO, Code.UNCONSTRAINED}),
    "quantised, gradient passed through": (
        lambda net: Quantised(net, 16, through=True),
        {Code.MISLEADING},
    ),
    "one-hot output": (OneHot, {Code.BOUNDARY, Code.ANSWERS, Code.ZERO, Code.UNCONSTRAINED}),
    "saturated logits": (Scaled, {Code.SATURATED}),
    "shattered gradient": (Ripples, {Code.MISLEADING, Code.UNCONSTRAINED}),
    "shattered finely": (lambda net: Ripples(net, 0.005, 3000), {Code.MISLEADING}),
    "detached gradient": (lambda net: WrongGradient(net, "zeros"), {Code.ZERO, Code.UNCONSTRAINED}),
    "gradient that is NaN": (
        lambda net: WrongGradient(net, "nan"),
        {Code.ZERO, Code.UNCONSTRAINED},
    ),
    "noise for a gradient": (
        lambda net: WrongGradient(net, "noise"),
        {Code.MISLEADING, Code.MISMATCH},
    ),
    "faint noise for a gradient": (
        lambda net: WrongGradient(net, "faint noise"),
        {Code.MISLEADING, Code.MISMATCH},
    ),
    "opposite gradient": (
        lambda net: WrongGradient(net, "opposite"),
        {Code.MISLEADING, Code.MISMATCH, Code.UNCONSTRAINED},
    ),
    "gradient inside": (Purifier, {Code.GRADIENTS_INSIDE}),
    "gradient inside, torch.func": (lambda net: Purifier(net, "func"), {Code.GRADIENTS_INSIDE}),
}


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_each_broken_defence_raises_its_check(digits, norm):
    model, x, y = digits[0], digits[1][:32], digits[2][:32]
    for name, (defence, codes) in list(PLANTED.items())[norm == "l2" :: 2]:
        results = run_checks(
            TorchModel(defence(model.module), model.domain, 10),
            x,
            y,
            {"linf": 0.1, "l2": 0.4}[norm],
            norm,
        )
        assert failed(results) >= codes and codes - MASKING <= {Code.RANDOM}, name
        extra = failed(results) - codes
        assert Code.RANDOM in codes or extra <= {Code.UNCONSTRAINED, Code.MISMATCH}, (
            "a check that the defence does not deserve"
        )


def test_what_cannot_be_judged_is_refused(digits):
    for answer, words in (
        (torch.full((3, 10), torch.nan), "NaN"),
        (torch.zeros(3, 9), "not .n, 10."),
    ):
        with pytest.raises(ModelError, match=words):
            check_answers(answer, digits[0])


def test_the_built_in_network_raises_none(digits):
    for norm, eps in (("linf", 0.1), ("l2", 1.0), ("l1", 4.0)):
        results = run_checks(*digits, eps, norm)
        assert [finding.code for finding in results.findings] == CODES and all(
            finding.passed for finding in results.findings if finding.code != Code.PLATEAU
        )
    model, x, y = digits
    assert not failed(
        run_checks(TorchModel(Purifier(model.module, "never"), model.domain, 10), x, y)
    ), "switched on, not taken"


def test_the_scale_of_the_logits_does_not_matter_but_where_attacks_climb_the_cross_entropy(digits):
    model, x, y = digits
    for factor in [1e-30, 1e-8, 3.0, 1e25]:
        scaled = TorchModel(Scaled(model.module, factor), model.domain, 10)
        assert failed(run_checks(scaled, x, y, climbs_margins=True)) == set()
        assert failed(run_checks(scaled, x, y)) == ({Code.SATURATED} if factor > 100 else set())


NETWORKS = [
    ("mnist", "lenet5", "mnist_weights/lenet5_clean", (0.3, 2.0)),
    ("mnist", "lenet5", "mnist_weights/lenet5_advtrained", (0.3, 2.0)),
    ("mnist", "cnn4", "mnist_weights/cnn4_pgd", (0.3, 2.0)),
    ("cifar10", "resnet20", "cifar10_weights/resnet20", (8 / 255, 0.5)),
    ("cifar10", "captum_cnn", "cifar10_weights/captum_cnn_plain", (8 / 255, 0.5)),
    ("cifar10", "resnet4b", "cifar10_robust_weights/resnet4b", (8 / 255, 0.5)),
    ("cifar10", "resnet2b", "cifar10_robust_weights/resnet2b", (8 / 255, 0.5)),
    ("cifar10", "cnn_wide_kw", "cifar10_robust_weights/cnn_wide_kw", (8 / 255, 0.5)),
]


@pytest.mark.slow
@pytest.mark.parametrize("depth", [20, 44])
def test_sharp_networks_of_many_samples_raise_none(root, shared, depth):
    """Finite differences disagree on them: what clears them is that all fall along the gradient."""
    name = f"resnet{depth}"
    subject = load_network(root, shared, "cifar10", name, f"cifar10_weights/{name}", 70)
    assert not failed(run_checks(*subject, 8 / 255))


@pytest.mark.slow
@pytest.mark.nightly
def test_published_networks_raise_none(root, shared):
    for folder, factory, weights, budgets in NETWORKS:
        subject = load_network(
            root, shared, folder, factory, weights, 64 if folder == "mnist" else 24
        )
        for norm, eps in zip(("linf", "l2"), budgets, strict=True):
            assert not failed(run_checks(*subject, eps, norm))


@pytest.mark.nightly
def test_gradients_of_a_network_trained_in_another_norm_are_found_out(root, shared, tmp_path):
    """Trained in Linf alone: in L2 the boundary walk breaks nearly all that APGD leaves, and `fast`
    spends the full budget.
    """
    model, x, y = load_network(
        root, shared, "mnist", "lenet5", "mnist_weights/lenet5_advtrained", 60
    )
    run = run_audit(tmp_path / "run", model, x, y, norm="l2", eps="2")
    (result,) = summarise(run.manifest, run.rows, "").models
    assert Code.PROBE_AHEAD in {check.code for check in result.checks if check.passed is False}
    assert result.robust_accuracy[-1].k <= 2


# What looks cost, and what they need


def test_looks_are_counted_and_few(digits):
    model, x, y = digits
    for defence, limit in (
        (Wrapper, (9, 2)),
        (lambda net: WrongGradient(net, "opposite"), (79, 18)),
        (lambda net: WrongGradient(net, "zeros"), (6, 3)),
    ):
        recorder = Recorder(
            TorchModel(defence(model.module), model.domain, 10).predict, model.domain, 10
        )
        batch = batch_of(x, y)
        results = made(
            recorder, batch, distance("linf"), 0.1, Streams.of(0, batch.ids), batch_size=16
        )
        assert (
            results.forwards == recorder.queries <= limit[0] * 64
            and results.backwards <= limit[1] * 64
        )
        assert max(len(call) for call in recorder.calls) <= 16


def test_without_gradients_the_looks_that_can_be_made_are(digits):
    model, x, y = digits
    for access in (Access.SCORES, Access.LABELS):
        closed = Recorder(lambda x: model.predict(x).detach(), model.domain, 10)
        closed.access = access
        findings = {finding.code: finding for finding in run_checks(closed, x, y).findings}
        failed = {code for code, finding in findings.items() if finding.passed is False}
        assert findings[Code.RANDOM].passed and failed == (
            {Code.ANSWERS} if access == Access.LABELS else set()
        )
        assert (
            findings[Code.ZERO].passed is None
            and f"{access.name.lower()} only" in findings[Code.ZERO].text
        )
        assert [code for code in MEASURED if findings[code].passed is None] == MEASURED[1:]


def test_a_model_that_fails_off_its_data_is_not_judged(digits):
    model, x, y = digits

    class Fragile(Wrapper):
        def forward(self, z):
            is_clean = torch.cdist(z.flatten(1), x.flatten(1)).amin(1) < 1e-6
            return self.net(z) + torch.where(is_clean, 0.0, float("nan"))[:, None]

    findings = {
        f.code: f
        for f in run_checks(TorchModel(Fragile(model.module), model.domain, 10), x, y).findings
    }
    assert findings[Code.MISLEADING].passed is None and "NaN" in findings[Code.MISLEADING].text
    assert findings[Code.UNCONSTRAINED].passed is None and findings[Code.ZERO].passed


def test_one_sample_and_no_budget(digits):
    model, x, y = digits
    results = run_checks(model, x[:1], y[:1], eps=float("inf"))
    assert not failed(results)
    unsaid = {Code.ZERO, Code.SATURATED, Code.MISLEADING, Code.MISMATCH, Code.UNCONSTRAINED}
    assert {f.code for f in results.findings if f.passed is None} == {
        Code.BOUNDARY,
        Code.BATCH,
        Code.PLATEAU,
    } | unsaid
    assert all(f.reason == TOO_FEW for f in results.findings if f.code in unsaid)


# In a run


def test_a_run_that_goes_on_keeps_what_it_saw(tmp_path):
    """A model that is right on most inputs, with different noise in each call."""
    network, draw = mlp(6, 3), torch.Generator().manual_seed(0)
    x = torch.rand(24, 6, generator=torch.Generator().manual_seed(3))
    y = network(x).argmax(1)

    def noisy(x):
        logits = network(x)
        return logits + 0.05 * torch.randn(logits.shape, generator=draw)

    model = Recorder(noisy, Domain(kind="vector", shape=(6,)), 3)
    run, resumed = (
        run_audit(
            tmp_path / "run", model, x, y, attack=("fgsm",), eps="0.01", resume=resume
        ).manifest
        for resume in (False, True)
    )
    (first,) = [check for check in run["checks"]["recorder"] if check["code"] == Code.RANDOM]
    assert first["figure"] > 0.001 and {warning["code"] for warning in run["warnings"]} >= {
        "random-answers"
    }
    assert [resumed[key] for key in ("checks", "probes", "warnings")] == [
        run[key] for key in ("checks", "probes", "warnings")
    ]


def test_a_model_that_is_never_right(tmp_path):
    x = np.array([[0.2, 0.5], [0.3, 0.5]])
    run = run_audit(
        tmp_path / "run", Recorder(threshold(0.5)), x, [1, 1], attack=("fgsm",), eps="0.1"
    )
    (check,) = run.manifest["checks"]["recorder"]
    assert (check["code"], check["passed"]) == (Code.CLEAN, None) and run.manifest["warnings"] == []
