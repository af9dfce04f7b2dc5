"""Checks on records, by hand; which of them count; and runs from before the checks."""

import re

import numpy as np
import pytest

from brinell.analysis.gate import against_thresholds, gate, rates_of
from brinell.analysis.indicators import NEEDED, caveat, checks_of, not_made, summary
from brinell.analysis.results import CheckResult
from brinell.analysis.robust_accuracy import summarise_model
from brinell.core.checks import Code

N, EPS = 20, [0.0, 0.1]
LABELS = np.arange(N) % 2


def run(
    synthetic,
    breaks=None,
    margins=(-0.5, -0.5),
    stages=("apgd-ce", "apgd-dlr"),
    access=("gradients", "gradients"),
    **changes,
):
    """A run in which every clean margin is 1; `margins` are what each stage left of the robust
    samples, numbers or (N,).
    """
    breaks = np.full((len(stages), N), np.inf) if breaks is None else breaks
    rows = synthetic.records("m", LABELS, EPS, breaks, stages=stages)
    for stage, left in zip(stages, margins, strict=True):
        survivors = (rows.attack == stage) & (rows.outcome == "survived")
        rows = synthetic.change(
            rows, survivors, margin=np.broadcast_to(left, N)[rows.sample_id[survivors]]
        )
    manifest = synthetic.manifest(["m"], EPS, N, ["zero", "one"], stages=stages, **changes)
    for stage, sees in zip(manifest["stages"], access, strict=True):
        stage["access"] = sees
    return rows, manifest


def check(code, rows, manifest):
    return next(
        check_result for check_result in checks_of(rows, manifest, "m") if check_result.code == code
    )


# Of 20 at 40 %: 15 or more have a probability of 0.16 %, 16 or more of 0.03 %.
def test_a_last_attack_that_still_gains_on_many(synthetic, subtests):
    for rising, passed in [(0, True), (8, True), (9, None), (15, None), (16, False), (20, False)]:
        with subtests.test(rising=rising, passed=passed):
            last = np.where(np.arange(N) < rising, -0.4, -0.6)
            result = check(Code.INCOMPLETE, *run(synthetic, margins=(-0.5, last)))
            assert (result.passed, result.figure, result.limit) == (passed, rising / N, 0.4)
            assert f"{rising} of 20 robust samples" in result.text


def test_a_gain_is_a_share_of_all_that_was_gained(synthetic):
    """From 1 to 0.5 is a gain of 0.5. 0.02 more are 3.8 % of all, and 0.03 are 5.7 %."""
    assert check(Code.INCOMPLETE, *run(synthetic, margins=(-0.5, -0.48))).figure == 0
    assert check(Code.INCOMPLETE, *run(synthetic, margins=(-0.5, -0.47))).figure == 1


def test_the_best_before_counts_and_not_the_one_before(synthetic):
    three = ("apgd-ce", "apgd-dlr", "apgd-t")
    result = check(
        Code.INCOMPLETE,
        *run(synthetic, margins=(-0.3, -0.6, -0.31), stages=three, access=("gradients",) * 3),
    )
    assert result.passed and result.figure == 0


# 34 of 100 backward evaluations are enough to be held against, 33 are not.
@pytest.mark.parametrize(("steps", "is_judged"), [(34, True), (33, False)])
def test_a_long_attack_is_not_held_against_a_short_one(synthetic, steps, is_judged):
    """That 100 steps come further than one says nothing of the 100."""
    rows, manifest = run(synthetic, margins=(-0.9, -0.4))
    rows = synthetic.change(rows, rows.attack == "apgd-ce", backwards=steps)
    result = check(Code.INCOMPLETE, rows, manifest)
    assert result.passed is (False if is_judged else None)


def test_attacks_on_different_losses_are_not_compared(synthetic):
    rows, manifest = run(synthetic, margins=(-0.9, -0.4))
    manifest["stages"][1]["settings"] = {"loss": "dlr"}
    assert "on one loss" in check(Code.INCOMPLETE, rows, manifest).text


def test_what_falls_later_is_not_robust(synthetic):
    """The second attack gains on the 15 that a black box breaks afterwards, and on none of the
    rest."""
    three = ("apgd-ce", "apgd-dlr", "square")
    breaks = np.full((3, N), np.inf)
    breaks[2, :15] = 0.05
    last = np.where(np.arange(N) < 15, -0.1, -0.6)
    rows, manifest = run(
        synthetic, breaks, (-0.5, last, -0.5), three, ("gradients", "gradients", "scores")
    )
    result = check(Code.INCOMPLETE, rows, manifest)
    assert result.passed and "0 of 5 robust samples" in result.text
    with_square = check(Code.BLACK_BOX, rows, manifest)
    assert with_square.passed is False and with_square.figure == 0.75


def test_when_incomplete_optimisation_cannot_be_told(synthetic):
    single_stage = check(
        Code.INCOMPLETE, *run(synthetic, margins=(-0.5,), stages=("pgd",), access=("gradients",))
    )
    assert single_stage.passed is None and "two gradient attacks" in single_stage.text
    nothing_left = check(Code.INCOMPLETE, *run(synthetic, np.full((2, N), 0.05)))
    assert nothing_left.passed and nothing_left.figure is None


# 0.2 %: one sample of 20 has a probability of 4 %, two of 0.07 %.
@pytest.mark.parametrize(("broken", "passed"), [(0, True), (1, None), (2, False)])
def test_a_black_box_that_breaks_what_gradients_left(synthetic, broken, passed):
    breaks = np.full((2, N), np.inf)
    breaks[1, :broken] = 0.05
    result = check(
        Code.BLACK_BOX,
        *run(synthetic, breaks, (-0.5, -0.5), ("apgd-ce", "square"), ("gradients", "scores")),
    )
    assert result.passed is passed and result.figure == broken / N


@pytest.mark.parametrize(("broken_by_harder", "passed"), [(0, True), (1, False)])
def test_a_harder_look_settles_a_single_find(synthetic, broken_by_harder, passed):
    """Square breaks one of 20; of the others a stage that waited for such a find breaks none, or
    one more.
    """
    breaks = np.full((3, N), np.inf)
    breaks[1, 0], breaks[2, 1 : 1 + broken_by_harder] = 0.05, 0.05
    names = ("apgd-ce", "square", "square?steps=500&when=suspected")
    rows, manifest = run(synthetic, breaks, (-0.5,) * 3, names, ("gradients", "scores", "scores"))
    manifest["stages"][2]["turn"] = {"when": "suspected"}
    result = check(Code.BLACK_BOX, rows, manifest)
    assert result.passed is passed and ("broke 0 more" in result.text) == passed


def test_many_finds_are_no_matter_for_a_harder_look(synthetic):
    breaks = np.full((3, N), np.inf)
    breaks[1, :4] = 0.05
    names = ("apgd-ce", "square", "square?steps=500&when=suspected")
    rows, manifest = run(synthetic, breaks, (-0.5,) * 3, names, ("gradients", "scores", "scores"))
    manifest["stages"][2]["turn"] = {"when": "suspected"}
    assert check(Code.BLACK_BOX, rows, manifest).passed is False


def test_stages_that_try_every_sample_count_each_sample_once(synthetic):
    """With `alone=true` two stages without gradients break what the gradient attack broke, and two
    samples more."""
    breaks = np.full((3, N), np.inf)
    breaks[0, :10] = breaks[1, :12] = breaks[2, :12] = 0.05
    stages = ("apgd-ce", "square", "simba")
    rows, manifest = run(synthetic, breaks, (-0.5,) * 3, stages, ("gradients", "scores", "scores"))
    alone = [
        synthetic.records("m", LABELS, EPS, breaks[[i]], stages=(stage,))
        for i, stage in enumerate(stages)
    ]
    parts = [
        synthetic.keep(rows, rows.attack == "clean"),
        *(synthetic.keep(part, part.attack != "clean") for part in alone),
    ]
    rows = synthetic.join(*parts)
    for stage in manifest["stages"][1:]:
        stage["turn"] = {"alone": True}
    result = check(Code.BLACK_BOX, rows, manifest)
    assert result.figure == 2 / N and "broke 2 of 20 samples" in result.text


def test_a_black_box_alone_beats_nobody(synthetic):
    """Where the gradient attack cannot run on the model, there is nothing that the black box could
    be better than."""
    skipped = [{"model": "m", "stage": "apgd-ce", "reason": "no gradients"}]
    breaks = np.stack([np.full(N, np.inf), np.where(np.arange(N) < 10, 0.05, np.inf)])
    result = check(
        Code.BLACK_BOX,
        *run(
            synthetic,
            breaks,
            (-0.5, -0.5),
            ("apgd-ce", "square"),
            ("gradients", "scores"),
            skipped=skipped,
        ),
    )
    assert result.passed is None


def test_every_check_is_listed_once_and_in_order(synthetic):
    assert [check_result.code for check_result in checks_of(*run(synthetic), "m")] == list(Code)


def recorded_checks(*failed, missing=()):
    """The checks that a run keeps of its looks."""
    looks = [
        *list(Code)[: list(Code).index(Code.BLACK_BOX)],
        Code.PLATEAU,
        Code.WEIGHTS,
        Code.FRESH,
    ]
    return {
        "m": [
            {
                "code": code,
                "passed": None if code in missing else code not in failed,
                "text": f"about {code}",
                "figure": None,
                "limit": None,
            }
            for code in looks
        ]
    }


THREE, SEES = ("apgd-ce", "apgd-dlr", "square"), ("gradients", "gradients", "scores")


def test_the_caveat_counts_every_check_once(synthetic):
    """Property: of random outcomes, the numbers add up, each failed check is named, and nothing is
    said where all is well.
    """
    rng = np.random.default_rng()
    for _ in range(20):
        codes = rng.permutation([str(code) for code in NEEDED])
        failed, missing = codes[: rng.integers(3)], codes[3 : 3 + rng.integers(3)]
        checks = recorded_checks(
            *(Code(code) for code in failed), missing=[Code(code) for code in missing]
        )
        rows, manifest = run(
            synthetic, margins=(-0.5,) * 3, stages=THREE, access=SEES, checks=checks
        )
        result = summarise_model(manifest, rows, "r", "m")
        states = [check_result.passed for check_result in result.checks]
        bad = [check_result.code for check_result in result.checks if check_result.passed is False]
        assert {warning.code for warning in result.warnings} == set(bad)
        assert (result.caveat is None) == (not bad and not not_made(result.checks))
        if result.caveat is not None:
            counts = [states.count(state) for state in (True, False, None) if states.count(state)]
            assert [
                int(count)
                for count in re.findall(r"(\d+) (?:checks? passed|failed|not made)", result.caveat)
            ] == counts
            assert all(code in result.caveat for code in bad)


@pytest.mark.parametrize("text", ["not made: no gradient", "too few samples to tell: 2 of 3"])
def test_a_check_that_was_made_and_did_not_decide_is_no_check_that_was_not_made(text):
    checks = [
        CheckResult(code=Code.CLEAN, passed=None, text=text, reason="few"),
        CheckResult(code=Code.MODE, passed=True, text="fine"),
    ]
    word = "not made" if text.startswith("not made") else "not made or undecided"
    assert summary(checks) == f"1 check passed, 1 {word}: few"


def test_without_a_black_box_a_check_is_missing_unless_nothing_is_left(synthetic):
    rows, manifest = run(synthetic, checks=recorded_checks())
    assert (
        "not made: it takes an attack without gradients"
        in summarise_model(manifest, rows, "r", "m").caveat
    )
    rows, manifest = run(synthetic, np.full((2, N), 0.05), checks=recorded_checks())
    assert summarise_model(manifest, rows, "r", "m").caveat is None


def test_a_run_that_lists_no_checks_opens(synthetic):
    warned = [
        {"code": "zero-gradients", "model": "m", "text": "flat"},
        {"code": "odd", "model": None, "text": "other"},
    ]
    rows, manifest = run(synthetic, warnings=warned)
    manifest.pop("checks", None)
    result = summarise_model(manifest, rows, "r", "m")
    states = {check_result.code: check_result.passed for check_result in result.checks}
    assert (
        states[Code.ZERO] is False and states[Code.MISLEADING] is None and states[Code.INCOMPLETE]
    )
    assert [warning.code for warning in result.warnings] == ["zero-gradients", "odd"], (
        "a warning is told once"
    )
    assert "1 failed (zero-gradients)" in str(result.caveat)


def test_no_check_that_counts_is_forgotten():
    assert {Code.RANDOM, Code.BATCH, Code.DRIFT, Code.WEIGHTS, Code.FRESH} <= NEEDED
    assert {Code.BOUNDARY, Code.ZERO, Code.MISLEADING, Code.UNCONSTRAINED, Code.BLACK_BOX} <= NEEDED
    assert caveat([]) is None


def test_the_gate_lists_every_check_that_was_made(synthetic):
    rows, manifest = run(synthetic, checks=recorded_checks(Code.MISLEADING, missing=[Code.ZERO]))
    result = summarise_model(manifest, rows, "r", "m")
    thresholds = against_thresholds(rates_of(result), {"robust": 0.5})

    def failing(*allow, without_checks=False):
        verdict = gate(result, thresholds, allow=allow, without_checks=without_checks)
        assert verdict.passed == all(
            check_result.passed is not False for check_result in verdict.checks
        )
        return {
            check_result.name.removeprefix("no warning ")
            for check_result in verdict.checks
            if check_result.passed is False
        }

    assert failing(without_checks=True) == {"misleading-gradients"}
    assert failing("misleading-gradients", without_checks=True) == set()
    assert failing() == {"misleading-gradients", "zero-gradients", "black-box-better"}
    assert failing("misleading-gradients", "zero-gradients", "black-box-better") == set()
    outcomes = {
        check_result.name.removeprefix("no warning "): check_result.passed
        for check_result in gate(result, thresholds, without_checks=True).checks
    }
    assert (
        outcomes["zero-gradients"] is None
        and outcomes["black-box-better"] is None
        and outcomes["random-answers"] is True
    )
    names = [check_result.name for check_result in gate(result, thresholds).checks]
    assert (
        "no warning random-answers" in names
        and "no warning zero-gradients" in names
        and len(names) == len(set(names))
    )
    outcomes = {
        check_result.name: check_result for check_result in gate(result, thresholds).checks
    }["no warning incomplete-optimisation"]
    assert (outcomes.observed, outcomes.required) == (0.0, 0.4)


def test_reasons_of_missing_comparisons_name_what_is_missing(synthetic, subtests):
    """A reason asks for an attack without gradients only if none ran, and for one with gradients
    only if the model has them."""
    for seed in range(30):
        with subtests.test(seed=seed):
            rng = np.random.default_rng(seed)
            model_access = str(rng.choice(["gradients", "scores", "labels"]))
            kinds = ["gradients", "scores"] if model_access == "gradients" else ["scores", "labels"]
            access = tuple(str(kind) for kind in rng.choice(kinds, size=rng.integers(1, 4)))
            names = tuple(f"stage-{index}" for index in range(len(access)))
            rows, manifest = run(
                synthetic, margins=(-0.5,) * len(access), stages=names, access=access
            )
            manifest["models"][0]["access"] = model_access
            results = [check(code, rows, manifest) for code in (Code.BLACK_BOX, Code.PROBE_AHEAD)]
            comparable = "gradients" in access and any(
                kind != "gradients" for kind in access[access.index("gradients") :]
            )
            for result in results:
                assert (result.reason is None) == comparable
                if comparable:
                    continue
                assert ("such as square" in result.reason) == (set(access) == {"gradients"})
                assert ("such as apgd-ce" in result.reason) == (
                    model_access == "gradients" and "gradients" not in access
                )
                assert (f"gives {model_access} only" in result.reason) == (
                    model_access != "gradients"
                )
                assert ("ran before" in result.reason) == ({"gradients", "scores"} == set(access))
            incomplete = check(Code.INCOMPLETE, rows, manifest)
            assert (f"gives {model_access} only" in incomplete.text) == (
                model_access != "gradients"
            )
