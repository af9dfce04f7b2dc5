"""Carries out `brinell study`: which runs it rests on, the audit that it may begin with, and the folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from brinell.analysis.compare import Side
from brinell.core.errors import RequestError, option
from brinell.engine import trust
from brinell.engine.eps_grid import parse_eps
from brinell.engine.plan import Plan
from brinell.runners.loop import settings_text
from brinell.store.files import write_text
from brinell.store.folder import MANIFEST, REQUEST
from brinell.store.run import Run
from brinell.studies.audit.plan import plan_audit
from brinell.studies.audit.run import carry_out_plan
from brinell.studies.kit import Call
from brinell.studies.per_class import page, records
from brinell.studies.per_class.analysis import study
from brinell.studies.per_class.marks import Mark, published
from brinell.studies.per_class.request import StudyRequest
from brinell.studies.per_class.results import StudyResult

AUDIT = "audit"
"""The folder of the audit that a study begins with, within its own."""


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """What a study does, resolved."""

    request: StudyRequest
    audit: Plan | None
    """The audit that it begins with."""

    @property
    def data(self) -> str:
        """What the study is about, for the name of its folder."""
        return self.request.data if self.audit is not None else str(Run.open(self.request.run[0]).manifest["data"]["spec"])


def budget(request: StudyRequest) -> float | None:
    """The budget at which models are compared, where one is named.

    Raises:
        RequestError: several.
    """
    if request.at is None:
        return None
    values = parse_eps(request.at).values
    if len(values) != 1:
        raise RequestError(f"at is {request.at}, and one budget is needed: write it as 8/255")
    return float(values[0])


def check(plan: StudyPlan, folder: Path, *, resume: bool) -> None:
    """Refuse, before anything is audited, what would be refused afterwards.

    Raises:
        RequestError: the folder holds a study, a run cannot be opened, or there are fewer than two models in all.
    """
    records.LAYOUT.begin(folder, resume=resume)
    budget(plan.request)
    names = [model.name for model in plan.audit.models] if plan.audit else []
    names += [str(model["name"]) for path in plan.request.run for model in Run.open(path).manifest["models"]]
    if len(names) < 2:
        raise RequestError(
            f"a study compares models, and there is one, {''.join(names)}: name another by {option('model')}, "
            "or the folder of its run"
        )


def sides_of(runs: Sequence[str | Path]) -> list[Side]:
    """Every model of these runs.

    Raises:
        RequestError: a folder that is no run, or that is named twice.
    """
    found = []
    for path in runs:
        if [Path(one).resolve() for one in runs].count(Path(path).resolve()) > 1:
            raise RequestError(f"{path} is named twice: leave one of them out")
        run = Run.open(path)
        rows = run.records()
        found += [
            Side(run=str(path), manifest=run.manifest, records=rows, model=str(model["name"])) for model in run.manifest["models"]
        ]
    return found


def make(request: StudyRequest, folder: Path) -> tuple[StudyResult, list[Mark]]:
    """Compare the models of the request's runs, and of the audit in the folder, and write the manifest of the study.

    Returns:
        All figures, and the published ones to see them against.

    Raises:
        RequestError: runs that cannot be compared, or nothing published at this budget.
        StoppedError: the folder cannot be written.
    """
    runs = [*request.run, *([str(folder / AUDIT)] if (folder / AUDIT / MANIFEST).exists() else [])]
    result = study(sides_of(runs), str(folder), at=budget(request), draws=request.draws, seed=request.seed)
    eps = result.eps[result.at]
    marks = [] if request.published is None else published(request.published, result.distance, eps)
    about = {"request": request.model_dump(mode="json"), "runs": runs, "at": eps}
    records.LAYOUT.save(folder, about)
    return result, marks


def carry_out(call: Call) -> StudyResult:
    """Audit the models that are to be audited, compare all of them, and write the page.

    Raises:
        RequestError: what cannot be carried out, or runs that cannot be compared.
        StoppedError: the folder cannot be written.
    """
    request: StudyRequest = call.request
    audited = request.audited()
    plan = StudyPlan(
        request=request,
        audit=None if audited is None else plan_audit(audited, dataset=call.dataset(), models=call.models()),
    )
    if plan.audit is not None:
        call.say_samples(plan.audit)
    folder = call.folder(plan.data)
    check(plan, folder, resume=call.resume)
    mark = trust.mark(request.model_dump(mode="json"), StudyRequest)
    if not (folder / REQUEST).exists():  # that of a study that goes on stays, so that another request is refused
        write_text(folder / REQUEST, settings_text(records.LAYOUT, request, call.command, mark))
    if plan.audit is not None:
        carry_out_plan(plan.audit, folder / AUDIT, call.progress, command=call.command, resume=call.resume)
    result, marks = make(request, folder)
    page.write(result, marks)
    return result
