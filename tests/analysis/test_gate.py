import numpy as np
import pytest

from _lazy import library
from _refusals import refused
from brinell.analysis.compare import Side, compare
from brinell.analysis.gate import (
    against_baseline,
    against_thresholds,
    check_codes,
    check_metrics,
    completeness_of,
    gate,
    names_of,
    rates_of,
)
from brinell.analysis.judgements import lower_end
from brinell.analysis.robust_accuracy import rate, summarise_model
from brinell.core.checks import WARNINGS, Code
from brinell.core.errors import RequestError

stats = library("scipy.stats")
EPS = [0.0, 0.1]
LABELS = np.arange(100) % 2
RATES = [rate(k, 10, eps=eps) for k, eps in ((9, 0.0), (7, 0.1), (4, 0.2))]


def side(synthetic, broken, wrong=0, run="r", eps=EPS, **changes):
    """A run on 100 samples, of which `broken` fall at 0.1 (the classes in turn) and `wrong` from
    the start."""
    breaks = np.where(np.arange(100) < broken, 0.05, np.inf)
    breaks[100 - wrong :] = 0
    manifest = synthetic.manifest(["m"], eps, 100, ["zero", "one"], **changes)
    return Side(
        run=run,
        manifest=manifest,
        records=synthetic.records("m", LABELS, eps, np.stack([breaks] * 2)),
        model="m",
    )


def result(of):
    return summarise_model(of.manifest, of.records, of.run, of.model)


def checks_of(run, eps=None, **minima):
    return against_thresholds(rates_of(run), minima, eps, names_of(run))


def test_thresholds_are_tested_against_the_lower_end(synthetic):
    run = result(side(synthetic, broken=20))
    rate = run.robust_accuracy[-1]
    low = lower_end(rate)
    assert rate.value == 0.8 and stats.binom.sf(79, 100, low) == pytest.approx(0.025)
    for minimum, passed in ((low, True), (low + 1e-9, False), (0.8, False)):
        (check,) = checks_of(run, robust=minimum)
        assert (check.passed, check.observed, check.low) == (passed, 0.8, low)
        assert check.statement.kind == ("passes" if passed else "fails")
        assert check.statement.threshold == minimum


def test_conditions_on_a_run_name_the_budget_as_it_is_written_and_the_class(synthetic):
    run = result(side(synthetic, broken=20, wrong=5))
    run = run.model_copy(
        update={"certified": [rate(k, 100, eps=eps) for k, eps in ((95, 0.0), (40, 0.1))]}
    )
    checks = checks_of(run, clean=0.1, robust=0.1, worst_class=0.1, certified=0.1)
    worst = min(run.per_class, key=lambda figures: lower_end(figures.robust[1]))
    assert [check.name for check in checks] == [
        "clean accuracy",
        "robust accuracy at eps 26/255",
        f"robust accuracy of the worst class at eps 26/255 ({worst.name})",
        "share that is proven robust at eps 26/255",
    ]
    rates = (run.clean_accuracy, run.robust_accuracy[1], worst.robust[1], run.certified[1])
    assert [(check.observed, check.low, check.required) for check in checks] == [
        (r.value, lower_end(r), 0.1) for r in rates
    ]
    (clean,) = checks_of(run, eps=0.0, robust=0.1)
    assert (clean.name, clean.observed) == (
        "robust accuracy at eps 0/255",
        run.robust_accuracy[0].value,
    )


def test_a_missing_rate_fails(synthetic):
    run = result(side(synthetic, broken=0))
    (check,) = checks_of(run, eps=0.3, robust=0.0)
    assert not check.passed and "has no eps 0.3" in check.text
    assert not checks_of(run.model_copy(update={"per_class": []}), worst_class=0.0)[0].passed
    unknown = run.per_class[0].model_copy(update={"robust": [rate(0, 0, eps=eps) for eps in EPS]})
    assert not checks_of(
        run.model_copy(update={"per_class": [unknown, run.per_class[1]]}), worst_class=0.0
    )[0].passed
    (unmet,) = checks_of(run, unmet=0.1)
    assert (
        not unmet.passed and unmet.text == "the run has no share that does not meet the criterion"
    )


def test_conditions_on_rates_over_budgets_name_their_budget_and_every_figure():
    rates = {"clean": RATES, "robust": RATES, "certified": RATES[1:]}
    for metric, minimum, eps, name, passed, observed, low, words in (
        ("clean", 0.5, 0.2, "clean accuracy", True, 0.9, lower_end(RATES[0]), "9 of 10 samples"),
        (
            "robust",
            0.3,
            None,
            "robust accuracy at eps 0.2",
            False,
            0.4,
            lower_end(RATES[2]),
            "is below 30.0 %",
        ),
        (
            "robust",
            0.3,
            0.1,
            "robust accuracy at eps 0.1",
            True,
            0.7,
            lower_end(RATES[1]),
            "reaches 30.0 %",
        ),
        (
            "certified",
            0.9,
            0.1,
            "share that is proven robust at eps 0.1",
            False,
            0.7,
            lower_end(RATES[1]),
            "is below 90.0 %",
        ),
        (
            "robust",
            0.1,
            0.3,
            "robust accuracy at eps 0.3",
            False,
            None,
            None,
            "the run has no eps 0.3, only 0, 0.1, 0.2",
        ),
    ):
        (check,) = against_thresholds(rates, {metric: minimum}, eps)
        assert (check.name, check.passed, check.required) == (name, passed, minimum)
        assert (check.observed, check.low) == (observed, low) and words in check.text


def test_a_fall_beyond_chance_fails_and_one_within_passes(synthetic):
    before, little, much = (
        side(synthetic, broken=20),
        side(synthetic, broken=23),
        side(synthetic, broken=30),
    )

    def passed(now, then, **rules):
        return [
            c.passed
            for c in against_baseline(result(now), result(then), compare(now, then), **rules)
        ]

    assert passed(before, before) == passed(little, before) == passed(before, much) == [True, True]
    assert passed(much, before) == [True, False]
    assert passed(little, before, max_drop=0.02) == [True, False] and passed(
        little, before, max_drop=0.03
    ) == [True, True]


def test_a_fall_says_what_was_lost_and_how_far(synthetic):
    before, after = side(synthetic, broken=20), side(synthetic, broken=23)
    clean, robust = against_baseline(result(after), result(before), compare(after, before), 0.02)
    assert (clean.name, robust.name) == (
        "clean accuracy against the baseline",
        "robust accuracy at eps 26/255 against the baseline",
    )
    assert (robust.observed, robust.required) == (pytest.approx(-0.03), -0.02)
    words = "-3.0 points, a fall more than allowed (same 100 samples, 0 gained and 3 lost, p = 0.25"
    assert robust.text.startswith(words)
    # The interval of a condition holds for all conditions of the gate together.
    assert robust.low < compare(after, before).robust[-1].low


def test_each_budget_of_either_run_is_compared_or_fails(synthetic):
    for seed in range(12):
        rng = np.random.default_rng(seed)
        sets = [
            sorted([2, *map(int, rng.choice([4, 8, 16, 32], rng.integers(0, 5), replace=False))])
            for _ in range(2)
        ]
        sides = [
            side(synthetic, broken=5, eps=[0.0, *(n / 255 for n in numbers)]) for numbers in sets
        ]
        head, then, paired = *map(result, sides), compare(*sides)

        def compare_at(eps=None, head=head, then=then, paired=paired):
            """The checks of robust accuracy by the numerator of their budgets."""
            clean, *robust = against_baseline(head, then, paired, eps=eps)
            assert clean.passed
            return {int(check.name.split()[4].removesuffix("/255")): check for check in robust}

        checks = compare_at()
        assert list(checks) == sorted({*sets[0], *sets[1]})
        for number, check in checks.items():
            (single,) = compare_at(number / 255).values()
            assert check.passed == single.passed == (number in sets[0] and number in sets[1])
            assert (single.name, single.observed) == (check.name, check.observed)
            holder = "run" if number in sets[1] else "baseline"
            assert check.passed or f"the {holder} has no eps {number}/255" in check.text
        assert against_baseline(head, then, paired, eps=0.7)[1].passed is False


def test_codes_and_metrics_that_say_nothing_are_refused():
    codes = {*Code, *WARNINGS, "classes-without-samples", "of-a-plugin"}
    check_codes(codes, {"of-a-plugin"})
    for code in codes:
        with pytest.raises(
            RequestError,
            match=rf"no check or warning has the code '{code[:3]}{code[4:]}', did you "
            rf"mean .*'{code}'",
        ):
            check_codes({code[:3] + code[4:]}, {"of-a-plugin"})
    with pytest.raises(RequestError, check=refused("analysis.gate.check_codes")):
        check_codes({"of-a-plugin"}, ())
    check_metrics({"unmet"}, "true<0.1")
    check_metrics({"robust", "clean"}, None)
    with pytest.raises(RequestError, match="runs/x has none"):
        check_metrics({"clean", "unmet"}, None, "runs/x")
    with pytest.raises(
        RequestError, match=r"which is not robust accuracy: demand .*unmet.* in place of .*robust"
    ):
        check_metrics({"robust", "unmet"}, "true<0.1")


def test_incomplete_runs_and_warnings_fail_the_gate(synthetic):
    run = result(side(synthetic, broken=0))
    assert gate(run, checks_of(run, clean=0.5), without_checks=True).passed
    verdict = gate(run, checks_of(run, clean=0.5))
    missed = [check.name for check in verdict.checks if check.passed is False]
    assert not verdict.passed and missed == ["no warning black-box-better"], (
        "no attack without gradients ran"
    )
    assert verdict.weak == run.weak == "apgd-ce; apgd-dlr"
    warned = result(
        side(
            synthetic, broken=0, warnings=[{"code": "zero-gradients", "model": "m", "text": "look"}]
        )
    )
    assert not gate(warned, checks_of(warned, clean=0.5), without_checks=True).passed
    allowed = gate(
        warned, checks_of(warned, clean=0.5), allow={"zero-gradients"}, without_checks=True
    )
    assert allowed.passed and "look (allowed)" in [check.text for check in allowed.checks]
    assert completeness_of(RATES).passed and completeness_of([]).passed
    check = completeness_of([RATES[0], rate(1, 2, missing=3), rate(1, 2, missing=1)])
    assert (check.passed, check.text) == (False, "3 samples could not be judged")


def test_of_the_worst_class_nothing_is_known_where_one_has_no_sample(synthetic):
    run = result(side(synthetic, broken=0)).model_copy(update={"classes_without_samples": 1})
    for minima, allow, passed in (({"worst_class": 0.5}, (), False), ({"robust": 0.5}, (), True)):
        assert (
            gate(run, checks_of(run, **minima), allow=allow, without_checks=True).passed is passed
        )
    assert gate(
        run, checks_of(run, worst_class=0.5), allow={"classes-without-samples"}, without_checks=True
    ).passed


def test_a_failing_gate_says_its_verdict_and_then_each_failure_with_a_threshold_that_holds(
    synthetic,
):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        model = result(side(synthetic, broken=int(rng.integers(20, 90))))
        verdict = gate(
            model,
            checks_of(
                model,
                **{
                    metric: round(float(rng.random()), 3)
                    for metric in ("clean", "robust", "worst_class")
                },
            ),
        )
        first, *rest = verdict.lines()
        assert first.startswith("gate failed") and len(rest) == len(verdict.failures)
        for line, check in zip(rest, verdict.failures, strict=True):
            assert line.startswith(f"FAIL  {check.name}: {check.text}") and line.endswith(
                check.remedy
            )
            if (
                check.low is not None
                and check.required is not None
                and check.observed < check.required
            ):
                assert float(check.remedy.rpartition(" ")[2]) <= check.low
        assert len(list(verdict.lines(verbose=True))) == 1 + len(verdict.checks)
