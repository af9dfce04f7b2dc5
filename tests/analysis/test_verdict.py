"""The verdict case by case, and what each way around a gradient gained, by hand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from brinell.analysis.indicators import NEEDED
from brinell.analysis.results import CheckResult, WayResult
from brinell.analysis.robust_accuracy import rate, summarise_model
from brinell.analysis.verdict import BROKEN, LONGEST, UNSTEADY, verdict, verdict_notes, weaker_than_fast
from brinell.core.checks import TOO_FEW, Code

BLIND = "there is no gradient at 1024 of 3072 values (channel 2)"
SQUARE = WayResult(kind="answers", way="answers alone", attacks=["Square"], attacked=50, broken=0)


def checks(*failed, not_run=(), reason="the model gives scores only", **causes):
    """A result of every check: passed, but for the codes given; `causes` by the name of the code."""
    return [
        CheckResult(
            code=code,
            passed=False if code in failed else None if code in not_run else True,
            text="words",
            reason=reason if code in not_run else None,
            cause=causes.get(code.name),
        )
        for code in Code
    ]


def mended(broken, disagreement):
    way = "the identity for all that lies before module net"
    return WayResult(kind="mended", way=way, attacks=["APGD"], attacked=27, broken=broken, disagreement=disagreement)


def judge(results, ways=(SQUARE,), *, k=45, n=100, eps=0.1, right=90, going=False, missing=0, weak=None, **options):
    """The verdict, and its notes."""
    clean, robust = rate(right, n), rate(k, n, eps=eps, missing=missing)
    sentence = verdict(clean=clean, robust=robust, budget="8/255", going=going, checks=results, ways=ways, weak=weak is not None)
    return sentence, verdict_notes(robust=robust, total=n + missing, checks=results, ways=ways, weak=weak, **options)


def test_every_check_passed():
    assert judge(checks()) == ("Robust accuracy at 8/255 is at most 45.0 %: all checks passed, and no attack found more.", [])


def test_attacks_that_broke_no_sample():
    sentence, _ = judge(checks(), k=90)
    assert sentence == "Robust accuracy at 8/255 is at most 90.0 %: all checks passed, and no attack broke a sample."


def test_a_check_that_does_not_count_is_not_missed(subtests):
    for code in sorted(set(Code) - NEEDED):
        with subtests.test(code=code):
            assert judge(checks(not_run=[code])) == judge(checks())


def test_checks_that_could_not_run_are_counted_and_named_with_the_reason():
    sentence, notes = judge(checks(not_run=[Code.ZERO, Code.MISMATCH]))
    assert sentence == "Robust accuracy at 8/255 is at most 45.0 %: no check failed, but 2 could not run."
    assert notes == ["zero-gradients, gradient-mismatch could not run: the model gives scores only."]


def test_too_few_samples_are_no_pass():
    sentence, notes = judge(checks(not_run=[Code.MISMATCH], reason=TOO_FEW), k=2, n=8, right=8)
    assert sentence == "Robust accuracy at 8/255 is at most 25.0 %: no check failed, but 8 samples are too few to tell."
    assert notes == ["gradient-mismatch cannot tell with so few samples: take more (--samples)."]


def test_a_run_without_checks_says_that_none_ran():
    sentence, notes = judge(checks(not_run=NEEDED, reason="the run has not come to it yet"))
    assert f"{len(NEEDED)} could not run" in sentence
    assert f"and {len(NEEDED) - 3} more could not run: the run has not come to it yet." in notes[0]


def test_a_wrong_gradient_that_no_attack_bypassed():
    assert judge(checks(Code.MISMATCH, MISMATCH=BLIND), ways=()) == (
        f"Robust accuracy at 8/255 may be well below 45.0 %: {BLIND}.",
        [],
    )


def test_a_wrong_gradient_that_attacks_replaced_by_a_good_one():
    sentence, notes = judge(checks(Code.MISMATCH, Code.BLACK_BOX, MISMATCH=BLIND), [SQUARE, mended(13, 0.01)], k=14)
    assert sentence.startswith("Robust accuracy at 8/255 is at most 14.0 %: ")
    assert notes == [
        "black-box-better failed too.",
        "Attacks by the identity for all that lies before module net broke 13 samples more.",
        "Finite differences agree with the replaced gradient (0.01; 0 is perfect, 1 is chance).",
    ]


def test_a_replaced_gradient_that_is_wrong_too():
    sentence, notes = judge(checks(Code.MISMATCH), [mended(1, 0.63)])
    assert sentence.startswith("Robust accuracy at 8/255 may be well below 45.0 %: ")
    assert "1 sample more." in notes[0]
    assert notes[1].startswith("Finite differences disagree with the replaced gradient too (0.63")


def test_ways_that_broke_nothing():
    sentence, notes = judge(checks(Code.SATURATED))
    assert "rounding removed the gradient" in sentence
    assert notes == ["Attacks that bypass the gradient broke no sample more."]


def test_the_gravest_check_comes_first():
    sentence, notes = judge(checks(Code.INCOMPLETE, Code.ZERO, Code.PROBE_AHEAD))
    assert "clean inputs have zero gradient" in sentence
    assert "failed too" in notes[0]
    assert Code.ZERO not in notes[0]
    assert BLIND in judge(checks(Code.ANSWERS, Code.MISMATCH, MISMATCH=BLIND))[0]


def test_answers_that_depend_on_what_they_should_not(subtests):
    """Such a figure may be wrong in either direction, so it is no upper bound, and 0 is none either."""
    for code in UNSTEADY:
        with subtests.test(code=code):
            for k in (0, 45):
                sentence, _ = judge(checks(code, Code.MISMATCH, Code.RANDOM), k=k)
                assert sentence == f"Do not rely on the {k}.0 %: {UNSTEADY[code]}."


def test_random_answers():
    sentence, notes = judge(checks(Code.RANDOM, Code.MISMATCH))
    assert sentence.startswith("Robust accuracy at 8/255 is about 45.0 %, an estimate: ")
    assert any("--attack rand" in note for note in notes)
    mean = WayResult(kind="averaged", way="the mean of 20 answers", attacks=["APGD"], attacked=45, broken=3)
    assert "Attacks along the mean of 20 answers broke 3 samples more." in judge(checks(Code.RANDOM), [mean])[1]
    assert any("the mean of 20 answers" in note for note in judge(checks(Code.RANDOM), eot=20)[1])


def test_at_zero_nothing_is_in_doubt():
    assert (
        judge(checks(Code.MISMATCH), k=0, right=100)[0]
        == "Robust accuracy at 8/255 is 0 %: every sample has an adversarial example."
    )
    assert "every correctly classified sample" in judge(checks(), k=0)[0]


def test_no_sample_right():
    assert judge(checks(), k=0, right=0)[0] == "No sample was attacked: the model misclassifies every clean input."


def test_a_run_that_is_not_finished():
    assert (
        judge(checks(Code.MISMATCH), going=True)[0]
        == "Robust accuracy at 8/255 is at most 45.0 % so far: the run is not finished."
    )
    assert judge(checks(), k=0, n=0, right=0, going=True)[0] == "Robust accuracy is not known yet: no attack is finished."


def test_without_a_budget():
    assert judge(checks(), eps=0.0)[0] == "Robust accuracy was not measured: no budget is above 0."


def test_notes_on_the_figure_itself():
    assert judge(checks(), missing=7)[1] == ["100 of 107 samples could be judged; the figure is of these."]


def test_attacks_that_are_weaker_than_fast_are_named():
    sentence, notes = judge(checks(), weak="FGSM")
    assert "stronger attacks (--attack fast) may lower it" in sentence
    assert notes == ["The attacks (FGSM) are weaker than fast, which may find more: run --attack fast."]
    assert not judge(checks(), k=0, weak="FGSM")[1], "nothing is left to find"


def test_a_cause_that_a_check_found_comes_before_the_general_reason():
    sentence, _ = judge(checks(Code.CLEAN, CLEAN="on clean inputs the classes are in another order"))
    assert sentence == "Do not rely on the 45.0 %: on clean inputs the classes are in another order."
    long = " ".join(["word"] * 30)
    assert judge(checks(Code.CLEAN, CLEAN=long))[0] == f"Do not rely on the 45.0 %: {UNSTEADY[Code.CLEAN]}."


def test_scores_that_do_not_decide_are_said_with_what_to_do_next():
    sentence, notes = judge(checks(Code.BOUNDARY))
    reason = "attacks failed, but the scores do not tell how near the decision boundary is"
    assert sentence == f"Robust accuracy at 8/255 may be well below 45.0 %: {reason}."
    assert any("(--attack ray-s)" in note for note in notes)
    labels = WayResult(kind="answers", way="labels alone", attacks=["RayS"], attacked=50, broken=20)
    _, notes = judge(checks(Code.SURVIVORS), [labels])
    assert "Attacks by labels alone broke 20 samples more." in notes and any("ray-s?steps=100000" in note for note in notes)
    assert judge(checks(Code.BOUNDARY, Code.ZERO), [mended(3, 0.01)])[0].startswith("Robust accuracy at 8/255 may be well below")


def test_every_check_has_its_reason():
    assert set(Code) - set(UNSTEADY) - set(BROKEN) == {Code.RANDOM}
    assert not set(UNSTEADY) & set(BROKEN)


@given(
    failed=st.sets(st.sampled_from(list(Code))),
    missing=st.sets(st.sampled_from(list(Code))),
    cause=st.none() | st.integers(1, 40).map(lambda words: " ".join(["word"] * words)),
    reason=st.sampled_from([None, "the model gives scores only"]),
    ways=st.lists(st.sampled_from([SQUARE, mended(3, 0.01), mended(0, 0.7)]), max_size=2),
    k=st.integers(0, 90),
    going=st.booleans(),
    weak=st.sampled_from([None, "FGSM"]),
)
def test_the_verdict_is_one_short_sentence(failed, missing, cause, reason, ways, k, going, weak):
    causes = {code.name: cause for code in failed}
    results = checks(*failed, not_run=missing - failed, reason=reason, **causes)
    sentence, notes = judge(results, ways, k=k, going=going, weak=weak)
    assert len(sentence.split()) <= LONGEST
    assert sentence.endswith(".")
    assert sentence[0].isupper() or sentence[0].isdigit()
    assert all(note.endswith(".") for note in notes)


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
    rows = synthetic.change(rows, rows.attack == "pgd-late", outcome="spared", attacked=np.ma.masked)
    manifest = synthetic.manifest(["m"], EPS, N, ["zero", "one"], stages=STAGES, **changes)
    told = [{}, {"access": "scores"}, {"gradient": "repaired"}, {"turn": {"when": "masked"}}, {"turn": {"when": "masked"}}]
    for stage, change in zip(manifest["stages"], told, strict=True):
        stage.update(change)
    return manifest, rows


def test_what_each_way_attacked_and_gained(synthetic):
    repairs = {"m": {"forwards": 1, "backwards": 1, "way": "the identity for module 0", "disagreement": 0.02}}
    manifest, rows = run(synthetic, repairs=repairs)
    result = summarise_model(manifest, rows, "r", "m")
    assert [(way.way, way.attacked, way.broken, way.disagreement) for way in result.ways_around] == [
        ("answers alone", 12, 2, None),
        ("the identity for module 0", 10, 5, 0.02),
        ("the model's own gradient, for longer", 5, 0, None),
    ]
    assert result.ways_around[2].attacks == ["pgd-long"], "a stage whose condition does not hold went nowhere"
    assert result.verdict.startswith("Robust accuracy at 26/255 is at most 25.0 %: ")
    assert any("agree with the replaced gradient (0.02" in note for note in result.verdict_notes)


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


def ways_by_hand(synthetic, stages, repair=None):
    """(kind, way) of each stage that goes around the gradient: an APGD stage, and then one with these changes."""
    breaks = np.full((len(stages), N), np.inf)
    names = tuple(f"stage-{number}" for number in range(len(stages)))
    rows = synthetic.records("m", np.arange(N) % 2, EPS, breaks, stages=names)
    manifest = synthetic.manifest(["m"], EPS, N, ["zero", "one"], stages=names)
    for stage, change in zip(manifest["stages"], stages, strict=True):
        stage.update(change)
    manifest["repairs"] = {} if repair is None else {"m": repair}
    return [(way.kind, way.way) for way in summarise_model(manifest, rows, "r", "m").ways_around]


def test_what_a_stage_follows_in_place_of_the_gradient(synthetic):
    follows = [
        ({"gradient": "surrogate"}, ("surrogate", "the gradient of the surrogate")),
        ({"turn": {"when": "detached"}, "access": "labels"}, ("answers", "labels alone")),
        ({"turn": {"when": "blind"}, "access": "scores"}, ("estimated", "a gradient estimated from scores")),
        ({"turn": {"when": "random"}, "eot": 20}, ("averaged", "the mean of 20 answers")),
        ({"access": "scores"}, ("answers", "answers alone")),
        ({"turn": {"when": "masked"}}, ("longer", "the model's own gradient, for longer")),
        ({"gradient": "repaired"}, ("mended", "a gradient that is mended")),
    ]
    assert [ways_by_hand(synthetic, [{}, change]) for change, _ in follows] == [[way] for _, way in follows]
    assert ways_by_hand(synthetic, [{}, {}]) == []
    mended_from_start = {"from_start": True, "way": "another", "forwards": 1, "backwards": 1, "disagreement": 0.1}
    assert ("mended", "another") in ways_by_hand(synthetic, [{}], mended_from_start)


def test_titles_of_attacks_that_are_weaker_than_fast(synthetic):
    stages = ("a", "b", "c", "d")
    manifest = synthetic.manifest(["m", "o"], EPS, N, ["zero", "one"], stages=stages)
    manifest["stages"][1]["label"] = "B"
    assert weaker_than_fast(manifest, "m") == "a; B; c and 1 more"
    manifest["skipped"] = [{"model": "m", "stage": "a", "reason": ""}, {"model": "o", "stage": "b", "reason": ""}]
    assert weaker_than_fast(manifest, "m") == "B; c; d" and weaker_than_fast(manifest, "o") == "a; c; d"
    manifest["stages"][2]["turn"] = {"when": "masked"}
    assert weaker_than_fast(manifest, "m") == "B; d"
    manifest["stages"][3]["eot"] = 2
    assert weaker_than_fast(manifest, "m") is None


def test_cascades_that_are_as_strong_as_can_be_for_a_model(synthetic):
    """`black-box` is for a model without gradients, and any other cascade but the strong ones is weak for both."""
    manifest = synthetic.manifest(["m", "o"], EPS, N, ["zero", "one"], stages=("a", "b"))
    manifest["models"][1]["access"] = "scores"
    weak = {
        attacks: tuple(weaker_than_fast(manifest | {"request": {"attack": list(attacks)}}, name) is not None for name in "mo")
        for attacks in (("fgsm",), ("black-box",), ("plus?seed=1",), ("fgsm", "fast"), ("fgsm", "black-box"))
    }
    assert list(weak.values()) == [(True, True), (True, False), (False, False), (False, False), (True, False)]
