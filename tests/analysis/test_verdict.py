"""The verdict case by case, and what each way around a gradient gained, by hand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from brinell.analysis.indicators import NEEDED
from brinell.analysis.results import CheckResult
from brinell.analysis.robust_accuracy import rate, summarise_model
from brinell.analysis.verdict import (
    BROKEN,
    LONGEST,
    UNSTEADY,
    Detours,
    Measured,
    detours,
    verdict,
    verdict_notes,
    weaker_than_fast,
    where_it_breaks,
)
from brinell.core.checks import TOO_FEW, Code

BLIND = "there is no gradient at 1024 of 3072 values (channel 2)"


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


def mended(disagreement):
    return Detours(
        way="the identity for all that lies before module net", disagreement=disagreement
    )


DIRECT = Detours()


def judge(results, route=DIRECT, *, k=45, n=100, eps=0.1, right=90, weak=None):
    """The verdict, and its notes."""
    figures = Measured(rate(right, n), [rate(k, n, eps=eps)], ["8/255"], results, route, weak)
    return verdict(figures), list(verdict_notes(figures))


def test_every_check_passed():
    assert judge(checks()) == (
        "Robust accuracy at 8/255 is at most 45.0 %: all checks passed, and no attack found more.",
        [],
    )


def test_attacks_that_broke_no_sample():
    sentence, _ = judge(checks(), k=90)
    assert (
        sentence == "Robust accuracy at 8/255 is at most 90.0 %: all checks passed, and no "
        "attack broke a sample."
    )


def test_a_check_that_does_not_count_is_not_missed(subtests):
    for code in sorted(set(Code) - NEEDED):
        with subtests.test(code=code):
            sentence, notes = judge(checks(not_run=[code]))
            assert "no check failed, and no attack found more" in sentence, "not all passed"
            assert (sentence.replace("no check failed", "all checks passed"), notes) == judge(
                checks()
            )


def test_checks_that_could_not_run_or_tell_are_counted():
    sentence, _ = judge(checks(not_run=[Code.ZERO, Code.MISMATCH]))
    assert (
        sentence
        == "Robust accuracy at 8/255 is at most 45.0 %: no check failed, but not all were made."
    )
    sentence, _ = judge(checks(not_run=[Code.MISMATCH], reason=TOO_FEW), k=2, n=8, right=8)
    assert (
        sentence == "Robust accuracy at 8/255 is at most 25.0 %: no check failed, but 8 "
        "samples are too few to tell."
    )


def test_a_wrong_gradient_bypassed_or_not():
    bad = checks(Code.MISMATCH, Code.BLACK_BOX, MISMATCH=BLIND)
    assert judge(bad) == (
        f"Robust accuracy at 8/255 may be well below 45.0 %: {BLIND}.",
        ["black-box-better failed too."],
    )
    sentence, notes = judge(bad, mended(0.01), k=14)
    assert sentence.startswith("Robust accuracy at 8/255 is at most 14.0 %: attacks bypassed")
    assert (
        notes[1]
        == "Finite differences agree with the replaced gradient (0.01; 0 is perfect, 1 is chance)."
    )
    sentence, notes = judge(checks(Code.MISMATCH), mended(0.63))
    assert sentence.startswith("Robust accuracy at 8/255 may be well below 45.0 %: ")
    assert notes[0].startswith("Finite differences disagree with the replaced gradient too (0.63")


def test_where_half_of_the_accuracy_is_lost():
    """The ends are budgets whose whole interval is above and below half."""
    texts = ["1", "2", "3", "4"]

    def said(*counts, n=500):
        return where_it_breaks(
            rate(480, 500),
            [rate(k, n, eps=i + 1) for i, k in enumerate(counts)],
            texts[: len(counts)],
        )

    half = "Half of the clean accuracy of 96.0 % is lost"
    assert said(400, 300, 150, 1) == f"{half} between 2 and 3, and at most 0.2 % is left at 4."
    assert said(400, 240, 150, 0) == f"{half} between 1 and 3, and nothing is left at 4.", (
        "2 may be above half or below"
    )
    assert said(100, 10, 5, 1) == f"{half} before 1, and at most 0.2 % is left at 4."
    assert said(400, 300, 150, 60) == said(10) == "", (
        "more than a tenth is left, or one budget alone was tested"
    )
    figures = Measured(
        rate(480, 500),
        [rate(k, 500, eps=i + 1) for i, k in enumerate((400, 300, 150, 1))],
        texts,
        checks(),
    )
    assert verdict(figures) == said(400, 300, 150, 1)
    assert verdict(figures._replace(checks=checks(Code.CLEAN))).startswith("Do not rely on")


def test_the_gravest_check_comes_first():
    sentence, notes = judge(checks(Code.INCOMPLETE, Code.ZERO, Code.PROBE_AHEAD))
    assert "clean inputs have zero gradient" in sentence
    assert "failed too" in notes[0]
    assert Code.ZERO not in notes[0]
    assert BLIND in judge(checks(Code.ANSWERS, Code.MISMATCH, MISMATCH=BLIND))[0]


def test_answers_that_depend_on_what_they_should_not(subtests):
    """Such a figure may be wrong in either direction, so it is no upper bound, and 0 is none
    either."""
    for code in UNSTEADY:
        with subtests.test(code=code):
            for k in (0, 45):
                sentence, _ = judge(checks(code, Code.MISMATCH, Code.RANDOM), k=k)
                assert sentence == f"Do not rely on the {k}.0 %: {UNSTEADY[code]}."


def test_random_answers():
    sentence, notes = judge(checks(Code.RANDOM, Code.MISMATCH))
    assert sentence.startswith("Robust accuracy at 8/255 is about 45.0 %, an estimate: ")
    assert any("--attack rand" in note for note in notes)
    assert any(
        "the mean of 20 answers" in note
        for note in judge(checks(Code.RANDOM), Detours(answers=20))[1]
    )


def test_at_zero_nothing_is_in_doubt():
    assert (
        judge(checks(Code.MISMATCH), k=0, right=100)[0]
        == "Robust accuracy at 8/255 is 0 %: every sample has an adversarial example."
    )
    assert "every correctly classified sample" in judge(checks(), k=0)[0]


def test_no_sample_right():
    assert (
        judge(checks(), k=0, right=0)[0]
        == "No sample was attacked: the model misclassifies every clean input."
    )


def test_without_a_budget():
    headline = "Clean accuracy is 90.0 %: no budget is above 0, so no attack ran."
    assert judge(checks(not_run=set(Code)), k=90, eps=0.0)[0] == headline
    sentence, _ = judge(checks(Code.CLEAN), k=90, eps=0.0)
    assert sentence == f"Do not rely on the 90.0 %: {UNSTEADY[Code.CLEAN]}."


def test_attacks_that_are_weaker_than_fast_are_named():
    assert "stronger attacks (--attack fast) may lower it" in judge(checks(), weak="FGSM")[0]


def test_a_cause_that_a_check_found_comes_before_the_general_reason():
    sentence, _ = judge(
        checks(Code.CLEAN, CLEAN="on clean inputs the classes are in another order")
    )
    assert (
        sentence == "Do not rely on the 45.0 %: on clean inputs the classes are in another order."
    )
    long = " ".join(["word"] * 30)
    assert (
        judge(checks(Code.CLEAN, CLEAN=long))[0]
        == f"Do not rely on the 45.0 %: {UNSTEADY[Code.CLEAN]}."
    )


def test_scores_that_do_not_decide_are_said_with_what_to_do_next():
    sentence, notes = judge(checks(Code.BOUNDARY))
    reason = "attacks failed, but the scores do not tell how near the decision boundary is"
    assert sentence == f"Robust accuracy at 8/255 may be well below 45.0 %: {reason}."
    assert any("(--attack ray-s)" in note for note in notes)
    assert any(
        "ray-s?steps=100000" in note
        for note in judge(checks(Code.BOUNDARY), Detours(by_labels=True))[1]
    )
    assert judge(checks(Code.BOUNDARY, Code.ZERO), mended(0.01))[0].startswith(
        "Robust accuracy at 8/255 may be well below"
    )


def test_every_check_has_its_reason():
    assert set(Code) - set(UNSTEADY) - set(BROKEN) == {Code.RANDOM}
    assert not set(UNSTEADY) & set(BROKEN)


@given(
    failed=st.sets(st.sampled_from(list(Code))),
    missing=st.sets(st.sampled_from(list(Code))),
    cause=st.none() | st.integers(1, 40).map(lambda words: " ".join(["word"] * words)),
    reason=st.sampled_from([None, "the model gives scores only"]),
    route=st.sampled_from([Detours(), mended(0.01), mended(0.7), Detours(by_labels=True)]),
    k=st.integers(0, 90),
    weak=st.sampled_from([None, "FGSM"]),
)
def test_the_verdict_is_one_short_sentence(failed, missing, cause, reason, route, k, weak):
    causes = {code.name: cause for code in failed}
    results = checks(*failed, not_run=missing - failed, reason=reason, **causes)
    sentence, notes = judge(results, route, k=k, weak=weak)
    assert len(sentence.split()) <= LONGEST
    assert sentence.endswith(".")
    assert sentence[0].isupper() or sentence[0].isdigit()
    assert all(note.endswith(".") for note in notes)


# From records

N, EPS = 20, [0.05, 0.1]
STAGES = ("apgd-ce", "square", "pgd", "pgd-long", "pgd-late")


def run(synthetic, **changes):
    """A gradient attack breaks 8 of 20; Square 2 more; one along the mended gradient 5 more; a
    longer one none.
    """
    breaks = np.full((5, N), np.inf)
    breaks[0, :8] = 0.03
    breaks[1, 8:10] = 0.08
    breaks[2, 10:15] = 0.08
    rows = synthetic.records("m", np.arange(N) % 2, EPS, breaks, stages=STAGES)
    rows = synthetic.change(
        rows, rows.attack == "pgd-late", outcome="spared", attacked=np.ma.masked
    )
    manifest = synthetic.manifest(["m"], EPS, N, ["zero", "one"], stages=STAGES, **changes)
    told = [
        {},
        {"access": "scores"},
        {"gradient": "repaired"},
        {"turn": {"when": "masked"}},
        {"turn": {"when": "masked"}},
    ]
    for stage, change in zip(manifest["stages"], told, strict=True):
        stage.update(change)
    return manifest, rows


def test_what_attacks_followed_in_place_of_the_gradient(synthetic):
    repairs = {
        "m": {
            "forwards": 1,
            "backwards": 1,
            "way": "the identity for module 0",
            "disagreement": 0.02,
        }
    }
    manifest, rows = run(synthetic, repairs=repairs)
    result = summarise_model(manifest, rows, "r", "m")
    assert detours(manifest, "m", result.stages) == Detours("the identity for module 0", 0.02)
    for stage, change in (
        (2, {"gradient": "own"}),
        (2, {"gradient": "own", "turn": {"when": "detached"}}),
    ):
        manifest["stages"][stage] = manifest["stages"][stage] | change
    assert detours(manifest, "m", result.stages) == Detours(by_labels=True)
    manifest["repairs"]["m"]["from_start"] = True
    assert detours(manifest, "m", result.stages).way == "the identity for module 0"
    manifest["stages"][4]["turn"] = {"when": "detached"}
    manifest["stages"][2].pop("turn")
    idle = [*result.stages[:4], result.stages[4].model_copy(update={"forwards": 0})]
    assert not detours(manifest, "m", idle).by_labels, (
        "a stage whose condition does not hold went nowhere"
    )


def test_titles_of_attacks_that_are_weaker_than_fast(synthetic):
    stages = ("a", "b", "c", "d")
    manifest = synthetic.manifest(["m", "o"], EPS, N, ["zero", "one"], stages=stages)
    manifest["stages"][1]["label"] = "B"
    assert weaker_than_fast(manifest, "m") == "a; B; c and 1 more"
    manifest["skipped"] = [
        {"model": "m", "stage": "a", "reason": ""},
        {"model": "o", "stage": "b", "reason": ""},
    ]
    assert (
        weaker_than_fast(manifest, "m") == "B; c; d"
        and weaker_than_fast(manifest, "o") == "a; c; d"
    )
    manifest["stages"][2]["turn"] = {"when": "masked"}
    assert weaker_than_fast(manifest, "m") == "B; d"
    manifest["stages"][3]["eot"] = 2
    assert weaker_than_fast(manifest, "m") is None


def test_cascades_that_are_as_strong_as_can_be_for_a_model(synthetic):
    """`black-box` is for a model without gradients, and any other cascade but the strong ones is
    weak for both."""
    manifest = synthetic.manifest(["m", "o"], EPS, N, ["zero", "one"], stages=("a", "b"))
    manifest["models"][1]["access"] = "scores"
    weak = {
        attacks: tuple(
            weaker_than_fast(manifest | {"request": {"attack": list(attacks)}}, name) is not None
            for name in "mo"
        )
        for attacks in (
            ("fgsm",),
            ("black-box",),
            ("plus?seed=1",),
            ("fgsm", "fast"),
            ("fgsm", "black-box"),
        )
    }
    assert list(weak.values()) == [
        (True, True),
        (True, False),
        (False, False),
        (False, False),
        (True, False),
    ]
