"""The gate: thresholds against the lower end of an interval, a baseline against chance, and no pass without data."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from brinell.analysis.indicators import unmade
from brinell.analysis.results import CheckResult, CompareResult, ModelResult, PairedRate, Rate, Result
from brinell.analysis.stats import difference
from brinell.core.errors import RequestError
from brinell.core.intervals import CONFIDENCE

Metric = Literal["clean", "robust", "worst_class"]
METRICS: tuple[Metric, ...] = get_args(Metric)
WITHOUT_SAMPLES = "classes-without-samples"
"""What allows a threshold of the worst class although nothing is known of some classes."""


class Check(Result):
    """One condition of a gate."""

    name: str
    """What is tested."""
    code: str
    """The kind of condition, the same for all budgets and classes: the rule of a SARIF result."""
    passed: bool | None
    """Whether it is met; null for a check of the run that was not made, where `--without-checks` passes all the same."""
    observed: float | None
    """The measured rate or difference; null where it is missing."""
    low: float | None
    """The lower end of its interval, which is what a threshold is tested against."""
    required: float | None
    """The value demanded; null for a condition without a number."""
    why: str
    """The outcome in one sentence."""
    reason: str | None = None
    """Why a check of the run was not made, in a clause; null for all else, and where its samples are too few to tell."""


class GateResult(Result):
    """Outcome of a gate: it passes when no check fails."""

    run: str
    """The run folder."""
    passed: bool
    """Whether all checks passed."""
    checks: list[Check]
    """The checks, in order."""
    weak: str | None = None
    """The attacks of the run, where they are weaker than `fast`; null otherwise."""

    def __bool__(self) -> bool:
        """Whether the gate passes, so that it can be asserted."""
        return self.passed


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """A rate that must be reached.

    Raises:
        ValueError: unknown metric, or a threshold outside [0, 1].
    """

    metric: Metric
    """`clean` accuracy, overall `robust` accuracy, or robust accuracy of the `worst_class`."""
    minimum: float
    """What the lower end of the 95 % interval must reach, 0 to 1."""
    eps: float | None = None
    """Budget, one of the run's; None for the largest. Ignored for `clean`."""

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"metric is {self.metric!r}, not one of {', '.join(METRICS)}")
        if not 0 <= self.minimum <= 1:
            raise ValueError(f"a threshold of {self.minimum} is no rate: it lies between 0 and 1")


CODES = {"clean": "clean-accuracy", "robust": "robust-accuracy", "worst_class": "robust-accuracy-of-the-worst-class"}
"""The code of a check by the metric of its threshold."""


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """Rules of "not worse than the baseline".

    Raises:
        ValueError: `max_drop` outside [0, 1].
    """

    max_drop: float | None = None
    """The observed rate may not fall by more than this, chance or not; None leaves only the test against chance."""

    def __post_init__(self) -> None:
        if self.max_drop is not None and not 0 <= self.max_drop <= 1:
            raise ValueError(f"max_drop is {self.max_drop}; it lies between 0 and 1")


def gate(
    result: ModelResult, checks: Sequence[Check], *, allow: Collection[str] = (), without_checks: bool = False
) -> GateResult:
    """The verdict: `checks`, that the run is complete, and that its own checks were made and none failed outside of `allow`.

    Args:
        result: the model under test.
        checks: from `against_thresholds` and `against_baseline`; at least one.
        allow: codes of checks and warnings that do not block.
        without_checks: whether it passes too where checks that count were not made.

    Raises:
        RequestError: no check was asked for; a gate that demands nothing would always pass.
    """
    if not checks:
        raise RequestError("the gate has nothing to check: give a threshold or a baseline run")
    every = [*checks, _completeness(result), *_warnings(result, allow, without_checks)]
    passed = all(check.passed is not False for check in every)
    return GateResult(run=result.folder, passed=passed, checks=every, weak=result.weak)


def against_thresholds(result: ModelResult, thresholds: Sequence[Threshold], *, allow: Collection[str] = ()) -> list[Check]:
    """One check per threshold, against the lower end of the interval; a missing rate fails.

    Of the worst class nothing is known where a class has no sample, which fails unless `allow` holds `WITHOUT_SAMPLES`.
    """
    return [_threshold(result, threshold, WITHOUT_SAMPLES in allow) for threshold in thresholds]


def against_baseline(
    result: ModelResult,
    baseline: ModelResult,
    paired: CompareResult | None = None,
    rules: Baseline | None = None,
) -> list[Check]:
    """Clean and robust accuracy at each eps of the run must not be worse than the baseline's.

    A check fails when the fall is beyond chance (the whole 95 % interval of the difference lies below 0; for the same
    samples McNemar's exact p is below 0.05), and when it exceeds `rules.max_drop`.

    Args:
        result: the model under test.
        baseline: what it is compared with.
        paired: `compare(result's side, baseline's side)` where both saw the same samples; None compares the rates alone.
        rules: how much may be lost.

    Returns:
        One check per rate; an eps that the baseline lacks fails.
    """
    rules = rules or Baseline()
    pairs = [
        (
            "clean-accuracy-not-worse-than-the-baseline",
            "clean accuracy",
            result.clean_accuracy,
            baseline.clean_accuracy,
            paired.clean if paired else None,
        )
    ]
    for text, now in zip(result.eps_text, result.robust_accuracy, strict=True):
        if now.eps == 0:
            continue
        nothing = Rate(eps=now.eps, value=None, low=None, high=None, n=0, k=0)
        then = next((rate for rate in baseline.robust_accuracy if _same(rate.eps, now.eps)), nothing)
        both = next((p for p in paired.robust if _same(p.eps, now.eps)), None) if paired else None
        pairs.append(("robust-accuracy-baseline", f"robust accuracy at eps {text}", now, then, both))
    return [_against(*pair, rules) for pair in pairs]


def _threshold(result: ModelResult, threshold: Threshold, some_classes: bool) -> Check:
    eps = result.eps[-1] if threshold.eps is None else threshold.eps
    at = next((i for i, e in enumerate(result.eps) if _same(e, eps)), None)
    text = f"{eps:g}" if at is None else result.eps_text[at]
    names = {
        "clean": "clean accuracy",
        "robust": f"robust accuracy at eps {text}",
        "worst_class": f"robust accuracy of the worst class at eps {text}",
    }
    name, rate = names[threshold.metric], None
    check = partial(_check, CODES[threshold.metric], required=threshold.minimum)
    if threshold.metric == "clean":
        rate = result.clean_accuracy
    elif at is None:
        return check(name, False, f"the run has no eps {text}, only {', '.join(result.eps_text)}")
    elif threshold.metric == "robust":
        rate = result.robust_accuracy[at]
    else:
        unknown = [c.name for c in result.per_class if c.robust[at].low is None]
        if unknown or not result.per_class:
            return check(name, False, f"no rate for {', '.join(unknown[:3]) or 'any class'}")
        if result.classes_without_samples and not some_classes:
            why = (
                f"{result.classes_without_samples} of {result.classes_without_samples + len(result.per_class)} classes have no "
                f"sample, so that nothing is known about them: take more samples, or --allow {WITHOUT_SAMPLES}"
            )
            return check(name, False, why)
        worst = min(result.per_class, key=lambda c: c.robust[at].low or 0.0)
        name, rate = f"{name} ({worst.name})", worst.robust[at]
    if rate.value is None or rate.low is None:
        return check(name, False, "no sample was judged")
    passed = rate.low >= threshold.minimum
    reaches = "reaches" if passed else "is below"
    why = (
        f"{rate.k} of {rate.n} samples; the lower end of the 95 % interval, {_percent(rate.low)}, "
        f"{reaches} {_percent(threshold.minimum)}"
    )
    return check(name, passed, why, observed=rate.value, low=rate.low)


def _against(code: str, name: str, now: Rate, then: Rate, both: PairedRate | None, rules: Baseline) -> Check:
    required = -rules.max_drop if rules.max_drop is not None else None
    check = partial(_check, code, f"{name} not worse than the baseline", required=required)
    if now.value is None or then.value is None:
        return check(False, f"{'the run' if now.value is None else 'the baseline'} has no such rate")
    if both is not None and both.difference is not None and both.p is not None:
        change, low = both.difference, both.low
        beyond_chance = both.p < 1 - CONFIDENCE and change < 0
        how = f"same {both.n} samples, {both.only_a} gained and {both.only_b} lost, McNemar p = {both.p:.3g}"
    else:
        interval = difference(now.k, now.n, then.k, then.n)
        change, low = now.value - then.value, interval.low if interval else None
        beyond_chance = interval is not None and interval.high < 0
        how = f"{now.k} of {now.n} now, {then.k} of {then.n} then, different samples"
    too_much = rules.max_drop is not None and change < -rules.max_drop - 1e-12
    reasons = [text for bad, text in ((beyond_chance, "beyond chance"), (too_much, "more than allowed")) if bad]
    verdict = f"a fall {' and '.join(reasons)}" if reasons else "no fall beyond chance"
    return check(not reasons, f"{100 * change:+.1f} points, {verdict} ({how})", observed=change, low=low)


def _completeness(result: ModelResult) -> Check:
    why = "every sample was judged by every stage"
    if not result.complete:
        why = "the run is not finished or samples could not be judged: go on with --resume, or read its warnings"
    return _check("run-complete", "run complete", result.complete, why)


def _warnings(result: ModelResult, allow: Collection[str], without_checks: bool) -> list[Check]:
    """The checks of the run, passed ones included, and its other warnings."""
    counts = {check.code for check in unmade(result.checks)}
    listed = [c for c in result.checks if c.passed is not None or c.code in counts]
    known = {check.code for check in result.checks}
    others = [CheckResult(code=w.code, passed=False, text=w.text) for w in result.warnings if w.code not in known]
    return [_warning(check, allow, without_checks) for check in [*listed, *others]]


def _warning(check: CheckResult, allow: Collection[str], without_checks: bool) -> Check:
    """A check or a warning of the run as a condition; one that was not made fails but `without_checks`."""
    passed = check.passed if without_checks else bool(check.passed)
    allowed = passed is False and check.code in allow
    return Check(
        code=f"no-warning-{check.code}",
        name=f"no warning {check.code}",
        passed=allowed or passed,
        observed=check.figure,
        low=None,
        required=check.limit,
        why=check.text + " (allowed)" * allowed,
        reason=check.reason,
    )


def _check(
    code: str,
    name: str,
    passed: bool | None,
    why: str,
    *,
    required: float | None = None,
    observed: float | None = None,
    low: float | None = None,
) -> Check:
    return Check(code=code, name=name, passed=passed, observed=observed, low=low, required=required, why=why)


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
