"""Detectors in front of the models of an audit (`--detector`)."""

from dataclasses import replace
from pathlib import Path

from brinell.analysis.results import AuditResult
from brinell.core.errors import RequestError, option
from brinell.engine.plan import Plan
from brinell.engine.request import as_many
from brinell.store.run import inner_folder
from brinell.studies.audit_detectors import FOLDER, DetectorsRequest
from brinell.studies.audit_detectors import STUDY as DETECTORS
from brinell.studies.kit import Call
from brinell.studies.work import carry_out


def check(call: Call, plan: Plan) -> None:
    """Refuse an audit whose detectors cannot be measured, before it begins."""
    request = plan.request
    if call.options.detector_data is None:
        raise RequestError(
            f"{option('detector')} needs clean data that detectors are fitted to: "
            f"name them by {option('detector_data')}"
        )
    if plan.recommended is not None:
        raise RequestError(
            f"{option('detector')} needs the same budgets for all samples: name "
            f"them by {option('eps')}"
        )
    for name in ("targeted", "reject_class", "criterion"):
        if getattr(request, name) is not None:
            raise RequestError(
                f"{option('detector')} does not go with {option(name)}: leave one of them out"
            )


def measure(call: Call, plan: Plan, folder: Path) -> None:
    """Measure the detectors on a finished audit, in a folder within its own."""
    request, options = plan.request, call.options
    settings = {name: getattr(request, name) for name in ("data", "model", "seed", "device")}
    settings |= {
        "run": str(folder),
        "samples": as_many(request.samples, len(plan.ids)),
        "train": options.detector_data,
    }
    inputs = {
        "train" if name == "detector_data" else name: dataset
        for name, dataset in call.datasets.items()
    }
    carry_out(
        replace(
            call,
            study=DETECTORS,
            request=DetectorsRequest(**settings, detector=options.detector, fpr=options.fpr),
            options=None,
            datasets=inputs,
            out=folder / FOLDER,
            begin=lambda path: None,
        )
    )


def with_detectors(result: AuditResult, folder: Path) -> AuditResult:
    """The figures of an audit with those of the detectors next to them; without any the figures as
    they are.
    """
    inner = inner_folder(folder, FOLDER)
    if inner is None:
        return result
    measured = DETECTORS.open(inner).detectors
    models = [
        model.model_copy(
            update={"detectors": [entry for entry in measured if entry.model == model.model]}
        )
        for model in result.models
    ]
    return result.model_copy(update={"models": models})
