"""The gate: thresholds against the lower end of an interval, a baseline against chance, and no pass without data."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from brinell.analysis.folder_result import Result
from brinell.analysis.indicators import not_made
from brinell.analysis.proportions import difference
from brinell.analysis.results import CheckResult, CompareResult, ModelResult, PairedRate, Rate
from brinell.core.checks import WARNINGS, Code
from brinell.core.errors import RequestError, option
from brinell.core.intervals import CONFIDENCE
from brinell.core.suggestions import suggestion

Metric = Literal["clean", "robust", "worst_class", "certified", "unmet"]
METRICS: tuple[Metric, ...] = get_args(Metric)
WITHOUT_SAMPLES = "classes-without-samples"
"""Code that permits a threshold on the worst class although some classes have no samples."""


WARNING, COMPLETE = "no-warning-", "run-complete"
"""The beginning of the code of a check of the run, and the code of the condition that a run is complete."""


class Check(Result):
    """One condition of a gate."""

    name: str
    """What is tested."""
    code: str
    """The kind of condition, the same for all budgets and classes: the rule of a SARIF result."""
    passed: bool | None
    """True if the condition holds; null for a check that did not run, which passes only with `--without-checks`."""
    observed: float | None
    """The measured rate or difference; null where it is missing."""
    low: float | None
    """The lower end of its interval, which is what a threshold is tested against."""
    required: float | None
    """The value demanded; null for a condition without a number."""
    text: str
    """The outcome in one sentence."""
    reason: str | None = None
    """Why a check of the run was not made, in a clause; null for all else, and where its samples are too few to tell."""

    @property
    def remedy(self) -> str:
        """What to do if the condition does not hold; empty where its text says it."""
        if self.code.startswith(WARNING):
            code = self.code.removeprefix(WARNING)
            cure = "make the run again with what the check needs" if self.reason else "mend what it names"
            return f"{cure}, or pass {'--without-checks' if self.reason else f'--allow {code}'}"
        metric = next((metric for metric, code in CODES.items() if code == self.code), None)
        if metric is None:
            is_fall = self.code != COMPLETE and self.observed is not None
            return "keep the baseline's model, or audit more samples" if is_fall else ""
        if self.low is None or self.observed is None or self.required is None:
            return ""
        if self.observed >= self.required:
            return f"the rate itself, {_percent(self.observed)}, suffices: audit more samples for a narrower interval"
        cures = {"clean": "train or choose a better model", "certified": "prove more (--method beta-crown), harden the model"}
        cure = cures.get(metric, "harden the model (brinell harden)")
        threshold = f"--{metric.replace('_', '-')} {math.floor(1000 * self.low) / 1000:g}"
        return f"{cure}, or demand no more than it holds: {threshold}"


class GateResult(Result):
    """Outcome of a gate: it passes when no check fails."""

    run: str
    """The run folder."""
    passed: bool
    """True if all checks passed."""
    checks: list[Check]
    """The checks, in order."""
    weak: str | None = None
    """The attacks of the run, where they are weaker than `fast`; null otherwise."""

    @property
    def failures(self) -> list[Check]:
        """The conditions that do not hold, in order."""
        return [check for check in self.checks if check.passed is False]

    def __bool__(self) -> bool:
        """True if the gate passes, so that `assert gate(...)` works."""
        return self.passed

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return 0 if self.passed else 1


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """A rate that must be reached.

    Raises:
        ValueError: unknown metric, or a threshold outside [0, 1].
    """

    metric: Metric
    """`clean` accuracy, overall `robust` accuracy, robust accuracy of the `worst_class`, the `certified` share,
    or the share that leaves a criterion of probability `unmet`."""
    minimum: float
    """Least value of the lower end of the 95 % interval, 0 to 1."""
    eps: float | None = None
    """Budget, one of the run's; None for the largest. Ignored for `clean`."""

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"metric is {self.metric!r}, not one of {', '.join(METRICS)}")
        if not 0 <= self.minimum <= 1:
            percent = f"; {self.minimum:g} % is {self.minimum / 100:g}" if 1 < self.minimum <= 100 else ""
            raise ValueError(f"a threshold of {self.minimum} is no rate: it lies between 0 and 1{percent}")


CODES = {
    "clean": "clean-accuracy",
    "robust": "robust-accuracy",
    "worst_class": "robust-accuracy-of-the-worst-class",
    "certified": "certified-accuracy",
    "unmet": "criterion-unmet",
}
"""The code of a check by the metric of its threshold."""


def check_codes(allow: Collection[str], warnings: Collection[str]) -> None:
    """Refuse a code that names no check and no warning.

    Args:
        allow: the codes that a user wrote.
        warnings: codes of the run's own warnings, which plug-ins may add.

    Raises:
        RequestError: an unknown code.
    """
    codes = sorted({*Code, *WARNINGS, WITHOUT_SAMPLES, *warnings})
    for code in allow:
        if code not in codes:
            near = suggestion(code, codes, f"`brinell gate` without {option('allow')} prints the code of each")
            raise RequestError(f"no check or warning has the code {code!r}{near}")


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


def completeness_of(rates: Sequence[Rate]) -> Check:
    """The check that every sample was judged at all budgets."""
    missing = max((rate.missing for rate in rates), default=0)
    text = f"{missing} samples could not be judged" if missing else "every sample was judged at each budget"
    return _check(COMPLETE, "run complete", not missing, text)


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
    all_checks = [*checks, _completeness(result), *_warnings(result, allow, without_checks)]
    passed = all(check.passed is not False for check in all_checks)
    return GateResult(run=result.folder, passed=passed, checks=all_checks, weak=result.weak)


def against_thresholds(result: ModelResult, thresholds: Sequence[Threshold], *, allow: Collection[str] = ()) -> list[Check]:
    """One check per threshold, against the lower end of the interval; a missing rate fails.

    Of the worst class nothing is known where a class has no sample, which fails unless `allow` holds `WITHOUT_SAMPLES`.
    """
    return [_threshold(result, threshold, WITHOUT_SAMPLES in allow) for threshold in thresholds]


def against_rates(rates: Mapping[Metric, Sequence[Rate]], thresholds: Sequence[Threshold]) -> list[Check]:
    """One check per threshold, against the lower end of the interval, for a result that has rates over budgets.

    Args:
        rates: over all budgets, by metric.
        thresholds: what is demanded.
    """
    return [_rate_threshold(rates.get(threshold.metric, ()), threshold) for threshold in thresholds]


def _rate_threshold(rates: Sequence[Rate], threshold: Threshold) -> Check:
    name = "clean accuracy" if threshold.metric == "clean" else NAMES[threshold.metric]
    if not rates:
        return _check(CODES[threshold.metric], name, False, f"the run has no {name}", required=threshold.minimum)
    eps = max(rate.eps for rate in rates) if threshold.eps is None else threshold.eps
    eps = 0.0 if threshold.metric == "clean" else eps
    rate = next((rate for rate in rates if _is_same_eps(rate.eps, eps)), None)
    name = name if threshold.metric == "clean" else f"{name} at eps {eps:g}"
    if rate is None:
        budgets = ", ".join(f"{rate.eps:g}" for rate in rates)
        text = f"the run has no eps {eps:g}, only {budgets}"
        return _check(CODES[threshold.metric], name, False, text, required=threshold.minimum)
    return _threshold_check(threshold, name, rate)


NAMES: dict[Metric, str] = {
    "robust": "robust accuracy",
    "certified": "share that is proven robust",
    "unmet": "share that does not meet the criterion",
}
"""Metrics over budgets, as a gate calls them."""


def against_baseline(
    result: ModelResult,
    baseline: ModelResult,
    paired: CompareResult | None = None,
    rules: Baseline | None = None,
    eps: float | None = None,
) -> list[Check]:
    """Clean accuracy, and robust accuracy at each budget of the two runs, must not be worse than the baseline's.

    A check fails when the fall is beyond chance (the whole 95 % interval of the difference lies below 0; for the same
    samples McNemar's exact p is below 0.05), and when it exceeds `rules.max_drop`.

    Args:
        result: the model under test.
        baseline: what it is compared with.
        paired: `compare(result's side, baseline's side)` where both saw the same samples; None compares the rates alone.
        rules: how much may be lost.
        eps: the only budget to compare; None for all above 0.

    Returns:
        One check per rate; a budget that one of the runs lacks fails.
    """
    rules = rules or Baseline()
    clean = paired.clean if paired else None
    checks = [_against(CLEAN_BASELINE, "clean accuracy", result.clean_accuracy, baseline.clean_accuracy, clean, rules)]
    for budget, text in _budgets_of_both(result, baseline, eps):
        name = f"robust accuracy at eps {text}"
        current, then = (next(iter(_rates_at(model, budget)), None) for model in (result, baseline))
        change = next((p for p in paired.robust if _is_same_eps(p.eps, budget)), None) if paired else None
        if current is None or then is None:
            problem = _without_budget(result, baseline, budget, text)
            checks.append(_check(ROBUST_BASELINE, f"{name} not worse than the baseline", False, problem))
        else:
            checks.append(_against(ROBUST_BASELINE, name, current, then, change, rules))
    return checks


CLEAN_BASELINE, ROBUST_BASELINE = "clean-accuracy-not-worse-than-the-baseline", "robust-accuracy-baseline"
"""The codes of the comparisons with a baseline."""


def _rates_at(result: ModelResult, eps: float) -> list[Rate]:
    """The robust accuracy at a budget; empty if the run lacks it."""
    return [rate for rate in result.robust_accuracy if _is_same_eps(rate.eps, eps)]


def _budgets_of_both(result: ModelResult, baseline: ModelResult, eps: float | None) -> list[tuple[float, str]]:
    """The budgets above 0 of two runs with their texts, each once, ascending; with `eps` that budget alone."""
    budgets: list[tuple[float, str]] = []
    for budget, text in [*zip(result.eps, result.eps_text, strict=True), *zip(baseline.eps, baseline.eps_text, strict=True)]:
        if budget > 0 and not any(_is_same_eps(budget, other) for other, _ in budgets):
            budgets.append((budget, text))
    if eps is None:
        return sorted(budgets)
    named = [(budget, text) for budget, text in budgets if _is_same_eps(budget, eps)]
    return named or ([(eps, f"{eps:g}")] if eps else [])


def _without_budget(result: ModelResult, baseline: ModelResult, eps: float, text: str) -> str:
    """The run of two that lacks a budget, the budgets that it has, and what to type."""
    runs = {"the run": result, "the baseline": baseline}
    without = {name: model for name, model in runs.items() if not _rates_at(model, eps)}
    problem = " and ".join(f"{name} has no eps {text}, only {', '.join(model.eps_text)}" for name, model in without.items())
    common = [own for own, budget in zip(result.eps_text, result.eps, strict=True) if budget > 0 and _rates_at(baseline, budget)]
    choice = f"name a budget of both runs, --eps {' or '.join(common)}, or " if common else ""
    return f"{problem}: {choice}audit {' and '.join(without)} at {text}"


def _threshold(result: ModelResult, threshold: Threshold, some_classes: bool) -> Check:
    eps = result.eps[-1] if threshold.eps is None else threshold.eps
    index = next((i for i, e in enumerate(result.eps) if _is_same_eps(e, eps)), None)
    text = f"{eps:g}" if index is None else result.eps_text[index]
    names = {
        "clean": "clean accuracy",
        "robust": f"robust accuracy at eps {text}",
        "worst_class": f"robust accuracy of the worst class at eps {text}",
        "certified": f"{NAMES['certified']} at eps {text}",
        "unmet": f"{NAMES['unmet']} at eps {text}",
    }
    name, rate = names[threshold.metric], None
    check = partial(_check, CODES[threshold.metric], required=threshold.minimum)
    if threshold.metric == "clean":
        rate = result.clean_accuracy
    elif index is None:
        return check(name, False, f"the run has no eps {text}, only {', '.join(result.eps_text)}")
    elif threshold.metric in ("robust", "unmet"):
        rate = result.robust_accuracy[index]
    elif threshold.metric == "certified":
        rate = (result.certified or [])[index]
    else:
        unknown = [c.name for c in result.per_class if c.robust[index].low is None]
        if unknown or not result.per_class:
            return check(name, False, f"no rate for {', '.join(unknown[:3]) or 'any class'}")
        if result.classes_without_samples and not some_classes:
            problem = (
                f"{result.classes_without_samples} of {result.classes_without_samples + len(result.per_class)} classes have no "
                f"sample, so that nothing is known about them: take more samples, or --allow {WITHOUT_SAMPLES}"
            )
            return check(name, False, problem)
        worst = min(result.per_class, key=lambda c: c.robust[index].low or 0.0)
        name, rate = f"{name} ({worst.name})", worst.robust[index]
    return _threshold_check(threshold, name, rate)


def _threshold_check(threshold: Threshold, name: str, rate: Rate) -> Check:
    """The check that the lower end of the interval of a rate reaches a threshold."""
    check = partial(_check, CODES[threshold.metric], name, required=threshold.minimum)
    if rate.value is None or rate.low is None:
        return check(False, "no sample was judged")
    passed = rate.low >= threshold.minimum
    reaches = "reaches" if passed else "is below"
    evidence = (
        f"{rate.k} of {rate.n} samples; the lower end of the 95 % interval, {_percent(rate.low)}, "
        f"{reaches} {_percent(threshold.minimum)}"
    )
    return check(passed, evidence, observed=rate.value, low=rate.low)


def _against(code: str, name: str, current: Rate, then: Rate, pair: PairedRate | None, rules: Baseline) -> Check:
    required = -rules.max_drop if rules.max_drop is not None else None
    check = partial(_check, code, f"{name} not worse than the baseline", required=required)
    if current.value is None or then.value is None:
        holder = "the run" if current.value is None else "the baseline"
        return check(False, f"no sample of {holder} was judged: audit the model on at least one sample")
    change, low = current.value - then.value, None
    if pair is not None:
        change, low = pair.difference, pair.low
        beyond_chance = pair.p < 1 - CONFIDENCE and change < 0
        evidence = f"same {pair.n} samples, {pair.only_a} gained and {pair.only_b} lost, McNemar p = {pair.p:.3g}"
    else:
        interval = difference(current.k, current.n, then.k, then.n)
        low = interval.low if interval else None
        beyond_chance = interval is not None and interval.high < 0
        evidence = f"{current.k} of {current.n} now, {then.k} of {then.n} then, different samples"
    too_much = rules.max_drop is not None and change < -rules.max_drop - 1e-12
    reasons = [text for bad, text in ((beyond_chance, "beyond chance"), (too_much, "more than allowed")) if bad]
    verdict = f"a fall {' and '.join(reasons)}" if reasons else "no fall beyond chance"
    return check(not reasons, f"{100 * change:+.1f} points, {verdict} ({evidence})", observed=change, low=low)


def _completeness(result: ModelResult) -> Check:
    """The check that the run is complete."""
    text = "every sample was judged by every stage"
    if not result.complete:
        text = "the run is not finished or samples could not be judged: go on with --resume, or read its warnings"
    return _check(COMPLETE, "run complete", result.complete, text)


def _warnings(result: ModelResult, allow: Collection[str], without_checks: bool) -> list[Check]:
    """The checks of the run, passed ones included, and its other warnings."""
    counts = {check.code for check in not_made(result.checks)}
    run_checks = [c for c in result.checks if c.passed is not None or c.code in counts]
    codes = {check.code for check in result.checks}
    warnings = [CheckResult(code=w.code, passed=False, text=w.text) for w in result.warnings if w.code not in codes]
    return [_warning(check, allow, without_checks) for check in [*run_checks, *warnings]]


def _warning(check: CheckResult, allow: Collection[str], without_checks: bool) -> Check:
    """A check or a warning of the run as a condition of the gate. A check that was not made fails, unless `without_checks`."""
    passed = check.passed if without_checks else bool(check.passed)
    allowed = passed is False and check.code in allow
    return Check(
        code=f"{WARNING}{check.code}",
        name=f"no warning {check.code}",
        passed=allowed or passed,
        observed=check.figure,
        low=None,
        required=check.limit,
        text=check.text + " (allowed)" * allowed,
        reason=check.reason,
    )


def _check(
    code: str,
    name: str,
    passed: bool | None,
    text: str,
    *,
    required: float | None = None,
    observed: float | None = None,
    low: float | None = None,
) -> Check:
    return Check(code=code, name=name, passed=passed, observed=observed, low=low, required=required, text=text)


def _is_same_eps(a: float, b: float) -> bool:
    """True if two budgets agree to one part in 10^9."""
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
