"""An epsilon study of the data of an audit, which the run keeps (`--epsilon`).

The run holds a copy of the study in its own folder, so that its page, its figures and its
verification need no other folder.
"""

import shutil
from pathlib import Path
from typing import Any

from brinell.analysis.class_distances import nearest_classes, with_nearest
from brinell.analysis.results import AuditResult
from brinell.core.errors import RequestError, option
from brinell.engine.plan import Plan
from brinell.store import trust
from brinell.store.run import inner_folder
from brinell.studies.epsilon import STUDY as EPSILON
from brinell.studies.job import Job, open_folder
from brinell.studies.kit import Call

FOLDER = "epsilon"
"""Name of the folder of the study within that of the run."""


def check(call: Call, plan: Plan) -> None:
    """Refuse a study of other data or norms than the audit, before the audit begins."""
    study = Path(call.options.epsilon)
    manifest = _open(call)
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


def copy_into(call: Call, folder: Path) -> None:
    """Copy the study into the folder of a finished audit."""
    study, copy, manifest = Path(call.options.epsilon), folder / FOLDER, _open(call)
    if copy.resolve() == study.resolve():
        return
    request = EPSILON.request.model_validate(manifest["request"])
    job = Job(
        EPSILON.layout, copy, request, cell=manifest["cell"], command=str(manifest["command"])
    )
    with open_folder(job, resume=call.resume) as is_complete:
        if is_complete:
            return
        for name in manifest["files"]:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(study / name, copy / name)
        EPSILON.layout.save(copy, manifest)
        EPSILON.write_page(copy)


def with_distances(result: AuditResult, folder: Path) -> AuditResult:
    """The figures of an audit with the distances of its classes; without a study the figures as
    they are.
    """
    study = inner_folder(folder, FOLDER)
    if study is None:
        return result
    measured = EPSILON.open(study)
    norm = next(entry for entry in measured.norms if entry.norm == result.models[0].distance)
    samples = {entry.class_: entry.other_median for entry in norm.per_class}
    nearest = nearest_classes(measured.classes, norm.means, samples)
    models = [with_nearest(model, nearest) for model in result.models]
    return result.model_copy(update={"models": models})


def _open(call: Call) -> dict[str, Any]:
    """The manifest of the study, whose names may be used as the user's own."""
    study = Path(call.options.epsilon)
    manifest: dict[str, Any] = EPSILON.layout.open(study)
    trust.check_manifest(study, manifest, call.trust)
    return manifest
