"""Whether to believe a figure, case by case; and what each way around a gradient gained, by hand."""

import numpy as np
import pytest

from brinell.analysis.indicators import NEEDED
from brinell.analysis.results import CheckResult, WayResult
from brinell.analysis.robust_accuracy import rate, summarise_model
from brinell.analysis.verdict import BROKEN, UNSTEADY, verdict
from brinell.core.checks import EXTRA, Code

BLIND = "there is no gradient at 1024 of 3072 values (channel 2)"
SQUARE = WayResult(kind="answers", way="answers alone", attacks=["Square"], attacked=50, broken=0)


def checks(*failed, unmade=(), reason="the model gives scores only", **causes):
    """Every check, made and passed but for those that are named; `causes` by the name of the code."""
    return [
        CheckResult(
            code=code,
            passed=False if code in failed else None if code in unmade else True,
            text="words",
            reason=reason if code in unmade else None,
            cause=causes.get(code.name),
        )
        for code in Code
    ]


def mended(broken, disagreement):
    way = "the identity for all that lies before module net"
    return WayResult(kind="mended", way=way, attacks=["APGD"], attacked=27, broken=broken, disagreement=disagreement)


def said(found, ways=(SQUARE,), *, k=45, n=100, eps=0.1, right=90, going=False, missing=0, **more):
    clean, robust = rate(right, n), rate(k, n, eps=eps, missing=missing)
    return verdict(clean=clean, robust=robust, total=n + missing, going=going, checks=found, ways=ways, **more)


def test_every_check_made_and_passed():
    assert said(checks()).startswith("Believe 45.0 %: every check that counts was made and passed, so ")


@pytest.mark.parametrize("code", sorted(set(Code) - NEEDED))
def test_a_check_that_does_not_count_is_not_missed(code):
    assert said(checks(unmade=[code])) == said(checks())


def test_what_could_not_be_made_is_named_with_the_reason():
    found = said(checks(unmade=[Code.ZERO, Code.MISMATCH]))
    assert found == (
        "Believe 45.0 % as far as it was checked: no check failed, but zero-gradients, gradient-mismatch could not be made "
        "because the model gives scores only."
    )


def test_too_few_samples_are_no_pass():
    found = said(checks(unmade=[Code.MISMATCH], reason=None), k=2, n=8, right=8)
    assert found == ("Believe 25.0 % as far as 8 samples tell: no check failed, but gradient-mismatch cannot tell with so few.")


def test_a_run_without_checks_says_that_none_were_made():
    found = said(checks(unmade=NEEDED, reason="the run has not come to it yet"))
    assert f"and {len(NEEDED) - 3} more could not be made because the run has not come to it yet" in found


def test_a_blind_gradient_that_nothing_went_around():
    assert said(checks(Code.MISMATCH, MISMATCH=BLIND), ways=()) == (
        f"Read 45.0 % as an upper bound: {BLIND}, and attacks that follow it are blind there."
    )


def test_a_blind_gradient_that_attacks_went_around():
    found = said(checks(Code.MISMATCH, Code.BLACK_BOX, MISMATCH=BLIND), [SQUARE, mended(13, 0.01)], k=14)
    assert found == (
        f"Read 14.0 % as an upper bound: {BLIND} (and 1 more check failed); attacks went around the gradient by the identity for "
        "all that lies before module net (13 samples more), and finite differences agree with the mended gradient (0.01), so the "
        "figure is likely close."
    )


def test_a_mended_gradient_that_is_not_that_of_the_answers_either():
    found = said(checks(Code.MISMATCH), [mended(1, 0.63)])
    assert "(1 sample more)" in found
    assert found.endswith("disagree with that gradient too (0.63), so a better way around may break more.")


def test_ways_that_broke_nothing():
    found = said(checks(Code.SATURATED))
    assert "lost its gradient to rounding; attacks went around the gradient and broke no sample more." in found


def test_the_check_that_tells_most_is_told_first():
    assert "clean inputs have no gradient (and 2 more checks failed)" in said(checks(Code.INCOMPLETE, Code.ZERO, Code.AHEAD))
    assert BLIND in said(checks(Code.ONE_HOT, Code.MISMATCH, MISMATCH=BLIND))


@pytest.mark.parametrize("code", UNSTEADY)
def test_answers_that_depend_on_what_they_should_not(code):
    """A figure that may be wrong in either direction is no upper bound, whatever else failed, and 0 is none either."""
    for k in (0, 45):
        found = said(checks(code, Code.MISMATCH, Code.RANDOM), k=k)
        assert found.startswith(f"Do not rely on {k}.0 %: ") and UNSTEADY[code] in found


def test_random_answers():
    found = said(checks(Code.RANDOM, Code.MISMATCH))
    assert found.startswith("Read 45.0 % as an estimate: ") and "--attack rand" in found
    mean = WayResult(kind="averaged", way="the mean of 20 answers", attacks=["APGD"], attacked=45, broken=3)
    assert said(checks(Code.RANDOM), [mean]).endswith("attacks along the mean of 20 answers broke 3 samples more.")
    assert said(checks(Code.RANDOM), eot=20).endswith("attacks followed and were judged by the mean of 20 answers.")


def test_nothing_robust_leaves_nothing_to_doubt():
    assert said(checks(Code.MISMATCH), k=0).startswith("Believe 0.0 %: ")


def test_no_sample_right():
    assert said(checks(), k=0, right=0).startswith("There is nothing to believe or to doubt: the model is right on no sample")


def test_a_run_that_is_not_finished():
    assert said(checks(Code.MISMATCH), going=True) == "Believe nothing yet: the run is not finished, and 45.0 % may still fall."
    assert said(checks(), k=0, n=0, right=0, going=True) == "Believe nothing yet: no attack is finished."


def test_without_a_budget():
    assert said(checks(), eps=0.0).startswith("There is no robust accuracy to believe")


def test_what_else_bears_on_it():
    assert said(checks(), missing=7).endswith("it is of the 100 of 107 samples that could be judged.")
    assert "too low if the model rejects" in said(checks(), extra=True)


def test_attacks_that_are_weaker_than_fast_are_named():
    assert said(checks(), weak="FGSM").endswith("; the attacks (FGSM) are weaker than fast, which may find more.")
    assert "weaker" not in said(checks(), k=0, weak="FGSM"), "nothing is left to find"


def test_a_model_that_is_asked_otherwise_than_it_was_trained():
    found = said(checks(Code.CLEAN, CLEAN="on clean inputs the classes are in another order"))
    assert found == "Do not rely on 45.0 %: on clean inputs the classes are in another order."
    assert said(checks(Code.CLEAN, CLEAN="on clean inputs nothing fits"), k=0, right=0).endswith(
        "so nothing was attacked: on clean inputs nothing fits."
    )


def test_every_check_has_its_words():
    assert set(Code) - set(UNSTEADY) - set(BROKEN) == {Code.RANDOM, Code.SILENT, Code.TRANSFER}
    assert not set(UNSTEADY) & set(BROKEN)


# From records

N, EPS = 20, [0.05, 0.1]
STAGES = ("apgd-ce", "square", "pgd", "pgd-long", "pgd-late")


def run(synthetic, **changes):
    """A gradient attack breaks 8 of 20; Square 2 more; one along the mended gradient 5 more; a longer one none."""
    breaks = np.full((5, N), np.inf)
    breaks[0, :8] = 0.03
    breaks[1, 8:10] = 0.08
    breaks[2, 10:15] = 0.08
    rows = synthetic.records("m", np.arange(N) % 2, EPS, breaks, stages=STAGES)
    rows = synthetic.change(rows, (rows.attack == "pgd-late") & (rows.outcome != "fooled_before"), outcome="spared")
    manifest = synthetic.manifest(["m"], EPS, N, ["zero", "one"], stages=STAGES, **changes)
    told = [{}, {"access": "scores"}, {"gradient": "repaired"}, {"turn": {"when": "masked"}}, {"turn": {"when": "masked"}}]
    for stage, more in zip(manifest["stages"], told, strict=True):
        stage.update(more)
    return manifest, rows


def test_what_each_way_attacked_and_gained(synthetic):
    repairs = {"m": {"forwards": 1, "backwards": 1, "way": "the identity for module 0", "disagreement": 0.02}}
    manifest, rows = run(synthetic, repairs=repairs)
    found = summarise_model(manifest, rows, "r", "m")
    assert [(way.way, way.attacked, way.broken, way.disagreement) for way in found.ways_around] == [
        ("answers alone", 12, 2, None),
        ("the identity for module 0", 10, 5, 0.02),
        ("the model's own gradient, for longer", 5, 0, None),
    ]
    assert found.ways_around[2].attacks == ["pgd-long"], "a stage whose condition does not hold went nowhere"
    assert found.verdict.startswith("Read 25.0 % as an upper bound: attacks without gradients broke samples")
    assert "finite differences agree with the mended gradient (0.02), so the figure is likely close;" in found.verdict


def test_an_attack_without_gradients_that_runs_first_goes_around_none(synthetic):
    manifest, rows = run(synthetic)
    manifest["stages"][0]["access"] = "scores"
    assert "answers alone" not in [way.way for way in summarise_model(manifest, rows, "r", "m").ways_around]


def test_a_run_from_before_stages_waited(synthetic):
    manifest, rows = run(synthetic)
    for stage in manifest["stages"]:
        stage.pop("gradient", None)
        stage.pop("turn", None)
    assert [way.way for way in summarise_model(manifest, rows, "r", "m").ways_around] == ["answers alone"]


def test_a_run_that_is_not_finished_from_records(synthetic):
    manifest, rows = run(synthetic, state="running")
    assert summarise_model(manifest, rows, "r", "m").verdict.startswith("Believe nothing yet")


def test_the_warning_of_an_extra_class_is_heard(synthetic):
    manifest, rows = run(synthetic, warnings=[{"code": EXTRA, "model": "m", "text": "words"}])
    assert "too low if the model rejects" in summarise_model(manifest, rows, "r", "m").verdict
