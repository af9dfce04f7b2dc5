"""Clean accuracy is compared with chance before any attack; healthy models raise no alarm."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from _helpers import Recorder, asked_elsewhere, load_network, plan_of, run_audit, run_plan
from brinell.analysis.robust_accuracy import summarise_model
from brinell.core.checks import Code
from brinell.core.domain import Domain
from brinell.core.errors import ModelError
from brinell.datasets.npz import Npz
from brinell.engine.fit import check_clean_accuracy
from brinell.reports.steps import next_steps

COLOUR = Domain(kind="image", shape=(3, 6, 6))
CLASSES, N = 5, 80
MOST_FORWARDS = 3_500
"""Passes that all forms together may cost."""


def data(n=N):
    """Inputs near one template for each class, their labels, and a function that knows the
    templates."""
    rng = torch.Generator().manual_seed(0)
    template = torch.rand(COLOUR.shape, generator=rng)
    templates = torch.stack(
        [
            template,
            template.flip(0),
            template.transpose(-1, -2),
            0.5 * template,
            0.4 + 0.3 * template,
        ]
    )
    y = torch.arange(n) % CLASSES
    x = (templates[y] + 0.05 * torch.randn(n, *COLOUR.shape, generator=rng)).clamp(0, 1)
    return x, y.numpy(), lambda z: -20 * (z[:, None] - templates[None]).flatten(2).square().sum(2)


def check(function, x, y, classes=CLASSES):
    model = Recorder(function, COLOUR, classes)
    pred = model.predict(x).argmax(1).numpy()
    queries = model.queries
    finding, forwards = check_clean_accuracy(
        model, pred, y, lambda index: x[torch.as_tensor(index)]
    )
    assert forwards == model.queries - queries, "every forward is counted"
    return finding, forwards


def test_a_constant_answer_is_chance_however_the_classes_lie():
    x, _, _ = data(600)
    y = (np.arange(600) % 10 == 0).astype(int)
    finding, _ = check(lambda z: torch.tensor([[1.0, 0.0]]).expand(len(z), -1), x, y, classes=2)
    assert finding.passed is False and finding.figure == finding.limit == pytest.approx(0.9)


def test_few_samples_and_one_class_cannot_tell():
    x, y, base = data()
    assert check(base, x[:3], np.array([0, 2, 1]))[0].passed is None
    is_class = y == 2
    assert check(base, x[is_class], y[is_class])[0].passed is True
    assert check(lambda z: base(z).roll(2, 1), x[is_class], y[is_class])[0].passed is False


def test_a_model_that_is_right_costs_nothing_and_a_poor_one_is_no_alarm():
    x, y, base = data()
    finding, forwards = check(base, x, y)
    assert (finding.passed, forwards) == (True, 0)
    poor = np.where(np.arange(N) % 3, y, (y + 1 + np.arange(N) % (CLASSES - 1)) % CLASSES)
    finding, forwards = check(base, x, poor)
    assert finding.passed is True and forwards <= MOST_FORWARDS


def test_a_form_on_which_the_model_fails_is_left_out():
    x, y, base = data()

    def narrow(z):
        if float(z.max()) > 1 or float(z.min()) < 0:
            raise ModelError("outside")
        return base(z.flip(1))

    finding, _ = check(narrow, x, y)
    assert finding.passed is False and "BGR" in finding.text


def test_an_audit_says_so_before_anything_else(tmp_path):
    x, y, base = data()
    model = Recorder(lambda z: base(z.flip(1)), COLOUR, CLASSES)
    run = run_audit(tmp_path / "run", model, x, y, attack="fgsm", eps="4/255")
    result = summarise_model(run.manifest, run.rows, "run", "recorder")
    assert [check.code for check in result.checks if check.passed is False][0] == Code.CLEAN
    assert result.verdict.startswith("Do not rely on")
    assert any("BGR" in check.text for check in result.checks if check.code == Code.CLEAN)
    assert any(warning.code == Code.CLEAN for warning in result.warnings)
    probe_forwards = run.manifest["probes"]["recorder"]["forwards"]
    attack_forwards = int((run.rows.forwards + run.rows.judge_forwards).sum())
    assert model.queries + asked_elsewhere(run) == probe_forwards + attack_forwards


def test_a_model_that_is_never_right_is_told_why(tmp_path):
    x, y, base = data()
    run = run_audit(
        tmp_path / "run",
        Recorder(lambda z: base(z).roll(1, 1), COLOUR, CLASSES),
        x[y < 4],
        y[y < 4],
        attack="fgsm",
        eps="4/255",
    )
    result = summarise_model(run.manifest, run.rows, "run", "recorder")
    assert result.clean_accuracy.k == 0
    assert "misclassifies every clean input" in result.verdict
    assert any("label plus 1" in check.text for check in result.checks if check.code == Code.CLEAN)


def test_errors_on_distorted_inputs_are_no_mistake(tmp_path):
    x, y, base = data()
    plan = plan_of(
        Recorder(lambda z: base(z).roll(1, 1), COLOUR, CLASSES), x, y, attack="fgsm", eps="4/255"
    )
    plan.dataset.info = replace(plan.dataset.info, distorted=True)
    run = run_plan(plan, tmp_path / "run")
    result = summarise_model(run.manifest, run.rows, "run", "recorder")
    assert result.clean_accuracy.k == 0 and not result.warnings
    assert not any(check.passed is False for check in result.checks)
    assert not any("classes" in step.text for step in next_steps(run.manifest, result, 0))


@pytest.mark.slow
def test_healthy_networks_raise_no_alarm(root, shared):
    for set_, factory, weights in [
        ("mnist", "lenet5", "mnist_weights/lenet5_clean"),
        ("cifar10", "resnet2b", "cifar10_robust_weights/resnet2b"),
        ("cifar10", "captum_cnn", "cifar10_weights/captum_cnn_plain"),
    ]:
        model, _, _ = load_network(root, shared, set_, factory, weights, 1)
        dataset = Npz(path=str(shared / set_ / f"{set_}_test.npz"))()
        x, y = dataset.load(range(200)), dataset.labels()[:200]
        with model.info.session(torch.device("cpu")), torch.no_grad():
            pred = model.predict(x).argmax(1).numpy()
            assert (
                check_clean_accuracy(model, pred, y, lambda index: x[torch.as_tensor(index)])[
                    0
                ].passed
                is True
            )


def test_rare_classes_count_as_much_as_common_ones():
    """Answers that are all of the common class hide a fault from the plain count."""
    x, y, base = data(1500)
    keep = (y == 0) | (np.arange(1500) % 25 < 5) & (np.arange(1500) % 50 < 5)
    finding, _ = check(lambda z: base(z / 255), x[keep], y[keep])
    assert (
        (y[keep] == 0).mean() > 0.6 and finding.passed is False and "from 0 to 255" in finding.text
    )
