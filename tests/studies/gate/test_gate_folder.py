"""A gate on the folder of a run: each metric against the end of its own interval, and only against
it.
"""

import pytest

import brinell
from _refusals import refused
from brinell.analysis.judgements import lower_end
from brinell.core.errors import RequestError


def bounds(run, eps):
    """By metric the lower end of the interval that a threshold is tested against."""
    model = brinell.open(run).models[0]
    index = model.eps.index(pytest.approx(eps))
    rates = {"clean": model.clean_accuracy, "robust": model.robust_accuracy[index]}
    rates["worst_class"] = min((entry.robust[index] for entry in model.per_class), key=lower_end)
    return {metric: lower_end(rate) for metric, rate in rates.items()}


def test_each_metric_passes_up_to_the_lower_end_of_its_interval(audit_run):
    wrong = []
    for text, eps in (("2/255", 2 / 255), ("6/255", 6 / 255)):
        for metric, low in bounds(audit_run, eps).items():
            for change, passes in ((-1e-6, True), (1e-6, False)):
                settings = {} if metric == "clean" else {"eps": text}
                verdict = brinell.gate(
                    audit_run, **{metric: low + change}, **settings, without_checks=True
                )
                named = [
                    check
                    for check in verdict.checks
                    if check.required == pytest.approx(low + change)
                ]
                if len(named) != 1 or named[0].passed is not passes or bool(verdict) > passes:
                    wrong.append(
                        (
                            text,
                            metric,
                            change,
                            [(check.name, check.passed) for check in verdict.checks],
                        )
                    )
    assert not wrong


def test_without_a_budget_the_largest_counts(audit_run):
    low = bounds(audit_run, 6 / 255)["robust"]
    assert brinell.gate(audit_run, robust=low - 1e-6, without_checks=True)
    assert not brinell.gate(audit_run, robust=low + 1e-6, without_checks=True)


def test_proofs_have_a_gate_too(certify_run):
    certified = brinell.open(certify_run).certified[-1]
    assert brinell.gate(certify_run, certified=lower_end(certified) - 1e-6)
    assert not brinell.gate(certify_run, certified=lower_end(certified) + 1e-6)
    with pytest.raises(RequestError, check=refused("studies.gate.run._gate_rates")):
        brinell.gate(certify_run, worst_class=0.1)


def test_a_baseline(audit_run, models_run):
    same = brinell.gate(audit_run, baseline=audit_run, without_checks=True)
    assert same.passed
    fall = brinell.gate(
        models_run, model="lead", baseline=audit_run, without_checks=True, max_drop=0.01
    )
    observed = {check.observed for check in fall.checks if check.observed is not None}
    assert any(value == pytest.approx(-2 / 24, abs=1e-9) for value in observed), observed
    assert not fall.passed


def test_refusals(audit_run):
    for settings in (
        {},
        {"robust": 0.1, "eps": "2/255,6/255"},
        {"max_drop": 0.1, "robust": 0.1},
        {"certified": 0.1},
        {"robust": 1.1},
    ):
        with pytest.raises(RequestError):
            brinell.gate(audit_run, **settings)
    assert not brinell.gate(audit_run, robust=0.0, eps="1/255"), (
        "a budget without figures does not pass"
    )
