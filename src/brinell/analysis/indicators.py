"""Checks of whether a robust accuracy may be too good to be true: those that the run kept, and those that its records allow."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from brinell.analysis.results import CheckResult, WarningResult
from brinell.core.checks import Code
from brinell.core.intervals import wilson
from brinell.core.record import CLEAN, Array, Outcome, Records

NOTABLE = 0.002
"""Share of all samples that a black-box attack may break after the gradient attacks: the reference AutoAttack's figure."""
MANY = 0.02
"""With more than this share no harder look at the others outweighs it."""
RISING = 0.05
"""A gain above this share of all that the attacks gained on a sample is notable: the share that Pintor et al. 2022 use."""
AFTER = "no attack without gradients ran after one with gradients: add one, such as square"
LEFT = "no sample is left that an attack could still break"
ENOUGH = 0.1
"""The last attack on a sample is compared with those before it if they had this share of its backward evaluations: that twenty
steps come further than one says nothing of the twenty."""
UNFINISHED = 0.4
"""Share of the robust samples on which the last gradient attack may make a notable gain (design/0006-checks.md)."""
NEEDED = frozenset(Code) - {
    Code.ANSWERS,
    Code.ONE_HOT,
    Code.MODE,
    Code.DEVICE,
    Code.REJECTION,
    Code.AHEAD,
    Code.SILENT,
    Code.TRANSFER,
}
"""Checks that must be made and passed before a robust accuracy counts as checked. Of the others, one is about what else fails
as well, four need different inputs, a torch module, an accelerator or a reject class, one is half of another, and two need no
measurement."""


def checks_of(records: Records, manifest: Mapping[str, Any], model: str) -> list[CheckResult]:
    """Every check on one model, in the order of `Code`; one that could not be made says why."""
    kept = {str(check["code"]): CheckResult.model_validate(check) for check in manifest.get("checks", {}).get(model, [])}
    for told in manifest.get("warnings", []):  # what attacks raised
        code = str(told["code"])
        if told.get("model") == model and code in list(Code) and (code not in kept or kept[code].passed is not False):
            kept[code] = CheckResult(code=code, passed=False, text=str(told["text"]))
    made = {check.code: check for check in (_black_box(records, manifest, model), _incomplete(records, manifest, model))}
    if made[Code.BLACK_BOX].passed is None:
        made[Code.AHEAD] = _unmade(Code.AHEAD, AFTER)
    elif Code.AHEAD not in kept:
        made[Code.AHEAD] = CheckResult(
            code=Code.AHEAD, passed=True, text="no attack without gradients was ahead of those with them"
        )
    made[Code.SILENT] = CheckResult(
        code=Code.SILENT, passed=True, text="cannot happen: the ledger notes every adversarial input that an attack asks about"
    )
    made[Code.TRANSFER] = _unmade(
        Code.TRANSFER, "every attack here asks the model itself, also along the gradient of a surrogate"
    )
    why = _why_none(manifest, model)
    every = [code for code in Code if code != Code.REJECTION or code in kept]
    return [made.get(code) or kept.get(code) or _unmade(code, why) for code in every]


def warnings_in(checks: Sequence[CheckResult], model: str, known: Iterable[str]) -> list[WarningResult]:
    """Failed checks as warnings, without the codes of the run's own warnings."""
    known = set(known)
    failed = [check for check in checks if check.passed is False and check.code not in known]
    return [WarningResult(code=check.code, text=check.text, model=model) for check in failed]


def unmade(checks: Sequence[CheckResult]) -> list[CheckResult]:
    """Checks that count and were not made."""
    return [check for check in checks if check.passed is None and check.code in NEEDED]


def caveat(checks: Sequence[CheckResult], *, named: bool = True) -> str | None:
    """How many checks failed or were not made, and which; None where every check that counts was made and passed."""
    failed, missing = [check for check in checks if check.passed is False], unmade(checks)
    if not failed and not missing:
        return None
    if not failed and len(missing) == len(NEEDED):
        return "no checks were made"
    parts = []
    if failed:
        parts.append(f"{_number(failed)} failed" + f" ({_listed(failed)})" * named)
    if missing:
        parts.append(f"{len(missing) if failed else _number(missing)} could not be made" + f" ({_listed(missing)})" * named)
    return ", ".join(parts)


def _number(checks: Sequence[CheckResult]) -> str:
    return f"{len(checks)} check{'' if len(checks) == 1 else 's'}"


def _listed(checks: Sequence[CheckResult]) -> str:
    named = ", ".join(check.code for check in checks[:3])
    return named if len(checks) <= 3 else f"{named} and {len(checks) - 3} more"


def _unmade(code: Code, why: str) -> CheckResult:
    return CheckResult(code=code, passed=None, text=f"not made: {why}", reason=why)


def _why_none(manifest: Mapping[str, Any], model: str) -> str:
    made = model in manifest.get("checks", {})
    return "no sample is classified correctly" if made else "the run has not come to it yet"


def _stages(manifest: Mapping[str, Any], model: str) -> list[Mapping[str, Any]]:
    """The stages that run on this model."""
    skipped = {one["stage"] for one in manifest.get("skipped", []) if one["model"] == model}
    return [stage for stage in manifest["stages"] if stage["name"] not in skipped]


def _black_box(records: Records, manifest: Mapping[str, Any], model: str) -> CheckResult:
    """An attack without gradients that breaks, at the largest eps, what gradient attacks did not.

    It fails when the lower end of the interval of the share exceeds 0.2 points, so that a single sample of a small set raises
    no alarm.
    """
    mine = records.model == model
    n = int((mine & (records.attack == CLEAN)).sum())
    stages = _stages(manifest, model)
    access = [stage["access"] for stage in stages]
    first = access.index("gradients") if "gradients" in access else len(access)
    after = [stage["name"] for stage in stages[first:] if stage["access"] != "gradients"]
    if manifest["state"] == "finished" and n and not len(_robust(records, max(manifest["eps"]), model)):
        return CheckResult(code=Code.BLACK_BOX, passed=True, text=LEFT)
    if not after or not n:
        return _unmade(Code.BLACK_BOX, AFTER)
    # A stage that tries every sample (`alone=true`) may break what others broke too: samples are counted, not rows.
    broken = _broken(records, max(manifest["eps"]), model)
    gradient = [stage["name"] for stage in stages if stage["access"] == "gradients"]
    by_gradient = records.sample_id[broken & np.isin(records.attack, gradient)]
    k = len(np.setdiff1d(records.sample_id[broken & np.isin(records.attack, after)], by_gradient))
    seen = f"{', '.join(after)}, without gradients, broke {k} of {n} samples that were robust to the gradient attacks"
    bad = ": gradients may be masked, and the robust accuracy too high; add steps to it, or an adaptive attack"
    judged = _judged(Code.BLACK_BOX, k, n, NOTABLE, seen, bad)
    if k <= NOTABLE * n or ((interval := wilson(k, n)) is not None and interval.low > MANY):
        return judged
    # A few finds are a reason to look harder at what is left, and what that finds settles it.
    harder = [stage["name"] for stage in stages if stage.get("turn", {}).get("when") == "suspected"]
    looked = mine & np.isin(records.attack, harder) & np.isin(records.outcome, [str(Outcome.FOOLED), str(Outcome.SURVIVED)])
    if not looked.any():
        if judged.passed is False:
            return judged
        return judged.model_copy(update={"passed": None, "text": f"cannot tell with {n} samples: {seen}"})
    more = len(np.unique(records.sample_id[broken & np.isin(records.attack, harder)]))
    text = f"{seen}; a harder look at {len(np.unique(records.sample_id[looked]))} of those that were left broke {more} more"
    return judged.model_copy(update={"passed": not more, "text": text + bad * bool(more)})


def _incomplete(records: Records, manifest: Mapping[str, Any], model: str) -> CheckResult:
    """Robust samples to which the last gradient attack still came notably nearer than the best of those before it.

    Pintor et al. 2022 look at the last steps of one attack. Deviation: records keep the best margin of each attack, not of each
    step, so the last attack on a sample is compared with the ones before it.
    """
    stages = [one["name"] for one in _stages(manifest, model) if one["access"] == "gradients" and one["family"] == "budgeted"]
    if manifest["state"] != "finished" or max(manifest["eps"]) <= 0:
        return _unmade(Code.INCOMPLETE, "the run is not finished, or no budget is above 0")
    robust = _robust(records, max(manifest["eps"]), model)
    gains = _last_gains(records, stages, max(manifest["eps"]), model, robust)
    if not len(robust):
        return CheckResult(code=Code.INCOMPLETE, passed=True, text=LEFT)
    if not len(gains):
        alone = "it takes two gradient attacks, one after the other"
        return _unmade(Code.INCOMPLETE, "no robust sample was attacked by two of them" if len(stages) > 1 else alone)
    k, n = int((gains > RISING).sum()), len(gains)
    seen = f"on {k} of {n} robust samples the last gradient attack gained more than 5 % of the way towards the boundary"
    bad = ": more steps or restarts would come nearer still, and the robust accuracy is too high"
    return _judged(Code.INCOMPLETE, k, n, UNFINISHED, seen, bad)


def _judged(code: Code, k: int, n: int, limit: float, seen: str, bad: str) -> CheckResult:
    """A check that fails where the lower end of the interval of `k` / `n` exceeds `limit`."""
    interval = wilson(k, n)
    failed = interval is not None and interval.low > limit
    return CheckResult(code=code, passed=not failed, figure=k / n, limit=limit, text=seen + bad * failed)


def _broken(records: Records, eps: float, model: str) -> Array:
    """(rows,) whether the row says that its attack broke its sample within eps."""
    fooled = np.isin(records.outcome, [str(Outcome.FOOLED), str(Outcome.FOOLED_BELOW)])
    return np.asarray((records.model == model) & fooled & np.isclose(records.eps, eps))


def _robust(records: Records, eps: float, model: str) -> Array:
    """Samples that are right untouched and that nothing broke within eps, ascending."""
    right = (records.model == model) & (records.attack == CLEAN) & (records.outcome == Outcome.CORRECT)
    broken = _broken(records, eps, model)
    return np.setdiff1d(records.sample_id[right], records.sample_id[broken])


def _last_gains(records: Records, stages: Sequence[str], eps: float, model: str, robust: Array) -> Array:
    """(n,) what the last of `stages` gained on robust samples that others attacked before it, as a share of what all gained."""
    mine = (records.model == model) & np.isin(records.sample_id, robust)
    clean = np.flatnonzero(mine & (records.attack == CLEAN))
    start = np.full(len(robust), np.nan)
    start[np.searchsorted(robust, records.sample_id[clean])] = np.ma.getdata(records.best_margin)[clean]
    here = np.flatnonzero(mine & np.isclose(records.eps, eps) & (records.outcome == Outcome.SURVIVED))
    here = here[~np.ma.getmaskarray(records.best_margin)[here]]
    attack, at = records.attack[here], np.searchsorted(robust, records.sample_id[here])
    margin, cost = np.ma.getdata(records.best_margin)[here], records.backwards[here]
    # Of each sample what the last stage reached that attacked it, and the best and the costs of those before.
    best, last = np.full((2, len(robust)), -np.inf)
    spent, steps, times = np.zeros((3, len(robust)), np.int64)
    for stage in stages:
        rows = attack == stage
        of = at[rows]
        best[of], spent[of], times[of] = np.maximum(best[of], last[of]), spent[of] + steps[of], times[of] + 1
        last[of], steps[of] = margin[rows], cost[rows]
    told = np.flatnonzero((times > 1) & (spent >= ENOUGH * steps))
    return np.asarray((last[told] - best[told]) / np.maximum(last[told] - start[told], 1e-12))
