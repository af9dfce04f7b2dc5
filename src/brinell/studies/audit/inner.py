"""The studies that an audit keeps in its folder, for its figures, its page and its verification:
detectors in front of its models (`--detector`), proofs in addition to its attacks (`--certify`),
and a copy of an epsilon study of its data (`--epsilon`).
"""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from brinell.analysis.class_distances import nearest_classes, with_nearest
from brinell.analysis.results import AuditResult
from brinell.core.errors import RequestError, option
from brinell.engine.plan import Plan
from brinell.engine.request import as_many
from brinell.store import trust
from brinell.store.proofs import PROOFS
from brinell.store.run import inner_folder
from brinell.studies.audit_detectors import FOLDER as DETECTED
from brinell.studies.audit_detectors import STUDY as DETECTORS
from brinell.studies.audit_detectors import DetectorsRequest
from brinell.studies.certify import STUDY as CERTIFY
from brinell.studies.certify import CertifyRequest
from brinell.studies.epsilon import STUDY as EPSILON
from brinell.studies.job import Job, open_folder
from brinell.studies.kit import Call
from brinell.studies.work import carry_out

DISTANCES = "epsilon"
"""Name of the folder of the epsilon study within that of the run."""


def check(call: Call, plan: Plan) -> None:
    """Refuse an audit whose further studies cannot be carried out, before it begins."""
    options = call.options
    if options.certify:
        _check_proofs(call, plan)
    if options.detector:
        if options.detector_data is None:
            raise RequestError(
                f"{option('detector')} needs clean data that detectors are fitted to: "
                f"name them by {option('detector_data')}"
            )
        _check_plain(plan, "detector")
    if options.epsilon:
        _check_distances(call, plan)


def fill(call: Call, plan: Plan, folder: Path) -> None:
    """Carry the further studies of a finished audit out, in folders within its own."""
    if call.options.certify:
        carry_out(_certification(call, plan, folder))
    if call.options.detector:
        carry_out(_detection(call, plan, folder))
    if call.options.epsilon:
        _copy_distances(call, folder)


def with_inner(result: AuditResult, folder: Path) -> AuditResult:
    """The figures of an audit with those of its detectors and the distances of its classes, where
    its folder keeps such studies.
    """
    models = result.models
    if (inner := inner_folder(folder, DETECTED)) is not None:
        measured = DETECTORS.open(inner).detectors
        models = [
            model.model_copy(
                update={"detectors": [entry for entry in measured if entry.model == model.name]}
            )
            for model in models
        ]

    if (study := inner_folder(folder, DISTANCES)) is not None:
        distances = EPSILON.open(study)
        norm = next(entry for entry in distances.norms if entry.norm == models[0].distance)
        samples = {entry.class_: entry.other_median for entry in norm.per_class}
        nearest = nearest_classes(distances.classes, norm.means, samples)
        models = [with_nearest(model, nearest) for model in models]
    return result.model_copy(update={"models": models})


def _check_plain(plan: Plan, name: str) -> None:
    """Refuse an option that does not go with other criteria, and not with budgets by sample."""
    for setting in ("targeted", "reject_class", "criterion"):
        if getattr(plan.request, setting) is not None:
            raise RequestError(
                f"{option(name)} does not go with {option(setting)}: leave one of them out"
            )
    if plan.recommended is not None:
        raise RequestError(
            f"{option(name)} needs the same budgets for all samples: name them by {option('eps')}"
        )


def _check_proofs(call: Call, plan: Plan) -> None:
    """Refuse an audit that cannot be certified."""
    _check_plain(plan, "certify")
    if len(plan.models) != 1:
        raise RequestError(
            f"{option('certify')} proves robustness of one model, and "
            f"{len(plan.models)} are named: audit each"
        )
    if plan.request.norm not in ("linf", "l2"):
        raise RequestError(
            f"{option('certify')} has bounds in linf and l2, and none in "
            f"{plan.request.norm}: leave it out"
        )
    CERTIFY.function("make_plan")(_certification(call, plan, folder=None))


def _certification(call: Call, plan: Plan, folder: Path | None) -> Call:
    """The call that certifies an audit; without its folder only the plan can be made."""
    from brinell.studies.certify.run import AuditedRun  # it brings the bounds

    request = plan.request
    settings = {name: getattr(request, name) for name in ("data", "norm", "attack", "seed")}
    settings |= {"batch_size": request.batch_size, "device": request.device}
    certified = CertifyRequest(
        **settings,
        model=request.model[0],
        eps=",".join(plan.budgets.texts),
        samples=as_many(request.samples, len(plan.ids)),
    )
    return replace(
        call,
        study=CERTIFY,
        request=certified,
        options=AuditedRun(run=folder),
        out=None if folder is None else folder / PROOFS,
        # An interruption is resumed by the folder of the audit, not by this one.
        begin=lambda path: None,
    )


def _detection(call: Call, plan: Plan, folder: Path) -> Call:
    """The call that measures the detectors in front of the models of an audit."""
    request, options = plan.request, call.options
    settings = {name: getattr(request, name) for name in ("data", "model", "seed", "device")}
    detected = DetectorsRequest(
        **settings,
        run=str(folder),
        samples=as_many(request.samples, len(plan.ids)),
        train=options.detector_data,
        detector=options.detector,
        fpr=options.fpr,
    )

    # The clean data of detectors are the training data of that study.
    inputs = {
        "train" if name == "detector_data" else name: dataset
        for name, dataset in call.datasets.items()
    }

    return replace(
        call,
        study=DETECTORS,
        request=detected,
        options=None,
        datasets=inputs,
        out=folder / DETECTED,
        # An interruption is resumed by the folder of the audit, not by this one.
        begin=lambda path: None,
    )


def _check_distances(call: Call, plan: Plan) -> None:
    """Refuse an epsilon study of other data or norms than the audit."""
    study, manifest = Path(call.options.epsilon), _trusted_manifest(call)
    if manifest["data"]["digest"] != plan.data_digest:
        raise RequestError(
            f"{study} was made from other data than {plan.dataset.name}: run brinell epsilon on "
            "the data of the audit"
        )
    norms = manifest["request"]["norm"]
    if plan.request.norm not in norms:
        raise RequestError(
            f"{study} measured {', '.join(norms)} and not {plan.request.norm}: run brinell "
            f"epsilon with {option('norm', plan.request.norm)}"
        )


def _copy_distances(call: Call, folder: Path) -> None:
    """Copy the epsilon study into the folder of a finished audit."""
    study, copy = Path(call.options.epsilon), folder / DISTANCES
    manifest = _trusted_manifest(call)
    if copy.resolve() == study.resolve():
        return

    request = EPSILON.request.model_validate(manifest["request"])
    command = str(manifest["command"])
    job = Job(EPSILON.layout, copy, request, cell=manifest["cell"], command=command)
    with open_folder(job, resume=call.resume) as is_complete:
        if is_complete:
            return
        for name in manifest["files"]:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(study / name, copy / name)
        EPSILON.layout.save(copy, manifest)
        EPSILON.write_page(copy)


def _trusted_manifest(call: Call) -> dict[str, Any]:
    """The manifest of the epsilon study; refused if it came from elsewhere and is not trusted."""
    study = Path(call.options.epsilon)
    manifest: dict[str, Any] = EPSILON.layout.open(study)
    trust.check_manifest(study, manifest, call.trust)
    return manifest
