"""The gate: rates against thresholds, or against a baseline, and no pass without data."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from brinell.analysis.folder_result import Result
from brinell.analysis.indicators import join_codes, not_made
from brinell.analysis.judgements import change, lower_end
from brinell.analysis.results import CheckResult, CompareResult, ModelResult, PairedRate, Rate
from brinell.analysis.sequences import decide
from brinell.analysis.statements import Statement, Subject, state
from brinell.core.checks import TIME_UP, WARNINGS, Code
from brinell.core.errors import RequestError, option
from brinell.core.suggestions import suggestion

NAMES: dict[str, str] = {
    "clean": "clean accuracy",
    "robust": "robust accuracy",
    "worst_class": "robust accuracy of the worst class",
    "certified": "share that is proven robust",
    "unmet": "share that does not meet the criterion",
}
"""Metrics as a gate calls them."""
METRICS = tuple(NAMES)
WITHOUT_SAMPLES = "classes-without-samples"
"""Code of the condition that each class has a sample, where the worst class is judged."""
WARNING, COMPLETE, BASELINE = "no-warning-", "run-complete", "not-worse-than-the-baseline"
"""The beginning of the code of a check of the run, and the codes of conditions on completeness
and on a baseline."""


UNDECIDED = 4
"""The exit code of a gate that neither passed nor failed."""


class Check(Result):
    """One condition of a gate."""

    name: str
    """What is tested."""
    code: str
    """The kind of condition, the same for all budgets and classes."""
    passed: bool | None
    """True if the condition holds; null for a check that did not run, which passes only with
    `--without-checks`."""
    observed: float | None = None
    """The measured rate or difference; null where it is missing."""
    low: float | None = None
    """The lower end of its interval, which is what a threshold is tested against."""
    required: float | None = None
    """The value demanded; null for a condition without a number."""
    text: str
    """The outcome in one sentence."""
    reason: str | None = None
    """Why a check of the run was not made, in a clause; null for all else, and where its samples
    are too few to tell."""
    statement: Statement | None = None
    """What is said of the rate or of its change; null for a condition without a rate."""
    remedy: str = ""
    """What to do if the condition does not hold; empty where the text says it."""


class GateResult(Result):
    """Outcome of a gate: it passes when no check fails."""

    run: str
    """The run folder."""
    passed: bool
    """True if all checks passed."""
    checks: list[Check]
    """The checks, in order."""
    statements: list[Statement] = []
    """The weakest and the strongest class at the budget, where the worst class was demanded."""
    weak: str | None = None
    """The attacks of the run, where they are weaker than `fast`; null otherwise."""
    undecided: bool = False
    """True if `until_decided` was asked for, and the samples so far leave it open whether robust
    accuracy reaches its least value, while nothing else fails."""

    @property
    def failures(self) -> list[Check]:
        """The conditions that do not hold, in order."""
        return [check for check in self.checks if check.passed is False]

    def __bool__(self) -> bool:
        """True if the gate passes, so that `assert gate(...)` works."""
        return self.passed

    def lines(self, *, verbose: bool = False) -> Iterator[str]:
        """The verdict, then what fails, the conditions that the user set first.

        With `verbose` all conditions come before it.
        """
        # A check that was not made neither passes nor fails.
        missing = [check for check in self.checks if check.passed is None]
        if verbose:
            for check in self.checks:
                if check.passed is not False:
                    outcome = "pass" if check.passed else "not made"
                    yield f"{outcome}  {check.name}: {check.reason or check.text}"

        yield self._summary(len(missing))
        for check in self.failures:
            remedy = f"; {check.remedy}" if check.remedy else ""
            yield f"{'OPEN' if self.undecided else 'FAIL'}  {check.name}: {check.text}{remedy}"
        if verbose:
            return

        # Checks that were not made for the same reason share a line.
        for reason in dict.fromkeys(check.reason for check in missing):
            codes = [
                check.code.removeprefix(WARNING) for check in missing if check.reason == reason
            ]
            yield f"not made  {join_codes(codes)}: {reason}"

    def _summary(self, missing: int) -> str:
        """The outcome in one line, with the number of checks that were not made."""
        outcome = "passed" if self.passed else "undecided" if self.undecided else "failed"
        count = f"{len(self.failures)} of {len(self.checks)}" if self.failures else len(self.checks)
        plural = "s" * (len(self.checks) != 1)
        allowed = f"; {missing} not made, which --without-checks allows" if missing else ""
        weak = f"; the attacks are weaker than fast: {self.weak}" if self.weak else ""
        return f"gate {outcome}, {count} condition{plural}{allowed}{weak}"

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 0 if the gate passes, 1 if it fails, 4 if it stays open."""
        return UNDECIDED if self.undecided else int(not self.passed)


def check_metrics(metrics: Collection[str], criterion: str | None, run: str = "the audit") -> None:
    """Refuse metrics that are about another criterion than the run's, None if classes decide."""
    if criterion is None and "unmet" in metrics:
        raise RequestError(
            f"{option('unmet')} is about a criterion of probability, and {run} "
            f"has none: audit with {option('criterion')}"
        )
    accuracies = [metric for metric in metrics if metric != "unmet"]
    if criterion is not None and accuracies:
        raise RequestError(
            f"{run} states the share of inputs that do not meet {criterion}, "
            "which is not robust accuracy: demand "
            f"{option('unmet')} in place of {option(accuracies[0])}"
        )


def check_codes(allow: Collection[str], warnings: Collection[str]) -> None:
    """Refuse a code that names no check and none of the run's own `warnings`.

    Plug-ins may add warnings.
    """
    codes = sorted({*Code, *WARNINGS, WITHOUT_SAMPLES, *warnings})
    for code in allow:
        if code not in codes:
            advice = suggestion(
                code, codes, f"`brinell gate` without {option('allow')} prints the code of each"
            )
            raise RequestError(f"no check or warning has the code {code!r}{advice}")


def rates_of(result: ModelResult) -> Mapping[str, Sequence[Rate]]:
    """The rates of a model by metric.

    Those of the worst class are unknown where that of a class is.
    """
    rates = {"clean": [result.clean_accuracy], "certified": result.certified or []}
    if result.meaning is not None:
        return rates | {"unmet": result.robust_accuracy}

    worst = []
    # `min` without classes, as for a task without them, gives an unknown rate.
    for index, overall in enumerate(result.robust_accuracy):
        of_classes = [of_class.robust[index] for of_class in result.per_class]
        unknown = overall.model_copy(update={"value": None})
        worst.append(min(of_classes, key=lower_end, default=unknown))
    return rates | {"robust": result.robust_accuracy, "worst_class": worst}


def names_of(result: ModelResult) -> Callable[[str, float], str]:
    """The name of a metric at a budget: the budget as it was written, and the worst class."""

    def name(metric: str, eps: float) -> str:
        index = next(
            # Budgets are compared as numbers: 8/255 and 0.03137 are one.
            (index for index, budget in enumerate(result.eps) if math.isclose(budget, eps)),
            None,
        )
        if index is None:
            return f"{NAMES[metric]} at eps {eps:g}"
        text = f"{NAMES[metric]} at eps {result.eps_text[index]}"
        if metric != "worst_class" or not result.per_class:
            return text

        worst = min(result.per_class, key=lambda of_class: lower_end(of_class.robust[index]))
        return f"{text} ({worst.name})"

    return name


def against_thresholds(
    rates: Mapping[str, Sequence[Rate]],
    minima: Mapping[str, float],
    eps: float | None = None,
    name: Callable[[str, float], str] = lambda metric, eps: f"{NAMES[metric]} at eps {eps:g}",
) -> list[Check]:
    """One check for each demanded rate, by the lower end of its interval; a missing rate fails.

    Args:
        rates: over all budgets, by metric.
        minima: least value of the lower end of the 95 % interval by metric, 0 to 1.
        eps: the budget, one of the run's; None for the largest. Ignored for clean accuracy.
        name: of a metric at a budget.
    """
    checks = []
    for metric, least in minima.items():
        of_metric = rates.get(metric, ())
        # Clean accuracy stands at 0; without a budget the largest counts.
        budget = eps
        if metric == "clean":
            budget = 0.0
        elif budget is None:
            budget = max((rate.eps for rate in of_metric), default=0.0)

        rate = next((rate for rate in of_metric if math.isclose(rate.eps, budget)), None)
        title = NAMES[metric] if metric == "clean" or not of_metric else name(metric, budget)
        budgets = [f"{rate.eps:g}" for rate in of_metric]
        checks.append(_against_threshold(metric, title, rate, least, budgets, budget))
    return checks


def _against_threshold(
    metric: str, name: str, rate: Rate | None, least: float, budgets: Sequence[str], eps: float
) -> Check:
    """A check of a rate against its threshold; None is a rate that the run does not have."""
    code = metric.replace("_", "-")
    if rate is None:
        text = f"the run has no {NAMES[metric]}"
        if budgets:
            text = f"the run has no eps {eps:g}, only {', '.join(budgets)}"
        return Check(code=code, name=name, passed=False, required=least, text=text)
    if rate.value is None or rate.low is None:
        text = "the samples are too few for an interval"
        if rate.value is None:
            text = "no sample was judged"
        return Check(code=code, name=name, passed=False, required=least, text=text)

    low = lower_end(rate)
    passed = low >= least
    verb = "reaches" if passed else "is below"
    # The interval that an audit shows may begin above the exact one.
    exact = "exact " if low < rate.low else ""
    text = (
        f"{rate.k} of {rate.n} samples; the lower end of the {exact}95 % interval, "
        f"{_percent(low)}, {verb} {_percent(least)}"
    )
    if metric == "worst_class":
        text += "; of all classes this end is the lowest, and each must reach it"
    statement = state(
        "passes" if passed else "fails",
        subjects=[Subject(name=name, value=rate.value, low=low, k=rate.k, n=rate.n)],
        quantity=NAMES[metric],
        eps_text=f"{eps:g}" if eps else "",
        n=rate.n,
        threshold=least,
        supported=passed,
        family=1,
    )
    remedy = (
        f"the rate itself, {_percent(rate.value)}, suffices: audit more samples for a "
        "narrower interval"
    )
    if rate.value < least:
        # Rounded down, so that the run passes with it.
        floor = f"--{code} {math.floor(1000 * low) / 1000:g}"
        remedy = f"improve the model, or demand no more than it holds: {floor}"

    return Check(
        code=code,
        name=name,
        passed=passed,
        observed=rate.value,
        low=low,
        required=least,
        text=text,
        statement=statement,
        remedy=remedy,
    )


def against_baseline(
    result: ModelResult,
    baseline: ModelResult,
    paired: CompareResult,
    max_drop: float | None = None,
    eps: float | None = None,
) -> list[Check]:
    """Accuracy on clean inputs and at each budget must not be worse than the baseline's.

    A check fails when the fall is beyond chance, when it exceeds `max_drop`, 0 to 1, chance or not,
    and at a budget that one of the runs lacks. All checks together have one error rate: with a
    probability of at most 0.025 any of them fails by chance where the two models are equally good.
    `paired` compares the two on the samples that both saw.
    """

    def fall(name: str, pair: PairedRate, budget_text: str = "") -> Statement:
        # One budget beside clean inputs makes two comparisons (Bonferroni); else all are read.
        family = 2 if eps is not None or pair.p_joint is None else 1 + len(paired.robust)
        p = min(1.0, 2 * pair.p) if family == 2 else pair.p_joint
        return change(pair, name, budget_text, family=family, p=p)

    clean = fall("clean accuracy", paired.clean)
    checks = [_against("clean accuracy", paired.clean, clean, max_drop)]
    texts = {
        e: text
        for model in (baseline, result)
        for e, text in zip(model.eps, model.eps_text, strict=True)
        if e > 0
    }

    for budget in sorted(texts) if eps is None else [eps]:
        budget_text = texts.get(budget, f"{budget:g}")
        name = f"robust accuracy at eps {budget_text}"
        pair = next((pair for pair in paired.robust if math.isclose(pair.eps, budget)), None)
        if pair is None:
            in_run = any(math.isclose(e, budget) for e in result.eps)
            subject, lacking = ("the baseline", baseline) if in_run else ("the run", result)
            text = (
                f"{subject} has no eps {budget_text}, only "
                f"{', '.join(lacking.eps_text)}: audit it there"
            )
            checks.append(
                Check(
                    code=BASELINE,
                    name=f"{name} against the baseline",
                    passed=False,
                    text=text,
                )
            )
        else:
            statement = fall("robust accuracy", pair, budget_text)
            checks.append(_against(name, pair, statement, max_drop))
    return checks


def _against(name: str, pair: PairedRate, statement: Statement, max_drop: float | None) -> Check:
    """A check of the change of a rate from the baseline's."""
    difference = statement.difference or 0.0
    beyond_chance = statement.kind == "fell" and statement.supported
    # A fall of exactly the allowed points passes, whatever its last binary digit.
    too_much = max_drop is not None and difference < -max_drop - 1e-12

    reasons = []
    if beyond_chance:
        reasons.append("beyond chance")
    if too_much:
        reasons.append("more than allowed")
    verdict = f"a fall {' and '.join(reasons)}" if reasons else "no fall beyond chance"

    evidence = (
        f"same {pair.n} samples, {pair.only_a} gained and {pair.only_b} lost, p = {statement.p:.3g} for "
        f"{statement.family} comparisons together"
    )
    return Check(
        code=BASELINE,
        name=f"{name} against the baseline",
        passed=not reasons,
        observed=difference,
        low=statement.low,
        required=None if max_drop is None else -max_drop,
        text=f"{100 * difference:+.1f} points, {verdict} ({evidence})",
        statement=statement,
        remedy="keep the baseline's model, or audit more samples",
    )


def gate(
    result: ModelResult,
    checks: Sequence[Check],
    *,
    allow: Collection[str] = (),
    without_checks: bool = False,
    until_decided: bool = False,
) -> GateResult:
    """The verdict: `checks`, that the run is complete, and that its own checks were made.

    None of them may fail outside of `allow`. With `without_checks` it passes too where checks that
    count were not made. With `until_decided` it is undecided where more samples, or more time,
    may let it pass.
    """
    text = "every sample was judged by every stage"
    if not result.complete:
        text = (
            "the run is not finished or samples could not be judged: go on with "
            "--resume, or read its warnings"
        )
    complete = Check(code=COMPLETE, name="run complete", passed=result.complete, text=text)

    # Checks of the run, and its warnings, of which some repeat a check. Those that do not count are
    # shown by the run, and fail no gate.
    counts = {check.code for check in not_made(result.checks)}
    codes = {check.code for check in result.checks}
    of_run = [check for check in result.checks if check.passed is not None or check.code in counts]
    of_run += [
        CheckResult(code=warning.code, passed=False, text=warning.text)
        for warning in result.warnings
        if warning.code not in codes
    ]

    if result.classes_without_samples and any(check.code == "worst-class" for check in checks):
        problem = (
            f"{result.classes_without_samples} of the classes have no sample, so that "
            "nothing is known about them"
        )
        of_run.append(CheckResult(code=WITHOUT_SAMPLES, passed=False, text=problem))

    conditions = [_of_run(check, allow, without_checks) for check in of_run]
    all_checks = [*checks, complete, *conditions]
    failed = [check for check in all_checks if check.passed is False]
    is_short = any(warning.code == TIME_UP for warning in result.warnings)
    is_open = all(_is_open(check, is_short=is_short) for check in failed)
    demands_worst_class = any(check.code == "worst-class" for check in checks)
    return GateResult(
        run=result.folder,
        passed=not failed,
        checks=all_checks,
        undecided=until_decided and bool(failed) and is_open,
        statements=result.statements if demands_worst_class else [],
        weak=result.weak,
    )


def _is_open(check: Check, *, is_short: bool) -> bool:
    """True if a condition that does not hold may hold after more samples, or after more time for a
    run that is short of it.
    """
    if check.code == "robust" and check.statement is not None and check.required is not None:
        share = check.statement.subjects[0]
        return decide(share.k or 0, share.n or 0, check.required) == "undecided"
    is_unmade = check.code in (COMPLETE, f"{WARNING}{TIME_UP}") or check.reason is not None
    return is_short and is_unmade


def _of_run(check: CheckResult, allow: Collection[str], without_checks: bool) -> Check:
    """A check or a warning of the run as a condition.

    A check that was not made fails, unless `without_checks`.
    """
    # A check that was not made counts as failed, unless the caller said that it may be missing.
    passed = check.passed if without_checks else bool(check.passed)
    allowed = passed is False and check.code in allow

    cure = "make the run again with what the check needs, or pass --without-checks"
    return Check(
        code=f"{WARNING}{check.code}",
        name=f"no warning {check.code}",
        passed=allowed or passed,
        observed=check.figure,
        required=check.limit,
        text=check.text + " (allowed)" * allowed,
        reason=check.reason,
        remedy=cure if check.reason else f"mend what it names, or pass --allow {check.code}",
    )


def completeness_of(rates: Sequence[Rate]) -> Check:
    """The condition that every sample was judged at all budgets."""
    missing = max((rate.missing for rate in rates), default=0)
    text = "every sample was judged at each budget"
    if missing:
        text = f"{missing} samples could not be judged"
    return Check(code=COMPLETE, name="run complete", passed=not missing, text=text)


def _percent(value: float) -> str:
    """A share for a sentence."""
    return f"{100 * value:.1f} %"
