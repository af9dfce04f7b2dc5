"""Compares a finished run, or one that it makes first, with thresholds or a baseline."""

import math
from dataclasses import replace
from pathlib import Path

from brinell.analysis import gate as rules
from brinell.analysis.compare import compare, side
from brinell.analysis.gate import GateResult
from brinell.analysis.proofs import with_proofs
from brinell.analysis.robust_accuracy import summarise_model, with_classes
from brinell.core.errors import RequestError, option
from brinell.engine.eps_grid import parse_eps
from brinell.engine.toml import parse_request
from brinell.store.folder import MANIFEST, fitting
from brinell.store.run import threshold_of
from brinell.studies import register
from brinell.studies.attempts import carry_out as carry_out_study
from brinell.studies.gate import GateRequest
from brinell.studies.kit import Call, Study, command_of

OF_AUDIT = ("data", "model", "eps", "samples", "attack", "norm", "seed", "device")
"""Settings of a gate that are those of its audit."""


def carry_out(call: Call) -> GateResult:
    """Check a run against the thresholds of a call."""
    request: GateRequest = call.request
    minima = {
        metric: least for metric in rules.METRICS if (least := getattr(request, metric)) is not None
    }
    if not minima and request.baseline is None:
        names = [*rules.METRICS, "baseline"]
        raise RequestError(
            f"a gate needs a condition: {', '.join(map(option, names[:-1]))} or {option(names[-1])}"
        )
    if request.until_decided and request.robust is None:
        raise RequestError(
            f"{option('until_decided')} is about a least value: add {option('robust')}"
        )
    if request.max_drop is not None and request.baseline is None:
        raise RequestError(
            f"{option('max_drop')} is the fall from a baseline: name one with "
            f"{option('baseline', 'RUN')}"
        )
    eps = None
    if request.eps is not None:
        budgets = parse_eps(request.eps)
        if len(budgets.values) > 1:
            raise RequestError(
                f"a gate judges one budget, and eps {request.eps!r} has "
                f"{len(budgets.values)}: name one of them"
            )
        eps = budgets.values[0]

    _check_audit(call, minima)
    if not request.run:
        request = request.model_copy(update={"run": _audit(call), "model": None})
    folder = Path(request.run)
    with fitting(folder):
        study = register.study_of(folder) if (folder / MANIFEST).is_file() else None
        if study is not None and hasattr(study.resolve(study.result), "rates"):
            return _gate_rates(request, study, minima, eps)
        return _gate(request, minima, eps)


def _check_audit(call: Call, minima: dict[str, float]) -> None:
    """Refuse settings of an audit beside a run, and an audit without them."""
    request: GateRequest = call.request
    if request.run:
        names = (*OF_AUDIT, "minutes")
        given = [name for name in names if name in request.model_fields_set - {"model", "eps"}]
        if given or call.out is not None:
            raise RequestError(
                # The first of the settings, or the folder where no setting is given.
                f"{request.run} is audited already: leave out {option((*given, 'out')[0])}"
            )
        return
    if request.data is None or request.model is None:
        raise RequestError(f"name a run, or {option('data')} and {option('model')} to audit first")
    rules.check_metrics(minima, criterion=None)
    if request.certified is not None:
        raise RequestError(
            f"{option('certified')} is for a run: audit with {option('certify')}, then name its folder"
        )


def _audit(call: Call) -> str:
    """The folder of the audit that a gate is about, which is made now."""
    study = register.load("audit")
    request: GateRequest = call.request
    values = {name: value for name in OF_AUDIT if (value := getattr(request, name))}
    if request.until_decided:
        values["until"] = f"robust:{request.robust!r}"
    audit = parse_request(study.request, values)
    assert study.options is not None
    options = parse_request(study.options, {"minutes": request.minutes})

    def begin(path: Path) -> None:
        call.begin(path)
        call.progress.note(
            f"the audit is in {path}; if it is interrupted, brinell audit {option('resume')} "
            f"{option('out', str(path))} goes on"
        )

    command = command_of(audit, study)
    result = carry_out_study(
        replace(call, study=study, request=audit, options=options, command=command, begin=begin)
    )
    return str(result.folder)


def _gate(request: GateRequest, minima: dict[str, float], eps: float | None) -> GateResult:
    """Check the run of an audit: by least values of its metrics, and by an earlier run."""
    # A run with a criterion of probability has no robust accuracy, but the share that is unmet.
    tested = side(Path(request.run), request.model, thresholds=True)
    manifest = tested.manifest
    criterion = threshold_of(manifest)
    rules.check_metrics(minima, criterion, request.run)
    if criterion is not None and request.baseline is not None:
        raise RequestError(
            f"{request.run} has the criterion {criterion}, and "
            f"{option('baseline')} compares robust accuracy: demand "
            f"{option('unmet')} in its place"
        )
    rules.check_codes(
        request.allow, {str(warning["code"]) for warning in manifest.get("warnings", [])}
    )
    result = with_proofs(
        summarise_model(tested.manifest, tested.records, tested.run, tested.model), request.run
    )
    if request.certified is not None and result.certified is None:
        raise RequestError(
            f"{request.run} is the run of an audit without proofs: add "
            f"{option('certify')} to brinell audit, or run brinell "
            "certify and name its folder"
        )
    # The weakest class is that at the budget that is judged, by default the largest.
    if result.per_class and result.eps:
        positions = [i for i, budget in enumerate(result.eps) if eps and math.isclose(budget, eps)]
        result = with_classes(result, positions[0] if positions else len(result.eps) - 1)
    checks = rules.against_thresholds(rules.rates_of(result), minima, eps, rules.names_of(result))
    if request.baseline is not None:
        # The baseline may hold one model under another name.
        before = side(Path(request.baseline), request.model, falls_back=True)
        earlier = summarise_model(before.manifest, before.records, before.run, before.model)
        checks += rules.against_baseline(
            result, earlier, compare(tested, before), request.max_drop, eps
        )
    return rules.gate(
        result,
        checks,
        allow=request.allow,
        without_checks=request.without_checks,
        until_decided=request.until_decided,
    )


def _gate_rates(
    request: GateRequest, study: Study, minima: dict[str, float], eps: float | None
) -> GateResult:
    """Check the folder of another study by least values of the rates that it gives."""
    for name in ("baseline", "worst_class", "max_drop", "model", "allow", "without_checks"):
        if getattr(request, name) not in (None, (), False):  # their defaults
            raise RequestError(
                f"{request.run} was made by brinell {study.verb}, and "
                f"{option(name)} is for the run of an audit: leave it out"
            )
    rates = study.open(Path(request.run)).rates()
    checks = rules.against_thresholds(rates, minima, eps)
    checks.append(
        rules.completeness_of([rate for of_metric in rates.values() for rate in of_metric])
    )
    return GateResult(
        run=str(request.run), passed=all(check.passed for check in checks), checks=checks
    )
