"""Runs `brinell study`: audits models if asked, compares all runs, and writes the folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from brinell.analysis.attainable import Attainable, sentences
from brinell.analysis.compare import Side
from brinell.core.errors import RequestError, option
from brinell.engine.eps_grid import parse_eps
from brinell.engine.job import settings_text
from brinell.engine.plan import Plan
from brinell.engine.toml import parse_request
from brinell.store.files import write_text
from brinell.store.folder import MANIFEST, REQUEST
from brinell.store.run import Run
from brinell.studies.audit.plan import plan_audit
from brinell.studies.audit.run import carry_out_plan
from brinell.studies.kit import Call
from brinell.studies.per_class import page, records
from brinell.studies.per_class.analysis import families, study
from brinell.studies.per_class.marks import Mark, load_marks
from brinell.studies.per_class.request import StudyRequest
from brinell.studies.per_class.results import StudyResult

AUDIT = "audit"
"""Subfolder of the study's own audit."""


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """A resolved study."""

    request: StudyRequest
    audit: Plan | None
    """The audit of the models, or None if the study only compares existing runs."""

    @property
    def data(self) -> str:
        """Spec of the data, for the name of the folder."""
        return self.request.data if self.audit is not None else str(Run.open(self.request.run[0]).manifest["data"]["spec"])


def budget(request: StudyRequest) -> float | None:
    """The budget at which models are compared, or None for the default.

    Raises:
        RequestError: the request names several budgets.
    """
    if request.at is None:
        return None
    values = parse_eps(request.at).values
    if len(values) != 1:
        raise RequestError(f"at is {request.at}, but a study compares at one budget: write it as 8/255")
    return float(values[0])


def check(plan: StudyPlan, folder: Path, *, resume: bool) -> None:
    """Check the folder, the runs and the number of models before any audit.

    Raises:
        RequestError: the folder holds a study, a run cannot be opened, or there are fewer than two models.
    """
    records.LAYOUT.begin(folder, resume=resume)
    budget(plan.request)
    names = [model.name for model in plan.audit.models] if plan.audit else []
    names += [str(model["name"]) for path in plan.request.run for model in Run.open(path).manifest["models"]]
    if len(names) < 2:
        raise RequestError(
            f"a study compares at least two models, but there is one, {''.join(names)}: add another with {option('model')}, "
            "or the folder of its run"
        )


def open_sides(runs: Sequence[str | Path], folder: Path) -> list[Side]:
    """Open every model of these runs for a comparison; AUDIT is the audit in the study's own folder.

    Raises:
        RequestError: a folder is not a run, or is given twice.
    """
    sides = []
    for path in runs:
        if [Path(peer).resolve() for peer in runs].count(Path(path).resolve()) > 1:
            raise RequestError(f"{path} is given twice: remove one")
        run = Run.open(folder / AUDIT if path == AUDIT else path)
        rows = run.records()
        sides += [
            Side(run=str(path), manifest=run.manifest, records=rows, model=str(model["name"])) for model in run.manifest["models"]
        ]
    return sides


def compare_runs(request: StudyRequest, folder: Path) -> tuple[StudyResult, list[Mark]]:
    """Compare the models of the given runs and of the study's own audit.

    Returns:
        All figures, and the published reference marks.

    Raises:
        RequestError: the runs cannot be compared, or no published entry has this budget.
    """
    result = study(
        open_sides(list_runs(request, folder), folder), str(folder), eps=budget(request), draws=request.draws, seed=request.seed
    )
    marks = [] if request.published is None else load_marks(request.published, result.distance, result.eps[result.at])
    return result, marks


def list_runs(request: StudyRequest, folder: Path) -> list[str]:
    """The folders of the runs that a study compares; AUDIT is the audit in its own folder."""
    return [*request.run, *([AUDIT] if (folder / AUDIT / MANIFEST).exists() else [])]


def rewrite(folder: Path) -> Path:
    """Write the tables and the page of a study again, from the records of its runs."""
    request = parse_request(StudyRequest, dict(records.LAYOUT.open(folder)["request"]))
    return page.write(*compare_runs(request, folder))


def _families(plan: Plan, draws: int) -> list[Attainable]:
    """The comparisons of the models and samples of an audit."""
    sizes = np.unique(plan.labels, return_counts=True)[1].tolist()
    models = len(plan.models)
    return families(models, len(plan.ids), sizes, [models] * 3, draws)


def carry_out(call: Call) -> StudyResult:
    """Run `brinell study`: audit models if asked, compare all models, and write the page.

    Raises:
        RequestError: the request cannot be carried out, or the runs cannot be compared.
        StoppedError: the folder cannot be written.
    """
    request: StudyRequest = call.request
    audit_request = request.audit_request()
    plan = StudyPlan(
        request=request,
        audit=None if audit_request is None else plan_audit(audit_request, dataset=call.dataset(), models=call.models()),
    )
    if plan.audit is not None:
        call.say_samples(plan.audit)
        if not request.run:
            for sentence in sentences(_families(plan.audit, request.draws)):
                call.progress.note(sentence)
    folder = call.folder(plan.data)
    check(plan, folder, resume=call.resume)
    if not (folder / REQUEST).exists():  # keep the stored request of a resumed study, so another request is rejected
        write_text(folder / REQUEST, settings_text(records.LAYOUT, request, call.command, folder))
    if plan.audit is not None:
        carry_out_plan(plan.audit, folder / AUDIT, call.progress, command=call.command, resume=call.resume)
    result, marks = compare_runs(request, folder)
    facts = {
        "command": call.command,
        "request": request.model_dump(mode="json"),
        "runs": list_runs(request, folder),
        "at": result.eps[result.at],
    }
    records.LAYOUT.save(folder, facts)
    page.write(result, marks)
    return result
