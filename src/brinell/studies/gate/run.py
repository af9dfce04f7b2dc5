"""Compares a finished run with thresholds or a baseline."""

from pathlib import Path

from brinell.analysis import gate as rules
from brinell.analysis.compare import compare, model_names, side
from brinell.analysis.gate import GateResult
from brinell.analysis.proofs import with_proofs
from brinell.analysis.robust_accuracy import summarise_model
from brinell.analysis.thresholds import check_metrics
from brinell.core.errors import RequestError, option
from brinell.engine.eps_grid import parse_eps
from brinell.store.files import write_text
from brinell.store.folder import MANIFEST, fitting
from brinell.store.run import Run, threshold_of
from brinell.studies import register
from brinell.studies.gate.formats import junit, sarif
from brinell.studies.gate.request import GateRequest
from brinell.studies.kit import Call, Study


def carry_out(call: Call) -> GateResult:
    """Check a run against the thresholds of a call, and write the files that the call names.

    Raises:
        RequestError: no condition, or no such run, model or budget.
    """
    request: GateRequest = call.request
    with fitting(Path(request.run)):
        study = _study_with_rates(Path(request.run))
        result = _gate(request) if study is None else _gate_rates(request, study)
    if call.options.junit is not None:
        write_text(Path(call.options.junit), junit(result))
    if call.options.sarif is not None:
        write_text(Path(call.options.sarif), sarif(result))
    return result


def _gate(request: GateRequest) -> GateResult:
    """Compare a run with thresholds and a baseline."""
    thresholds, not_worse, eps = _conditions(request)
    manifest = Run.open(request.run, thresholds=True).manifest
    criterion = threshold_of(manifest)
    check_metrics([threshold.metric for threshold in thresholds], criterion, request.run)
    if criterion is not None and request.baseline is not None:
        raise RequestError(
            f"{request.run} has the criterion {criterion}, and {option('baseline')} compares robust accuracy: demand "
            f"{option('unmet')} in its place"
        )
    tested = side(Path(request.run), request.model, thresholds=criterion is not None)
    rules.check_codes(request.allow, {str(warning["code"]) for warning in manifest.get("warnings", [])})
    result = with_proofs(summarise_model(tested.manifest, tested.records, tested.run, tested.model), request.run)
    if request.certified is not None and result.certified is None:
        raise RequestError(
            f"{request.run} is the run of an audit without proofs: add {option('certify')} to brinell audit, or run brinell "
            "certify and name its folder"
        )
    checks = rules.against_thresholds(result, thresholds, allow=request.allow)
    if request.baseline is not None:
        baseline = Path(request.baseline)
        before = side(baseline, request.model if request.model in model_names(baseline) else None)
        # Sample by sample where both saw the same data.
        same_data = tested.manifest["data"]["digest"] == before.manifest["data"]["digest"]
        earlier = summarise_model(before.manifest, before.records, before.run, before.model)
        if result.criterion != earlier.criterion:
            raise RequestError(
                f"{request.run} counts inputs that are {result.criterion} and {baseline} those that are {earlier.criterion}: "
                "audit both models with the same criterion"
            )
        if result.distance != earlier.distance:
            raise RequestError(
                f"{request.run} measures eps in {result.distance} and {baseline} in {earlier.distance}: audit both models with "
                f"the same {option('norm')}"
            )
        checks += rules.against_baseline(result, earlier, compare(tested, before) if same_data else None, not_worse, eps)
    return rules.gate(result, checks, allow=request.allow, without_checks=request.without_checks)


def _study_with_rates(folder: Path) -> Study | None:
    """The study that made a folder, if its record says which rates of it a gate may judge."""
    if not (folder / MANIFEST).is_file():
        return None
    study = register.study_of(folder)
    return study if study.has_rates() else None


def _gate_rates(request: GateRequest, study: Study) -> GateResult:
    """Compare the rates of a study's folder with thresholds."""
    for name in ("baseline", "worst_class", "max_drop", "model", "allow", "without_checks"):
        if getattr(request, name) not in (None, (), False):
            raise RequestError(
                f"{request.run} was made by brinell {study.verb}, and {option(name)} is for the run of an audit: leave it out"
            )
    thresholds, *_ = _conditions(request)
    rates = study.rates_of(study.resolve(study.open)(Path(request.run)))
    checks = rules.against_rates(rates, thresholds)
    checks.append(rules.completeness_of([rate for of_metric in rates.values() for rate in of_metric]))
    return GateResult(run=str(request.run), passed=all(check.passed for check in checks), checks=checks)


def _budget(text: str) -> float:
    """The one budget that a gate judges.

    Raises:
        RequestError: several budgets, or none that can be read.
    """
    budgets = parse_eps(text)
    if len(budgets.values) > 1:
        raise RequestError(
            f"a gate judges one budget, and eps {text!r} has {len(budgets.values)}: name one, "
            f"{option('eps', budgets.texts[-1])}, and call the gate again for each other"
        )
    return budgets.values[0]


def _conditions(request: GateRequest) -> tuple[list[rules.Threshold], rules.Baseline, float | None]:
    """The thresholds, what is demanded beside a baseline, and the budget, None where none is named.

    Raises:
        RequestError: no condition, a value out of range, or several budgets.
    """
    eps = None if request.eps is None else _budget(request.eps)
    demanded = {
        "clean": request.clean,
        "robust": request.robust,
        "worst_class": request.worst_class,
        "certified": request.certified,
        "unmet": request.unmet,
    }
    try:
        thresholds = [
            rules.Threshold(metric=metric, minimum=least, eps=eps)  # type: ignore[arg-type]
            for metric, least in demanded.items()
            if least is not None
        ]
        not_worse = rules.Baseline(max_drop=request.max_drop)
    except ValueError as error:
        raise RequestError(str(error)) from None
    if not thresholds and request.baseline is None:
        raise RequestError(
            f"a gate needs a condition: {option('robust')}, {option('worst_class')}, {option('clean')}, {option('certified')}, "
            f"{option('unmet')} or {option('baseline')}"
        )
    if request.max_drop is not None and request.baseline is None:
        raise RequestError(f"{option('max_drop')} is the fall from a baseline: name one with {option('baseline', 'RUN')}")
    return thresholds, not_worse, eps
