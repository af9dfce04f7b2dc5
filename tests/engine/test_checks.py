"""Broken defences each raise their check, healthy networks raise none, and every look is counted."""

from typing import NamedTuple

import numpy as np
import pytest
import scipy.stats
import torch
from torch import nn

from _defences import Noisy, OneHot, Purifier, Quantised, Ripples, Scaled, Wrapper, WrongGradient
from _helpers import VECTOR, Recorder, batch_of, distance, mlp, plan_of, run_audit, run_plan, threshold
from brinell.core.checks import TOO_FEW, Code, exact_test
from brinell.core.domain import Domain
from brinell.core.errors import ModelError
from brinell.core.model import Access, ModelInfo
from brinell.core.streams import Streams
from brinell.datasets.digits import Digits
from brinell.datasets.image_folder import ImageFolder
from brinell.datasets.npz import Npz
from brinell.engine import probes
from brinell.engine.adaptive import MASKING
from brinell.engine.checks import BEFORE_ATTACKS, check_answers
from brinell.engine.context import CheckContext
from brinell.models._torch_model import TorchModel
from brinell.models.digits_cnn import DigitsCnn
from brinell.models.torch import TorchModule

CODES = [code for code in Code if code in BEFORE_ATTACKS]
MEASURED = [Code.RANDOM, Code.GRADIENTS_INSIDE, Code.ZERO, Code.SATURATED, Code.MISLEADING, Code.MISMATCH, Code.UNCONSTRAINED]


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
    return CheckContext(Recorder(function, VECTOR, 2), batch, distance("linf"), eps, Streams.of(0, batch.ids))


def misled_on(function, x, eps=0.2):
    context = context_of(function, x, eps)
    failed, visible = probes.misled_samples(context)
    ledger = context.ledgers[0]
    costs = list(zip(ledger.costs.forwards.tolist(), ledger.costs.backwards.tolist(), strict=True))
    return failed.tolist(), visible.tolist(), costs


POINTS = [[0.05, 0.5], [0.2, 0.5], [0.44, 0.1], [0.3, 0.9]]


def test_a_linear_model_keeps_every_promise():
    """Within 0.2 of the boundary at 0.5 only 0.44 is: half of the budget leads across it, and nothing more is asked there."""
    failed, visible, costs = misled_on(threshold(0.5), POINTS)
    assert (failed, visible) == ([False] * 4, [True] * 4)
    # The gradient that the look is given, two steps, the walk (one look, six gradients), two steps where it leads.
    assert costs == [(1 + 2 + 7 + 2, 1 + 6)] * 2 + [(1 + 2 + 1, 1), (1 + 2 + 7 + 2, 1 + 6)]


def test_a_gradient_that_points_away_keeps_none():
    class Away(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return -grad

    assert misled_on(lambda x: threshold(0.5)(Away.apply(x)), POINTS)[:2] == ([True] * 4, [True] * 4)


def test_a_gradient_that_fails_further_on_is_found_there():
    """Up to 0.15 the model is linear, beyond it is flat, and the gradient does not say so."""

    def plateau(x):
        bent = torch.cat([x[:, :1].clamp(max=0.15), x[:, 1:]], 1)
        return threshold(0.5)(x + (bent - x).detach())

    failed, visible, _ = misled_on(plateau, [[0.02, 0.5], [0.02, 0.1]])
    assert (failed, visible) == ([True] * 2, [True] * 2)
    assert misled_on(plateau, [[0.02, 0.5], [0.02, 0.1]], eps=0.1)[0] == [False] * 2, "within 0.1 it is linear"


def test_a_stair_as_high_as_its_gradient_promises_is_flat_within_a_step():
    """Steps of 1/16 to 1/4 of 0.01 never leave a stair of width 0.1, in whose middle the points are."""

    def stair(x):
        return threshold(0.5)(x + (((x * 10).round() / 10) - x).detach())

    middles = [[0.1, 0.5], [0.2, 0.5], [0.4, 0.1], [0.3, 0.9]]
    assert misled_on(stair, middles, eps=0.01)[:2] == ([True] * 4, [True] * 4)


def test_what_is_too_small_to_be_seen_is_not_judged():
    failed, visible, _ = misled_on(threshold(0.5), POINTS, eps=1e-7)
    assert visible == [False] * 4 and failed == [False] * 4


def test_the_attack_without_a_budget_by_hand():
    """0.25, 0.45 and 0.65 pass the boundary at 0.5: three looks, and a gradient before all but the first."""
    context = context_of(threshold(0.5), [[0.05, 0.5], [0.35, 0.5]])
    assert probes.unbroken_samples(context).tolist() == [False, False]
    costs = context.ledgers[1].costs
    assert costs.forwards.tolist() == [3 + 2, 1] and costs.backwards.tolist() == [2, 0]


def test_nothing_breaks_a_model_whose_boundary_is_out_of_bounds():
    context = context_of(threshold(1.5), [[0.05, 0.5], [0.9, 0.5]])
    assert probes.unbroken_samples(context).tolist() == [True, True]
    # At the bound nothing can move, and nothing more is asked.
    assert context.ledgers[1].costs.forwards.tolist() == [2 * 6 - 1 + 1, 1 + 1]


def test_gradients_that_are_no_numbers_lead_nowhere():
    grad = torch.tensor([[1.0, 0.0], [0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]])
    assert probes.has_gradient(grad).tolist() == [True, False, False, False]


def test_a_share_fails_beyond_what_chance_explains(subtests):
    """By hand: of 8 samples 2 are not beyond 5 % (probability 5.7 %), and 5 are (0.0015 %)."""
    assert exact_test(2, 8, 0.05) == (False, pytest.approx(0.000372, rel=0.01)) and exact_test(5, 8, 0.05)[0]
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
    "quantised, gradient passed through": (lambda net: Quantised(net, 16, through=True), {Code.MISLEADING}),
    "one-hot output": (OneHot, {Code.BOUNDARY, Code.ANSWERS, Code.ZERO, Code.UNCONSTRAINED}),
    "saturated logits": (Scaled, {Code.SATURATED}),
    "shattered gradient": (Ripples, {Code.MISLEADING, Code.UNCONSTRAINED}),
    "shattered finely": (lambda net: Ripples(net, 0.005, 3000), {Code.MISLEADING}),
    "detached gradient": (lambda net: WrongGradient(net, "zeros"), {Code.ZERO, Code.UNCONSTRAINED}),
    "gradient that is NaN": (lambda net: WrongGradient(net, "nan"), {Code.ZERO, Code.UNCONSTRAINED}),
    "noise for a gradient": (lambda net: WrongGradient(net, "noise"), {Code.MISLEADING, Code.MISMATCH}),
    "faint noise for a gradient": (lambda net: WrongGradient(net, "faint noise"), {Code.MISLEADING, Code.MISMATCH}),
    "opposite gradient": (lambda net: WrongGradient(net, "opposite"), {Code.MISLEADING, Code.MISMATCH, Code.UNCONSTRAINED}),
    "gradient inside": (Purifier, {Code.GRADIENTS_INSIDE}),
    "gradient inside, torch.func": (lambda net: Purifier(net, "func"), {Code.GRADIENTS_INSIDE}),
}


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_each_broken_defence_raises_its_check(digits, norm, subtests):
    for name in list(PLANTED)[norm == "l2" :: 2]:
        with subtests.test(name):
            model, x, y = digits[0], digits[1][:32], digits[2][:32]
            defence, codes = PLANTED[name]
            results = run_checks(TorchModel(defence(model.module), model.domain, 10), x, y, {"linf": 0.1, "l2": 0.4}[norm], norm)
            assert failed(results) >= codes and codes - MASKING <= {Code.RANDOM}
            if Code.RANDOM not in codes:
                extra = failed(results) - codes
                assert extra <= {Code.UNCONSTRAINED, Code.MISMATCH}, "a check that this defence does not deserve"


@pytest.mark.parametrize(("answer", "words"), [(torch.full((3, 10), torch.nan), "NaN"), (torch.zeros(3, 9), "not .n, 10.")])
def test_what_cannot_be_judged_is_refused(digits, answer, words):
    with pytest.raises(ModelError, match=words):
        check_answers(answer, digits[0])


def test_the_built_in_network_raises_none(digits, subtests):
    for norm in ["linf", "l2", "l1"]:
        with subtests.test(str((norm,))):
            results = run_checks(*digits, {"linf": 0.1, "l2": 1.0, "l1": 4.0}[norm], norm)
            assert not failed(results) and [finding.code for finding in results.findings] == CODES
            assert all(finding.passed for finding in results.findings)


def test_switching_gradients_on_is_no_gradient_inside(digits):
    model, x, y = digits
    assert not failed(run_checks(TorchModel(Purifier(model.module, "never"), model.domain, 10), x, y))


def test_the_scale_of_the_logits_does_not_matter(digits, subtests):
    for factor in [1e-30, 1e-8, 1e-2, 3.0, 1e25]:
        with subtests.test(str((factor,))):
            model, x, y = digits
            results = run_checks(TorchModel(Scaled(model.module, factor), model.domain, 10), x, y)
            assert [f.code for f in results.findings if not f.passed] == ([Code.SATURATED] if factor > 100 else [])


def test_saturation_is_no_fault_where_attacks_climb_margins(digits):
    model, x, y = digits
    saturated = TorchModel(Scaled(model.module, 1e4), model.domain, 10)
    passed = [failed(run_checks(saturated, x, y, climbs_margins=climbs)) for climbs in (False, True)]
    assert passed == [{Code.SATURATED}, set()]


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


MASKED = {("mnist_weights/lenet5_advtrained", "l2"): {Code.MISLEADING}}
"""Trained in Linf alone. Square with 1000 steps breaks 62 % of the samples that APGD-CE and APGD-DLR leave in L2."""


def network(root, shared, folder, factory, weights, n):
    if folder == "imagenet":
        data, index = ImageFolder(path=str(shared / "imagenet_samples"))(), range(0, 250, 16)
    else:
        data, index = Npz(path=str(shared / folder / f"{folder}_test.npz"))(), range(n)
    file = root / "examples" / "models" / f"{folder}.py"
    model = TorchModule(path=f"{file}:{factory}", weights=str(shared / f"{weights}.safetensors"))(data.domain)
    return model, data.load(index), torch.from_numpy(data.labels()[index.start : index.stop : index.step]).long()


@pytest.mark.slow
@pytest.mark.nightly
def test_published_networks_raise_what_they_deserve(root, shared, subtests):
    for folder, factory, weights, budgets in NETWORKS:
        with subtests.test(str((folder, factory, weights, budgets))):
            subject = network(root, shared, folder, factory, weights, 64 if folder == "mnist" else 24)
            for norm, eps in zip(("linf", "l2"), budgets, strict=True):
                assert failed(run_checks(*subject, eps, norm)) == MASKED.get((weights, norm), set())


@pytest.mark.nightly
def test_a_photograph_network_raises_none(root, shared):
    assert not failed(run_checks(*network(root, shared, "imagenet", "mcunet_144", "imagenet_weights/mcunet_144", 16), 4 / 255))


def test_defences_on_a_robust_network(root, shared, subtests):
    for name in ["shattered gradient", "noise for a gradient", "quantised input", "saturated logits"]:
        with subtests.test(str((name,))):
            model, x, y = network(root, shared, "mnist", "cnn4", "mnist_weights/cnn4_pgd", 64)
            defence, codes = PLANTED[name]
            assert failed(run_checks(TorchModel(defence(model.module), model.domain, 10), x, y, 0.3)) & codes


# What looks cost, and what they need


def test_looks_are_counted_and_few(digits):
    model, x, y = digits
    for defence, limit in (
        (Wrapper, (21, 9)),
        (lambda net: WrongGradient(net, "opposite"), (79, 18)),
        (lambda net: WrongGradient(net, "zeros"), (10, 2)),
    ):
        recorder = Recorder(TorchModel(defence(model.module), model.domain, 10).predict, model.domain, 10)
        batch = batch_of(x, y)
        results = made(recorder, batch, distance("linf"), 0.1, Streams.of(0, batch.ids), batch_size=16)
        assert results.forwards == recorder.queries <= limit[0] * 64 and results.backwards <= limit[1] * 64
        assert max(len(call) for call in recorder.calls) <= 16


def test_a_model_that_falls_at_once_costs_little(digits):
    results = run_checks(*digits, eps=0.4)
    assert results.forwards <= 14 * 64 and results.backwards <= 4 * 64


def test_looks_do_not_depend_on_time_or_batch_size(digits):
    model, x, y = digits
    subject = TorchModel(Ripples(model.module), model.domain, 10)
    first, repeat, small = (run_checks(subject, x, y, batch_size=size) for size in (128, 128, 10))
    assert first == repeat
    assert [f.passed for f in small.findings] == [f.passed for f in first.findings]
    position = CODES.index(Code.MISLEADING)
    assert abs(small.findings[position].figure - first.findings[position].figure) < 0.1


@pytest.mark.parametrize("access", [Access.SCORES, Access.LABELS])
def test_without_gradients_the_looks_that_can_be_made_are(digits, access):
    model, x, y = digits

    class Closed:
        name, domain, classes, info, digest = "closed", model.domain, 10, ModelInfo(), model.digest

        def predict(self, x):
            with torch.no_grad():
                return model.predict(x)

    closed = Closed()
    closed.access = access
    findings = {finding.code: finding for finding in run_checks(closed, x, y).findings}
    failed = {code for code, finding in findings.items() if finding.passed is False}
    assert findings[Code.RANDOM].passed and failed == ({Code.ANSWERS} if access == Access.LABELS else set())
    assert findings[Code.ZERO].passed is None and f"{access.name.lower()} only" in findings[Code.ZERO].text
    assert [code for code in MEASURED if findings[code].passed is None] == MEASURED[1:]


def test_every_kind_of_input_and_number_of_classes(subtests):
    for classes in [2, 3]:
        for kind, shape in [("vector", (6,)), ("signal", (2, 3)), ("image", (1, 2, 3))]:
            with subtests.test(str((classes, kind, shape))):
                model = TorchModel(mlp(6, classes), Domain(kind=kind, shape=shape, low=-1.0, high=2.0), classes)
                x = torch.rand(40, *shape, generator=torch.Generator().manual_seed(0))
                y = model.predict(x).argmax(1).detach()
                results = run_checks(model, x, y)
                assert not failed(results) - {Code.UNCONSTRAINED} and len(results.findings) == len(CODES)


def test_a_model_that_fails_off_its_data_is_not_judged(digits):
    model, x, y = digits

    class Fragile(Wrapper):
        def forward(self, z):
            is_clean = torch.cdist(z.flatten(1), x.flatten(1)).amin(1) < 1e-6
            return self.net(z) + torch.where(is_clean, 0.0, float("nan"))[:, None]

    findings = {f.code: f for f in run_checks(TorchModel(Fragile(model.module), model.domain, 10), x, y).findings}
    assert findings[Code.MISLEADING].passed is None and "NaN" in findings[Code.MISLEADING].text
    assert findings[Code.UNCONSTRAINED].passed is None and findings[Code.ZERO].passed


def test_one_sample_and_no_budget(digits):
    model, x, y = digits
    results = run_checks(model, x[:1], y[:1], eps=float("inf"))
    assert not failed(results)
    unsaid = {Code.ZERO, Code.SATURATED, Code.MISLEADING, Code.MISMATCH, Code.UNCONSTRAINED}
    assert {f.code for f in results.findings if f.passed is None} == {Code.BOUNDARY, Code.BATCH} | unsaid
    assert all(f.reason == TOO_FEW for f in results.findings if f.code in unsaid)


# In a run


class Coin(nn.Module):
    """Right on most inputs, with different noise in each instance and each call."""

    calls = 0

    def __init__(self):
        super().__init__()
        self.inner = mlp(6, 3)

    def forward(self, x):
        Coin.calls += 1
        draw = torch.Generator().manual_seed(Coin.calls)
        logits = self.inner(x)
        return logits + 0.05 * torch.randn(logits.shape, generator=draw)


def vectors(n=24):
    x = torch.rand(n, 6, generator=torch.Generator().manual_seed(3))
    return x, mlp(6, 3)(x).argmax(1)


def test_a_run_that_goes_on_keeps_what_it_saw(tmp_path):
    x, y = vectors()
    domain = Domain(kind="vector", shape=(6,))
    settings = {"attack": ("fgsm",), "eps": "0.01"}
    run = run_audit(tmp_path / "run", TorchModel(Coin(), domain, 3), x, y, **settings)
    first = run.manifest["checks"], run.manifest["probes"]
    figure = first[0]["model"][0]["figure"]
    assert figure > 0.001 and {w["code"] for w in run.manifest["warnings"]} >= {"random-answers"}
    calls = Coin.calls
    resumed = run_audit(tmp_path / "run", TorchModel(Coin(), domain, 3), x, y, resume=True, **settings)
    assert (resumed.manifest["checks"], resumed.manifest["probes"]) == first
    assert Coin.calls <= calls + 1, "looked again"
    assert resumed.manifest["warnings"] == run.manifest["warnings"]


def test_looks_are_spread_over_the_data(tmp_path):
    """200 samples, sorted by class: the looks are made on both."""
    x = np.stack([np.linspace(0.05, 0.45, 100), np.full(100, 0.5)], 1)
    x = np.concatenate([x, 1 - x])
    model = Recorder(threshold(0.5))
    plan = plan_of(model, x, np.repeat([0, 1], 100), attack=("fgsm",), eps="0.1")
    run = run_plan(plan, tmp_path / "run")
    assert run.manifest["probes"]["recorder"]["forwards"] >= 64 * 7
    first = model.calls[3]  # after the kind of answers, and the two batches of the first check
    assert len(first) == 64 and (first[:, 0] > 0.5).sum() == 32


def test_a_model_that_is_never_right(tmp_path):
    x = np.array([[0.2, 0.5], [0.3, 0.5]])
    run = run_audit(tmp_path / "run", Recorder(threshold(0.5)), x, [1, 1], attack=("fgsm",), eps="0.1")
    (check,) = run.manifest["checks"]["recorder"]
    assert (check["code"], check["passed"]) == (Code.CLEAN, None) and run.manifest["warnings"] == []
