import numpy as np
import pytest

from _refusals import refused
from brinell.analysis.compare import Side, compare
from brinell.analysis.gate import (
    Baseline,
    Threshold,
    against_baseline,
    against_rates,
    against_thresholds,
    check_codes,
    completeness_of,
    gate,
)
from brinell.analysis.proportions import difference
from brinell.analysis.robust_accuracy import rate, summarise_model
from brinell.core.checks import WARNINGS, Code
from brinell.core.errors import RequestError
from brinell.studies.gate.terminal import lines

EPS = [0.0, 0.1]
LABELS = np.arange(100) % 2


def side(synthetic, broken, wrong=0, run="r", eps=EPS, **changes):
    """A run on 100 samples, of which `broken` fall at 0.1 (the classes in turn) and `wrong` from the start."""
    breaks = np.where(np.arange(100) < broken, 0.05, np.inf)
    breaks[100 - wrong :] = 0
    manifest = synthetic.manifest(["m"], eps, 100, ["zero", "one"], **changes)
    return Side(run=run, manifest=manifest, records=synthetic.records("m", LABELS, eps, np.stack([breaks] * 2)), model="m")


def result(of):
    return summarise_model(of.manifest, of.records, of.run, of.model)


def test_thresholds_are_tested_against_the_lower_end(synthetic):
    run = result(side(synthetic, broken=20))
    rate = run.robust_accuracy[-1]
    assert rate.value == 0.8 and rate.low == pytest.approx(0.7112, abs=1e-4)
    for minimum, passed in ((rate.low, True), (rate.low + 1e-9, False), (0.8, False)):
        (check,) = against_thresholds(run, [Threshold(metric="robust", minimum=minimum)])
        assert (check.passed, check.observed, check.low) == (passed, 0.8, rate.low)


def test_worst_class(synthetic):
    run = result(side(synthetic, broken=0))
    lame = run.model_copy(
        update={
            "per_class": [
                run.per_class[0],
                run.per_class[1].model_copy(
                    update={
                        "robust": [
                            run.per_class[1].robust[0],
                            run.per_class[1].robust[1].model_copy(update={"value": 0.5, "low": 0.3, "k": 25}),
                        ]
                    }
                ),
            ]
        }
    )
    (check,) = against_thresholds(lame, [Threshold(metric="worst_class", minimum=0.35, eps=0.1)])
    assert not check.passed and "(one)" in check.name and check.low == 0.3


def test_a_missing_metric_fails(synthetic):
    run = result(side(synthetic, broken=0))
    (check,) = against_thresholds(run, [Threshold(metric="robust", minimum=0.0, eps=0.3)])
    assert not check.passed and "has no eps 0.3" in check.text
    empty = run.model_copy(update={"per_class": []})
    (check,) = against_thresholds(empty, [Threshold(metric="worst_class", minimum=0.0)])
    assert not check.passed


def test_the_same_run_is_not_worse_than_itself(synthetic):
    tested_side = side(synthetic, broken=20, wrong=5)
    checks = against_baseline(result(tested_side), result(tested_side), compare(tested_side, tested_side))
    assert [c.passed for c in checks] == [True, True]


def test_a_fall_beyond_chance_fails_and_one_within_passes(synthetic):
    before, little, much = side(synthetic, broken=20), side(synthetic, broken=23), side(synthetic, broken=30)
    assert [c.passed for c in against_baseline(result(little), result(before), compare(little, before))] == [True, True]
    checks = against_baseline(result(much), result(before), compare(much, before))
    assert [c.passed for c in checks] == [True, False]
    assert "beyond chance" in checks[1].text and "10 lost" in checks[1].text
    # Compared as if on different samples, ten of a hundred are still chance.
    assert all(c.passed for c in against_baseline(result(much), result(before)))


def test_max_drop_is_a_limit_of_its_own(synthetic):
    before, little = side(synthetic, broken=20), side(synthetic, broken=23)
    pair = compare(little, before)
    checks = against_baseline(result(little), result(before), pair, Baseline(max_drop=0.02))
    assert [c.passed for c in checks] == [True, False]
    assert all(c.passed for c in against_baseline(result(little), result(before), pair, Baseline(max_drop=0.03)))


def test_improvement_passes(synthetic):
    before, current = side(synthetic, broken=60), side(synthetic, broken=10)
    assert all(c.passed for c in against_baseline(result(current), result(before), compare(current, before)))


def test_each_budget_of_either_run_is_compared_or_fails_with_a_budget_that_works(synthetic, subtests):
    for seed in range(12):
        with subtests.test(seed=seed):
            rng = np.random.default_rng(seed)
            sets = [sorted(map(int, rng.choice([4, 8, 16, 32], rng.integers(1, 5), replace=False))) for _ in range(2)]
            head, then = (result(side(synthetic, broken=5, eps=[0.0, *(n / 255 for n in numbers)])) for numbers in sets)
            common = set(sets[0]) & set(sets[1])

            def compare_at(eps=None):
                """The checks of robust accuracy by the numerator of their budgets."""
                clean, *robust = against_baseline(head, then, eps=eps)
                assert clean.passed
                return {int(check.name.split()[4].removesuffix("/255")): check for check in robust}

            checks = compare_at()
            assert list(checks) == sorted({*sets[0], *sets[1]})
            for number, check in checks.items():
                assert check.passed == (number in common) and compare_at(number / 255) == {number: check}
                if not check.passed:
                    holder = "run" if number in sets[1] else "baseline"
                    assert (
                        f"the {holder} has no eps {number}/255" in check.text
                        and f"audit the {holder} at {number}/255" in check.text
                    )
                    assert check.remedy == "" and all(f"{n}/255" in check.text.partition("--eps ")[2] for n in common)
            assert against_baseline(head, then, eps=0.7)[1].passed is False and len(against_baseline(head, then, eps=0.0)) == 1


def test_a_code_of_no_check_is_refused_unless_the_run_warns_of_it():
    codes = {*Code, *WARNINGS, "classes-without-samples", "of-a-plugin"}
    check_codes(codes, {"of-a-plugin"})
    for code in codes:
        with pytest.raises(
            RequestError, match=rf"no check or warning has the code '{code[:3]}{code[4:]}', did you mean .*'{code}'"
        ):
            check_codes({code[:3] + code[4:]}, {"of-a-plugin"})
    with pytest.raises(RequestError, check=refused("analysis.gate.check_codes")):
        check_codes({"of-a-plugin"}, ())


def test_incomplete_runs_and_warnings_fail_the_gate(synthetic):
    passing = [Threshold(metric="clean", minimum=0.5)]
    run = result(side(synthetic, broken=0))
    assert gate(run, against_thresholds(run, passing), without_checks=True).passed
    verdict = gate(run, against_thresholds(run, passing))
    missed = [check.name for check in verdict.checks if check.passed is False]
    assert not verdict.passed and missed == ["no warning black-box-better"], "no attack without gradients ran"
    assert verdict.weak == "apgd-ce; apgd-dlr"
    warned = result(side(synthetic, broken=0, warnings=[{"code": "zero-gradients", "model": "m", "text": "look"}]))
    assert not gate(warned, against_thresholds(warned, passing), without_checks=True).passed
    assert gate(warned, against_thresholds(warned, passing), allow={"zero-gradients"}, without_checks=True).passed


def test_of_the_worst_class_nothing_is_known_where_one_has_no_sample(synthetic):
    run = result(side(synthetic, broken=0)).model_copy(update={"classes_without_samples": 1})
    thresholds = [Threshold(metric="worst_class", minimum=0.5)]
    (check,) = against_thresholds(run, thresholds)
    assert (
        check.passed is False
        and "1 of 3 classes have no sample" in check.text
        and "--allow classes-without-samples" in check.text
    )
    assert against_thresholds(run, thresholds, allow={"classes-without-samples"})[0].passed
    assert against_thresholds(run, [Threshold(metric="robust", minimum=0.5)])[0].passed, "of the others enough is known"


def test_a_cascade_that_is_weaker_than_fast_is_named(synthetic, subtests):
    for attack, access, eot, weak in [
        (["fgsm"], "gradients", 1, "apgd-ce; apgd-dlr"),
        (["slides"], "gradients", 1, "apgd-ce; apgd-dlr"),
        (["black-box"], "gradients", 1, "apgd-ce; apgd-dlr"),
        (["black-box"], "scores", 1, None),
        (["rand"], "gradients", 20, None),
        (["fast"], "gradients", 1, None),
        (["standard"], "gradients", 1, None),
        (["fgsm", "plus"], "gradients", 1, None),
    ]:
        with subtests.test(attack=attack, access=access, eot=eot, weak=weak):
            tested_side = side(synthetic, broken=0, request={"attack": attack})
            tested_side.manifest["models"][0]["access"] = access
            tested_side.manifest["stages"][0]["eot"] = eot
            run = result(tested_side)
            assert run.weak == gate(run, against_thresholds(run, [Threshold(metric="clean", minimum=0.5)])).weak == weak


def test_a_gate_without_conditions_is_refused(synthetic):
    with pytest.raises(RequestError, check=refused("analysis.gate.gate")):
        gate(result(side(synthetic, broken=0)), [])


def test_threshold_refuses(subtests):
    for bad in [{"metric": "robust", "minimum": 1.5}, {"metric": "speed", "minimum": 0.5}]:
        with subtests.test(bad=bad):
            with pytest.raises(ValueError, match="is"):
                Threshold(**bad)


def test_a_failing_gate_ends_with_the_first_failing_condition_and_its_remedy(synthetic, subtests):
    for seed in range(6):
        with subtests.test(seed=seed):
            check_last_line(synthetic, np.random.default_rng(seed))


def check_last_line(synthetic, rng):
    """Of a gate with three conditions that are drawn."""
    model = result(side(synthetic, broken=int(rng.integers(20, 90))))
    thresholds = [
        Threshold(metric=metric, minimum=round(float(rng.random()), 3)) for metric in ("clean", "robust", "worst_class")
    ]
    verdict = gate(model, against_thresholds(model, thresholds))
    *before, last = lines(verdict)
    failures = [check for check in verdict.checks if check.passed is False]
    if not failures:
        assert last.startswith("gate passed")
        return
    first = failures[0]
    assert last.startswith(f"FAIL  {first.name}: {first.text}") and last.endswith(f"; {first.remedy}")
    assert [line.startswith("FAIL") for line in before[-len(failures) :]] == [False] + [True] * (len(failures) - 1)
    for check in failures:
        if check.low is not None and check.required is not None:
            demanded = check.remedy.rpartition(" ")[2]
            success = check.observed >= check.required
            assert success or float(demanded) <= check.low, "the threshold that it proposes must hold"
            assert f"{100 * check.required:.1f} %" in check.text


def test_a_threshold_in_percent_is_refused_with_its_share():
    with pytest.raises(ValueError, match="50 % is 0.5"):
        Threshold(metric="robust", minimum=50)


RATES = [rate(k, 10, eps=eps) for k, eps in ((9, 0.0), (7, 0.1), (4, 0.2))]


def test_conditions_on_rates_over_budgets_name_their_budget_and_every_figure():
    rates = {"clean": RATES, "robust": RATES, "certified": RATES[1:]}
    conditions = [
        # metric, least, budget; name, passed, observed, low, required, words
        ("clean", 0.5, 0.2, "clean accuracy", True, 0.9, RATES[0].low, "9 of 10 samples"),
        ("robust", 0.3, None, "robust accuracy at eps 0.2", False, 0.4, RATES[2].low, "is below 30.0 %"),
        ("robust", 0.3, 0.1, "robust accuracy at eps 0.1", True, 0.7, RATES[1].low, "reaches 30.0 %"),
        ("certified", 0.9, 0.1, "share that is proven robust at eps 0.1", False, 0.7, RATES[1].low, "is below 90.0 %"),
        ("robust", 0.1, 0.3, "robust accuracy at eps 0.3", False, None, None, "the run has no eps 0.3, only 0, 0.1, 0.2"),
        ("unmet", 0.1, None, "share that does not meet the criterion", False, None, None, "the run has no share that does not"),
    ]
    thresholds = [Threshold(metric=metric, minimum=minimum, eps=eps) for metric, minimum, eps, *_ in conditions]
    codes = ["clean-accuracy", *["robust-accuracy"] * 2, "certified-accuracy", "robust-accuracy", "criterion-unmet"]
    for check, code, row in zip(against_rates(rates, thresholds), codes, conditions, strict=True):
        _, minimum, _, name, passed, observed, low, words = row
        assert (check.code, check.name, check.passed, check.required) == (code, name, passed, minimum)
        assert (check.observed, check.low) == (observed, low) and words in check.text


def test_conditions_on_a_run_name_the_budget_as_it_is_written(synthetic):
    run = result(side(synthetic, broken=20, wrong=5))
    run = run.model_copy(update={"certified": [rate(k, 100, eps=eps) for k, eps in ((95, 0.0), (40, 0.1))]})
    metrics = ("clean", "robust", "worst_class", "certified")
    checks = against_thresholds(run, [Threshold(metric=metric, minimum=0.1) for metric in metrics])
    assert [check.name for check in checks[:2]] == ["clean accuracy", "robust accuracy at eps 26/255"]
    worst = min(run.per_class, key=lambda figures: figures.robust[1].low)
    assert checks[2].name == f"robust accuracy of the worst class at eps 26/255 ({worst.name})"
    assert checks[3].name == "share that is proven robust at eps 26/255"
    rates = (run.clean_accuracy, run.robust_accuracy[1], worst.robust[1], run.certified[1])
    assert [(check.observed, check.low, check.required) for check in checks] == [(r.value, r.low, 0.1) for r in rates]
    clean = against_thresholds(run, [Threshold(metric="robust", minimum=0.1, eps=0.0)])[0]
    assert (clean.name, clean.observed) == ("robust accuracy at eps 0/255", run.robust_accuracy[0].value)


def test_samples_that_could_not_be_judged_are_incomplete():
    assert completeness_of(RATES).passed and completeness_of([]).passed
    check = completeness_of([RATES[0], rate(1, 2, missing=3), rate(1, 2, missing=1)])
    assert (check.passed, check.code, check.text) == (False, "run-complete", "3 samples could not be judged")


def test_a_fall_says_what_was_lost_and_how_far(synthetic):
    before, after = side(synthetic, broken=20), side(synthetic, broken=23)
    clean, robust = against_baseline(result(after), result(before), compare(after, before), Baseline(max_drop=0.02))
    assert (clean.name, robust.name) == (
        "clean accuracy not worse than the baseline",
        "robust accuracy at eps 26/255 not worse than the baseline",
    )
    assert clean.code != robust.code and (robust.observed, robust.required) == (pytest.approx(-0.03), -0.02)
    assert robust.text.startswith(
        "-3.0 points, a fall more than allowed (same 100 samples, 0 gained and 3 lost, McNemar p = 0.25"
    )
    check = against_baseline(result(after), result(before))[1]
    assert check.text == "-3.0 points, no fall beyond chance (77 of 100 now, 80 of 100 then, different samples)"
    assert check.low == pytest.approx(difference(77, 100, 80, 100).low) and check.required is None
    with pytest.raises(ValueError, match="max_drop is 1.5"):
        Baseline(max_drop=1.5)
    nobody = result(side(synthetic, broken=0)).model_copy(update={"clean_accuracy": rate(0, 0)})
    assert "no sample of the baseline was judged" in against_baseline(result(after), nobody)[0].text


def test_allowed_warnings_pass_and_say_so(synthetic):
    warned = side(synthetic, broken=0, warnings=[{"code": "odd", "model": "m", "text": "look"}])
    run = result(warned)
    conditions = against_rates({"robust": RATES}, [Threshold(metric="robust", minimum=0)])
    verdicts = [gate(run, conditions, allow=allow) for allow in ((), {"odd"})]
    checks = [next(check for check in verdict.checks if check.code.endswith("odd")) for verdict in verdicts]
    assert [(check.name, check.passed, check.text) for check in checks] == [
        ("no warning odd", False, "look"),
        ("no warning odd", True, "look (allowed)"),
    ]
