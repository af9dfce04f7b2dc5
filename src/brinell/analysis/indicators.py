"""Checks of whether a robust accuracy may be too good to be true: those that the run kept, and
those that its records allow.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from brinell.analysis.results import CheckResult, WarningResult
from brinell.core.checks import Code, Finding, exact_test
from brinell.core.record import CLEAN, Array, Outcome, Records

NOTABLE = 0.002
"""Share of all samples that a black-box attack may break after the gradient attacks: the
reference AutoAttack's figure."""
NOTABLE_FOR_CERTAIN = 0.02
"""With more than this share no harder look at the others outweighs it."""
RISING = 0.05
"""A gain above this share of all that the attacks gained on a sample is notable: the share that
Pintor et al. 2022 use."""
BETTER_WITHOUT_GRADIENTS = (
    "gradients may be masked, and the robust accuracy too high; add steps to it, "
    "or an adaptive attack"
)
"""The meaning of an attack without gradients that breaks what gradient attacks did not."""
NO_ROBUST_SAMPLE = "no sample is left that an attack could still break"
ENOUGH = 1 / 3
"""The last attack on a sample is compared with those before it if those of its loss had this
share of its backward evaluations: that twenty steps come further than one says nothing of the
twenty."""
UNFINISHED = 0.4
"""Share of the robust samples on which the last gradient attack may make a notable gain over
those of the same loss."""
NEEDED = frozenset(Code) - {
    Code.ANSWERS,
    Code.MODE,
    Code.PROBE_AHEAD,
    Code.INCOMPLETE,
}
"""Checks that must be made and passed before a robust accuracy counts as checked. Of the others,
one is about what else fails as well, one needs a torch module, one is half of another, and one
needs two runs on one loss."""


def checks_of(records: Records, manifest: Mapping[str, Any], model: str) -> list[CheckResult]:
    """Every check on one model, in the order of `Code`; one that could not be made says why."""
    recorded = {
        str(check["code"]): CheckResult.model_validate(check)
        for check in manifest.get("checks", {}).get(model, [])
    }

    for warning in manifest.get("warnings", []):  # what attacks raised
        code = str(warning["code"])
        if (
            warning.get("model") == model
            and code in list(Code)
            # A check that failed already says more than the warning of an attack.
            and (code not in recorded or recorded[code].passed is not False)
        ):
            recorded[code] = CheckResult(code=code, passed=False, text=str(warning["text"]))

    # What the records show now goes before what the run noted: rows may have been added since.
    computed = {
        check.code: check
        for check in (_black_box(records, manifest, model), _incomplete(records, manifest, model))
    }
    # Without two kinds of attack there is nothing to compare, so the probe's silence is no pass.
    if reason := _missing_comparison(records, manifest, model):
        computed[Code.PROBE_AHEAD] = _not_made(Code.PROBE_AHEAD, reason)
    elif Code.PROBE_AHEAD not in recorded:
        computed[Code.PROBE_AHEAD] = CheckResult(
            code=Code.PROBE_AHEAD,
            passed=True,
            text="no attack without gradients was ahead of those with them",
        )
    reason = _reason_without_checks(manifest, model, recorded)
    return [computed.get(code) or recorded.get(code) or _not_made(code, reason) for code in Code]


def warnings_in(
    checks: Sequence[CheckResult], model: str, warned: Iterable[str]
) -> list[WarningResult]:
    """Failed checks as warnings, without the codes of the run's own warnings."""
    warned = set(warned)
    failed = [check for check in checks if check.passed is False and check.code not in warned]
    return [WarningResult(code=check.code, text=check.text, model=model) for check in failed]


def not_made(checks: Sequence[CheckResult]) -> list[CheckResult]:
    """Checks that count and were not made."""
    return [check for check in checks if check.passed is None and check.code in NEEDED]


def caveat(checks: Sequence[CheckResult]) -> str | None:
    """The summary of checks of which one failed, or one that counts was not made; None
    otherwise.
    """
    return (
        summary(checks)
        if not_made(checks) or any(check.passed is False for check in checks)
        else None
    )


def summary(checks: Sequence[CheckResult]) -> str:
    """How many checks passed, failed and were not made, which failed, and why others
    were not made.
    """
    failed = [check for check in checks if check.passed is False]
    missing = [check for check in checks if check.passed is None]
    passed = len(checks) - len(failed) - len(missing)
    parts = [f"{passed} check{'s' * (passed != 1)} passed"]
    if failed:
        parts.append(f"{len(failed)} failed ({join_codes([check.code for check in failed])})")
    if missing:
        # Most missing checks share one reason, which is the only one that is said.
        ((reason, count), *further_reasons) = Counter(
            check.reason for check in missing
        ).most_common()
        undecided = any(not check.text.startswith("not made") for check in missing)
        parts.append(
            f"{len(missing)} not made{' or undecided' * undecided}: {f'for {count} of them ' if further_reasons else ''}{reason}"
        )
    return ", ".join(parts)


def join_codes(codes: Sequence[str]) -> str:
    """The first three codes, and the number of others."""
    return ", ".join(codes[:3]) + (f" and {len(codes) - 3} more" if len(codes) > 3 else "")


def _not_made(code: Code, reason: str) -> CheckResult:
    return CheckResult(code=code, passed=None, text=f"not made: {reason}", reason=reason)


def _reason_without_checks(
    manifest: Mapping[str, Any], model: str, recorded: Mapping[str, CheckResult]
) -> str:
    """Why the checks of which nothing is recorded were not made."""
    if model not in manifest.get("checks", {}):
        return "the run has not come to it yet"
    if not recorded.keys() - {Code.CLEAN}:
        return "no sample is classified correctly"
    return "no budget is above 0" if max(manifest["eps"]) <= 0 else "the audit did not come to it"


def _without_gradients(manifest: Mapping[str, Any], model: str) -> str:
    """Reason why no attack follows gradients; empty if one does."""
    if any(stage["access"] == "gradients" for stage in _stages(manifest, model)):
        return ""
    access = next(
        (str(entry["access"]) for entry in manifest["models"] if entry["name"] == model),
        "gradients",
    )
    if access != "gradients":
        return (
            f"the model gives {access} only, so no attack follows gradients: audit "
            "the network that it was made from as well"
        )
    return "it takes an attack with gradients, such as apgd-ce"


def _missing_comparison(records: Records, manifest: Mapping[str, Any], model: str) -> str:
    """Reason why attacks without gradients cannot be compared with those before them; empty if they
    can.
    """
    if not bool(((records.model == model) & (records.attack == CLEAN)).any()):
        return "no sample was judged"
    if reason := _without_gradients(manifest, model):
        return reason
    access = [stage["access"] for stage in _stages(manifest, model)]
    if any(kind != "gradients" for kind in access[access.index("gradients") :]):
        return ""
    if all(kind == "gradients" for kind in access):
        return "it takes an attack without gradients, such as square, after those with gradients"
    return "the attacks without gradients ran before those with gradients: name them after those"


def _stages(manifest: Mapping[str, Any], model: str) -> list[Mapping[str, Any]]:
    """The stages that could run on the model."""
    skipped = {entry["stage"] for entry in manifest.get("skipped", []) if entry["model"] == model}
    return [stage for stage in manifest["stages"] if stage["name"] not in skipped]


def _black_box(records: Records, manifest: Mapping[str, Any], model: str) -> CheckResult:
    """An attack without gradients that breaks, at the largest eps, what gradient attacks did not.

    Success is compared, whatever an attack climbs. A few finds are settled by stages that look
    harder at what is left.
    """
    n = int(((records.model == model) & (records.attack == CLEAN)).sum())
    if n and not len(_robust(records, max(manifest["eps"]), model)):
        return CheckResult(code=Code.BLACK_BOX, passed=True, text=NO_ROBUST_SAMPLE)
    if reason := _missing_comparison(records, manifest, model):
        return _not_made(Code.BLACK_BOX, reason)

    stages = _stages(manifest, model)
    access = [stage["access"] for stage in stages]
    first = access.index("gradients") if "gradients" in access else len(access)
    after = [stage["name"] for stage in stages[first:] if stage["access"] != "gradients"]
    gradient = [stage["name"] for stage in stages if stage["access"] == "gradients"]

    # A stage that tries every sample (`alone=true`) may break what others broke too: samples are
    # counted, not rows.
    broken = _broken(records, max(manifest["eps"]), model)
    by_gradient = records.sample_id[broken & np.isin(records.attack, gradient)]
    by_others = records.sample_id[broken & np.isin(records.attack, after)]
    k = len(np.setdiff1d(by_others, by_gradient))
    observation = (
        f"{', '.join(after)}, without gradients, broke {k} of {n} samples that were "
        "robust to the gradient attacks"
    )
    if k <= NOTABLE * n or exact_test(k, n, NOTABLE_FOR_CERTAIN)[0]:
        return _share(Code.BLACK_BOX, k, n, NOTABLE, observation, BETTER_WITHOUT_GRADIENTS)
    return _settle_by_harder(records, model, stages, broken, k, n, observation)


def _settle_by_harder(
    records: Records,
    model: str,
    stages: Sequence[Mapping[str, Any]],
    broken: Array,
    k: int,
    n: int,
    observation: str,
) -> CheckResult:
    """The check if `k` of `n` samples are a reason to look harder at what is left.

    The finds of the harder look settle it: as long as the sum is explained by chance, the check
    passes. Without such stages the first finds decide.
    """
    harder = [stage["name"] for stage in stages if stage.get("turn", {}).get("when") == "suspected"]
    attacked_harder = (
        (records.model == model)
        & np.isin(records.attack, harder)
        & np.isin(records.outcome, [str(Outcome.BROKEN), str(Outcome.SURVIVED)])
    )
    if not attacked_harder.any():
        return _share(Code.BLACK_BOX, k, n, NOTABLE, observation, BETTER_WITHOUT_GRADIENTS)

    further = len(np.unique(records.sample_id[broken & np.isin(records.attack, harder)]))
    retried = len(np.unique(records.sample_id[attacked_harder]))
    observation += f"; stronger attacks on {retried} of the remaining samples broke {further} more"
    result = _share(Code.BLACK_BOX, k + further, n, NOTABLE, observation, BETTER_WITHOUT_GRADIENTS)
    update = {"passed": True, "reason": None, "text": observation}
    return result if result.passed is False else result.model_copy(update=update)


def _incomplete(records: Records, manifest: Mapping[str, Any], model: str) -> CheckResult:
    """Robust samples to which the last gradient attack still came notably nearer than the best of
    those before it.

    Pintor et al. 2022 look at the last steps of one attack. Deviation: records keep the best margin
    of each attack, not of each step, so the last attack on a sample is compared with the ones
    before it, if one of these climbed the same loss.
    """
    stages = {
        str(stage["name"]): str(stage.get("settings", {}).get("loss", "ce"))
        for stage in _stages(manifest, model)
        if stage["access"] == "gradients" and stage["family"] == "budgeted"
    }

    if max(manifest["eps"]) <= 0:
        return _not_made(Code.INCOMPLETE, "no budget is above 0")

    robust = _robust(records, max(manifest["eps"]), model)
    gains = _last_gains(records, stages, max(manifest["eps"]), model, robust)
    if not len(robust):
        return CheckResult(code=Code.INCOMPLETE, passed=True, text=NO_ROBUST_SAMPLE)
    if not len(gains):
        reason = (
            "it takes two gradient attacks on one loss, one after the other, on a robust sample"
        )
        return _not_made(Code.INCOMPLETE, _without_gradients(manifest, model) or reason)

    k, n = int((gains > RISING).sum()), len(gains)
    observation = (
        f"on {k} of {n} robust samples the last gradient attack gained more than 5 % "
        "of the way towards the boundary"
    )
    bad = "more steps or restarts would come nearer still, and the robust accuracy is too high"
    return _share(Code.INCOMPLETE, k, n, UNFINISHED, observation, bad)


def _share(code: Code, k: int, n: int, limit: float, observation: str, bad: str) -> CheckResult:
    """The check that at most a share `limit` of the samples is bad, however few they are."""
    return CheckResult(**asdict(Finding.of_share(code, k, n, limit, observation, bad, fewest=1)))


def _broken(records: Records, eps: float, model: str) -> Array:
    """(rows,) whether the row says that its attack broke its sample within eps."""
    return np.asarray(
        (records.model == model) & (np.ma.filled(records.broken, np.inf) <= eps * (1 + 1e-9))
    )


def _robust(records: Records, eps: float, model: str) -> Array:
    """Samples that are right untouched and that nothing broke within eps, ascending."""
    right = (
        (records.model == model)
        & (records.attack == CLEAN)
        & np.isin(records.outcome, [str(Outcome.CORRECT), str(Outcome.UNMET)])
    )
    broken = _broken(records, eps, model)
    return np.setdiff1d(records.sample_id[right], records.sample_id[broken])


def _last_gains(
    records: Records, stages: Mapping[str, str], eps: float, model: str, robust: Array
) -> Array:
    """(n,) what the last of `stages` gained on robust samples, as a share of what all gained.

    `stages` are names with losses; the samples are those that a stage on the same loss attacked
    before, with enough steps.
    """
    rows_of_model = (records.model == model) & np.isin(records.sample_id, robust)
    clean = np.flatnonzero(rows_of_model & (records.attack == CLEAN))
    # The margins of the clean inputs, from which gains count.
    start = np.full(len(robust), np.nan)
    start[np.searchsorted(robust, records.sample_id[clean])] = np.ma.getdata(records.margin)[clean]
    at_top = np.isclose(np.ma.filled(records.attacked, 0), eps)
    rows_robust = np.flatnonzero(rows_of_model & at_top & (records.outcome == Outcome.SURVIVED))
    rows_robust = rows_robust[~np.ma.getmaskarray(records.margin)[rows_robust]]
    attack = records.attack[rows_robust]
    samples = np.searchsorted(robust, records.sample_id[rows_robust])
    margin = np.ma.getdata(records.margin)[rows_robust]
    cost = records.backwards[rows_robust]

    # Of each sample what the last stage reached that attacked it, the best of those before, and
    # what those of its loss cost.
    best, last = np.full((2, len(robust)), -np.inf)
    before, steps = np.zeros((2, len(robust)), np.int64)
    spent: dict[str, Array] = defaultdict(lambda: np.zeros(len(robust), np.int64))
    for stage, loss in stages.items():
        rows = attack == stage
        of = samples[rows]
        # In this order: what was the last becomes one of those before.
        best[of] = np.maximum(best[of], last[of])
        before[of] = spent[loss][of]
        last[of] = margin[rows]
        steps[of] = cost[rows]
        spent[loss][of] += cost[rows]

    # A last attack that had far more steps than those before gains by them, which says nothing.
    comparable = np.flatnonzero((before > 0) & (before >= ENOUGH * steps))
    return np.asarray(
        (last[comparable] - best[comparable])
        / np.maximum(last[comparable] - start[comparable], 1e-12)
    )
